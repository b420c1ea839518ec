//! A node's part in the cluster: what holds it together from its start to its stop.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use openraft::Config;
use tenure_ownership::State;
use tenure_ownership::ids::Revision;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::error::ReadError;
use super::group_commit::SyncTask;
use super::identity::Identity;
use super::leadership::{Health, Leadership};
use super::links::Links;
use super::observer::Observer;
use super::options::{ConsensusLimits, ConsensusOptions};
use super::rounds::ReadRequest;
use super::runtime::{Task, blocking};
use super::state_machine::Shared;
use super::sync_times::SyncTimes;
use super::types::Raft;
use crate::storage::{Storage, StorageError};

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
    pub(super) config: Arc<Config>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) links: Arc<Links>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) running: OnceLock<Running>,
    /// Held while the node is made part of a cluster, and for good once it stops.
    pub(super) starting: tokio::sync::Mutex<()>,
    pub(super) leadership: Arc<watch::Sender<Leadership>>,
    pub(super) health: Arc<watch::Sender<Health>>,
    pub(super) removed: Arc<watch::Sender<bool>>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: Mutex<Vec<Task>>,
}

/// What exists once the node is part of a cluster.
pub(super) struct Running {
    pub(super) identity: Identity,
    pub(super) raft: Raft,
    pub(super) shared: Arc<Shared>,
    pub(super) reads: mpsc::Sender<ReadRequest>,
    /// Held while a snapshot is received.
    pub(super) receiving: tokio::sync::Mutex<()>,
    pub(super) sync_task: SyncTask,
    pub(super) sync_times: Arc<SyncTimes>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus")
            .field("identity", &self.identity())
            .finish_non_exhaustive()
    }
}

impl Consensus {
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
