//! How much of everything there may be in one cluster.
//!
//! The state lives in the memory of every node, so nothing in it may grow without a bound. The bounds
//! are far above what the budgets of `docs/architecture.md` ask for, and are the same for all nodes:
//! a node that counted differently would refuse what the others accept.

/// Groups, also those under deletion: each has a header of about a kilobyte.
pub const GROUPS_MAX: usize = 10_000;

/// Names of groups that exist or existed: a tombstone of about a hundred bytes stays of each, for ever.
///
/// Checked when a group is created, so that the removal of one never fails for lack of room.
pub const GROUP_NAMES_MAX: usize = 100_000;

/// Shards of all groups together: at 512 bytes each they take 2 GiB.
pub const SHARDS_MAX: u64 = 4_000_000;

/// Workers of one group that are registered or drained: twice the largest group that is designed for.
pub const WORKERS_PER_GROUP_MAX: usize = 20_000;

/// Stores attached to one shard that are remembered.
pub const STORES_PER_SHARD_MAX: usize = 16;

/// Shards of one group of whose place something is said: a few hundred bytes each.
pub const PLACEMENTS_PER_GROUP_MAX: usize = 10_000;
