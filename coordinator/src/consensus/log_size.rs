//! How large the log is, and when that is too much.
//!
//! Raft counts entries, but one may be a few bytes or a megabyte. A log of large entries would fill
//! the disk long before there are many, so its size is watched as well.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use openraft::async_runtime::watch::WatchReceiver as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::types::{LogId, Raft};

/// The size is noted each time the log has grown by this much.
const MARK_BYTES: u64 = 1 << 20;

/// Counts the bytes of the entries appended since the node started, less those purged.
pub(super) struct LogSize {
    marks: Mutex<Marks>,
    bytes: watch::Sender<u64>,
}

/// Where in the log the size was noted.
#[derive(Default)]
struct Marks {
    /// Index and bytes appended up to and including it, both ascending.
    marks: VecDeque<(u64, u64)>,
    appended: u64,
    purged: u64,
}

impl LogSize {
    /// Begins with what is found at start, which is not counted: it was within bounds.
    pub(super) fn new() -> Self {
        Self {
            marks: Mutex::default(),
            bytes: watch::Sender::new(0),
        }
    }

    /// Counts entries that end at `index`. Entries that replace others are counted again: too much
    /// is counted rather than too little.
    pub(super) fn append(&self, index: u64, bytes: u64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.appended += bytes;
        let noted = marks.marks.back().map_or(0, |(_, noted)| *noted);
        if marks.appended - noted >= MARK_BYTES {
            while marks.marks.back().is_some_and(|(last, _)| *last >= index) {
                marks.marks.pop_back();
            }
            let appended = marks.appended;
            marks.marks.push_back((index, appended));
            self.bytes.send_replace(marks.appended - marks.purged);
        }
    }

    /// Takes away what ends at or before `index`.
    pub(super) fn purge(&self, index: u64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((last, appended)) = marks.marks.front().copied()
            && last <= index
        {
            marks.marks.pop_front();
            marks.purged = appended;
        }
        self.bytes.send_replace(marks.appended - marks.purged);
    }

    /// Returns the last index that can be purged so that about `kept_bytes` remain.
    fn purgeable(&self, kept_bytes: u64) -> Option<u64> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let end = marks.appended.saturating_sub(kept_bytes);
        marks
            .marks
            .iter()
            .rev()
            .find(|(_, appended)| *appended <= end)
            .map(|(index, _)| *index)
    }
}

/// Keeps the log below a size: builds a snapshot and removes what it contains.
pub(super) struct Compactor {
    pub(super) raft: Raft,
    pub(super) size: std::sync::Arc<LogSize>,
    pub(super) bytes_max: u64,
    pub(super) stop: CancellationToken,
}

impl Compactor {
    pub(super) async fn run(self) {
        let stop = self.stop.clone();
        let _ = stop.run_until_cancelled(self.watch()).await;
    }

    async fn watch(&self) {
        let mut bytes = self.size.bytes.subscribe();
        let mut metrics = self.raft.metrics();
        // What was asked for already: the snapshot there was then, and the index of the purge.
        let mut snapshot_asked = None;
        let mut purge_asked = None;
        loop {
            if bytes
                .wait_for(|bytes| *bytes > self.bytes_max)
                .await
                .is_err()
            {
                return;
            }
            let (snapshot, applied) = {
                let metrics = metrics.borrow_and_update();
                let index = |log_id: &Option<LogId>| log_id.as_ref().map(LogId::index);
                (index(&metrics.snapshot), index(&metrics.last_applied))
            };
            if let Some(index) = self.size.purgeable(self.bytes_max / 2) {
                let wanted = Some(index);
                if snapshot >= wanted {
                    if purge_asked < wanted {
                        purge_asked = wanted;
                        self.purge(index).await;
                    }
                } else if applied >= wanted && snapshot_asked != Some(snapshot) {
                    snapshot_asked = Some(snapshot);
                    self.build_snapshot().await;
                }
            }
            // Something was appended, applied, contained in a snapshot or purged.
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    async fn purge(&self, index: u64) {
        tracing::info!(index, "log is purged for its size");
        // An error means that Raft has ended, which the next wait finds out.
        let _ = self.raft.trigger().purge_log(index).await;
    }

    async fn build_snapshot(&self) {
        let _ = self.raft.trigger().snapshot().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn size_is_what_was_appended_less_what_was_purged() {
        let size = LogSize::new();
        (1..=10).for_each(|index| size.append(index, MIB));
        assert_eq!(*size.bytes.borrow(), 10 * MIB);
        assert_eq!(size.purgeable(4 * MIB), Some(6));
        size.purge(6);
        assert_eq!(*size.bytes.borrow(), 4 * MIB);
        assert_eq!(size.purgeable(4 * MIB), None);
    }

    #[test]
    fn replaced_entries_are_counted_again() {
        let size = LogSize::new();
        (1..=10).for_each(|index| size.append(index, MIB));
        (8..=9).for_each(|index| size.append(index, MIB));
        assert_eq!(*size.bytes.borrow(), 12 * MIB);
        size.purge(9);
        assert_eq!(*size.bytes.borrow(), 0);
    }

    #[test]
    fn small_entries_are_noted_together() {
        let size = LogSize::new();
        (0..MIB).for_each(|index| size.append(index, 4));
        assert_eq!(*size.bytes.borrow(), 4 * MIB);
        assert_eq!(size.marks.lock().unwrap().marks.len(), 4);
    }
}
