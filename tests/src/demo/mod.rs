//! The main job: words are counted exactly once while processes are killed.
//!
//! ```text
//!  every text file ── spread over 64 shards ──▶ 4 workers, later 5 ──▶ fenced checkpoints ─┐
//!        │                                        ▲ kill -9, SIGSTOP   in 3 coordinators   │
//!        │                                        └── faults, at points of progress        │
//!        └──────────── plain count, and `wc -w` ───────────── compare ◀────────────────────┘
//! ```
//!
//! A checkpoint of a shard is a position in its input together with the counts up to there, so a word
//! is counted twice, or never, exactly if a write of a worker that had lost its shard is accepted.

mod compare;
mod count;
mod crew;
mod display;
mod faults;
mod input;
mod pace;
mod show;
mod summary;
mod wc;

pub use count::{Counting, Position};
pub use input::{Input, InputFile};
pub use pace::{Pace, Point};
pub use show::{Options, run};
pub use summary::Summary;

/// Name of the group.
pub const GROUP: &str = "words";

/// Number of shards.
pub const SHARDS: u32 = 64;
