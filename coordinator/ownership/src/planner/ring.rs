//! The preference order of workers for a shard: a consistent-hash ring.
//!
//! Preference is all it is. Caps and stickiness decide, so no shard moves because the ring changed;
//! what the ring gives is that the shards of a lost worker spread over many others, and that two
//! leaders with the same state choose alike.
//!
//! `hashring` orders points of equal hash by insertion and hashes with whatever hasher it is given.
//! So points go in once, in order of worker name, and every hash is XXH3 over bytes spelled out here.

use std::hash::{BuildHasher, Hash, Hasher};

use hashring::HashRing;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::ids::ShardIndex;
use crate::planner::candidate::WorkerOrdinal;

/// Points of the worker with the smallest weight. More even out the preferences, but the caps do that
/// anyway, and each point costs time in every plan.
const POINTS_OF_SMALLEST: u64 = 40;

/// Points that a ring may always have. Above it there are [`POINTS_OF_SMALLEST`] per worker on
/// average, shared by weight: one worker of weight 1 among those of 10,000 must not make millions.
const POINTS_MODERATE: u64 = 16_384;

/// Ring of the workers that may be given shards.
pub(super) struct Ring {
    points: HashRing<Point, Xxh3>,
    group: u64,
}

/// A worker as the ring needs it.
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) weight: u32,
    pub(super) ordinal: WorkerOrdinal,
}

impl Ring {
    /// Builds the ring of a group. `members` come in order of name.
    ///
    /// The group's name takes part in the hash of a shard, or else the first shards of all groups
    /// would prefer the same worker.
    pub(super) fn new(group: &str, members: &[Member<'_>]) -> Self {
        let counts = point_counts(members);
        let total: u32 = counts.iter().sum();
        let mut points = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
        for (member, count) in members.iter().zip(counts) {
            let name = xxh3_64(member.name.as_bytes());
            points.extend((0..count).map(|number| Point {
                name,
                number,
                worker: member.ordinal,
            }));
        }
        let mut ring = HashRing::with_hasher(Xxh3::default());
        ring.batch_add(points);
        Self {
            points: ring,
            group: xxh3_64(group.as_bytes()),
        }
    }

    /// The worker that a probe for a shard names; `None` if the ring is empty.
    pub(super) fn get(&self, shard: ShardIndex, probe: u32) -> Option<WorkerOrdinal> {
        let key = Probe {
            group: self.group,
            shard: shard.0,
            probe,
        };
        self.points.get(&key).map(|point| point.worker)
    }
}

/// How many points each member has: by weight, at least one.
fn point_counts(members: &[Member<'_>]) -> Vec<u32> {
    let weights: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let smallest = members
        .iter()
        .map(|member| u64::from(member.weight))
        .min()
        .unwrap_or(1)
        .max(1);
    let workers = u64::try_from(members.len()).unwrap_or(u64::MAX);
    let by_smallest = POINTS_OF_SMALLEST * weights / smallest;
    let total = by_smallest.min(POINTS_MODERATE.max(POINTS_OF_SMALLEST * workers));
    let count = |member: &Member<'_>| u64::from(member.weight) * total / weights.max(1);
    members
        .iter()
        .map(|member| u32::try_from(count(member).max(1)).unwrap_or(u32::MAX))
        .collect()
}

/// One of a worker's places on the ring.
struct Point {
    name: u64,
    number: u32,
    worker: WorkerOrdinal,
}

impl Hash for Point {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The ordinal stays out: it changes when workers come and go, and the point must not.
        let bytes = (u128::from(self.name) << 32) | u128::from(self.number);
        hasher.write(&bytes.to_le_bytes());
    }
}

/// One question to the ring.
struct Probe {
    group: u64,
    shard: u32,
    probe: u32,
}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let shard = (u128::from(self.shard) << 32) | u128::from(self.probe);
        let bytes = (u128::from(self.group) << 64) | shard;
        hasher.write(&bytes.to_le_bytes());
    }
}

/// XXH3 of the bytes written. Each key above writes once.
#[derive(Clone, Copy, Default)]
struct Xxh3(u64);

impl BuildHasher for Xxh3 {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Xxh3 {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members<'a>(weights: &'a [(&'a str, u32)]) -> Vec<Member<'a>> {
        (0..)
            .zip(weights)
            .map(|(at, (name, weight))| Member {
                name,
                weight: *weight,
                ordinal: WorkerOrdinal(at),
            })
            .collect()
    }

    #[test]
    fn points_follow_weights() {
        assert_eq!(point_counts(&members(&[("a", 100), ("b", 250)])), [40, 100]);
    }

    #[test]
    fn extreme_weights_do_not_explode_the_ring() {
        let counts = point_counts(&members(&[("a", 1), ("b", 10_000)]));
        assert_eq!(counts, [1, 16_382]);
    }

    #[test]
    fn an_empty_ring_names_nobody() {
        assert_eq!(Ring::new("g", &[]).get(ShardIndex(0), 0), None);
    }

    #[test]
    fn a_worker_that_leaves_changes_only_its_own_preferences() {
        let names: Vec<String> = (0..20)
            .map(|number| format!("worker-{number:02}"))
            .collect();
        let all: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let left: Vec<(&str, u32)> = all
            .iter()
            .copied()
            .filter(|(name, _)| *name != "worker-07")
            .collect();
        let before = Ring::new("g", &members(&all));
        let after = Ring::new("g", &members(&left));
        let named = |list: &[(&str, u32)], worker: WorkerOrdinal| {
            list.get(usize::try_from(worker.0).unwrap())
                .unwrap()
                .0
                .to_owned()
        };
        for shard in (0..1_000).map(ShardIndex) {
            let was = named(&all, before.get(shard, 0).unwrap());
            let is = named(&left, after.get(shard, 0).unwrap());
            assert!(
                was == is || was == "worker-07",
                "shard {shard} went from {was} to {is}"
            );
        }
    }

    #[test]
    fn preferences_are_the_same_in_every_build() {
        let ring = Ring::new("orders", &members(&[("a", 1), ("b", 1), ("c", 1)]));
        let first: Vec<u32> = (0..16)
            .map(|shard| ring.get(ShardIndex(shard), 0).unwrap().0)
            .collect();
        assert_eq!(first, [2, 2, 0, 2, 1, 2, 1, 0, 2, 0, 0, 1, 1, 0, 1, 1]);
    }
}
