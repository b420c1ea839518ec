//! Groups: named sets of shards under one policy, and what remains of deleted ones.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use tenure_fence::GroupName;

use crate::ids::{GroupId, Revision, ShardIndex, WorkerName};
use crate::policy::Policy;
use crate::session::Worker;
use crate::shard::{Revocation, Shard, ShardState};

/// A group with its workers and shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What does not grow with workers or shards.
    pub header: GroupHeader,
    /// Workers by name.
    pub workers: BTreeMap<WorkerName, Worker>,
    /// Shards by index; never changes its length.
    pub shards: Vec<Shard>,
    /// Derived: the shards that nobody owns.
    pub(crate) unowned: BTreeSet<ShardIndex>,
    /// Derived: the shards that are being revoked.
    pub(crate) revoking: BTreeSet<ShardIndex>,
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
    /// A group without workers, whose shards are all as they are without a record.
    pub(crate) fn new(header: GroupHeader) -> Self {
        let indices = (0..header.shard_count).map(ShardIndex);
        Self {
            workers: BTreeMap::new(),
            shards: indices.clone().map(|_| Shard::default()).collect(),
            unowned: indices.collect(),
            revoking: BTreeSet::new(),
            header,
        }
    }

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

    /// The shards that nobody owns, in order. Costs what it yields, not what the group has.
    pub fn unowned(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        self.unowned
            .iter()
            .filter_map(|index| Some((*index, self.shard(*index)?)))
    }

    /// How many shards nobody owns.
    pub fn unowned_count(&self) -> u32 {
        // The shard count is a `u32`, and this is at most that.
        u32::try_from(self.unowned.len()).unwrap_or(u32::MAX)
    }

    /// How many shards are being revoked.
    pub fn revoking_count(&self) -> u32 {
        u32::try_from(self.revoking.len()).unwrap_or(u32::MAX)
    }

    /// The shards that are being revoked, in order. Costs what it yields, not what the group has.
    pub fn revoking(&self) -> impl Iterator<Item = (ShardIndex, &Revocation)> {
        self.revoking
            .iter()
            .filter_map(|index| match &self.shard(*index)?.state {
                ShardState::Revoking(revocation) => Some((*index, revocation)),
                _ => None,
            })
    }

    /// Brings the indices in step with the state of a shard that was changed.
    pub(crate) fn index(&mut self, index: ShardIndex) {
        let state = self.shard(index).map(|shard| &shard.state);
        let unowned = matches!(state, Some(ShardState::Unowned(_)));
        let revoking = matches!(state, Some(ShardState::Revoking(_)));
        for (set, belongs) in [(&mut self.unowned, unowned), (&mut self.revoking, revoking)] {
            if belongs {
                set.insert(index);
            } else {
                set.remove(&index);
            }
        }
    }
}
