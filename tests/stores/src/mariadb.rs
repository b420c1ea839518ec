//! MariaDB.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use sqlx::{Connection, MySqlConnection};
use tokio::process::Command;

use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// The account and the database of the tests. Run at every start, before anyone can connect.
const USER: &str = "CREATE DATABASE IF NOT EXISTS tenure;
CREATE USER IF NOT EXISTS 'tenure'@'%' IDENTIFIED BY 'tenure';
GRANT ALL PRIVILEGES ON *.* TO 'tenure'@'%' WITH GRANT OPTION;
";

/// MariaDB, synced, with one user who may do everything.
#[derive(Debug)]
pub struct Mariadb {
    address: SocketAddr,
    has_binary_log: bool,
    _ports: Ports,
}

impl Mariadb {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        Self::start_with(false).await
    }

    /// Starts a server that keeps a binary log, as one with replicas does, with MariaDB's own settings.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start_with_binary_log() -> Result<Server<Self>, Failure> {
        Self::start_with(true).await
    }

    async fn start_with(has_binary_log: bool) -> Result<Server<Self>, Failure> {
        let mut ports = Ports::reserve()?;
        let address = ports.take()?;
        Server::start(Self {
            address,
            has_binary_log,
            _ports: ports,
        })
        .await
    }

    fn url(&self) -> String {
        format!("mysql://tenure:tenure@{}/tenure", self.address)
    }
}

impl Server<Mariadb> {
    /// Returns the URL of the database `tenure`, as user `tenure`.
    #[must_use]
    pub fn url(&self) -> String {
        self.program().url()
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().address
    }
}

#[async_trait]
impl Program for Mariadb {
    fn name(&self) -> String {
        "MariaDB".to_owned()
    }

    fn account(&self) -> Option<&'static str> {
        Some("nobody")
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        site.write("user.sql", USER)?;
        let mut command = site.command(installed::debian("mariadb-install-db")?);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}/data", site.folder().display()))
            // In a folder that servers share, one takes away the temporary tables of another whose
            // process has the same number in a container of its own.
            .arg(format!("--tmpdir={}", site.folder().display()))
            .arg("--auth-root-authentication-method=normal")
            .arg("--skip-test-db");
        site.run("mariadb-install-db", command).await
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let folder = site.folder().display();
        let mut command = site.command(installed::debian("mariadbd")?);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={folder}/data"))
            .arg(format!("--socket={folder}/socket"))
            .arg(format!("--pid-file={folder}/pid"))
            .arg(format!("--tmpdir={folder}"))
            .arg(format!("--init-file={folder}/user.sql"))
            .arg(format!("--bind-address={}", self.address.ip()))
            .arg(format!("--port={}", self.address.port()))
            .arg("--skip-name-resolve")
            .arg("--max-connections=400")
            .arg("--max-allowed-packet=64M")
            .arg("--innodb-flush-log-at-trx-commit=1")
            .arg("--innodb-buffer-pool-size=64M");
        if self.has_binary_log {
            command.arg("--log-bin=binary");
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let asked = async {
            let mut connection = MySqlConnection::connect(&self.url()).await?;
            sqlx::query("SELECT 1").execute(&mut connection).await?;
            connection.close().await
        };
        asked.await.map_err(|error| error.to_string())
    }
}
