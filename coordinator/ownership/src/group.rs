//! Groups: named sets of shards under one policy, and what remains of deleted ones.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use tenure_fence::GroupName;

use crate::ids::{GroupId, Revision, ShardIndex, WorkerName};
use crate::policy::Policy;
use crate::session::Worker;
use crate::shard::Shard;

/// A group with its workers and shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What does not grow with workers or shards.
    pub header: GroupHeader,
    /// Workers by name.
    pub workers: BTreeMap<WorkerName, Worker>,
    /// Shards by index; never changes its length.
    pub shards: Vec<Shard>,
}

/// The record of a group without its workers and shards.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct GroupHeader {
    /// This life of the group.
    #[n(0)]
    pub id: GroupId,
    /// Its name.
    #[cbor(n(1), with = "crate::codec::group_name")]
    pub name: GroupName,
    /// Number of shards.
    #[n(2)]
    pub shard_count: u32,
    /// Whether it is being deleted.
    #[n(3)]
    pub phase: GroupPhase,
    /// Its policy.
    #[n(4)]
    pub policy: Policy,
    /// Revision at which the policy was set.
    #[n(5)]
    pub policy_revision: Revision,
}

/// Whether a group works or goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum GroupPhase {
    /// Shards are granted.
    #[default]
    #[n(0)]
    Active,
    /// Everything is revoked; when no shard is owned any more the group is removed.
    #[n(1)]
    Deleting,
}

/// What remains of a deleted group: a group created again under its name goes on above its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Tombstone {
    /// The highest epoch or floor of any shard the group had; 0 if none was ever granted.
    #[n(0)]
    pub floor: u64,
    /// When the group was removed.
    #[n(1)]
    pub removed_at: Revision,
}

impl Group {
    /// A shard.
    pub fn shard(&self, index: ShardIndex) -> Option<&Shard> {
        self.shards.get(usize::try_from(index.0).ok()?)
    }

    pub(crate) fn shard_mut(&mut self, index: ShardIndex) -> Option<&mut Shard> {
        self.shards.get_mut(usize::try_from(index.0).ok()?)
    }

    /// All shards with their indices.
    pub fn indexed_shards(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        (0..).map(ShardIndex).zip(&self.shards)
    }
}
