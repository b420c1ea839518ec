//! What can be seen of a running worker from outside.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_fence::{Epoch, Owner, ShardRef};
use tokio::sync::watch;

use crate::held_shard::{HandleState, HeldShard};

/// How many refused writes are remembered.
const REFUSED_MAX: usize = 16;

/// Whether a worker is in touch with a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It looks for the leader.
    Connecting,
    /// It has a stream to the leader at this address.
    Attached {
        /// The address.
        leader: String,
    },
    /// It has stopped.
    Stopped,
}

/// A shard a worker has a handle of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its index.
    pub index: u32,
    /// The tenure.
    pub epoch: Epoch,
    /// Whether it was claimed and reported ready.
    pub ready: bool,
    /// Where the tenure stands.
    pub state: HandleState,
}

/// A write or deletion that a store refused because its tenure is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// The shard.
    pub shard: ShardRef,
    /// The store.
    pub store: String,
    /// The epoch that was presented.
    pub presented: Epoch,
    /// The epoch that is current.
    pub current: Epoch,
}

/// How often something happened since the worker was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions registered.
    pub sessions: u64,
    /// Streams on which the leader answered.
    pub streams: u64,
    /// Shards for which a handle was made.
    pub opened: u64,
    /// Shards reported ready.
    pub ready: u64,
    /// Shards given back by their handlers.
    pub released: u64,
    /// Handles that died before their handlers returned.
    pub lost: u64,
    /// Writes and deletions that a store has accepted.
    pub writes: u64,
    /// Writes and deletions that a store has refused because their tenure was over.
    pub refused: u64,
}

/// A worker at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The session; `None` before the first and between two.
    pub session: Option<Owner>,
    /// Whether it is in touch with a coordinator.
    pub link: LinkState,
    /// The shards it has handles of, by index.
    pub shards: Vec<ShardStatus>,
    /// How often something happened.
    pub counters: Counters,
    /// The latest refused writes, oldest first, at most 16.
    pub refused: Vec<RefusedWrite>,
}

/// Counters and what goes with them, shared between the session and its handles.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) sessions: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) ready: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) lost: AtomicU64,
    writes: AtomicU64,
    refused: AtomicU64,
    view: Mutex<View>,
    /// Rises with every change that [`Observer::wait_until`] should look at.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct View {
    session: Option<Owner>,
    link: LinkState,
    shards: BTreeMap<u32, (HeldShard, bool)>,
    refused: VecDeque<RefusedWrite>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            sessions: AtomicU64::default(),
            streams: AtomicU64::default(),
            opened: AtomicU64::default(),
            ready: AtomicU64::default(),
            released: AtomicU64::default(),
            lost: AtomicU64::default(),
            writes: AtomicU64::default(),
            refused: AtomicU64::default(),
            view: Mutex::new(View {
                session: None,
                link: LinkState::Connecting,
                shards: BTreeMap::new(),
                refused: VecDeque::new(),
            }),
            changes: watch::Sender::new(0),
        }
    }

    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, write: RefusedWrite) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut view = self.view();
        if view.refused.len() == REFUSED_MAX {
            view.refused.pop_front();
        }
        view.refused.push_back(write);
        drop(view);
        self.changed();
    }

    pub(crate) fn set_session(&self, session: Option<Owner>) {
        self.view().session = session;
    }

    pub(crate) fn set_link(&self, link: LinkState) {
        self.view().link = link;
    }

    pub(crate) fn add_shard(&self, shard: &HeldShard) {
        self.view()
            .shards
            .insert(shard.id().index, (shard.clone(), false));
    }

    pub(crate) fn set_ready(&self, index: u32) {
        if let Some((_, ready)) = self.view().shards.get_mut(&index) {
            *ready = true;
        }
    }

    pub(crate) fn remove_shard(&self, index: u32) {
        self.view().shards.remove(&index);
    }

    /// Wakes whoever waits for a change.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|change| *change += 1);
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Every change is whole before the lock is given back.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> WorkerStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let view = self.view();
        let shards = view
            .shards
            .iter()
            .map(|(&index, (shard, ready))| ShardStatus {
                index,
                epoch: shard.epoch(),
                ready: *ready,
                state: shard.state(),
            });
        WorkerStatus {
            session: view.session,
            link: view.link.clone(),
            shards: shards.collect(),
            counters: Counters {
                sessions: read(&self.sessions),
                streams: read(&self.streams),
                opened: read(&self.opened),
                ready: read(&self.ready),
                released: read(&self.released),
                lost: read(&self.lost),
                writes: read(&self.writes),
                refused: read(&self.refused),
            },
            refused: view.refused.iter().cloned().collect(),
        }
    }
}

/// Looks at a running worker. Clones look at the same one; it stays valid after the worker stopped.
#[derive(Clone, Debug)]
pub struct Observer {
    tally: Arc<Tally>,
}

impl Observer {
    pub(crate) fn new(tally: Arc<Tally>) -> Self {
        Self { tally }
    }

    /// Returns what the worker is doing. Takes time in proportion to the shards it holds.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        self.tally.status()
    }

    /// Waits until the worker is as wanted, and returns how it is then.
    ///
    /// It looks whenever the session, the link, the shards or the refused writes change; successful
    /// writes alone do not wake it.
    pub async fn wait_until(&self, wanted: impl Fn(&WorkerStatus) -> bool) -> WorkerStatus {
        let mut changes = self.tally.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            if changes.changed().await.is_err() {
                return status;
            }
        }
    }
}
