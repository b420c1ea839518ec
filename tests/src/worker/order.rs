//! What a story tells a worker process to do: one JSON object a line.

use std::io;
use std::thread;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Orders that may wait for the worker; the story waits when it gives more.
const ORDERS_MAX: usize = 64;

/// What a worker process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// The next write waits between the SDK's own check and the call of the store.
    Hold,
    /// The write that waits goes on.
    Proceed,
    /// Write to every shard that is held.
    Write,
    /// Give one shard back although nobody asked for it.
    GiveBack {
        /// The shard.
        shard: u32,
    },
    /// Stop in good order.
    Stop,
}

/// Reads orders from stdin. The end of stdin, which is the end of the story, is an order to stop.
///
/// On a thread that is not joined: it sits in a read that nothing but the other end can finish, and
/// ends with the process.
pub fn orders() -> mpsc::Receiver<Order> {
    let (sender, receiver) = mpsc::channel(ORDERS_MAX);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str::<Order>(&line) {
                Ok(order) => {
                    if sender.blocking_send(order).is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, %line, "unknown order"),
            }
        }
        // Whoever has stopped already needs no order.
        let _stopped = sender.blocking_send(Order::Stop);
    });
    receiver
}
