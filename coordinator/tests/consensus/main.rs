//! Clusters of nodes in one process, over loopback: what consensus promises, and what a leader does
//! with it when its network is cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod cluster;
mod leading;
mod support;
