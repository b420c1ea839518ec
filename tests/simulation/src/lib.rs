//! The real coordinators and workers in one process, on simulated networks, disks and clocks.
//!
//! ```text
//!              seed
//!                │
//!          ┌─────▼─────┐  faults, orders   ┌───────────────────────────────────┐
//!          │ schedule  │──────────────────▶│ machines: node × 3, worker × 4,   │
//!          └───────────┘                   │ client (operators and watchers)   │
//!   after every step:                      │  process ── clock, disk, network  │
//!          ┌───────────┐  what is believed,└───────────────────────────────────┘
//!          │ history   │◀─ applied, written, watched
//!          └───────────┘
//! ```
//!
//! One seed decides everything: the faults, the order in which tasks run, delays, elections, what
//! handlers do. So a run can be repeated, byte for byte, and each has a process of its own. What would differ from run to run is
//! replaced: the network is turmoil's, time stands still unless a step moves it, and whatever asks the
//! operating system for randomness is answered from the seed.
//!
//! # Not here
//!
//! RocksDB, TLS, HTTP, and several threads: those are what the tests on real processes are for.

pub mod batch;
pub mod client;
pub mod clock;
pub mod dice;
pub mod disk;
pub mod history;
pub mod machine;
pub mod network;
pub mod node;
pub mod process;
pub mod regressions;
pub mod run;
pub mod seed;
pub mod store;
pub mod totals;
pub mod trace;
pub mod worker;
