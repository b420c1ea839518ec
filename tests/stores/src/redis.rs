//! Redis.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// Redis, which syncs its append-only file before it answers.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    settings: Vec<(&'static str, String)>,
    is_replica: bool,
    _ports: Ports,
}

impl Redis {
    /// Starts a server that evicts nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        Self::start_with(vec![("maxmemory-policy", "noeviction".to_owned())], false).await
    }

    /// Starts a server that throws keys away, fences too, when its memory is full.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start_evicting() -> Result<Server<Self>, Failure> {
        let settings = vec![
            ("maxmemory", "64mb".to_owned()),
            ("maxmemory-policy", "allkeys-lru".to_owned()),
        ];
        Self::start_with(settings, false).await
    }

    /// Starts an asynchronous replica of another server.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or cannot follow the other.
    pub async fn start_replica_of(primary: SocketAddr) -> Result<Server<Self>, Failure> {
        let settings = vec![("replicaof", format!("{} {}", primary.ip(), primary.port()))];
        Self::start_with(settings, true).await
    }

    async fn start_with(
        settings: Vec<(&'static str, String)>,
        is_replica: bool,
    ) -> Result<Server<Self>, Failure> {
        let mut ports = Ports::reserve()?;
        let address = ports.take()?;
        Server::start(Self {
            address,
            settings,
            is_replica,
            _ports: ports,
        })
        .await
    }
}

impl Server<Redis> {
    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.program().address)
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().address
    }
}

#[async_trait]
impl Program for Redis {
    fn name(&self) -> String {
        "Redis".to_owned()
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::debian("redis-server")?);
        command
            .args(["--bind", &self.address.ip().to_string()])
            .args(["--port", &self.address.port().to_string()])
            .args(["--appendonly", "yes"])
            .args(["--appendfsync", "always"])
            .args(["--save", ""]);
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).args(value.split(' '));
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        ask(self.address, "PING", "+PONG").await?;
        if self.is_replica {
            ask(self.address, "INFO replication", "master_link_status:up").await?;
        }
        Ok(())
    }
}

/// Sends one inline command, and requires that the answer holds `expected`.
async fn ask(address: SocketAddr, command: &str, expected: &str) -> Result<(), String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        // The server closes the connection after QUIT, so everything it says can be read.
        let text = format!("{command}\r\nQUIT\r\n");
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = asked.await.map_err(|error| error.to_string())?;
    if answer.contains(expected) {
        Ok(())
    } else {
        Err(format!("{command} was answered with {answer:?}"))
    }
}
