//! The disk of one simulated machine: a volatile and a durable half.
//!
//! What is written is seen at once and durable after the next sync. A crash leaves the durable half
//! and some prefix of what was written since, as the storage promises its caller and no more. A
//! failed sync is final until the process is started again.

mod files;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_coordinator::storage::{
    Batch, Files, MemoryStorage, RecordIter, Records, Storage, StorageError, Table,
};

pub use self::files::DiskFiles;
use crate::dice::Dice;

/// Above every key.
const KEY_END: [u8; 64] = [0xff; 64];

/// A disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    contents: Arc<Mutex<Contents>>,
    files: DiskFiles,
}

struct Contents {
    volatile: MemoryStorage,
    durable: MemoryStorage,
    /// Written and not durable, oldest first.
    unsynced: VecDeque<Batch>,
    /// Syncs take that long.
    sync_duration: Duration,
    /// The next sync takes that long once.
    stall: Option<Duration>,
    /// Syncs fail.
    broken: bool,
    dice: Dice,
}

impl Disk {
    /// Creates an empty disk.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        Self {
            contents: Arc::new(Mutex::new(Contents {
                volatile: MemoryStorage::new(),
                durable: MemoryStorage::new(),
                unsynced: VecDeque::new(),
                sync_duration: Duration::from_millis(2),
                stall: None,
                broken: false,
                dice,
            })),
            files: DiskFiles::default(),
        }
    }

    /// Makes syncs take that long from now on.
    pub fn set_sync_duration(&self, duration: Duration) {
        self.contents().sync_duration = duration;
    }

    /// Makes the next sync take that long.
    pub fn stall(&self, duration: Duration) {
        self.contents().stall = Some(duration);
    }

    /// Makes every sync fail until the process on the disk has been started again.
    pub fn break_syncs(&self) {
        self.contents().broken = true;
    }

    /// Loses what a crash loses: everything after some prefix of what was not synced. A process that
    /// was merely killed loses nothing, for the operating system has it all.
    ///
    /// # Errors
    ///
    /// Never in practice: memory can be read.
    pub fn crash(&self, power_lost: bool) -> Result<(), StorageError> {
        let mut contents = self.contents();
        contents.broken = false;
        contents.stall = None;
        if !power_lost {
            return Ok(());
        }
        let written = contents.unsynced.len();
        let survive = contents.dice.below(written + 1);
        contents.make_durable(survive)?;
        contents.unsynced.clear();
        contents.volatile = copy_of(&contents.durable)?;
        self.files.crash(&mut contents.dice);
        Ok(())
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn make_durable(&mut self, batches: usize) -> Result<(), StorageError> {
        for batch in self.unsynced.drain(..batches) {
            self.durable.write(batch)?;
        }
        Ok(())
    }
}

fn copy_of(storage: &MemoryStorage) -> Result<MemoryStorage, StorageError> {
    let copy = MemoryStorage::new();
    let mut batch = Batch::new();
    for table in [Table::Meta, Table::State, Table::History] {
        for record in storage.scan(table, &[], &KEY_END) {
            let (key, value) = record?;
            batch.put(table, key, value);
        }
    }
    for (index, record) in storage.log(0, u64::MAX, usize::MAX)? {
        batch.put_log(index, record);
    }
    copy.write(batch)?;
    Ok(copy)
}

impl Records for Disk {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.contents().volatile.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        let volatile = self.contents().volatile.clone();
        let records: Vec<_> = volatile.scan(table, from, to).collect();
        Box::new(records.into_iter())
    }
}

/// The records as they were at one moment.
struct View(MemoryStorage);

impl Records for View {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        let records: Vec<_> = self.0.scan(table, from, to).collect();
        Box::new(records.into_iter())
    }
}

/// What a view answers if it could not be taken.
struct NoView(&'static str);

impl Records for NoView {
    fn get(&self, _table: Table, _key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Err(failed(self.0))
    }

    fn scan(&self, _table: Table, _from: &[u8], _to: &[u8]) -> RecordIter<'_> {
        Box::new(std::iter::once(Err(failed(self.0))))
    }
}

fn failed(operation: &'static str) -> StorageError {
    StorageError::Io {
        operation,
        source: io::Error::other("simulated failure of the disk"),
    }
}

impl Storage for Disk {
    fn log(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StorageError> {
        self.contents().volatile.log(from, to, bytes_max)
    }

    fn last_log_index(&self) -> Result<Option<u64>, StorageError> {
        self.contents().volatile.last_log_index()
    }

    fn write(&self, batch: Batch) -> Result<(), StorageError> {
        let mut contents = self.contents();
        contents.volatile.write(batch.clone())?;
        contents.unsynced.push_back(batch);
        Ok(())
    }

    fn begin_sync(&self) -> Duration {
        let mut contents = self.contents();
        let usual = contents.sync_duration;
        // Half to one and a half of the usual.
        let spread = u64::try_from(usual.as_millis()).unwrap_or(1).max(1);
        let duration = usual / 2 + contents.dice.millis(0..=spread);
        contents.stall.take().unwrap_or(duration)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let mut contents = self.contents();
        if contents.broken {
            return Err(failed("sync"));
        }
        let written = contents.unsynced.len();
        contents.make_durable(written)
    }

    fn view(&self) -> Box<dyn Records + '_> {
        match copy_of(&self.contents().volatile) {
            Ok(copy) => Box::new(View(copy)),
            Err(_) => Box::new(NoView("take a view")),
        }
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }
}
