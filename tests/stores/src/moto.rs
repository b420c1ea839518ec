//! moto, which imitates services of AWS in memory.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// Its own server program always uses threads.
const SCRIPT: &str = r#"import sys, time
from moto.dynamodb.models.table import Table
from moto.s3.models import S3Backend
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

port, threaded = int(sys.argv[1]), sys.argv[2] == "threaded"

def held_open(write):
    def late(*arguments, **named):
        time.sleep(0.05)
        return write(*arguments, **named)
    return late

if threaded:
    # What writes after others have checked. Threads seldom meet between the two by themselves, so the
    # gap is held open: that it is there is moto's own.
    S3Backend.put_object = held_open(S3Backend.put_object)
    Table.put_item = held_open(Table.put_item)
run_simple("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=threaded)
"#;

/// moto. What it stores does not survive its process.
#[derive(Debug)]
pub struct Moto {
    address: SocketAddr,
    threads: &'static str,
    _ports: Ports,
}

impl Moto {
    /// Starts a server that answers one request after the other, so that each is atomic, with the
    /// bucket `tenure`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        Self::start_with("single").await
    }

    /// Starts a server that answers requests at the same time, and checks and writes in two steps, with
    /// the bucket `tenure`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start_threaded() -> Result<Server<Self>, Failure> {
        Self::start_with("threaded").await
    }

    async fn start_with(threads: &'static str) -> Result<Server<Self>, Failure> {
        let mut ports = Ports::reserve()?;
        let address = ports.take()?;
        Server::start(Self {
            address,
            threads,
            _ports: ports,
        })
        .await
    }
}

impl Server<Moto> {
    /// Returns the URL of every service: S3, DynamoDB and the like.
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
impl Program for Moto {
    fn name(&self) -> String {
        format!("moto ({})", self.threads)
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        site.write("serve.py", SCRIPT)?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::python("python")?);
        command
            .arg("serve.py")
            .arg(self.address.port().to_string())
            .arg(self.threads);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        // Creating it again is answered as the first time.
        http::request("PUT", self.address, "/tenure", &[], "").await?;
        Ok(())
    }
}
