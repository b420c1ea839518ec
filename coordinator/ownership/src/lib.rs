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
//! | [`state`] | all records, questions |
//! | [`command`], [`event`], [`rejection`] | what enters the log, what comes of it |
//! | [`apply()`] | the sole function that changes a state |
//! | [`invariants`] | what holds after every command |
//! | [`planner`] | which moves to propose |
//! | [`record`] | the state on disk |
//! | [`feature`] | behaviour switched on at one log index |

pub mod apply;
mod codec;
pub mod command;
pub mod event;
pub mod feature;
pub mod group;
pub mod ids;
pub mod invariants;
pub mod planner;
pub mod policy;
pub mod record;
pub mod rejection;
pub mod session;
pub mod shard;
pub mod state;

pub use apply::Applied;
pub use apply::apply;
pub use command::Command;
pub use event::Event;
pub use rejection::Rejection;
pub use state::State;
