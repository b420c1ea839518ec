//! Sessions and workers: a worker is a name in a group, a session is one registration of one of its processes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::ids::{GroupId, ProcessNonce, Revision, SessionId, WorkerName};

/// A live session. A session that has ended has no record, so what is found here is live.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Session {
    /// The group the session serves.
    #[n(0)]
    pub group: GroupId,
    /// The worker's name.
    #[n(1)]
    pub worker: WorkerName,
    /// The process that registered; a stream must present it to resume.
    #[n(2)]
    pub nonce: ProcessNonce,
    /// How long the session lives without a heartbeat. Fixed at registration.
    #[cbor(n(3), with = "crate::codec::millis")]
    pub ttl: Duration,
    /// The belief window W, also the grace after a broken stream. Fixed at registration.
    #[cbor(n(4), with = "crate::codec::millis")]
    pub window: Duration,
    /// Share of the group's shards relative to other workers, 1 to 10,000.
    #[n(5)]
    pub weight: u32,
    /// Labels for people and placement, at most 32.
    #[n(6)]
    pub labels: BTreeMap<String, String>,
    /// Where routers send requests for this worker's shards; may be empty.
    #[n(7)]
    pub address: String,
    /// The first session of its process: this one, unless the process had others before. Says how old
    /// a process is, so that of two that fight over a name the newer wins.
    #[n(8)]
    pub first: SessionId,
}

impl Session {
    /// Says whether its process is newer than one whose first session was `first`. A process that never
    /// had a session is newer than all.
    ///
    /// The older of two must not take the name back, or they would replace each other for ever. The first
    /// sessions are compared, not the latest: after both processes lost theirs, the older may be the first
    /// to register again, and is still the older.
    #[must_use]
    pub fn is_newer_than(&self, first: Option<SessionId>) -> bool {
        first.is_some_and(|first| first < self.first)
    }
}

/// Bounds of a worker's weight, inclusive.
pub const WEIGHT: RangeInclusive<u32> = 1..=10_000;

/// Most labels of a session.
pub const LABELS_MAX: usize = 32;

/// Bytes of a label's key, bounds inclusive.
pub const LABEL_KEY_BYTES: RangeInclusive<usize> = 1..=64;

/// Most bytes of a label's value.
pub const LABEL_BYTES_MAX: usize = 256;

/// Most bytes of an address: a long host name with a port.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// What is known of a worker name: its live session, and what operators said of it.
///
/// A record exists while the worker has a session or is not [`WorkerMode::Active`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Worker {
    /// The live session, if any. A worker has at most one (P4).
    #[n(0)]
    pub session: Option<SessionId>,
    /// Whether shards may be placed on it.
    #[n(1)]
    pub mode: WorkerMode,
    /// Until when a paused worker is waited for; `None` in every other mode.
    #[n(2)]
    pub pause: Option<Pause>,
}

/// How long the shards of a paused worker wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pause {
    /// Revision at which the pause began. The time counts from when the leader saw it.
    #[n(0)]
    pub since: Revision,
    /// How long it may last, within [`PAUSE_TIMEOUT`].
    #[cbor(n(1), with = "crate::codec::millis")]
    pub timeout: Duration,
}

/// Bounds of the length of a pause, inclusive.
pub const PAUSE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

/// Whether the planner may place shards on a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum WorkerMode {
    /// Takes shards.
    #[default]
    #[n(0)]
    Active,
    /// Takes no shards, and those it has are moved away.
    #[n(1)]
    Draining,
    /// Takes no shards, and keeps those it has for as long as its session lives.
    #[n(2)]
    Cordoned,
    /// Is about to be restarted: takes no shards but its own, which wait for it while it is away.
    #[n(3)]
    Paused,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum SessionEnd {
    /// The worker said that it stops, and gave its shards back. The only clean end.
    #[n(0)]
    Left,
    /// No heartbeat arrived in time.
    #[n(1)]
    Expired,
    /// A newer process registered under the name.
    #[n(2)]
    Replaced,
    /// The group was deleted.
    #[n(3)]
    GroupDeleted,
}
