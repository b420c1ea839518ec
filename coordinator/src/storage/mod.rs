//! Where a node keeps what must survive it: the Raft log, the records of the state, a few facts
//! about the node itself, and snapshot files.
//!
//! This folder is the only one that names RocksDB, and it knows nothing of Raft: it offers an
//! ordered log of records, key-value records, one atomic batch over both, and a sync. It decides
//! nothing about when to write or sync; that is the caller's.
//!
//! # Invariants
//!
//! * **One order.** Batches become durable in the order they were written: after a crash, what is
//!   found is a prefix of what was written. Nothing is ever durable while an earlier batch is not.
//!   (The vote and the log must not be reordered: Raft loses committed entries otherwise.)
//! * **All or nothing.** A batch is found whole or not at all.
//! * **Synced is durable.** After [`Storage::sync`] returned `Ok`, every batch written before the
//!   call survives a loss of power.
//!
//! ```text
//!   consensus ── Batch ──▶ Storage ──▶ one write-ahead log ──▶ tables: log | meta | state | history
//!                 sync ──▶
//! ```

mod files;
mod memory;
#[cfg(feature = "rocksdb")]
mod rocks;
#[cfg(test)]
#[cfg(feature = "rocksdb")]
mod tests;

use std::io;
use std::path::PathBuf;

pub use self::files::{FileWriter, Files, Folder, MemoryFiles};
pub use self::memory::MemoryStorage;
#[cfg(feature = "rocksdb")]
pub use self::rocks::RocksOptions;
#[cfg(feature = "rocksdb")]
pub use self::rocks::RocksStorage;

/// Which key-value records a key belongs to. The log has its own operations and no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Facts about the node: identity, vote, how far the log was purged and applied.
    Meta,
    /// The records of the replicated state.
    State,
    /// What happened, for people.
    History,
}

/// One change inside a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets a record.
    Put {
        /// Which records it belongs to.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Removes a record, if there is one.
    Delete {
        /// Which records it belongs to.
        table: Table,
        /// Its key.
        key: Vec<u8>,
    },
    /// Removes every record with `from <= key < to`.
    DeleteRange {
        /// Which records they belong to.
        table: Table,
        /// The first key.
        from: Vec<u8>,
        /// The key after the last.
        to: Vec<u8>,
    },
    /// Sets the log record at an index.
    PutLog {
        /// The index.
        index: u64,
        /// The record.
        record: Vec<u8>,
    },
    /// Removes every log record at or above an index.
    TruncateLog {
        /// The first index removed.
        from: u64,
    },
    /// Removes every log record below an index.
    PurgeLog {
        /// The first index kept.
        below: u64,
    },
}

/// Changes that are made together or not at all, in the order they were added.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    operations: Vec<Operation>,
    size_bytes: usize,
}

impl Batch {
    /// Returns a batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a record.
    pub fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let (key, value) = (key.into(), value.into());
        self.size_bytes += key.len() + value.len();
        self.operations.push(Operation::Put { table, key, value });
    }

    /// Removes a record; a missing one is no error.
    pub fn delete(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        let key = key.into();
        self.size_bytes += key.len();
        self.operations.push(Operation::Delete { table, key });
    }

    /// Removes every record with `from <= key < to`.
    pub fn delete_range(&mut self, table: Table, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        self.operations.push(Operation::DeleteRange {
            table,
            from: from.into(),
            to: to.into(),
        });
    }

    /// Sets the log record at `index`. The caller leaves no gap between indices.
    pub fn put_log(&mut self, index: u64, record: Vec<u8>) {
        self.size_bytes += record.len();
        self.operations.push(Operation::PutLog { index, record });
    }

    /// Removes every log record at or above `from`.
    pub fn truncate_log(&mut self, from: u64) {
        self.operations.push(Operation::TruncateLog { from });
    }

    /// Removes every log record below `below`.
    pub fn purge_log(&mut self, below: u64) {
        self.operations.push(Operation::PurgeLog { below });
    }

    /// Returns the size of all keys and values, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Tells whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the changes, in the order they were added: for whoever implements [`Storage`].
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Records in ascending order of their keys. An error ends the sequence.
pub type RecordIter<'a> = Box<dyn Iterator<Item = Result<Record, StorageError>> + 'a>;

/// Reads key-value records: from the storage as it is, or from a view of one moment.
pub trait Records {
    /// Returns a record's value, or `None` if there is no such record.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the record could not be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// Returns the records with `from <= key < to`, ascending.
    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_>;

    /// Returns the records with `from <= key < to`, descending. Right for what is in memory; a storage
    /// that can do without reading all of them does.
    fn scan_back(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        let records: Vec<_> = self.scan(table, from, to).collect();
        Box::new(records.into_iter().rev())
    }
}

/// An ordered log, key-value records, one atomic batch over both, and a sync.
///
/// The methods block: a read may touch the disk, a write may wait for a flush, a sync waits for the
/// disk. All may be called from any thread.
pub trait Storage: Records + Send + Sync + 'static {
    /// Returns the log records with `from <= index < to`, ascending and without gaps, up to the
    /// first one past `bytes_max`; at least one, if there is any.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if they could not be read, [`StorageError::Corrupt`] if an index is
    /// missing between two that exist.
    fn log(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StorageError>;

    /// Returns the index of the last log record, or `None` if the log is empty.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it could not be read.
    fn last_log_index(&self) -> Result<Option<u64>, StorageError>;

    /// Makes the changes of a batch, visible to every reader when this returns, durable at the
    /// latest when the next [`sync`](Storage::sync) returns.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if nothing was changed, for example because the disk is full.
    fn write(&self, batch: Batch) -> Result<(), StorageError>;

    /// Makes every batch written so far durable.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it is unknown what is durable. The caller must not acknowledge
    /// anything that it wrote since the last successful sync, nor retry: a disk that failed a sync
    /// may have dropped the data and report success the next time.
    fn sync(&self) -> Result<(), StorageError>;

    /// Begins a sync and returns how long it will take; [`sync`](Storage::sync) is called after that
    /// time. Only a simulation can tell.
    #[cfg(tenure_simulation)]
    fn begin_sync(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    /// Returns a view of the records as they are now, which later writes do not change.
    fn view(&self) -> Box<dyn Records + '_>;

    /// Returns the place of the snapshot files.
    fn files(&self) -> &dyn Files;
}

/// Why a storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another process has the folder open.
    #[error("data folder {} is in use by another process", folder.display())]
    Locked {
        /// The data folder.
        folder: PathBuf,
    },

    /// The folder was written by a newer release. Nothing was changed.
    #[error(
        "data folder {} has format {found}, this release reads up to {supported}",
        folder.display()
    )]
    NewerFormat {
        /// The data folder.
        folder: PathBuf,
        /// The format found in it.
        found: u32,
        /// The newest format this release understands.
        supported: u32,
    },

    /// The folder holds something else. Nothing was changed.
    #[error("{} is not a data folder: {reason}", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// What was found instead.
        reason: String,
    },

    /// What was read cannot be what was written.
    #[error("corrupt storage: {what}")]
    Corrupt {
        /// What is wrong, and where.
        what: String,
    },

    /// The operating system or the database refused.
    #[error("storage cannot {operation}")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The reason given.
        #[source]
        source: io::Error,
    },
}

#[cfg(feature = "rocksdb")]
impl StorageError {
    pub(crate) fn io(
        operation: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Io {
            operation,
            source: io::Error::other(source),
        }
    }
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        Self::other(Described(error))
    }
}

/// Shows an error with its cause in one line, for interfaces that keep only the text.
#[derive(Debug, thiserror::Error)]
#[error("{}", describe(.0))]
struct Described(#[source] StorageError);

fn describe(error: &StorageError) -> String {
    match error {
        StorageError::Io { operation, source } => format!("storage cannot {operation}: {source}"),
        other => other.to_string(),
    }
}
