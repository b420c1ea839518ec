//! The adapter of the replicated store, against a service that keeps its contract with the store in
//! memory, and misbehaves in transport.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

mod contract;
#[path = "../script/mod.rs"]
mod script;
mod service;
mod together;
mod transport;
