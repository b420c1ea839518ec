//! How many served shards were moved lately to even workers out: the policy bounds them per minute.
//!
//! In the leader's memory: a new leader begins with the whole minute.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use tenure_ownership::ids::GroupId;

use crate::clock::Moment;

const MINUTE: Duration = Duration::from_secs(60);

/// Moves closer to each other than this are counted as made at once: a minute has at most sixty counts.
const TOGETHER: Duration = Duration::from_secs(1);

/// Moves of the last minute, by group.
#[derive(Debug, Default)]
pub(super) struct Churn {
    by_group: BTreeMap<GroupId, VecDeque<(Moment, u32)>>,
}

impl Churn {
    /// Counts one move.
    pub(super) fn moved(&mut self, group: GroupId, now: Moment) {
        let moves = self.by_group.entry(group).or_default();
        match moves.back_mut() {
            Some((at, count)) if now.since(*at) < TOGETHER => *count = count.saturating_add(1),
            _ => moves.push_back((now, 1)),
        }
    }

    /// How many more may be made of so many in a minute.
    pub(super) fn left(&self, group: GroupId, moves_max: u32, now: Moment) -> u32 {
        let moves = self.by_group.get(&group).into_iter().flatten();
        let counted = moves.filter(|(at, _)| *at + MINUTE > now);
        let made: u64 = counted.map(|(_, count)| u64::from(*count)).sum();
        u32::try_from(u64::from(moves_max).saturating_sub(made)).unwrap_or(0)
    }

    /// Forgets moves that are a minute old. Returns the groups that may move more for that.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<GroupId> {
        let mut due = Vec::new();
        self.by_group.retain(|group, moves| {
            let before = moves.len();
            moves.retain(|(at, _)| *at + MINUTE > now);
            if moves.len() < before {
                due.push(*group);
            }
            !moves.is_empty()
        });
        due
    }

    /// When the next moves are a minute old.
    pub(super) fn next(&self) -> Option<Moment> {
        let oldest = self.by_group.values().filter_map(VecDeque::front);
        oldest.map(|(at, _)| *at + MINUTE).min()
    }

    /// Moves every moment by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        let moves = self.by_group.values_mut().flatten();
        moves.for_each(|(at, _)| *at = *at + gap);
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.by_group.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    #[test]
    fn moves_count_for_a_minute() {
        let group = GroupId(2);
        let mut churn = Churn::default();
        for millis in [0, 500, 999, 30_000] {
            churn.moved(group, at(millis));
        }
        assert_eq!(churn.left(group, 6, at(30_000)), 2);
        assert_eq!(churn.left(group, 3, at(30_000)), 0);
        assert_eq!(churn.next(), Some(at(60_000)));
        assert_eq!(churn.take_due(at(59_999)), []);
        assert_eq!(churn.take_due(at(60_000)), [group]);
        assert_eq!(churn.left(group, 6, at(60_000)), 5);
        assert_eq!(churn.take_due(at(90_000)), [group]);
        assert_eq!(churn.next(), None);
    }
}
