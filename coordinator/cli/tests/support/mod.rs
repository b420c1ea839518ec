//! A coordinator whose answers are written down here, and a way to run a command against it.
//!
//! `command` runs; `node` is the coordinator, whose services are in `admin`, `ownership`, `cluster` and `history`;
//! what they answer with is in `sample` and `watched`.

mod admin;
mod cluster;
mod command;
mod history;
mod node;
mod ownership;
mod sample;
mod watched;

pub(crate) use self::command::{Program, Ran, tenure, tenure_until};
pub(crate) use self::node::{Node, Role};
pub(crate) use self::watched::at;

/// The largest number on the wire: it does not survive a reader that takes it for a double.
pub(crate) const LARGEST: u64 = i64::MAX as u64;
const CLUSTER: [u8; 16] = [0x5e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0xde];
