//! What happened, kept for a while by each node: who owned which shard from when to when, and why.
//!
//! It is for people who ask afterwards. Nothing is decided by it, it is in no snapshot, and nodes may keep
//! it for different times: a node that got a snapshot knows what happened before it no more, and says so.
//!
//! ```text
//!   apply ─▶ Writer ─▶ parts of an entry's events, their index by shard    the batch of the records
//!                          │
//!                     Table::History ◀── Reader (rpc)     ◀── prune: the oldest segment at a time
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `keys` | the layout of the table |
//! | `part` | the events of an entry as they are kept |
//! | `names` | names of the groups and workers in them |
//! | `segment` | a stretch of history, which is pruned as a whole |
//! | `writer` | what is applied becomes history |
//! | `reader`, `query` | events in order, filtered, page by page |
//! | `tenures` | who owned a shard |
//! | `pruning` | what is too old or too much goes |
//!
//! # Invariants
//!
//! * History is written in the batch of the records that changed with it: after a crash both are there
//!   or neither, and the index names what there is.
//! * Nothing that is kept is missing in between without a gap that says so.
//! * Pruning holds up nothing that is applied: a step is two deletions of ranges.

mod keys;
mod names;
mod part;
mod pruning;
mod query;
mod reader;
mod segment;
mod tenures;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::time::Duration;

use tenure_ownership::ids::Revision;

pub(crate) use self::keys::{gap as gap_record, segments_range};
pub(crate) use self::names::Names;
pub use self::part::{Fact, NodeNote};
pub(crate) use self::pruning::{forget, prune_step};
pub use self::query::{Gap, Happened, Page, Query};
pub(crate) use self::reader::Reader;
pub use self::tenures::{Mark, ShardHistory, Tenure};
pub(crate) use self::writer::{Occasion, Writer, Written};

/// How much history a node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// How long; zero keeps none.
    pub keep: Duration,
    /// Events, at most.
    pub events_max: u64,
}

impl Default for HistoryOptions {
    /// A week, so that on Monday one can ask about the weekend; ten million events take about half a
    /// gigabyte of disk.
    fn default() -> Self {
        Self {
            keep: Duration::from_secs(7 * 24 * 3600),
            events_max: 10_000_000,
        }
    }
}

impl HistoryOptions {
    /// Tells whether any history is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.keep.is_zero()
    }
}

/// A position among all that happened: the revision of the entry, and the place among its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Log index of the entry.
    pub revision: Revision,
    /// Place among the events of the entry, from 0.
    pub ordinal: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.ordinal)
    }
}
