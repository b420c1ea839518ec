//! Starting a node, stopping it, and what holds it together meanwhile.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use openraft::Config;
use tenure_ownership::State;
use tenure_ownership::ids::Revision;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connector::Connector;
use super::error::{AssignError, ReadError, StartError};
use super::group_commit::{GroupCommit, SyncTask};
use super::identity::Identity;
use super::leadership::{self, Health, Leadership};
use super::links::Links;
use super::log_size::{Compactor, LogSize};
use super::log_store::LogStore;
use super::meta;
use super::network::Network;
use super::observer::Observer;
use super::options::{ConsensusLimits, ConsensusOptions};
use super::peer_service::{PeerHandler, PeerService};
use super::reads::{self, ReadRequest};
use super::runtime::{self, Task, blocking};
use super::snapshot::SnapshotError;
use super::state_machine::{Shared, StateMachine};
use super::types::Raft;
use crate::storage::{Batch, Storage, StorageError};

/// A node's part in the cluster: proposes commands, keeps the state, knows who leads.
///
/// Cheap to clone; all clones are one node. A node on an unused data folder waits until it is made
/// part of a cluster, by [`initialize`](Consensus::initialize) here or
/// [`add_node`](Consensus::add_node) elsewhere; until then it proposes nothing.
#[derive(Clone)]
pub struct Consensus {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) options: ConsensusOptions,
    config: Arc<Config>,
    storage: Arc<dyn Storage>,
    pub(super) links: Arc<Links>,
    observer: Arc<dyn Observer>,
    running: OnceLock<Running>,
    /// Held while the node is made part of a cluster, and for good once it stops.
    starting: tokio::sync::Mutex<()>,
    pub(super) leadership: Arc<watch::Sender<Leadership>>,
    health: Arc<watch::Sender<Health>>,
    pub(super) stop: CancellationToken,
    tasks: Mutex<Vec<Task>>,
}

/// What exists once the node is part of a cluster.
pub(super) struct Running {
    pub(super) identity: Identity,
    pub(super) raft: Raft,
    pub(super) shared: Arc<Shared>,
    pub(super) reads: mpsc::Sender<ReadRequest>,
    /// Held while a snapshot is received.
    pub(super) receiving: tokio::sync::Mutex<()>,
    sync_task: SyncTask,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus")
            .field("identity", &self.identity())
            .finish_non_exhaustive()
    }
}

impl From<SnapshotError> for StartError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Storage(error) => Self::Storage(error),
            SnapshotError::Io(source) => Self::Storage(StorageError::Io {
                operation: "read a snapshot",
                source,
            }),
            refused => Self::Snapshot {
                reason: refused.to_string(),
            },
        }
    }
}

fn stopping(error: std::io::Error) -> StorageError {
    StorageError::Io {
        operation: "be read at start",
        source: error,
    }
}

impl Consensus {
    /// Starts a node on what its storage holds. The service answers its peers and has to be mounted
    /// on the listener for peers.
    ///
    /// A node that has just been started may be a little behind what it answered before it stopped:
    /// see [`recovered`](Consensus::recovered).
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing runs then.
    pub async fn start(
        options: ConsensusOptions,
        storage: Arc<dyn Storage>,
        connector: Arc<dyn Connector>,
        observer: Arc<dyn Observer>,
    ) -> Result<(Self, PeerService), StartError> {
        let config = Arc::new(options.raft_config()?);
        let reading = Arc::clone(&storage);
        let found = blocking(move || meta::identity(reading.as_ref()))
            .await
            .map_err(stopping)??;
        let identity = match (found, options.identity) {
            (Some(found), Some(expected)) if found != expected => {
                return Err(StartError::ForeignFolder { found, expected });
            }
            (found, expected) => found.or(expected),
        };
        let message_bytes_max = options.limits.message_bytes_max();
        let consensus = Self {
            inner: Arc::new(Inner {
                links: Arc::new(Links::new(connector, options.limits)),
                options,
                config,
                storage,
                observer,
                running: OnceLock::new(),
                starting: tokio::sync::Mutex::new(()),
                leadership: Arc::new(watch::Sender::default()),
                health: Arc::new(watch::Sender::default()),
                stop: CancellationToken::new(),
                tasks: Mutex::default(),
            }),
        };
        if let Some(identity) = identity {
            consensus.run(identity).await?;
        }
        let service = PeerHandler::service(consensus.clone(), message_bytes_max);
        Ok((consensus, service))
    }

    /// Makes the node part of a cluster, if it is not part of one yet.
    pub(super) async fn assign(&self, identity: Identity) -> Result<&Running, AssignError> {
        let _starting = self.inner.starting.lock().await;
        if self.inner.stop.is_cancelled() {
            return Err(AssignError::Stopped);
        }
        if let Some(running) = self.running() {
            if running.identity.cluster != identity.cluster {
                return Err(AssignError::OtherCluster {
                    found: running.identity,
                    wanted: identity.cluster,
                });
            }
            return Ok(running);
        }
        self.run(identity).await?;
        self.running().ok_or(AssignError::Stopped)
    }

    /// Records who the node is and starts Raft.
    async fn run(&self, identity: Identity) -> Result<(), StartError> {
        let inner = &self.inner;
        let (storage, observer) = (Arc::clone(&inner.storage), Arc::clone(&inner.observer));
        let loading = move || -> Result<_, StartError> {
            let mut batch = Batch::new();
            meta::put_identity(&mut batch, identity);
            storage.write(batch)?;
            storage.sync()?;
            let shared = Arc::new(Shared::load(
                Arc::clone(&storage),
                identity.cluster,
                observer,
            )?);
            let state_machine = StateMachine::new(Arc::clone(&shared))?;
            let (commit, sync_task) =
                GroupCommit::start(Arc::clone(&storage)).map_err(|source| StorageError::Io {
                    operation: "start its sync task",
                    source,
                })?;
            let size = Arc::new(LogSize::new());
            let log = LogStore::open(storage, commit, Arc::clone(&size))?;
            Ok((shared, state_machine, log, size, sync_task))
        };
        let (shared, state_machine, log, size, sync_task) =
            blocking(loading).await.map_err(stopping)??;
        let network = Network {
            links: Arc::clone(&inner.links),
            shared: Arc::clone(&shared),
            identity,
        };
        let config = Arc::clone(&inner.config);
        let raft = match Raft::new(identity.node.0, config, network, log, state_machine).await {
            Ok(raft) => raft,
            Err(error) => {
                sync_task.join().await;
                return Err(StartError::Raft {
                    reason: error.to_string(),
                });
            }
        };

        let (reads, requests) = mpsc::channel(reads::REQUESTS_MAX);
        let rounds = reads::Rounds {
            raft: raft.clone(),
            links: Arc::clone(&inner.links),
            identity,
            round_max: inner.options.timings.election_timeout_min,
        };
        let follower = leadership::Follower {
            raft: raft.clone(),
            applied: shared.watch_applied(),
            leadership: Arc::clone(&inner.leadership),
            health: Arc::clone(&inner.health),
            stop: inner.stop.clone(),
        };
        let duties = leadership::Duties {
            raft: raft.clone(),
            shared: Arc::clone(&shared),
            leadership: inner.leadership.subscribe(),
            stop: inner.stop.clone(),
        };
        let compactor = Compactor {
            raft: raft.clone(),
            size,
            bytes_max: inner.options.limits.log_bytes_max,
            stop: inner.stop.clone(),
        };
        let tasks = [
            runtime::spawn(compactor.run()),
            runtime::spawn(rounds.run(requests, inner.stop.clone())),
            runtime::spawn(follower.run()),
            runtime::spawn(duties.run()),
        ];
        inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(tasks);
        let receiving = tokio::sync::Mutex::new(());
        let running = Running {
            identity,
            raft,
            shared,
            reads,
            receiving,
            sync_task,
        };
        // Only `run` sets it, and it is called once: at start, or under the `starting` lock.
        let _ = inner.running.set(running);
        tracing::info!(%identity, "node started");
        Ok(())
    }

    pub(super) fn running(&self) -> Option<&Running> {
        self.inner.running.get()
    }

    pub(super) fn limits(&self) -> &ConsensusLimits {
        &self.inner.options.limits
    }

    /// Returns who the node is, or `None` while it is not part of a cluster.
    pub fn identity(&self) -> Option<Identity> {
        self.running().map(|running| running.identity)
    }

    /// Reads the state as it is here and now, which may be behind the leader's: call
    /// [`read_barrier`](Consensus::read_barrier) first if that matters. `f` keeps commands from
    /// being applied, so it must be quick: read a clone, [`Consensus::state`], for anything that takes
    /// time with the size of the state.
    ///
    /// # Panics
    ///
    /// If applying a command has panicked on this node.
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        match self.running() {
            Some(running) => running.shared.read(f),
            None => f(&State::new()),
        }
    }

    /// Returns the state as it is here and now, as [`read`](Consensus::read) sees it. Commands go on to
    /// be applied while it is read, but what they change is copied first, once for each clone: for a
    /// look at a few records `read` costs less.
    ///
    /// # Panics
    ///
    /// If applying a command has panicked on this node.
    pub fn state(&self) -> State {
        match self.running() {
            Some(running) => running.shared.state(),
            None => State::new(),
        }
    }

    /// Returns the bytes stored under the key of a state record; `None` if there are none. They may
    /// be newer than the state read before: compare what identifies them.
    ///
    /// # Errors
    ///
    /// [`StorageError`] if they cannot be read.
    pub async fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let Some(running) = self.running() else {
            return Ok(None);
        };
        let (shared, key) = (Arc::clone(&running.shared), key.to_vec());
        blocking(move || shared.record(&key))
            .await
            .map_err(|source| StorageError::Io {
                operation: "read a record",
                source,
            })?
    }

    /// Returns the log index of the last entry applied here: everything up to it can be read.
    pub fn applied(&self) -> Revision {
        let last = self
            .running()
            .and_then(|running| running.shared.last_applied());
        Revision(last.map_or(0, |log_id| log_id.index()))
    }

    /// Follows who leads. Changes to `is_leader` are never skipped for want of a reader: a receiver
    /// sees the latest, with its term.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.subscribe()
    }

    /// Follows whether the node is able to serve.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.inner.health.subscribe()
    }

    /// Returns once the node has applied everything it had before it was stopped, so that local
    /// reads do not go back in time. Without a leader, that does not come to pass.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it did not happen within `within`.
    pub async fn recovered(&self, within: std::time::Duration) -> Result<(), ReadError> {
        let running = self.running().ok_or_else(|| ReadError::Unavailable {
            reason: "this node is not part of a cluster yet".to_owned(),
        })?;
        match running.raft.wait_for_recovery(Some(within)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(ReadError::Unavailable {
                reason: error.to_string(),
            }),
        }
    }

    /// Stops the node: first nothing new is begun, then Raft ends, then the log's sync task. Calls
    /// that wait for an outcome get [`OutcomeUnknown`](super::ProposeError::OutcomeUnknown).
    ///
    /// Streams of the peer service end, so that its listener can be told to stop gracefully before
    /// this and waited for after. The storage is released when the last clone is dropped, the
    /// service's included.
    pub async fn shutdown(self) {
        self.inner.stop.cancel();
        let _starting = self.inner.starting.lock().await;
        let tasks = {
            let mut tasks = self
                .inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        let Some(running) = self.running() else {
            return;
        };
        if let Err(error) = running.raft.shutdown().await {
            tracing::error!(%error, "raft did not stop cleanly");
        }
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the node panicked");
            }
        }
        running.sync_task.join().await;
        tracing::info!(identity = %running.identity, "node stopped");
    }
}
