//! What was said of the place of single shards: pins, anti-pins and quarantine.
//!
//! Few shards have any of it, so it is not in their records but in one beside them.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::ids::{Revision, WorkerName};

/// Most workers that one shard is kept off.
pub const KEPT_OFF_MAX: usize = 8;

/// What was said of the place of one shard. A record exists while it says something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Placement {
    /// The worker the shard belongs on. It is placed there although the worker has its share, and
    /// elsewhere while that worker is away or is being emptied. `None` for most.
    #[n(0)]
    pub pinned_to: Option<WorkerName>,
    /// Workers the shard is never placed on, at most [`KEPT_OFF_MAX`]; empty for a pinned shard.
    #[n(1)]
    pub kept_off: BTreeSet<WorkerName>,
    /// Set while the shard is granted to nobody, because one owner after the other crashed.
    #[n(2)]
    pub quarantine: Option<Quarantine>,
}

impl Placement {
    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a shard is granted to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Quarantine {
    /// How many owners crashed while they had the shard.
    #[n(0)]
    pub crashes: u32,
    /// Since when.
    #[n(1)]
    pub since: Revision,
}
