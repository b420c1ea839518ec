//! What the applying task shares with readers, and how it is loaded at start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tenure_ownership::State;
use tenure_ownership::ids::{ClusterId, Revision};
use tokio::sync::watch;

use super::super::meta::{self, Generation};
use super::super::observer::Observer;
use super::super::snapshot::{SnapshotError, SnapshotFile, SnapshotReader};
use super::super::types::{LogId, Snapshot};
use super::current::{UNFINISHED, snapshot_of};
use super::unwritten::Unwritten;
use crate::history::Reader;
use crate::storage::{Batch, Storage, StorageError, Table};

/// What the applying task shares with readers.
pub(in super::super) struct Shared {
    pub(in super::super) storage: Arc<dyn Storage>,
    pub(in super::super) cluster: ClusterId,
    state: RwLock<State>,
    pub(super) generation: AtomicU64,
    unwritten: Mutex<Unwritten>,
    pub(super) applied: watch::Sender<Option<LogId>>,
    pub(super) snapshot: Mutex<Option<Snapshot>>,
    /// Held while the current snapshot is switched, on disk and in memory.
    pub(super) switching: Mutex<()>,
    /// Numbers snapshot files, so that no name is used twice while the node runs.
    file_number: AtomicU64,
    pub(super) observer: Arc<dyn Observer>,
}

impl Shared {
    /// Loads the state, checks the current snapshot, and removes what a crash left behind. Blocks.
    pub(in super::super) fn load(
        storage: Arc<dyn Storage>,
        cluster: ClusterId,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, SnapshotError> {
        let generation = meta::generation(storage.as_ref())?;
        remove_other_generations(storage.as_ref(), generation)?;
        let snapshot = load_snapshot(storage.as_ref(), cluster)?;
        remove_other_files(storage.as_ref(), snapshot.as_ref())?;
        let state = load_state(storage.as_ref(), generation)?;
        let applied = meta::applied(storage.as_ref())?;
        Ok(Self {
            storage,
            cluster,
            state: RwLock::new(state),
            generation: AtomicU64::new(generation.0),
            unwritten: Mutex::default(),
            applied: watch::Sender::new(applied),
            snapshot: Mutex::new(snapshot),
            switching: Mutex::new(()),
            file_number: AtomicU64::new(0),
            observer,
        })
    }

    /// Reads the state.
    ///
    /// # Panics
    ///
    /// If applying a command panicked: the state may be half changed, and nobody may see it.
    pub(in super::super) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        let guard = self.state.read();
        assert!(
            guard.is_ok(),
            "the state is unusable: a command panicked while it was applied"
        );
        f(&guard.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the state as it is now, to be read for as long as it takes.
    pub(in super::super) fn state(&self) -> State {
        self.read(State::clone)
    }

    /// Returns the last entry applied.
    pub(in super::super) fn last_applied(&self) -> Option<LogId> {
        *self.applied.borrow()
    }

    /// Follows the last entry applied. It changes after the effect is readable.
    pub(in super::super) fn watch_applied(&self) -> watch::Receiver<Option<LogId>> {
        self.applied.subscribe()
    }

    /// Returns the value of a state record. Blocks.
    pub(in super::super) fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        loop {
            let generation = self.generation();
            let key = generation.key(key);
            // In this order: what is not there any more is in storage.
            let value = match self.unwritten(|unwritten| unwritten.get(&key)) {
                Some(value) => value.map(Vec::from),
                None => self.storage.get(Table::State, &key)?,
            };
            // A snapshot installed meanwhile took the records of the old generation away.
            if generation == self.generation() {
                return Ok(value);
            }
        }
    }

    /// Reads the history. Blocks.
    pub(in super::super) fn history<R>(&self, f: impl FnOnce(&Reader<'_>) -> R) -> R {
        let applied = Revision(self.last_applied().map_or(0, |log_id| log_id.index()));
        // In this order: what does not wait any more is in storage.
        let waiting = self.unwritten(|unwritten| unwritten.history().parts().to_vec());
        f(&Reader::new(self.storage.as_ref(), waiting, applied))
    }

    /// Tells whether a snapshot is still the one to send.
    pub(in super::super) fn is_current_snapshot(&self, file: &SnapshotFile) -> bool {
        self.current_snapshot()
            .is_some_and(|current| current.snapshot == *file)
    }

    /// Returns an unused file name.
    pub(in super::super) fn unfinished_file_name(&self) -> String {
        let number = self.file_number.fetch_add(1, Ordering::Relaxed);
        format!("snapshot-{number:06}{UNFINISHED}")
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    pub(in super::super) fn current_snapshot(&self) -> Option<Snapshot> {
        self.snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Writes what waits, which only the task that applies may do. Readers find it there until it is in
    /// storage. Blocks.
    pub(super) fn write_unwritten(&self) -> Result<(), StorageError> {
        let batch = self.unwritten(|unwritten| unwritten.batch());
        if batch.is_empty() {
            return Ok(());
        }
        self.storage.write(batch)?;
        self.unwritten(Unwritten::clear);
        Ok(())
    }

    /// Works on what waits to be written.
    pub(super) fn unwritten<R>(&self, f: impl FnOnce(&mut Unwritten) -> R) -> R {
        f(&mut self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let guard = self.state.write();
        assert!(
            guard.is_ok(),
            "the state is unusable: a command panicked while it was applied"
        );
        f(&mut guard.unwrap_or_else(PoisonError::into_inner))
    }
}

fn remove_other_generations(
    storage: &dyn Storage,
    current: Generation,
) -> Result<(), StorageError> {
    let mut batch = Batch::new();
    batch.delete_range(Table::State, Generation(0).start(), current.start());
    batch.delete_range(
        Table::State,
        current.next().start(),
        Generation(u64::MAX).start(),
    );
    storage.write(batch)
}

/// Loads and fully checks the current snapshot, so that damage is found while the node does not
/// serve yet rather than when a peer depends on it.
fn load_snapshot(
    storage: &dyn Storage,
    cluster: ClusterId,
) -> Result<Option<Snapshot>, SnapshotError> {
    let Some(pointer) = meta::snapshot(storage)? else {
        return Ok(None);
    };
    let mut reader = SnapshotReader::open(storage.files(), &pointer.file_name, cluster)?;
    while reader.next_record()?.is_some() {}
    let file = SnapshotFile {
        name: pointer.file_name,
        size_bytes: pointer.size_bytes,
        crc32c: pointer.crc32c,
    };
    Ok(Some(snapshot_of(reader.content(), file)))
}

fn remove_other_files(
    storage: &dyn Storage,
    current: Option<&Snapshot>,
) -> Result<(), StorageError> {
    for name in storage.files().list()? {
        if current.is_none_or(|current| current.snapshot.name != name) {
            storage.files().remove(&name)?;
        }
    }
    Ok(())
}

/// Reads the state of a generation of records. Blocks.
pub(in super::super) fn load_state(
    storage: &dyn Storage,
    generation: Generation,
) -> Result<State, StorageError> {
    let mut failure = None;
    let records = storage
        .scan(
            Table::State,
            &generation.start(),
            &generation.next().start(),
        )
        .map_while(|record| match record {
            Ok((key, value)) => Some((Generation::strip(&key).to_vec(), value)),
            Err(error) => {
                failure = Some(error);
                None
            }
        });
    let state = State::from_records(records);
    if let Some(error) = failure {
        return Err(error);
    }
    state.map_err(|error| StorageError::Corrupt {
        what: format!("state: {error}"),
    })
}
