//! Groups: named sets of shards under one policy, and what remains of deleted ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use tenure_fence::GroupName;

use crate::ids::{GroupId, Revision, ShardIndex, WorkerName};
use crate::placement::{Placement, Quarantine};
use crate::policy::Policy;
use crate::session::Worker;
use crate::shard::{Revocation, Shard, ShardState};
use crate::shard_set::ShardSet;
use crate::shards::Shards;

/// A group with its workers and shards.
///
/// A clone shares both with the original until they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What does not grow with workers or shards.
    pub header: GroupHeader,
    /// Workers by name.
    pub workers: Arc<BTreeMap<WorkerName, Worker>>,
    /// Shards by index.
    pub shards: Shards,
    /// What was said of the place of single shards.
    pub placements: Arc<BTreeMap<ShardIndex, Placement>>,
    /// Derived: the shards that nobody owns.
    pub(crate) unowned: ShardSet,
    /// Derived: the shards that are being revoked.
    pub(crate) revoking: ShardSet,
    /// Derived: bytes of all checkpoints.
    pub(crate) checkpoint_bytes: u64,
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
    /// Set while no planned moves are made.
    #[n(6)]
    pub frozen: Option<Freeze>,
}

/// Planned moves of a group are stopped: nothing is taken from an owner for a nicer layout or for a
/// drain. What nobody owns is still granted, and what hangs or fails is still taken elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Freeze {
    /// Revision at which it began.
    #[n(0)]
    pub since: Revision,
    /// Why, for people: 1 to [`Freeze::REASON_BYTES_MAX`] bytes.
    #[n(1)]
    pub reason: String,
}

impl Freeze {
    /// Longest reason, in bytes: one line for an operator.
    pub const REASON_BYTES_MAX: usize = 256;
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
        let shard_count = header.shard_count;
        Self {
            workers: Arc::default(),
            placements: Arc::default(),
            shards: Shards::new(shard_count),
            unowned: ShardSet::all(shard_count),
            revoking: ShardSet::none(shard_count),
            checkpoint_bytes: 0,
            header,
        }
    }

    /// A shard.
    pub fn shard(&self, index: ShardIndex) -> Option<&Shard> {
        self.shards.get(index)
    }

    pub(crate) fn shard_mut(&mut self, index: ShardIndex) -> Option<&mut Shard> {
        self.shards.get_mut(index)
    }

    /// Why a shard is granted to nobody, if it is in quarantine.
    pub fn quarantine(&self, index: ShardIndex) -> Option<Quarantine> {
        self.placements.get(&index)?.quarantine
    }

    /// All shards with their indices.
    pub fn indexed_shards(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        (0..).map(ShardIndex).zip(self.shards.iter())
    }

    /// The shards that nobody owns, in order. Costs what it yields, and a bit for each shard of the group.
    pub fn unowned(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        self.unowned
            .iter()
            .filter_map(|index| Some((index, self.shard(index)?)))
    }

    /// How many shards nobody owns.
    pub fn unowned_count(&self) -> u32 {
        self.unowned.len()
    }

    /// How many shards are being revoked.
    pub fn revoking_count(&self) -> u32 {
        self.revoking.len()
    }

    /// The shards that are being revoked, in order. Costs what [`Group::unowned`] does.
    pub fn revoking(&self) -> impl Iterator<Item = (ShardIndex, &Revocation)> {
        self.revoking
            .iter()
            .filter_map(|index| match &self.shard(index)?.state {
                ShardState::Revoking(revocation) => Some((index, &**revocation)),
                _ => None,
            })
    }

    /// Lets a shard share the names of its stores with the shard before it, which mostly has the same
    /// ones. Whatever a shard is read or changed from brings texts of its own, and a text that millions
    /// of shards have each for themselves takes more memory than the rest of their stores.
    pub(crate) fn share_names(&mut self, index: ShardIndex) {
        let Some(before) = index.0.checked_sub(1).map(ShardIndex) else {
            return;
        };
        for position in 0.. {
            let of = |index| self.shard(index)?.stores.get(position);
            let (Some(known), Some(own)) = (of(before), of(index)) else {
                return;
            };
            if known.store != own.store || known.store.is_same_text(&own.store) {
                continue;
            }
            let shared = known.store.clone();
            let own = self.shard_mut(index).map(|shard| &mut shard.stores);
            if let Some(own) = own.and_then(|stores| stores.get_mut(position)) {
                own.store = shared;
            }
        }
    }

    /// Brings the indices in step with the state of a shard that was changed.
    pub(crate) fn index(&mut self, index: ShardIndex) {
        let state = self.shard(index).map(|shard| &shard.state);
        let unowned = matches!(state, Some(ShardState::Unowned(_)));
        let revoking = matches!(state, Some(ShardState::Revoking(_)));
        self.unowned.set(index, unowned);
        self.revoking.set(index, revoking);
    }
}
