//! The commands that run a node until it is told to stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure_ownership::ids::ClusterId;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Node, NodeError, files};
use crate::config::{Config, ConfigError, LocalPorts};
use crate::readiness::Readiness;
use crate::telemetry;

/// Default ports of a node for trying things out.
const CLIENT_PORT: u16 = 7400;
const PEER_PORT: u16 = 7401;
const HTTP_PORT: u16 = 7402;

/// How long a node alone may take until it serves. It takes about a second; a slow disk takes longer.
const READY_MAX: Duration = Duration::from_secs(30);

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Runs a coordinator.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Configuration file, see docs/config.md.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs a coordinator of one node on this machine, for trying things out.
#[derive(Debug, clap::Args)]
pub struct DevArgs {
    /// Keep the data in this folder; without it they are in a temporary folder and go with the process.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where workers and operators connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = local(CLIENT_PORT))]
    pub client_address: SocketAddr,
    /// Where peers would connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = local(PEER_PORT))]
    pub peer_address: SocketAddr,
    /// Where /healthz, /readyz and /metrics are served; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = local(HTTP_PORT))]
    pub http_address: SocketAddr,
    /// Which log lines are written to stderr: a level, or levels per module.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Waits for SIGINT or SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self, NodeError> {
        let failed = |source| NodeError::Process {
            operation: "listen for signals",
            source,
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn log_to_stderr(config: &Config) -> Result<(), NodeError> {
    let filter =
        telemetry::parse_filter(&config.log.level).map_err(|error| ConfigError::Value {
            key: "log.level",
            problem: error.to_string(),
        })?;
    telemetry::install(filter, config.log.format);
    Ok(())
}

/// Runs a node until it gets a signal or fails.
///
/// # Errors
///
/// [`NodeError`] if it does not start, or failed.
pub async fn serve(args: ServeArgs) -> Result<(), NodeError> {
    let config = Config::load(&args.config)?;
    log_to_stderr(&config)?;
    files::raise_limit();
    // Before anything else, so that a signal during the start is not lost.
    let signals = Signals::listen()?;
    let node = Node::start(&config).await?;
    let addresses = node.addresses();
    tracing::info!(
        client = addresses.client,
        peer = addresses.raft,
        http = addresses.http,
        "listening"
    );
    run(node, signals).await
}

/// Runs a cluster of one node until it gets a signal or fails.
///
/// # Errors
///
/// [`NodeError`] if it does not start, or failed.
pub async fn dev(args: DevArgs) -> Result<(), NodeError> {
    let temporary = match &args.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|source| NodeError::Process {
            operation: "create a temporary folder",
            source,
        })?),
    };
    let kept = args.data.clone();
    let folder = kept.or_else(|| temporary.as_ref().map(|folder| folder.path().join("data")));
    let mut config = Config::local(
        folder.unwrap_or_default(),
        LocalPorts {
            client: args.client_address,
            peer: args.peer_address,
            http: args.http_address,
        },
    );
    config.log.level = args.log_level;
    log_to_stderr(&config)?;
    files::raise_limit();
    let mut signals = Signals::listen()?;
    let node = Node::start(&config).await?;
    let started = tokio::select! {
        started = start_cluster(&node) => started,
        () = signals.stop() => {
            node.shutdown().await;
            return Ok(());
        }
    };
    if let Err(error) = started {
        node.shutdown().await;
        return Err(error);
    }
    let addresses = node.addresses();
    eprintln!(
        "tenure: ready, clients at {}, pages at http://{}, data in {}{}",
        addresses.client,
        addresses.http,
        config.data_dir.display(),
        if temporary.is_some() {
            " (temporary)"
        } else {
            ""
        },
    );
    let result = run(node, signals).await;
    drop(temporary);
    result
}

/// Makes a cluster of this node alone, unless it is part of one, and waits until it serves.
async fn start_cluster(node: &Node) -> Result<(), NodeError> {
    if node.consensus().identity().is_none() {
        node.consensus()
            .initialize(ClusterId(rand::random()), Vec::new(), READY_MAX)
            .await
            .map_err(NodeError::Initialize)?;
    }
    let mut readiness = node.readiness();
    let ready = readiness.wait_for(|readiness| *readiness == Readiness::Ready);
    match tokio::time::timeout(READY_MAX, ready).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(NodeError::NotReady(node.readiness().borrow().describe())),
    }
}

async fn run(mut node: Node, mut signals: Signals) -> Result<(), NodeError> {
    let result = tokio::select! {
        () = signals.stop() => Ok(()),
        error = node.failed() => Err(error),
    };
    if result.is_ok() {
        tracing::info!("stopping");
    }
    node.shutdown().await;
    result
}
