//! What is fast, measured.
//!
//! A machine is never the same twice: disks pause, other programs run. So nothing here is measured alone.
//! Things that are compared run in turn, block by block, in one process, and what counts is how they stand
//! to each other within a turn:
//!
//! ```text
//!   round 1: A B   round 2: B A   round 3: A B   …      the order alternates, so that drift cancels
//!            └ratio┘        └ratio┘                     a ratio for each round, then their spread
//! ```
//!
//! [`rounds`] runs the blocks, [`spread`] says how figures are spread, [`table`] writes them down. What is
//! measured is in the benchmark targets: `fence/` compares fenced with unfenced writes.

pub mod rounds;
pub mod spread;
pub mod table;
