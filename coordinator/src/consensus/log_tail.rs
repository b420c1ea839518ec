//! The end of the log, in memory.
//!
//! An entry is read soon after it was appended: by the stream to each follower, and once more to be
//! applied. Nearly all of these reads end here; only a follower that was away, and a node that has just
//! started, go to the disk.
//!
//! # Invariants
//!
//! * What is here is what storage holds: an entry comes in after it was written, and leaves when it is
//!   truncated or purged.
//! * There is no hole, and the last entry is the log's last, unless the tail is empty.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;

use super::types::Entry;

/// Bytes of commands kept, at most, unless a single one is larger. A follower that is behind by more
/// is behind by more than what is in flight.
const BYTES_MAX: usize = 16 << 20;

/// Counted for each entry besides its command.
const ENTRY_BYTES: usize = 128;

/// The newest entries.
#[derive(Default)]
pub(super) struct LogTail {
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// Returns what an entry counts for.
fn size(entry: &Entry) -> usize {
    ENTRY_BYTES
        + match &entry.payload {
            EntryPayload::Normal(command) => command.bytes.len(),
            EntryPayload::Blank | EntryPayload::Membership(_) => 0,
        }
}

impl LogTail {
    /// Adds entries that were written and continue the log.
    pub(super) fn append(&self, entries: Vec<Entry>) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            kept.bytes += size(&entry);
            kept.entries.push_back(entry);
        }
        while kept.bytes > BYTES_MAX && kept.entries.len() > 1 {
            kept.drop_first();
        }
    }

    /// Removes every entry at or above `from`.
    pub(super) fn truncate(&self, from: u64) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        while let Some(last) = kept.entries.pop_back_if(|last| last.index() >= from) {
            kept.bytes -= size(&last);
        }
    }

    /// Removes every entry below `below`.
    pub(super) fn purge(&self, below: u64) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        while kept.first().is_some_and(|first| first < below) {
            kept.drop_first();
        }
    }

    /// Returns the entries with `from <= index < to`, up to the first one past `bytes_max` and at least
    /// one, or `None` if the entry at `from` is not here.
    pub(super) fn read(&self, from: u64, to: u64, bytes_max: usize) -> Option<Vec<Entry>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let skipped = usize::try_from(from.checked_sub(kept.first()?)?).ok()?;
        if skipped >= kept.entries.len() || from >= to {
            return None;
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in kept.entries.range(skipped..) {
            bytes += size(entry);
            if entry.index() >= to || (bytes > bytes_max && !found.is_empty()) {
                break;
            }
            found.push(entry.clone());
        }
        Some(found)
    }
}

impl Kept {
    fn first(&self) -> Option<u64> {
        self.entries.front().map(Entry::index)
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.bytes -= size(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::envelope::Envelope;
    use crate::consensus::types::{EncodedCommand, LogId};
    use bytes::Bytes;

    fn entry(index: u64, command_bytes: usize) -> Entry {
        let command = EncodedCommand {
            bytes: Bytes::from(vec![7; command_bytes]),
            envelope: Envelope::default(),
        };
        Entry::new(
            LogId::new_term_index(1, index),
            EntryPayload::Normal(command),
        )
    }

    fn tail(indices: std::ops::Range<u64>, command_bytes: usize) -> LogTail {
        let tail = LogTail::default();
        tail.append(indices.map(|index| entry(index, command_bytes)).collect());
        tail
    }

    fn indices(tail: &LogTail, from: u64, to: u64, bytes_max: usize) -> Option<Vec<u64>> {
        let entries = tail.read(from, to, bytes_max)?;
        Some(entries.iter().map(Entry::index).collect())
    }

    #[test]
    fn what_was_appended_is_read() {
        let tail = tail(5..10, 1);
        assert_eq!(indices(&tail, 5, 10, usize::MAX), Some(vec![5, 6, 7, 8, 9]));
        assert_eq!(indices(&tail, 7, 9, usize::MAX), Some(vec![7, 8]));
        assert_eq!(indices(&tail, 9, u64::MAX, usize::MAX), Some(vec![9]));
    }

    #[test]
    fn what_is_not_here_is_left_to_storage() {
        let tail = tail(5..10, 1);
        assert_eq!(indices(&tail, 4, 10, usize::MAX), None);
        assert_eq!(indices(&tail, 10, 12, usize::MAX), None);
        assert_eq!(indices(&LogTail::default(), 0, 9, usize::MAX), None);
    }

    #[test]
    fn a_read_is_cut_at_its_bytes_but_is_never_empty() {
        let tail = tail(0..10, 1000);
        assert_eq!(
            indices(&tail, 0, 10, 3 * (1000 + ENTRY_BYTES)),
            Some(vec![0, 1, 2])
        );
        assert_eq!(indices(&tail, 4, 10, 1), Some(vec![4]));
    }

    #[test]
    fn truncated_entries_are_replaced() {
        let tail = tail(0..10, 1);
        tail.truncate(6);
        assert_eq!(indices(&tail, 6, 10, usize::MAX), None);
        tail.append(vec![entry(6, 2)]);
        assert_eq!(indices(&tail, 5, 10, usize::MAX), Some(vec![5, 6]));
    }

    #[test]
    fn a_log_that_was_truncated_below_the_tail_begins_anew() {
        let tail = tail(5..10, 1);
        tail.truncate(3);
        tail.append(vec![entry(3, 1)]);
        assert_eq!(indices(&tail, 3, 4, usize::MAX), Some(vec![3]));
    }

    #[test]
    fn purged_entries_are_gone() {
        let tail = tail(5..10, 1);
        tail.purge(8);
        assert_eq!(indices(&tail, 7, 10, usize::MAX), None);
        assert_eq!(indices(&tail, 8, 10, usize::MAX), Some(vec![8, 9]));
        tail.purge(20);
        assert_eq!(tail.kept.read().unwrap().bytes, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let command_bytes = BYTES_MAX / 8;
        let tail = tail(0..20, command_bytes);
        assert!(tail.kept.read().unwrap().bytes <= BYTES_MAX);
        assert!(indices(&tail, 19, 20, usize::MAX).is_some());
        tail.append(vec![entry(20, 2 * BYTES_MAX)]);
        assert_eq!(indices(&tail, 20, 21, usize::MAX), Some(vec![20]));
        assert_eq!(indices(&tail, 19, 21, usize::MAX), None);
    }
}
