//! Stories on real processes, checkers of what happened in them, and the demo.
//!
//! ```text
//!   story ──▶ Cluster: coordinators, killed, stopped, cut off, started again
//!         ──▶ WorkerProcess: workers that obey orders and report what they believe
//!         ──▶ Client: what operators and routers ask
//!         ◀── Recorder: every event, from every node ──▶ History: may it have happened?
//! ```
//!
//! Not for rules that can be tested without a process: those have transcripts and properties where they
//! are. Invariants:
//!
//! 1. No process outlives the story that started it, also when the story panics.
//! 2. A story waits for what happens, with a deadline, and says what was missing when it is over.
//! 3. No two stories share a port, a folder or a cluster.

pub mod binaries;
pub mod chaos;
pub mod client;
pub mod cluster;
pub mod demo;
pub mod failure;
pub mod history;
pub mod leaders;
pub mod ownership;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod recorder;
pub mod rest;
pub mod wait;
pub mod words;
pub mod worker;
