//! Whole nodes in one process, used through their ports as clients use them.
//!
//! There are no workers here: ownership is made by proposing the commands that the leader would.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod checkpoints;
mod cluster;
mod groups;
mod history;
mod ownership;
mod support;
mod tls;
mod watches;
