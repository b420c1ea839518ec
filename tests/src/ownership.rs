//! Who owns what at one moment, and how two moments differ.

use std::collections::BTreeMap;

use tenure_proto::v1::{Shard, ShardPhase};

use crate::failure::Failure;

/// One shard at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Epoch of the latest grant; 0 if there was none.
    pub epoch: u64,
    /// Number of the owning session; `None` if nobody owns it.
    pub owner: Option<u64>,
    /// The owner's name; empty if nobody owns it.
    pub worker: String,
    /// What it is doing.
    pub phase: ShardPhase,
}

impl Held {
    /// Returns what identifies the tenure.
    #[must_use]
    pub fn tenure(&self) -> (u64, Option<u64>) {
        (self.epoch, self.owner)
    }
}

/// All shards of a group at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    shards: BTreeMap<u32, Held>,
}

impl Ownership {
    /// Adds a shard as the coordinator lists it.
    ///
    /// # Errors
    ///
    /// When the shard has no name or an unknown phase.
    pub fn insert(&mut self, shard: Shard) -> Result<(), Failure> {
        let phase = shard.phase();
        let index = shard.shard.map(|shard| shard.index);
        let index = index.ok_or_else(|| Failure::new("a shard without its index"))?;
        let owner = shard.owner.map(|owner| owner.number);
        let held = Held {
            epoch: shard.epoch,
            owner,
            worker: shard.worker,
            phase,
        };
        self.shards.insert(index, held);
        Ok(())
    }

    /// Returns the shards in order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Held)> {
        self.shards.iter().map(|(&index, held)| (index, held))
    }

    /// Returns how many shards there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns one shard.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&Held> {
        self.shards.get(&index)
    }

    /// Returns the shards of a worker.
    #[must_use]
    pub fn of(&self, worker: &str) -> Vec<u32> {
        self.iter()
            .filter(|(_, held)| held.worker == worker)
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns how many shards are in a phase.
    #[must_use]
    pub fn count(&self, phase: ShardPhase) -> usize {
        self.shards
            .values()
            .filter(|held| held.phase == phase)
            .count()
    }

    /// Returns how many grants there were: each took the next epoch.
    ///
    /// Holds while no floor was raised: no restore, no group created anew, no store ahead.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.shards.values().map(|held| held.epoch).sum()
    }

    /// Returns how many shards each worker owns.
    #[must_use]
    pub fn per_worker(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for held in self.shards.values().filter(|held| held.owner.is_some()) {
            *counts.entry(held.worker.clone()).or_default() += 1;
        }
        counts
    }

    /// Returns the shards whose owner or epoch differs.
    #[must_use]
    pub fn moved(&self, later: &Self) -> Vec<u32> {
        let differs = |(index, held): &(u32, &Held)| {
            later.get(*index).map(Held::tenure) != Some(held.tenure())
        };
        self.iter()
            .filter(differs)
            .map(|(index, _)| index)
            .collect()
    }

    /// Checks that exactly the shards `expected` have another owner or epoch `later`.
    ///
    /// # Errors
    ///
    /// Names the shards that should not have moved and those that should have.
    pub fn moved_exactly(&self, later: &Self, expected: &[u32]) -> Result<(), Failure> {
        let moved = self.moved(later);
        let tell =
            |index: &u32| format!("{index}: {:?} -> {:?}", self.get(*index), later.get(*index));
        let more: Vec<String> = moved
            .iter()
            .filter(|i| !expected.contains(i))
            .map(tell)
            .collect();
        let less: Vec<String> = expected
            .iter()
            .filter(|i| !moved.contains(i))
            .map(tell)
            .collect();
        if more.is_empty() && less.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "shards that moved and should not have: {more:?}; should have and did not: {less:?}"
        )))
    }
}
