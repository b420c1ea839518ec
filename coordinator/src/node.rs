//! A whole node: builds it, and owns the order in which its parts start and stop.
//!
//! ```text
//!   start:  files of TLS ▶ listeners ▶ storage ▶ consensus ▶ control ▶ requests
//!   stop:   leadership handed over ▶ requests ▶ control ▶ consensus ▶ storage
//! ```
//!
//! Listeners come first, so that a node whose port is taken changes nothing on disk.

mod error;
mod readiness;
mod run;
mod server;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic_health::server::health_reporter;

pub use self::error::NodeError;
use self::error::concise;
pub use self::readiness::Readiness;
pub use self::run::{DevArgs, ServeArgs, dev, serve};
use self::server::{ClientServices, Listening};
use self::tls::Tls;
pub use self::tls::TlsError;
use crate::clock::SystemClock;
use crate::config::{Config, Port};
use crate::consensus::{
    Consensus, ConsensusOptions, Health, Identity, Member, NodeAddresses, NodeId, RaftTimings,
    Role, TcpConnector,
};
use crate::control::Control;
use crate::http::{self, HttpContext};
use crate::metrics;
use crate::rpc::{self, RequestLimits, RpcContext};
use crate::storage::{RocksOptions, RocksStorage, Storage};
use crate::watch::Hub;

/// How long a connection to a peer may take: shorter than an election.
const PEER_CONNECT_MAX: Duration = Duration::from_millis(500);

/// How long a stopping leader waits for another one to take over: a few elections.
const HANDOVER_MAX: Duration = Duration::from_secs(2);

/// How long a stopping node waits for requests that were begun. Its streams end at once.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// A running node.
///
/// To be stopped with [`Node::shutdown`]: a node that is dropped leaves its tasks to the runtime.
pub struct Node {
    consensus: Consensus,
    storage: Arc<dyn Storage>,
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

/// A listener that is bound but not served yet.
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    advertised: String,
    tls: Option<Tls>,
}

async fn bind(name: &'static str, port: &Port) -> Result<Bound, NodeError> {
    let tls = match &port.tls {
        Some(files) => {
            Some(Tls::load(files).map_err(|source| NodeError::Tls { port: name, source })?)
        }
        None => None,
    };
    let refused = |source| NodeError::Listen {
        port: name,
        address: port.listen,
        source,
    };
    let listener = TcpListener::bind(port.listen).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let advertised = port
        .advertise
        .clone()
        .unwrap_or_else(|| address.to_string());
    Ok(Bound {
        listener,
        address,
        advertised,
        tls,
    })
}

async fn open_storage(config: &Config) -> Result<Arc<dyn Storage>, NodeError> {
    let folder = config.data_dir.clone();
    let options = RocksOptions {
        write_buffer_bytes: config.storage.write_buffer_bytes,
        background_jobs: config.storage.background_jobs,
    };
    let opening = tokio::task::spawn_blocking(move || RocksStorage::open(folder, options));
    let storage = opening.await.map_err(|error| NodeError::Ended {
        reason: error.to_string(),
    })??;
    Ok(Arc::new(storage))
}

fn consensus_options(
    config: &Config,
    addresses: &NodeAddresses,
) -> Result<ConsensusOptions, NodeError> {
    let mut options = ConsensusOptions::new(addresses.clone());
    options.timings = RaftTimings {
        heartbeat_interval: config.raft.heartbeat_interval,
        election_timeout_min: config.raft.election_timeout_min,
        election_timeout_max: config.raft.election_timeout_max,
    };
    options.limits.snapshot_entries = config.raft.snapshot_entries;
    options.limits.kept_entries = config.raft.kept_entries;
    if let Some(expected) = &config.identity {
        let node = NodeId(expected.node_id);
        options.identity = Some(Identity {
            cluster: expected.cluster()?,
            node,
        });
    }
    options.validate()?;
    Ok(options)
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    ///
    /// [`NodeError`]; nothing runs then, and unless the problem was found in the data folder, nothing
    /// was changed.
    pub async fn start(config: &Config) -> Result<Self, NodeError> {
        config.validate()?;
        let client = bind("client", &config.client).await?;
        let peer = bind("peer", &config.peer).await?;
        let http = match &config.http {
            Some(port) => Some(bind("http", port).await?),
            None => None,
        };
        let addresses = NodeAddresses {
            raft: peer.advertised.clone(),
            client: client.advertised.clone(),
            http: http
                .as_ref()
                .map(|http| http.advertised.clone())
                .unwrap_or_default(),
        };
        let options = consensus_options(config, &addresses)?;
        let recorder = metrics::install().map_err(|error| NodeError::Ended {
            reason: error.to_string(),
        })?;

        let storage = open_storage(config).await?;
        let hub = Arc::new(Hub::new(config.limits.watch_history_events));
        let connector =
            TcpConnector::new(peer.tls.as_ref().map(Tls::grpc_client), PEER_CONNECT_MAX);
        let (consensus, peer_service) =
            Consensus::start(options, storage.clone(), Arc::new(connector), hub.clone()).await?;
        hub.loaded(consensus.read(|state| state.revision()));
        if let Err(other) = check_address(config, &consensus, &addresses).await {
            consensus.shutdown().await;
            return Err(other);
        }

        let (requests, background) = (CancellationToken::new(), CancellationToken::new());
        let (ready, readiness) = watch::channel(Readiness::NoCluster);
        let mut background_tasks = JoinSet::new();
        background_tasks.spawn(server::peer(
            peer.listening(background.clone()),
            peer_service,
        ));
        let following =
            readiness::follow(consensus.clone(), hub.clone(), ready, background.clone());
        background_tasks.spawn(async {
            following.await;
            Ok(())
        });
        let control = Control::start(consensus.clone(), hub.clone(), Arc::new(SystemClock));
        let context = RpcContext::new(
            consensus.clone(),
            hub,
            RequestLimits::from(&config.limits),
            &addresses.raft,
            requests.clone(),
        );

        let mut request_tasks = JoinSet::new();
        let (reporter, health) = health_reporter();
        let reporting = rpc::report_health(reporter, readiness.clone());
        background_tasks.spawn(async {
            reporting.await;
            Ok(())
        });
        let services = ClientServices {
            context,
            control: Arc::clone(&control),
            health,
        };
        request_tasks.spawn(server::client(client.listening(requests.clone()), services));
        if let Some(http) = http {
            let pages = HttpContext {
                health: consensus.health(),
                readiness: readiness.clone(),
                metrics: recorder.clone(),
            };
            request_tasks.spawn(serve_http(pages, http, requests.clone()));
        }
        let upkeep = upkeep(recorder, background.clone());
        background_tasks.spawn(async {
            upkeep.await;
            Ok(())
        });
        Ok(Self {
            consensus,
            storage,
            control,
            addresses,
            readiness,
            requests,
            background,
            request_tasks,
            background_tasks,
        })
    }

    /// Returns where the node is reached, with the ports that were really bound.
    pub fn addresses(&self) -> &NodeAddresses {
        &self.addresses
    }

    /// Returns the node's part in the cluster.
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// Follows whether the node should be sent requests.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// Returns when the node cannot go on, with the reason: it is then to be shut down.
    pub async fn failed(&mut self) -> NodeError {
        let mut health = self.consensus.health();
        let failed = health.wait_for(|health| *health != Health::Well);
        let ended = |joined: Option<Result<Result<(), NodeError>, _>>| match joined {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => NodeError::Ended {
                reason: tokio::task::JoinError::to_string(&error),
            },
            Some(Ok(Ok(()))) | None => NodeError::Ended {
                reason: "a task of the node has ended".to_owned(),
            },
        };
        tokio::select! {
            failed = failed => match failed.as_deref() {
                Ok(Health::Failed { reason }) => NodeError::Failed { reason: concise(reason) },
                _ => NodeError::Ended { reason: "consensus has ended".to_owned() },
            },
            joined = self.request_tasks.join_next() => ended(joined),
            joined = self.background_tasks.join_next() => ended(joined),
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

impl Bound {
    fn listening(self, stop: CancellationToken) -> Listening {
        Listening {
            listener: self.listener,
            tls: self.tls.map(|tls| tls.grpc_server()),
            stop,
        }
    }
}

/// Refuses a data folder of a node that its cluster reaches elsewhere: were it to run here, its peers
/// would talk to one node and hear another.
async fn check_address(
    config: &Config,
    consensus: &Consensus,
    addresses: &NodeAddresses,
) -> Result<(), NodeError> {
    let Some(identity) = consensus.identity() else {
        return Ok(());
    };
    let Some(known) = own_membership(consensus, identity.node).await else {
        return Ok(());
    };
    // Nobody else is there to be confused.
    let is_alone = consensus.status().nodes.len() == 1;
    if is_alone || known.addresses.raft == addresses.raft {
        return Ok(());
    }
    Err(NodeError::OtherNode {
        data_dir: config.data_dir.clone(),
        identity,
        known: known.addresses.raft,
        configured: addresses.raft.clone(),
    })
}

/// How long Raft may take to say what it read from the disk.
const MEMBERSHIP_MAX: Duration = Duration::from_secs(1);

/// Returns what the cluster knows of this node; `None` if it is in no cluster.
async fn own_membership(consensus: &Consensus, node: NodeId) -> Option<Member> {
    // Nothing was ever applied, so there is no membership either.
    if consensus.applied().0 == 0 {
        return None;
    }
    let reading = async {
        while consensus.status().nodes.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(MEMBERSHIP_MAX, reading).await.ok()?;
    consensus.member(node)
}

async fn serve_http(
    context: HttpContext,
    port: Bound,
    stop: CancellationToken,
) -> Result<(), NodeError> {
    let tls = port.tls.as_ref().map(Tls::http_server);
    http::serve(context, port.listener, tls, stop)
        .await
        .map_err(|source| NodeError::Listen {
            port: "http",
            address: port.address,
            source,
        })
}

/// Moves what the histograms gathered into their buckets, so that it does not pile up between scrapes.
async fn upkeep(recorder: metrics_exporter_prometheus::PrometheusHandle, stop: CancellationToken) {
    let mut interval = tokio::time::interval(metrics::UPKEEP_INTERVAL);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        recorder.run_upkeep();
    }
}

/// Makes another voter lead, the one that has most of the log, if this node does.
async fn hand_over(consensus: &Consensus) {
    if !consensus.leadership().borrow().is_leader {
        return;
    }
    let status = consensus.status();
    let best = status
        .nodes
        .iter()
        .filter(|node| node.role == Role::Follower)
        .max_by_key(|node| node.matched);
    let Some(Member { id, .. }) = best.map(|node| &node.member) else {
        return;
    };
    match consensus.transfer_leader(*id, HANDOVER_MAX).await {
        Ok(()) => tracing::info!(to = %id, "leadership handed over"),
        // The others elect a leader by themselves.
        Err(error) => tracing::info!(%error, "leadership is not handed over"),
    }
}

/// How long connections that were closed may take to go away.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Waits until nobody else holds the storage, so that the folder is free once the node has stopped. Each
/// connection holds it a moment longer than its requests last.
async fn released(storage: Arc<dyn Storage>) {
    let releasing = async {
        while Arc::strong_count(&storage) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(RELEASE_MAX, releasing).await.is_err() {
        tracing::warn!("a connection still holds the data folder");
    }
}

/// Joins tasks that were told to stop, and ends those that do not.
async fn join_all(tasks: &mut JoinSet<Result<(), NodeError>>) {
    let joining = async {
        while let Some(joined) = tasks.join_next().await {
            match joined {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = error.line(), "a listener ended"),
                Err(error) => tracing::error!(%error, "a task of the node panicked"),
            }
        }
    };
    if tokio::time::timeout(DRAIN_MAX, joining).await.is_err() {
        tracing::info!("requests are cut off");
        tasks.shutdown().await;
    }
}
