//! Policy: what all nodes must agree on about a group, so it lives in the log.
//!
//! What may differ from node to node is configuration and lives in a file.

mod placing;

use std::collections::BTreeMap;
use std::time::Duration;

use minicbor::{Decode, Encode};

pub use placing::BalanceBy;

/// Bounds of every duration and number of a [`Policy`], inclusive. Sources: the defaults table of `docs/architecture.md`.
pub mod bounds {
    use std::ops::RangeInclusive;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Session ttl.
    pub const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
    /// Shortest disconnect grace; the longest is the ttl.
    pub const DISCONNECT_GRACE_MIN: Duration = Duration::from_millis(100);
    /// Restart grace.
    pub const RESTART_GRACE: RangeInclusive<Duration> = Duration::ZERO..=HOUR;
    /// Lock delay.
    pub const LOCK_DELAY: RangeInclusive<Duration> = Duration::ZERO..=HOUR;
    /// Drain timeout.
    pub const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=DAY;
    /// Opening deadline.
    pub const OPENING_DEADLINE: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
    /// Load factor in thousandths.
    pub const LOAD_FACTOR_PERMILLE: RangeInclusive<u32> = 1_000..=10_000;
    /// Shards of one group.
    pub const SHARDS: RangeInclusive<u32> = 1..=1_000_000;
    /// Bytes of one value in the replicated store.
    pub const CHECKPOINT_BYTES: RangeInclusive<u32> = 1..=1_048_576;
    /// Most labels that a policy requires, and most that it prefers.
    pub const LABELS_MAX: usize = 16;
    /// Imbalance that is left alone, in thousandths of the mean.
    pub const IMBALANCE_PERMILLE: RangeInclusive<u32> = 0..=10_000;
    /// Planned moves in a minute.
    pub const MOVES_PER_MINUTE: RangeInclusive<u32> = 1..=1_000_000;
    /// Owners that a shard may crash before it is quarantined; 0 never quarantines one.
    pub const CRASHES: RangeInclusive<u32> = 0..=1_000;
}

/// How a group's sessions, handoffs and placement behave.
///
/// `ttl` and `disconnect_grace` are copied into a session when it registers: a change applies to later
/// sessions only, so that a worker and the coordinator always count with the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Policy {
    /// How long a session lives without a heartbeat. 1 s to 10 min.
    #[cbor(n(0), with = "crate::codec::millis")]
    pub ttl: Duration,
    /// How long a session lives after its stream broke. 100 ms to `ttl`.
    #[cbor(n(1), with = "crate::codec::millis")]
    pub disconnect_grace: Duration,
    /// How long the shards of an ended worker wait for it to register again. 0 to 1 h.
    #[cbor(n(2), with = "crate::codec::millis")]
    pub restart_grace: Duration,
    /// How long a shard is granted to nobody after an unclean end. 0 to 1 h. For stores that cannot check a token.
    #[cbor(n(3), with = "crate::codec::millis")]
    pub lock_delay: Duration,
    /// How long a worker may take to release a revoked shard before it is forced off. 0 to 24 h.
    #[cbor(n(4), with = "crate::codec::millis")]
    pub drain_timeout: Duration,
    /// How long a worker may take to open a granted shard before it is revoked. 1 s to 24 h.
    #[cbor(n(5), with = "crate::codec::millis")]
    pub opening_deadline: Duration,
    /// Most shards on the move at one time, 1 to all; `None` means a tenth of the group's shards, at least 16.
    #[n(6)]
    pub handoffs_in_flight_max: Option<u32>,
    /// Most shards of a worker relative to its fair share, in thousandths. 1,000 to 10,000.
    #[n(7)]
    pub load_factor_permille: u32,
    /// Largest value in the replicated store, in bytes. 1 to 1 MiB.
    #[n(8)]
    pub checkpoint_bytes_max: u32,
    /// Most bytes the group's checkpoints may take together in the replicated store.
    #[n(9)]
    pub checkpoint_total_bytes_max: u64,
    /// Most shards of one worker whatever its share, 1 to all; `None` sets no such limit. What all workers
    /// together cannot hold stays unowned.
    #[n(12)]
    pub worker_shards_max: Option<u32>,
    /// Labels without which a worker is given nothing and is emptied. At most 16.
    #[n(13)]
    pub required_labels: BTreeMap<String, String>,
    /// Labels whose workers come first among equals. At most 16.
    #[n(14)]
    pub preferred_labels: BTreeMap<String, String>,
    /// The label whose value is a worker's zone; empty if workers have none. Shards spread over zones
    /// by weight.
    #[n(15)]
    pub zone_label: String,
    /// What is evened out among workers.
    #[n(16)]
    pub balance_by: BalanceBy,
    /// With [`BalanceBy::Load`]: how far above the mean the fullest worker may be before anything moves, in
    /// thousandths. 0 to 10,000.
    #[n(17)]
    pub imbalance_tolerated_permille: u32,
    /// Most served shards moved in a minute to even workers out, 1 to 1,000,000; `None` sets no such limit.
    /// Drains, and grants of unowned shards, do not count.
    #[n(18)]
    pub moves_per_minute_max: Option<u32>,
    /// Owners that a shard may crash, one after another, before it is granted to nobody. 0 to 1,000; 0, the
    /// default, never stops.
    #[n(19)]
    pub crashes_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            disconnect_grace: Duration::from_millis(750),
            restart_grace: Duration::ZERO,
            lock_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            opening_deadline: Duration::from_secs(60),
            handoffs_in_flight_max: None,
            load_factor_permille: 1_100,
            checkpoint_bytes_max: 1_048_576,
            // A node keeps every checkpoint on disk and copies all of them into snapshots.
            checkpoint_total_bytes_max: 16 << 30,
            worker_shards_max: None,
            required_labels: BTreeMap::new(),
            preferred_labels: BTreeMap::new(),
            zone_label: String::new(),
            balance_by: BalanceBy::Shards,
            imbalance_tolerated_permille: 200,
            moves_per_minute_max: None,
            // A worker that is merely cut off or stopped looks as if it had crashed, and a shard that nobody
            // serves for that is worse than one that goes round: who has such shards says so.
            crashes_max: 0,
        }
    }
}

/// A policy value outside its bounds. `field` is the name users write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy.{field} is {value}, allowed is {allowed}")]
pub struct PolicyError {
    /// Name of the field.
    pub field: &'static str,
    /// The refused value with its unit.
    pub value: String,
    /// The allowed range with its unit.
    pub allowed: String,
}

fn within<T: PartialOrd + std::fmt::Debug>(
    field: &'static str,
    value: T,
    allowed: &std::ops::RangeInclusive<T>,
) -> Result<(), PolicyError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(PolicyError {
        field,
        value: format!("{value:?}"),
        allowed: format!("{:?} to {:?}", allowed.start(), allowed.end()),
    })
}

impl Policy {
    /// The window in which an owner may believe that it still owns: `W = min(ttl, disconnect_grace)`.
    pub fn belief_window(&self) -> Duration {
        self.ttl.min(self.disconnect_grace)
    }

    /// Most shards of a group of `shards` that may be on the move at one time.
    pub fn handoffs_in_flight(&self, shards: u32) -> u32 {
        self.handoffs_in_flight_max
            .unwrap_or_else(|| (shards / 10).max(16))
            .min(shards)
            .max(1)
    }

    /// Checks every value against its bounds and against the others.
    ///
    /// # Errors
    /// The first [`PolicyError`] found, in the order of the fields.
    pub fn validate(&self, shards: u32) -> Result<(), PolicyError> {
        within("ttl", self.ttl, &bounds::TTL)?;
        // A broken stream must never keep a session alive for longer than silence does.
        within(
            "disconnect_grace",
            self.disconnect_grace,
            &(bounds::DISCONNECT_GRACE_MIN..=self.ttl),
        )?;
        within("restart_grace", self.restart_grace, &bounds::RESTART_GRACE)?;
        within("lock_delay", self.lock_delay, &bounds::LOCK_DELAY)?;
        within("drain_timeout", self.drain_timeout, &bounds::DRAIN_TIMEOUT)?;
        within(
            "opening_deadline",
            self.opening_deadline,
            &bounds::OPENING_DEADLINE,
        )?;
        if let Some(handoffs) = self.handoffs_in_flight_max {
            within("handoffs_in_flight_max", handoffs, &(1..=shards.max(1)))?;
        }
        within(
            "load_factor_permille",
            self.load_factor_permille,
            &bounds::LOAD_FACTOR_PERMILLE,
        )?;
        within(
            "checkpoint_bytes_max",
            self.checkpoint_bytes_max,
            &bounds::CHECKPOINT_BYTES,
        )?;
        within(
            "checkpoint_total_bytes_max",
            self.checkpoint_total_bytes_max,
            &(1..=u64::MAX),
        )?;
        self.validate_placing(shards)
    }
}
