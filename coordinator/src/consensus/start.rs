//! Starting a node, and making it part of a cluster.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connector::Connector;
use super::error::{AssignError, StartError};
use super::group_commit::GroupCommit;
use super::handle::{Consensus, Inner, Running};
use super::identity::Identity;
use super::leadership;
use super::links::Links;
use super::log_size::{Compactor, LogSize};
use super::log_store::{FoundLog, LogStore};
use super::meta;
use super::network::Network;
use super::observer::Observer;
use super::options::ConsensusOptions;
use super::past::Pruner;
use super::peer_service::{PeerHandler, PeerService};
use super::rounds::{self, Rounds};
use super::runtime::{self, blocking};
use super::snapshot::SnapshotError;
use super::standing::Standing;
use super::state_machine::{Shared, StateMachine};
use super::sync_times::SyncTimes;
use super::types::Raft;
use crate::storage::{Batch, Storage, StorageError};

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
            // Its log is gone, and with it the votes it has given and the entries that it has helped to
            // commit: under its old id it could vote what was committed away.
            (None, Some(expected)) => return Err(StartError::EmptyFolder { expected }),
            (found, _) => found,
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
                removed: Arc::new(watch::Sender::default()),
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
        let history = inner.options.history;
        let wall_clock = Arc::clone(&inner.options.wall_clock);
        let sync_times = Arc::new(SyncTimes::default());
        let times = Arc::clone(&sync_times);
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
            let state_machine = StateMachine::new(Arc::clone(&shared), history, wall_clock)?;
            // All that can be refused comes before the first task, which would have to be joined.
            let found = FoundLog::read(Arc::clone(&storage))?;
            let (commit, sync_task) = GroupCommit::start_timed(storage, Arc::clone(&times))
                .map_err(|source| StorageError::Io {
                    operation: "start its sync task",
                    source,
                })?;
            let size = Arc::new(LogSize::new());
            let log = LogStore::new(found, commit, Arc::clone(&size));
            Ok((shared, state_machine, log, size, sync_task))
        };
        let (shared, state_machine, log, size, sync_task) =
            blocking(loading).await.map_err(stopping)??;
        let network = Network {
            links: Arc::clone(&inner.links),
            shared: Arc::clone(&shared),
            identity,
            acknowledged: Arc::default(),
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

        let (reads, requests) = mpsc::channel(rounds::REQUESTS_MAX);
        let rounds = Rounds {
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
            wall_clock: Arc::clone(&inner.options.wall_clock),
            stop: inner.stop.clone(),
        };
        let standing = Standing {
            raft: raft.clone(),
            links: Arc::clone(&inner.links),
            identity,
            removed: Arc::clone(&inner.removed),
            stop: inner.stop.clone(),
        };
        let compactor = Compactor {
            raft: raft.clone(),
            size,
            bytes_max: inner.options.limits.log_bytes_max,
            stop: inner.stop.clone(),
        };
        let pruner = Pruner {
            storage: Arc::clone(&inner.storage),
            options: history,
            wall_clock: Arc::clone(&inner.options.wall_clock),
            stop: inner.stop.clone(),
        };
        let tasks = [
            runtime::spawn(compactor.run()),
            runtime::spawn(pruner.run()),
            runtime::spawn(standing.run()),
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
            sync_times,
        };
        // Only `run` sets it, and it is called once: at start, or under the `starting` lock.
        let _ = inner.running.set(running);
        tracing::info!(%identity, "node started");
        Ok(())
    }
}
