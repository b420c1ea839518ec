//! The rules of Tenure: who owns which shard, at which epoch.
//!
//! This crate decides and does nothing else. It has no async, no I/O, no clock, no randomness and no
//! logging; the check script fails if its dependencies gain any of them. The same commands in the
//! same order give the same state on every node (P9).
//!
//! ```text
//!   Command + revision ──▶ apply(&mut State) ──▶ Applied { events or rejection, records to write }
//!   &State + Observed  ──▶ planner::plan     ──▶ Plan { moves, report }   (the moves become a Command)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | names and numbers |
//! | [`policy`], [`session`], [`shard`], [`group`] | the records |
//! | [`shards`] | the shards of a group |
//! | [`placement`] | pins, anti-pins and quarantine of single shards |
//! | [`state`] | all records, questions |
//! | [`quota`] | how much there may be |
//! | [`command`], [`event`], [`rejection`] | what enters the log, what comes of it |
//! | [`apply()`] | the sole function that changes a state |
//! | [`invariants`] | what holds after every command |
//! | [`planner`] | which moves to propose |
//! | [`record`] | the state on disk |
//! | [`feature`] | behaviour switched on at one log index |
//! | [`restored`] | what a cluster made from a backup waits for |
//!
//! # Invariants
//!
//! They hold after every command, and [`invariants::check`] finds what breaks them. Promises (P) are
//! those of `docs/architecture.md`.
//!
//! 1. Whoever owns a shard is a live session of its group, and the index of owners says the same (P4).
//! 2. A live session is the session of its worker, and a worker's session is live: one per name (P4).
//! 3. An owned shard has an epoch; no fence, write or ready store is above it; the fence of its own
//!    epoch is its owner's (P1, P2).
//! 4. A group has as many shards as it was created with, and its name leads to it.
//! 5. Nobody opens, serves or is next in line for a shard of a group under deletion.
//! 6. A name belongs to a group or to a tombstone, never to both.
//! 7. The bytes of checkpoints are accounted for exactly.
//! 8. A worker's record says something: it has a session, or is not as workers are by default.
//! 9. Nothing is newer than the state's revision.
//! 10. Before the cluster has an identity there is nothing else.
//! 11. Quotas are kept.
//! 12. No change waits to be written.
//! 13. A group's indices of unowned and of revoked shards say what its shards say.
//! 14. What is said of a shard's place says something, of a shard that exists, and a pin and anti-pins
//!     exclude each other.
//! 15. Nobody opens, serves or is next in line for a shard in quarantine.
//! 20. Nobody owns a shard while a restored cluster waits for owners from before (P11).

// Where every node must come to the same end, a number that rounds or an index that panics has no place.
#![warn(clippy::float_arithmetic, clippy::indexing_slicing)]

pub mod apply;
mod codec;
pub mod command;
pub mod event;
pub mod feature;
pub mod group;
pub mod ids;
pub mod invariants;
pub mod placement;
pub mod planner;
pub mod policy;
pub mod quota;
pub mod record;
pub mod rejection;
pub mod restored;
pub mod session;
pub mod shard;
mod shard_set;
pub mod shards;
pub mod state;
pub mod subject;
mod token;

pub use apply::Applied;
pub use apply::apply;
pub use command::Command;
pub use event::Event;
pub use rejection::Rejection;
pub use state::State;
