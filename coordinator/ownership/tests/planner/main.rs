//! What the planner promises, on states that commands have made.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod cases;
mod golden;
mod loads;
mod modes;
mod placing;
mod properties;
mod world;
