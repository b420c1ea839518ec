//! dynalite, which imitates DynamoDB.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// dynalite, with its tables in files.
#[derive(Debug)]
pub struct Dynalite {
    address: SocketAddr,
    _ports: Ports,
}

impl Dynalite {
    /// Starts a server without tables.
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

impl Server<Dynalite> {
    /// Returns the URL of the server. It takes any credentials.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.program().address)
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().address
    }
}

#[async_trait]
impl Program for Dynalite {
    fn name(&self) -> String {
        "dynalite".to_owned()
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::file("node/bin/node")?);
        command
            .arg(installed::node("dynalite")?)
            .args(["--host", "127.0.0.1"])
            .args(["--port", &self.address.port().to_string()])
            .args(["--path", "tables"])
            // A table is not there at once, as in the original.
            .args(["--createTableMs", "100"]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        // Answered by a health check that needs no signature.
        http::get(self.address, "/").await?;
        Ok(())
    }
}
