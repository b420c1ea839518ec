//! What a worker process reports: one JSON object a line.

use std::io::{self, Write};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::call::{Answer, Asked};

/// Something a worker process saw. Moments are nanoseconds of `CLOCK_BOOTTIME`, which is one clock for
/// all processes of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// A shard is sealed and read.
    Claimed {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// Bytes of its input that the checkpoint covers.
        bytes: u64,
    },
    /// A checkpoint was accepted.
    Written {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// Bytes of its input that the checkpoint covers.
        bytes: u64,
    },
    /// A write waits between the SDK's own check and the call of the store.
    Held {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
    },
    /// A store refused a write because its tenure was over.
    Refused {
        /// The shard.
        shard: u32,
        /// The epoch of the write.
        presented: u64,
        /// The epoch that is current.
        current: u64,
    },
    /// A handle is dead.
    Lost {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// Why, for people.
        reason: String,
    },
    /// For how long the worker was seen to believe that nobody else owns a shard.
    Believed {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// A moment at or before which belief had begun.
        from_ns: u64,
        /// A moment at or after which belief went on.
        until_ns: u64,
    },
    /// A store is about to be called.
    Called {
        /// The number of the call, of those of the process.
        call: u64,
        /// The store.
        store: String,
        /// The shard.
        shard: u32,
        /// The token; `None` for a read, which needs none.
        token: Option<String>,
        /// The moment.
        at_ns: u64,
        /// What for.
        #[serde(flatten)]
        asked: Asked,
    },
    /// A store has answered.
    Answered {
        /// The number of the call.
        call: u64,
        /// The moment.
        at_ns: u64,
        /// What.
        #[serde(flatten)]
        answer: Answer,
    },
    /// The worker has stopped.
    Ended {
        /// Why: empty if it was asked to, otherwise the error.
        error: String,
        /// Sessions it had.
        sessions: u64,
    },
}

/// Where a worker reports. Clones are the same place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reports;

impl Reports {
    /// Writes a report at once, as one line.
    ///
    /// A story that went away is no error: the end of stdin says so as well.
    pub fn send(&self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let mut stdout = io::stdout().lock();
            let _gone = stdout.write_all(&line).and_then(|()| stdout.flush());
        }
    }
}

/// Returns the moment, in nanoseconds of `CLOCK_BOOTTIME`.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
