//! The leader's decisions on a driven clock. Each test is a short history of what happened.

mod belief;
mod handoffs;
mod leadership;
mod lost_messages;
mod measured;
mod modes;
mod names;
mod refusals;
mod settling;
mod streams;
mod world;
