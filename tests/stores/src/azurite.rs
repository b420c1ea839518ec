//! Azurite, which imitates Azure Blob Storage.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Program, Server};
use crate::site::Site;

/// The container's name. It is created by a script, for the request has to be signed.
const CONTAINER: &str = "tenure";

/// The account and key that every Azurite has, from its documentation.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Creates a container: node is there anyway, and has the signature.
const CREATE: &str = r#"const [port, account, key, container] = process.argv.slice(2);
const date = new Date().toUTCString(), version = '2021-08-06';
const text = ['PUT', ...Array(11).fill(''), `x-ms-date:${date}`, `x-ms-version:${version}`,
  `/${account}/${account}/${container}`, 'restype:container'].join('\n');
const signature = require('crypto').createHmac('sha256', Buffer.from(key, 'base64'))
  .update(text, 'utf8').digest('base64');
const request = require('http').request({ host: '127.0.0.1', port, method: 'PUT',
  path: `/${account}/${container}?restype=container`, headers: { 'x-ms-date': date,
    'x-ms-version': version, 'content-length': 0, authorization: `SharedKey ${account}:${signature}` } },
  (answer) => { console.error(answer.statusCode); process.exit(answer.statusCode === 201 ? 0 : 1); });
request.end();
"#;

/// Azurite. It keeps an index in memory and writes it out now and then, so a kill may lose what it has
/// acknowledged.
#[derive(Debug)]
pub struct Azurite {
    address: SocketAddr,
    _ports: Ports,
}

impl Azurite {
    /// Starts a server with the container `tenure`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        let mut ports = Ports::reserve()?;
        let address = ports.take()?;
        let server = Server::start(Self {
            address,
            _ports: ports,
        })
        .await?;
        server.create_container().await?;
        Ok(server)
    }
}

impl Server<Azurite> {
    /// Returns the URL of the account.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.program().address)
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().address
    }

    /// Returns the container, which exists.
    #[must_use]
    pub fn container(&self) -> &'static str {
        CONTAINER
    }

    /// Returns the name and the key of the account.
    #[must_use]
    pub fn account_key(&self) -> (&'static str, &'static str) {
        (ACCOUNT, KEY)
    }

    async fn create_container(&self) -> Result<(), Failure> {
        let script = self.site().write("create.js", CREATE)?;
        let mut command = self.site().command(installed::file("node/bin/node")?);
        command
            .arg(script)
            .arg(self.address().port().to_string())
            .args([ACCOUNT, KEY, CONTAINER]);
        self.site().run("creating a container", command).await
    }
}

#[async_trait]
impl Program for Azurite {
    fn name(&self) -> String {
        "Azurite".to_owned()
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::file("node/bin/node")?);
        command
            .arg(installed::node("azurite-blob")?)
            .args(["--blobHost", "127.0.0.1"])
            .args(["--blobPort", &self.address.port().to_string()])
            .args(["--location", "data"])
            .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        // Refused, as it is not signed, but by Azurite.
        match http::get(self.address, &format!("/{ACCOUNT}?comp=list")).await {
            Err(answer) if !answer.contains("HTTP/1.1 403") => Err(answer),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
