//! gcp-storage-emulator, which imitates Google Cloud Storage and ignores preconditions.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// gcp-storage-emulator: a server that cannot fence, and must be refused.
#[derive(Debug)]
pub struct GcpStorageEmulator {
    address: SocketAddr,
    _ports: Ports,
}

impl GcpStorageEmulator {
    /// Starts a server with the bucket `tenure`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        let mut ports = Ports::reserve()?;
        let address = ports.take()?;
        Server::start(Self {
            address,
            _ports: ports,
        })
        .await
    }
}

impl Server<GcpStorageEmulator> {
    /// Returns the URL of the server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.program().address)
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().address
    }

    /// Returns the bucket, which exists.
    #[must_use]
    pub fn bucket(&self) -> &'static str {
        "tenure"
    }
}

#[async_trait]
impl Program for GcpStorageEmulator {
    fn name(&self) -> String {
        "gcp-storage-emulator".to_owned()
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::python("gcp-storage-emulator")?);
        command
            .args(["start", "--host", "127.0.0.1"])
            .args(["--port", &self.address.port().to_string()])
            .args(["--default-bucket", "tenure", "--in-memory"]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        http::get(self.address, "/storage/v1/b/tenure").await?;
        Ok(())
    }
}
