//! Which shards may be what crashes their owners.
//!
//! A worker that dies blames all its shards once. What is innocent is soon with workers that live on; what is
//! not crashes the next one. So shards that were there twice are suspects, and placed apart from each other, and
//! the one that has been there most often is put into quarantine.
//!
//! In the leader's memory: a new leader begins to count anew, and a shard is passed on a few times more.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::time::Duration;

use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::planner::Observed;

use crate::clock::Moment;

/// Crashes further apart than this are not the same shard's doing.
const WINDOW: Duration = Duration::from_secs(600);

/// Crashes from which on a shard is a suspect.
const SUSPECT_FROM: usize = 2;

/// Shards remembered of all groups. Above it the crash of one more worker blames nobody new.
const BLAMED_MAX: usize = 100_000;

/// Crashes remembered of one shard: more than any policy counts would say nothing more.
const CRASHES_MAX: usize = 1_000;

/// When the owners of shards crashed.
#[derive(Debug, Default)]
pub(super) struct Crashes {
    by_shard: BTreeMap<(GroupId, ShardIndex), VecDeque<Moment>>,
}

impl Crashes {
    /// Blames the shards of a worker that died. Returns the one that is to be put into quarantine, with its
    /// count: it reached `crashes_max`, and no other shard of the worker has as many.
    pub(super) fn died(
        &mut self,
        group: GroupId,
        shards: &[ShardIndex],
        crashes_max: u32,
        now: Moment,
    ) -> Option<(ShardIndex, u32)> {
        if self.by_shard.len() + shards.len() > BLAMED_MAX {
            self.by_shard
                .retain(|_, crashes| crashes.back().is_some_and(|at| *at + WINDOW > now));
        }
        let mut counts = Vec::with_capacity(shards.len());
        for shard in shards {
            if self.by_shard.len() >= BLAMED_MAX && !self.by_shard.contains_key(&(group, *shard)) {
                continue;
            }
            let crashes = self.by_shard.entry((group, *shard)).or_default();
            crashes.retain(|at| *at + WINDOW > now);
            crashes.push_back(now);
            if crashes.len() > CRASHES_MAX {
                crashes.pop_front();
            }
            counts.push((crashes.len(), *shard));
        }
        counts.sort_unstable();
        let (most, shard) = counts.pop()?;
        let is_alone = counts.last().is_none_or(|(count, _)| *count < most);
        let count = u32::try_from(most).unwrap_or(u32::MAX);
        (crashes_max > 0 && count >= crashes_max && is_alone).then_some((shard, count))
    }

    /// The shards of a group that are to be placed apart, those with most crashes if there are too many.
    pub(super) fn suspects_of(&self, group: GroupId, now: Moment) -> BTreeSet<ShardIndex> {
        let of_group = self
            .by_shard
            .range((group, ShardIndex(0))..=(group, ShardIndex(u32::MAX)));
        let counted = of_group.map(|((_, shard), crashes)| {
            let count = crashes.iter().filter(|at| **at + WINDOW > now).count();
            (std::cmp::Reverse(count), *shard)
        });
        let mut suspects: Vec<_> = counted
            .filter(|(count, _)| count.0 >= SUSPECT_FROM)
            .collect();
        suspects.sort_unstable();
        suspects.truncate(Observed::SUSPECTS_MAX);
        suspects.into_iter().map(|(_, shard)| shard).collect()
    }

    /// Forgets what was counted of a shard that is tried again.
    pub(super) fn retried(&mut self, group: GroupId, shard: ShardIndex) {
        self.by_shard.remove(&(group, shard));
    }

    /// Moves every moment by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        let moments = self.by_shard.values_mut().flatten();
        moments.for_each(|at| *at = *at + gap);
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.by_shard.retain(|(of, _), _| *of != group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(2);

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn shards(indices: &[u32]) -> Vec<ShardIndex> {
        indices.iter().copied().map(ShardIndex).collect()
    }

    #[test]
    fn the_shard_that_was_there_each_time_is_found() {
        let mut crashes = Crashes::default();
        assert_eq!(crashes.died(GROUP, &shards(&[1, 2, 7]), 3, at(0)), None);
        assert_eq!(crashes.died(GROUP, &shards(&[7, 2, 9]), 3, at(10)), None);
        assert_eq!(
            crashes.suspects_of(GROUP, at(11)),
            shards(&[2, 7]).into_iter().collect()
        );
        assert_eq!(
            crashes.died(GROUP, &shards(&[4, 7, 5]), 3, at(20)),
            Some((ShardIndex(7), 3))
        );
    }

    #[test]
    fn of_two_that_were_always_together_neither_is_found_until_they_are_apart() {
        let mut crashes = Crashes::default();
        for second in 0..5 {
            assert_eq!(crashes.died(GROUP, &shards(&[1, 7]), 3, at(second)), None);
        }
        assert_eq!(
            crashes.died(GROUP, &shards(&[7, 8]), 3, at(6)),
            Some((ShardIndex(7), 6))
        );
    }

    #[test]
    fn what_is_long_past_and_what_is_switched_off_does_not_count() {
        let mut crashes = Crashes::default();
        for second in [0, 1, 601] {
            assert_eq!(crashes.died(GROUP, &shards(&[7]), 3, at(second)), None);
        }
        for second in 602..700 {
            assert_eq!(crashes.died(GROUP, &shards(&[7]), 0, at(second)), None);
        }
        crashes.retried(GROUP, ShardIndex(7));
        assert!(crashes.suspects_of(GROUP, at(700)).is_empty());
        assert_eq!(crashes.died(GROUP, &shards(&[7]), 2, at(701)), None);
    }
}
