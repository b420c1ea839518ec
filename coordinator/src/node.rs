//! A whole node: builds it, and owns the order in which its parts start and stop.
//!
//! ```text
//!   start:  files of TLS ▶ listeners ▶ storage ▶ consensus ▶ control ▶ requests
//!   stop:   leadership handed over ▶ requests ▶ control ▶ consensus ▶ storage
//! ```
//!
//! Listeners come first, so that a node whose port is taken changes nothing on disk.

mod error;
mod files;
mod folder;
mod ports;
mod readiness;
#[cfg(feature = "rocksdb")]
mod restore;
#[cfg(feature = "rocksdb")]
mod run;
mod server;
mod stop;
mod tls;

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic_health::server::health_reporter;

pub use self::error::NodeError;
use self::error::concise;
#[cfg(feature = "rocksdb")]
use self::folder::open_storage;
use self::folder::{check_address, consensus_options};
use self::ports::{Bound, Ports};
#[cfg(feature = "rocksdb")]
pub use self::restore::restore;
#[cfg(feature = "rocksdb")]
pub use self::run::{DevArgs, ServeArgs, dev, serve};
use self::server::ClientServices;
use self::stop::{hand_over, join_all, released};
use self::tls::Tls;
pub use self::tls::TlsError;
use crate::clock::{Clock, ClockComparison, SystemClock};
use crate::config::Config;
use crate::consensus::{Consensus, Health, NodeAddresses};
use crate::control::Control;
use crate::http::{self, HttpContext};
use crate::incoming::Incoming;
use crate::metrics;
use crate::network::{Network, TcpNetwork};
use crate::readiness::Readiness;
use crate::rpc::{self, About, RequestLimits, RpcContext};
use crate::storage::Storage;
use crate::wall_clock::{SystemWallClock, WallClock};
use crate::watch::Hub;

/// What a node needs of the machine it runs on, apart from a storage.
#[derive(Clone)]
pub struct Machine {
    /// Where it listens, and how it reaches its peers.
    pub network: Arc<dyn Network>,
    /// Where time comes from for everything that grants or expires.
    pub clock: Arc<dyn Clock>,
    /// The time of day, for people only.
    pub wall_clock: Arc<dyn WallClock>,
}

impl Machine {
    /// Returns the machine that this process runs on.
    #[must_use]
    pub fn this() -> Self {
        Self {
            network: Arc::new(TcpNetwork),
            clock: Arc::new(SystemClock),
            wall_clock: Arc::new(SystemWallClock),
        }
    }
}

/// A running node.
///
/// To be stopped with [`Node::shutdown`]: a node that is dropped leaves its tasks to the runtime.
pub struct Node {
    consensus: Consensus,
    storage: Arc<dyn Storage>,
    hub: Arc<Hub>,
    control: Arc<Control>,
    addresses: NodeAddresses,
    readiness: watch::Receiver<Readiness>,
    /// Ends requests and everything that serves them.
    requests: CancellationToken,
    /// Ends the listener for peers and the tasks that follow consensus.
    background: CancellationToken,
    request_tasks: JoinSet<Result<(), NodeError>>,
    background_tasks: JoinSet<Result<(), NodeError>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Starts a node on its data folder.
    ///
    /// # Errors
    ///
    /// [`NodeError`]; nothing runs then, and unless the problem was found in the data folder, nothing
    /// was changed.
    #[cfg(feature = "rocksdb")]
    pub async fn start(config: &Config) -> Result<Self, NodeError> {
        Self::start_on(config, open_storage(config)).await
    }

    /// Starts a node on a storage, which is opened once all ports are bound.
    ///
    /// # Errors
    ///
    /// As [`Node::start`].
    pub async fn start_on(
        config: &Config,
        storage: impl Future<Output = Result<Arc<dyn Storage>, NodeError>>,
    ) -> Result<Self, NodeError> {
        Self::start_with(config, Machine::this(), storage).await
    }

    /// Starts a node on a storage and on whatever it takes for the machine: a simulated one, for
    /// example.
    ///
    /// # Errors
    ///
    /// As [`Node::start`].
    pub async fn start_with(
        config: &Config,
        machine: Machine,
        storage: impl Future<Output = Result<Arc<dyn Storage>, NodeError>>,
    ) -> Result<Self, NodeError> {
        config.validate()?;
        let ports = Ports::bind(config, machine.network.as_ref()).await?;
        let addresses = ports.addresses();
        let mut options = consensus_options(config, &addresses)?;
        options.wall_clock = Arc::clone(&machine.wall_clock);
        // Without pages there is nobody to read what would pile up.
        let recorder = match ports.http {
            Some(_) => Some(metrics::install().map_err(ended)?),
            None => None,
        };
        let connections = files::connection_limits();

        let storage = storage.await?;
        let hub = Arc::new(Hub::new(config.limits.watch_history_events));
        let tls = ports.peer.tls.as_ref().map(Tls::grpc_client);
        let connector = machine.network.connector(tls);
        let (consensus, peers) =
            Consensus::start(options, storage.clone(), connector, hub.clone()).await?;
        hub.loaded(consensus.read(|state| state.revision()));
        if let Err(other) = check_address(config, &consensus, &addresses).await {
            consensus.shutdown().await;
            return Err(other);
        }
        let about = About {
            addresses: addresses.clone(),
            data_dir: config.data_dir.clone(),
            raft: config.raft.clone(),
            comparison: ClockComparison::begin(machine.clock.as_ref(), machine.wall_clock.as_ref()),
            clock: Arc::clone(&machine.clock),
            wall_clock: machine.wall_clock,
        };
        let control = Control::start(consensus.clone(), hub.clone(), machine.clock);
        let (ready, readiness) = watch::channel(Readiness::NoCluster);
        let mut node = Self {
            consensus,
            storage,
            hub: Arc::clone(&hub),
            control,
            addresses,
            readiness,
            requests: CancellationToken::new(),
            background: CancellationToken::new(),
            request_tasks: JoinSet::new(),
            background_tasks: JoinSet::new(),
        };
        let following = readiness::follow(
            node.consensus.clone(),
            hub.clone(),
            ready,
            node.background.clone(),
        );
        node.in_background(following);
        if let Some(recorder) = recorder.clone() {
            node.in_background(upkeep(recorder, node.background.clone()));
        }
        let stop = node.background.clone();
        node.background_tasks.spawn(server::peer(
            ports.peer.listening(connections.peer, stop),
            peers,
        ));
        let limits = RequestLimits::from(&config.limits);
        let context = RpcContext::new(
            node.consensus.clone(),
            hub,
            limits,
            about,
            node.requests.clone(),
        );
        node.serve_clients(ports.client, connections.client, context);
        if let Some((port, recorder)) = ports.http.zip(recorder) {
            node.serve_pages(port, connections.http, recorder);
        }
        Ok(node)
    }

    fn in_background(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.background_tasks.spawn(async {
            task.await;
            Ok(())
        });
    }

    fn serve_clients(&mut self, port: Bound, connections_max: usize, context: RpcContext) {
        let stop = self.requests.clone();
        let (reporter, health) = health_reporter();
        let services = ClientServices {
            context,
            control: Arc::clone(&self.control),
            health,
        };
        self.in_background(rpc::report_health(reporter, self.readiness.clone()));
        self.request_tasks.spawn(server::client(
            port.listening(connections_max, stop),
            services,
        ));
    }

    fn serve_pages(&mut self, port: Bound, connections_max: usize, metrics: PrometheusHandle) {
        let pages = HttpContext {
            health: self.consensus.health(),
            readiness: self.readiness.clone(),
            metrics,
        };
        let (tls, stop) = (port.http_tls(), self.requests.clone());
        self.request_tasks.spawn(async move {
            let incoming = Incoming::new(port.listener, connections_max);
            http::serve(pages, incoming, tls, stop)
                .await
                .map_err(|source| NodeError::Listen {
                    port: "http",
                    address: port.address,
                    source,
                })
        });
    }

    /// Returns where the node is reached, with the ports that were really bound.
    pub fn addresses(&self) -> &NodeAddresses {
        &self.addresses
    }

    /// Returns the node's part in the cluster.
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// Returns where the events of what was applied on this node are published.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Follows whether the node should be sent requests.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// Returns when the node cannot go on, with the reason: it is then to be shut down.
    pub async fn failed(&mut self) -> NodeError {
        let mut health = self.consensus.health();
        let failed = health.wait_for(|health| *health != Health::Well);
        let end_of = |joined: Option<Result<Result<(), NodeError>, JoinError>>| match joined {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => ended(error),
            Some(Ok(Ok(()))) | None => ended("a task of the node has ended"),
        };
        tokio::select! {
            failed = failed => match failed.as_deref() {
                Ok(Health::Failed { reason }) => NodeError::Failed { reason: concise(reason) },
                _ => ended("consensus has ended"),
            },
            joined = self.request_tasks.join_next() => end_of(joined),
            joined = self.background_tasks.join_next() => end_of(joined),
        }
    }

    /// Stops in reverse order of start: hands leadership over, then no new requests, then no new
    /// plans, then Raft, then the storage.
    pub async fn shutdown(mut self) {
        hand_over(&self.consensus).await;
        self.requests.cancel();
        // Ends the worker streams, which are requests that never end by themselves.
        self.control.shutdown().await;
        join_all(&mut self.request_tasks).await;
        self.background.cancel();
        // The streams of peers end with Raft, and only then does their listener.
        self.consensus.shutdown().await;
        join_all(&mut self.background_tasks).await;
        released(self.storage).await;
    }
}

fn ended(error: impl ToString) -> NodeError {
    NodeError::Ended {
        reason: error.to_string(),
    }
}

/// Moves what the histograms gathered into their buckets, so that it does not pile up between scrapes.
async fn upkeep(recorder: PrometheusHandle, stop: CancellationToken) {
    let mut interval = tokio::time::interval(metrics::UPKEEP_INTERVAL);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        recorder.run_upkeep();
    }
}
