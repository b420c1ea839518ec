//! Commands on the place of single shards.

use std::collections::BTreeSet;
use std::fmt;

use minicbor::{Decode, Encode};
use tenure_fence::{Epoch, GroupName};

use crate::ids::{GroupId, ShardIndex, WorkerName};

/// See [`Command::PinShard`](super::Command::PinShard).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PinShard {
    /// The group.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// The shard.
    #[n(1)]
    pub shard: ShardIndex,
    /// Where it belongs. Replaces what was said before.
    #[n(2)]
    pub to: PinTo,
}

/// Where a shard belongs. The workers need not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PinTo {
    /// On this worker.
    #[n(0)]
    Worker(#[n(0)] WorkerName),
    /// On any but these: 1 to [`KEPT_OFF_MAX`](crate::placement::KEPT_OFF_MAX).
    #[n(1)]
    AnyBut(#[n(0)] BTreeSet<WorkerName>),
}

/// One shard, as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OneShard {
    /// The group.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// The shard.
    #[n(1)]
    pub shard: ShardIndex,
}

/// See [`Command::Quarantine`](super::Command::Quarantine).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Quarantine {
    /// The group.
    #[n(0)]
    pub group: GroupId,
    /// The shard.
    #[n(1)]
    pub shard: ShardIndex,
    /// Its epoch when this was decided.
    #[cbor(n(2), with = "crate::codec::epoch")]
    pub seen: Epoch,
    /// How many owners crashed.
    #[n(3)]
    pub crashes: u32,
}

impl fmt::Display for PinShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group={} shard={}", self.group, self.shard)?;
        match &self.to {
            PinTo::Worker(worker) => write!(f, " to={worker}"),
            PinTo::AnyBut(workers) => write!(f, " kept_off={}", workers.len()),
        }
    }
}

impl fmt::Display for OneShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group={} shard={}", self.group, self.shard)
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, shard, crashes) = (self.group, self.shard, self.crashes);
        write!(f, "group=#{group} shard={shard} crashes={crashes}")
    }
}
