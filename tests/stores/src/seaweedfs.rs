//! SeaweedFS, which speaks S3.

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

/// The one identity of the server.
const IDENTITIES: &str = r#"{"identities": [{
    "name": "tenure",
    "credentials": [{"accessKey": "tenure", "secretKey": "tenure-secret"}],
    "actions": ["Admin", "Read", "Write", "List", "Tagging"]
}]}
"#;

/// SeaweedFS: master, volume server, filer and S3 gateway in one process.
#[derive(Debug)]
pub struct Seaweedfs {
    /// Flags and ports: every one that the server opens, for by default they are always the same.
    ports: Vec<(&'static str, SocketAddr)>,
    s3: SocketAddr,
    filer: SocketAddr,
    _ports: Ports,
}

impl Seaweedfs {
    /// Starts a server with the bucket `tenure`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn start() -> Result<Server<Self>, Failure> {
        let mut reserved = Ports::reserve()?;
        let (s3, filer) = (reserved.take()?, reserved.take()?);
        let mut ports = vec![("s3.port", s3), ("filer.port", filer)];
        for flag in [
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port.grpc",
            "s3.port.grpc",
        ] {
            ports.push((flag, reserved.take()?));
        }
        Server::start(Self {
            ports,
            s3,
            filer,
            _ports: reserved,
        })
        .await
    }
}

impl Server<Seaweedfs> {
    /// Returns the URL of the S3 endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.program().s3)
    }

    /// Returns where the S3 endpoint listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.program().s3
    }

    /// Returns the bucket, which exists.
    #[must_use]
    pub fn bucket(&self) -> &'static str {
        "tenure"
    }

    /// Returns the id and the secret of the access key.
    #[must_use]
    pub fn access_key(&self) -> (&'static str, &'static str) {
        ("tenure", "tenure-secret")
    }
}

#[async_trait]
impl Program for Seaweedfs {
    fn name(&self) -> String {
        "SeaweedFS".to_owned()
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        site.write("identities.json", IDENTITIES)?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let mut command = site.command(installed::python("weed")?);
        command
            .args(["-logtostderr", "server"])
            .arg("-dir=.")
            .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1"])
            .args(["-filer", "-s3", "-s3.config=identities.json"])
            // What it would offer besides, on ports of its own.
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"])
            .arg("-master.telemetry=false")
            // A master that starts again waits so long for others: by default, up to 20 seconds.
            .args(["-master.electionTimeout=500ms", "-master.heartbeatInterval=100ms"])
            // Grown in small steps: a volume is laid out for each collection, and a bucket is one.
            .args(["-master.volumeSizeLimitMB=64", "-volume.max=100"]);
        for (flag, address) in &self.ports {
            command.arg(format!("-{flag}={}", address.port()));
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        // A folder there is a bucket. A file in it needs all four parts; S3 has no file without them.
        let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"ready\"\r\n\r\nready\r\n--b--\r\n";
        let header = ("Content-Type", "multipart/form-data; boundary=b");
        http::request("POST", self.filer, "/buckets/tenure/ready", &[header], form).await?;
        http::get(self.s3, "/healthz").await?;
        Ok(())
    }

    fn clean_up(&self, _site: &Site) {
        // It listens on sockets in the folder for temporary files too, and no flag says otherwise.
        let ours: Vec<String> = self
            .ports
            .iter()
            .map(|(_, address)| format!("-{}.sock", address.port()))
            .collect();
        for file in fs::read_dir("/tmp").into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_ours =
                name.starts_with("seaweedfs-") && ours.iter().any(|end| name.ends_with(end));
            if is_ours && let Err(error) = fs::remove_file(file.path()) {
                eprintln!("removing {name}: {error}");
            }
        }
    }
}
