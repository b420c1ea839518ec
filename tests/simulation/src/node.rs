//! A coordinator on a simulated machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_coordinator::config::{
    Config, HistoryConfig, Limits, LogConfig, Port, RaftConfig, StorageConfig,
};
use tenure_coordinator::consensus::Consensus;
use tenure_coordinator::node::{Machine, Node};
use tenure_coordinator::storage::Storage;
use tenure_coordinator::watch::{Cursor, Hub, Subscription};
use tenure_ownership::State;
use tenure_ownership::ids::Revision;
use tokio_util::sync::CancellationToken;

use crate::clock::MachineClock;
use crate::disk::Disk;
use crate::history::{History, Position};
use crate::network::MachineNetwork;

/// Where every coordinator listens for workers and clients, and for its peers.
pub const CLIENT_PORT: u16 = 7400;
/// See [`CLIENT_PORT`].
pub const PEER_PORT: u16 = 7401;

/// What a coordinator runs on.
#[derive(Clone)]
pub struct NodeSetup {
    /// The machine's name, under which others reach it.
    pub host: String,
    /// Its network.
    pub network: MachineNetwork,
    /// Its clock.
    pub clock: MachineClock,
    /// Its disk.
    pub disk: Disk,
    /// Log entries after which it makes a snapshot.
    pub snapshot_entries: u64,
    /// Events it keeps for watchers that resume.
    pub history_events: usize,
}

impl NodeSetup {
    fn config(&self) -> Config {
        let port = |number| Port {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, number)),
            advertise: Some(format!("{}:{number}", self.host)),
            tls: None,
        };
        Config {
            data_dir: PathBuf::from("simulated"),
            identity: None,
            client: port(CLIENT_PORT),
            peer: port(PEER_PORT),
            http: None,
            raft: RaftConfig {
                snapshot_entries: self.snapshot_entries,
                kept_entries: self.snapshot_entries / 4,
                ..RaftConfig::default()
            },
            limits: Limits {
                request_timeout: Duration::from_secs(4),
                watch_history_events: self.history_events,
                ..Limits::default()
            },
            storage: StorageConfig::default(),
            history: HistoryConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// How far a coordinator's process is.
#[derive(Default)]
enum Phase {
    #[default]
    Starting,
    Running(Box<View>),
    Ended(String),
}

/// What is looked at from outside.
struct View {
    /// `None` while the node stops: whoever holds it holds the storage.
    consensus: Option<Consensus>,
    hub: Arc<Hub>,
    /// What the node publishes; `None` before the first look.
    events: Option<Subscription>,
    seen: Option<State>,
    term: u64,
}

/// A coordinator's process, from outside. Clones are the same.
#[derive(Clone, Default)]
pub struct NodeHandle {
    phase: Arc<Mutex<Phase>>,
    stop: CancellationToken,
}

/// Runs a coordinator until it is told to stop or fails.
pub async fn run(setup: NodeSetup, handle: NodeHandle) {
    let machine = Machine {
        network: Arc::new(setup.network.clone()),
        clock: Arc::new(setup.clock.clone()),
        wall_clock: Arc::new(setup.clock.clone()),
    };
    let disk = setup.disk.clone();
    let storage = async { Ok(Arc::new(disk) as Arc<dyn Storage>) };
    let mut node = match Node::start_with(&setup.config(), machine, storage).await {
        Ok(node) => node,
        Err(error) => {
            handle.end(format!("does not start: {}", error.line()));
            return;
        }
    };
    *handle.phase() = Phase::Running(Box::new(View {
        consensus: Some(node.consensus().clone()),
        hub: Arc::clone(node.hub()),
        events: None,
        seen: None,
        term: 0,
    }));
    let reason = tokio::select! {
        biased;
        () = handle.stop.cancelled() => "was stopped".to_owned(),
        error = node.failed() => error.line(),
    };
    // What it still publishes is still recorded.
    if let Phase::Running(view) = &mut *handle.phase() {
        view.consensus = None;
    }
    node.shutdown().await;
    handle.end(reason);
}

impl NodeHandle {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, reason: String) {
        tracing::info!(target: "simulation", reason, "coordinator ended");
        *self.phase() = Phase::Ended(reason);
    }

    /// Tells the coordinator to stop in good order.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Lets go of the node: to be called before its process is killed.
    pub fn forget(&self) {
        *self.phase() = Phase::Starting;
    }

    /// Returns why the process has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        match &*self.phase() {
            Phase::Ended(reason) => Some(reason.clone()),
            Phase::Starting | Phase::Running(_) => None,
        }
    }

    /// Returns the state as the node has it; `None` if it does not run.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        match &*self.phase() {
            Phase::Running(view) => view.consensus.as_ref().map(Consensus::state),
            Phase::Starting | Phase::Ended(_) => None,
        }
    }

    /// Returns the term in which the node leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        let phase = self.phase();
        let Phase::Running(view) = &*phase else {
            return None;
        };
        let leadership = view.consensus.as_ref()?.leadership();
        let leadership = leadership.borrow();
        leadership.is_leader.then_some(leadership.term)
    }

    /// Tells whether what the node publishes is recorded.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        matches!(&*self.phase(), Phase::Running(view) if view.events.is_some())
    }

    /// Records what the node has published and applied since the last look. Returns the term it began to
    /// lead, if it did.
    pub fn observe(&self, node: usize, history: &mut History, now_ns: u64) -> Option<u64> {
        let mut phase = self.phase();
        let Phase::Running(view) = &mut *phase else {
            return None;
        };
        view.record_events(node, history, now_ns);
        let consensus = view.consensus.as_ref()?;
        let revision = consensus.read(State::revision);
        if view.seen.as_ref().map(State::revision) != Some(revision) {
            let state = consensus.state();
            history.applied(node, view.seen.as_ref(), &state);
            view.seen = Some(state);
        }
        let leadership = consensus.leadership();
        let leadership = leadership.borrow();
        if leadership.is_leader && leadership.term > view.term {
            view.term = leadership.term;
            return Some(leadership.term);
        }
        None
    }
}

impl View {
    fn record_events(&mut self, node: usize, history: &mut History, now_ns: u64) {
        use futures::FutureExt as _;

        loop {
            let events = match &mut self.events {
                Some(events) => events,
                None => {
                    let Some(subscription) = subscribe(&self.hub, history) else {
                        return;
                    };
                    self.events.insert(subscription)
                }
            };
            match events.next().now_or_never() {
                None => {
                    if let Some(at) = events.caught_up() {
                        history.recorded_to((at.revision.0, at.ordinal));
                    }
                    return;
                }
                Some(Ok(batch)) => {
                    for (ordinal, event) in (0..).zip(&batch.events) {
                        let position: Position = (batch.revision.0, ordinal);
                        if event.group().is_some() {
                            history.published(node, position, event, now_ns);
                        }
                    }
                }
                Some(Err(_)) => self.events = None,
            }
        }
    }
}

/// Follows a node from the last event that is known. One that cannot say what happened since then, because
/// it was restarted or got a snapshot, leaves it to the others.
fn subscribe(hub: &Arc<Hub>, history: &History) -> Option<Subscription> {
    let known = history.last_event();
    let known = Cursor {
        revision: Revision(known.0),
        ordinal: known.1,
    };
    hub.subscribe(Some(known)).ok()
}
