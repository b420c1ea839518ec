//! Chaos on real processes: coordinators and workers that are killed, stopped, cut off and lied to by
//! their clocks and disks, and the question whether what they did may have happened.
//!
//! ```text
//!   seed ──▶ schedule ──▶ stage: faults ──▶ network of namespaces, processes, clocks, disks
//!                                             │ what everybody did and was told, line by line
//!                                             ▼
//!                                      histories ──▶ check: violations
//! ```
//!
//! A seed gives the same faults at the same times, not the same run: processes, disks and networks have a
//! will of their own. A run that went wrong keeps its histories, and they can be checked again.

pub mod check;
pub mod coordinators;
pub mod delay;
pub mod disk;
pub mod lines;
pub mod network;
pub mod news;
mod reader;
pub mod rules;
mod run;
pub mod schedule;
mod stage;
pub mod tamper;
pub mod workers;

pub use run::{Options, Summary, run, verdict};

/// Name of the group.
pub const GROUP: &str = "chaos";

/// Number of shards.
pub const SHARDS: u32 = 16;

/// How many stores each shard is written to: the replicated one, and a file that all workers share.
pub const STORES: usize = 2;
