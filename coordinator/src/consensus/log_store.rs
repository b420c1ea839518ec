//! openraft's log and vote over [`Storage`].
//!
//! # Invariants
//!
//! * The vote and the log share one write-ahead log and one syncer, so neither is ever durable
//!   before something that was written earlier.
//! * A vote is durable before [`RaftLogStorage::save_vote`] returns; entries are readable when
//!   [`RaftLogStorage::append`] returns and durable before its callback gets `Ok`.
//! * There is no hole: an append continues the log, a truncation removes its end, a purge its begin
//!   together with the note of how far it went.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, PoisonError, RwLock};

use futures::{Stream, stream};
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};

use super::codec;
use super::group_commit::GroupCommit;
use super::log_size::LogSize;
use super::log_tail::LogTail;
use super::meta;
use super::types::{Entry, LogId, TypeConfig, Vote};
use crate::storage::{Batch, Storage, StorageError};

/// Bytes of entries in one message to a peer, unless a single entry is larger. Large enough that
/// the cost of a message does not matter, small enough that one does not hold up the next by more
/// than some milliseconds.
const APPEND_BYTES_MAX: usize = 1 << 20;

/// Bytes of entries read at a time to be applied.
const APPLY_READ_BYTES_MAX: usize = 4 << 20;

/// The log, as the one task that writes to it sees it.
pub(super) struct LogStore {
    reader: LogReader,
    commit: GroupCommit,
    size: Arc<LogSize>,
    purged: Option<LogId>,
    last: Option<LogId>,
}

/// Reads the log. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogReader {
    storage: Arc<dyn Storage>,
    tail: Arc<LogTail>,
    vote: Arc<RwLock<Option<Vote>>>,
}

/// A log as it was found, before anything writes to it.
pub(super) struct FoundLog {
    reader: LogReader,
    purged: Option<LogId>,
    last: Option<LogId>,
}

impl FoundLog {
    /// Reads the log.
    ///
    /// # Errors
    ///
    /// [`StorageError`] if what is stored cannot be read, or cannot be a log.
    pub(super) fn read(storage: Arc<dyn Storage>) -> Result<Self, StorageError> {
        let vote = meta::vote(storage.as_ref())?;
        let purged = meta::purged(storage.as_ref())?;
        let reader = LogReader {
            storage,
            tail: Arc::default(),
            vote: Arc::new(RwLock::new(vote)),
        };
        reader.verify(purged.as_ref())?;
        let last = reader.last_entry()?.or(purged);
        Ok(Self {
            reader,
            purged,
            last,
        })
    }
}

impl LogStore {
    /// Goes on with a log.
    pub(super) fn new(found: FoundLog, commit: GroupCommit, size: Arc<LogSize>) -> Self {
        Self {
            reader: found.reader,
            commit,
            size,
            purged: found.purged,
            last: found.last,
        }
    }
}

impl LogReader {
    /// Reads the whole log once: a node whose log has a hole must not vote as if it had all of it.
    fn verify(&self, purged: Option<&LogId>) -> Result<(), StorageError> {
        let Some(last) = self.storage.last_log_index()? else {
            return Ok(());
        };
        let mut begins = purged.map(|purged| purged.index() + 1);
        loop {
            let next = begins.unwrap_or(0);
            if next > last {
                return Ok(());
            }
            let records = self.storage.log(next, last + 1, APPLY_READ_BYTES_MAX)?;
            match (records.first(), records.last()) {
                (Some((first, _)), Some((end, _))) if begins.is_none_or(|next| *first == next) => {
                    begins = Some(end + 1);
                }
                _ => {
                    return Err(StorageError::Corrupt {
                        what: format!("log has no entry {next}"),
                    });
                }
            }
        }
    }

    fn last_entry(&self) -> Result<Option<LogId>, StorageError> {
        let Some(index) = self.storage.last_log_index()? else {
            return Ok(None);
        };
        Ok(self
            .read(index, index + 1, usize::MAX)?
            .last()
            .map(|entry| entry.log_id))
    }

    fn read(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<Entry>, StorageError> {
        if let Some(entries) = self.tail.read(from, to, bytes_max) {
            return Ok(entries);
        }
        let records = self.storage.log(from, to, bytes_max)?;
        let mut entries = Vec::with_capacity(records.len());
        for (index, record) in records {
            entries.push(codec::decode_entry(index, record)?);
        }
        Ok(entries)
    }

    /// Reads entries from exactly `from` on; none only if the log ends before it.
    fn read_from(&self, from: u64, to: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let entries = self.read(from, to, bytes_max)?;
        let is_missing = match entries.first() {
            Some(first) => first.log_id.index() != from,
            None => {
                from < to
                    && self
                        .storage
                        .last_log_index()?
                        .is_some_and(|last| last >= from)
            }
        };
        if is_missing {
            return Err(StorageError::Corrupt {
                what: format!("log has no entry {from}"),
            }
            .into());
        }
        Ok(entries)
    }
}

/// Translates a range to `from..to`.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index + 1,
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index + 1,
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        Ok(self.read(from, to, usize::MAX)?)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(*self.vote.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read_from(start, end, APPEND_BYTES_MAX)
    }

    /// Reads committed entries to apply them, some at a time: after a restart there may be more
    /// than fit into memory.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        let chunks = stream::try_unfold((self.clone(), from), move |(reader, from)| async move {
            if from >= to {
                return Ok(None);
            }
            let entries = reader.read_from(from, to, APPLY_READ_BYTES_MAX)?;
            let Some(last) = entries.last() else {
                return Ok(None);
            };
            let next = last.log_id.index() + 1;
            let chunk = stream::iter(entries.into_iter().map(Ok));
            Ok::<_, io::Error>(Some((chunk, (reader, next))))
        });
        futures::TryStreamExt::try_flatten(chunks)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.reader.try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.reader.read_vote().await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        Ok(LogState {
            last_purged_log_id: self.purged,
            last_log_id: self.last,
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        // Readers see it first: a replication stream of the leadership that this vote ends must
        // stop before entries are truncated.
        *self
            .reader
            .vote
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(*vote);
        let mut batch = Batch::new();
        meta::put_vote(&mut batch, vote);
        self.reader.storage.write(batch)?;
        self.commit.durable().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut batch = Batch::new();
        for entry in &entries {
            batch.put_log(entry.index(), codec::encode_entry(entry.clone()));
        }
        // Written in place, not on a blocking thread: it goes to memory and the page cache.
        let bytes = batch.size_bytes() as u64;
        self.reader.storage.write(batch)?;
        if let Some(last) = entries.last() {
            self.size.append(last.index(), bytes);
            self.last = Some(last.log_id());
        }
        self.reader.tail.append(entries);
        self.commit
            .complete(move |synced| callback.io_completed(synced))
            .await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let from = last_log_id.map_or(0, |log_id| log_id.index() + 1);
        let mut batch = Batch::new();
        batch.truncate_log(from);
        self.reader.storage.write(batch)?;
        self.reader.tail.truncate(from);
        // What is asked to stay may be more than there is.
        if self.last > last_log_id {
            self.last = last_log_id;
        }
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        let mut batch = Batch::new();
        meta::put_purged(&mut batch, &log_id);
        batch.purge_log(log_id.index() + 1);
        self.reader.storage.write(batch)?;
        self.reader.tail.purge(log_id.index() + 1);
        self.size.purge(log_id.index());
        self.purged = Some(log_id);
        // A snapshot that was installed may lie beyond the whole log.
        if self.last.is_none_or(|last| last.index() <= log_id.index()) {
            self.last = Some(log_id);
        }
        Ok(())
    }
}
