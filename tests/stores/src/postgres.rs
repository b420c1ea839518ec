//! PostgreSQL.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use sqlx::{Connection, PgConnection};
use tokio::process::Command;

use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// PostgreSQL, synced, with one superuser.
///
/// It sorts text as people do and not by bytes: an adapter that leaves the order of names to the
/// database is found out.
#[derive(Debug)]
pub struct Postgres {
    address: SocketAddr,
    _ports: Ports,
}

impl Postgres {
    /// Starts a server.
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

impl Server<Postgres> {
    /// Returns the URL of the database `postgres`, as superuser `tenure`.
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

impl Postgres {
    fn url(&self) -> String {
        format!("postgres://tenure:tenure@{}/postgres", self.address)
    }
}

#[async_trait]
impl Program for Postgres {
    fn name(&self) -> String {
        "PostgreSQL".to_owned()
    }

    fn account(&self) -> Option<&'static str> {
        Some("nobody")
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        let password = site.write("password", "tenure\n")?;
        let mut command = site.command(installed::postgresql("initdb")?);
        command
            .arg("--pgdata=data")
            .arg("--username=tenure")
            .arg("--auth=scram-sha-256")
            .arg("--encoding=UTF8")
            .arg("--locale=C.UTF-8")
            .args(["--locale-provider=icu", "--icu-locale=en-US"])
            // What is laid out here need not survive the machine.
            .arg("--no-sync")
            .arg("--pwfile")
            .arg(password);
        site.run("initdb", command).await
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::postgresql("postgres")?);
        command.args(["-D", "data"]);
        for setting in [
            format!("listen_addresses={}", self.address.ip()),
            format!("port={}", self.address.port()),
            // In the folder, where no other server looks.
            format!("unix_socket_directories={}", site.folder().display()),
            "fsync=on".to_owned(),
            "synchronous_commit=on".to_owned(),
            "max_connections=400".to_owned(),
            // In the folder too, or a killed server leaves it in memory.
            "dynamic_shared_memory_type=mmap".to_owned(),
            "max_prepared_transactions=50".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let asked = async {
            let mut connection = PgConnection::connect(&self.url()).await?;
            sqlx::query("SELECT 1").execute(&mut connection).await?;
            connection.close().await
        };
        asked.await.map_err(|error| error.to_string())
    }

    fn clean_up(&self, site: &Site) {
        // A killed server leaves the segment of shared memory by which it would find out that another
        // one uses its folder. The number is in the file that it leaves there.
        let Ok(file) = fs::read_to_string(site.folder().join("data/postmaster.pid")) else {
            return;
        };
        let segment = file.lines().nth(6).map(str::split_whitespace);
        if let Some(number) = segment.and_then(|mut key_and_number| key_and_number.nth(1)) {
            let mut remove = Command::new("ipcrm").into_std();
            remove.args(["--shmem-id", number]).stderr(Stdio::null());
            if let Err(error) = remove.status() {
                eprintln!("removing the shared memory of PostgreSQL: {error}");
            }
        }
    }
}
