//! A stretch of history, which is pruned as a whole: so that pruning is two deletions of ranges, however
//! many events it is about.

use minicbor::{Decode, Encode};
use tenure_ownership::ids::Revision;

use super::HistoryOptions;
use super::keys;
use crate::storage::{Records, StorageError, Table};

/// Into how many segments history is divided, at least. What is kept is up to a 32nd more or less than
/// what was asked for.
const SEGMENTS: u32 = 32;

/// A stretch of history. Times are of this node's wall clock, when it applied the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(super) struct Segment {
    /// The first revision in it, which names it.
    #[n(0)]
    pub(super) first: Revision,
    /// Events in it.
    #[n(1)]
    pub(super) events: u64,
    /// When its first entry was applied, in milliseconds since 1970.
    #[n(2)]
    pub(super) first_ms: u64,
    /// When its last entry was applied.
    #[n(3)]
    pub(super) last_ms: u64,
}

impl Segment {
    /// Begins a segment.
    pub(super) fn begin(first: Revision, now_ms: u64) -> Self {
        Self {
            first,
            events: 0,
            first_ms: now_ms,
            last_ms: now_ms,
        }
    }

    /// Tells whether the next entry belongs into a new segment.
    pub(super) fn is_full(&self, options: &HistoryOptions, now_ms: u64) -> bool {
        let keep_ms = u64::try_from(options.keep.as_millis()).unwrap_or(u64::MAX);
        let age_ms = now_ms.saturating_sub(self.first_ms);
        self.events >= (options.events_max / u64::from(SEGMENTS)).max(1)
            || age_ms >= (keep_ms / u64::from(SEGMENTS)).max(1)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match minicbor::to_vec(self) {
            Ok(bytes) => bytes,
            // Writing to a vector has no error, and no encoder here makes one of its own.
            Err(error) => unreachable!("encoding to memory: {error}"),
        }
    }
}

/// Reads all segments, the oldest first. There are a few dozen.
pub(super) fn all(records: &dyn Records) -> Result<Vec<Segment>, StorageError> {
    let (from, to) = keys::segments_range();
    let mut segments = Vec::new();
    for record in records.scan(Table::History, &from, &to) {
        let (_, value) = record?;
        let segment = minicbor::decode(&value).map_err(|error| StorageError::Corrupt {
            what: format!("history segment: {error}"),
        })?;
        segments.push(segment);
    }
    Ok(segments)
}
