//! What workers report as load, smoothed: in the leader's memory, never in the log.
//!
//! A new leader begins with nothing and takes the first report of each shard as it is. What was reported last
//! counts until something else is, so a shard on the move does not look idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::ShardIndex;

use crate::clock::Moment;

/// Part of the distance to the latest report by which the load goes there. Reports come about every
/// second, so it follows a change within some ten seconds, and noise of a tenth is left with a fortieth.
const SMOOTHING: u64 = 8;

/// Loads are kept in parts of the workers' unit, so that small ones can be smoothed in whole numbers.
const PARTS: u64 = 16;

/// Highest load that counts.
const LOAD_MAX: u64 = 1 << 36;

/// Loads kept in all groups together: some 50 MiB. Above it shards that were never reported have none.
const LOADS_MAX: usize = 1_000_000;

/// How often a group is planned because of its loads.
const PLAN_EVERY: Duration = Duration::from_secs(5);

/// Loads of one group in parts of the workers' unit.
type OfGroup = Arc<BTreeMap<ShardIndex, u64>>;

/// The loads of all groups that balance by them.
#[derive(Debug, Default)]
pub(super) struct Loads {
    by_group: BTreeMap<GroupId, OfGroup>,
    /// When a group whose loads changed is planned.
    due: BTreeMap<GroupId, Moment>,
    kept: usize,
}

impl Loads {
    /// Takes the load of a shard.
    pub(super) fn report(&mut self, group: GroupId, shard: ShardIndex, load: u64, now: Moment) {
        let reported = load.min(LOAD_MAX) * PARTS;
        let of_group = self.by_group.entry(group).or_default();
        // Copied only while a plan is made from what was there.
        let known = Arc::make_mut(of_group);
        match known.get_mut(&shard) {
            Some(smoothed) => {
                let part = reported.abs_diff(*smoothed) / SMOOTHING;
                *smoothed = if reported > *smoothed {
                    *smoothed + part
                } else {
                    *smoothed - part
                };
            }
            None if self.kept >= LOADS_MAX => return,
            None => {
                known.insert(shard, reported);
                self.kept += 1;
            }
        }
        self.due.entry(group).or_insert(now + PLAN_EVERY);
    }

    /// The loads of a group; none if nothing was reported.
    pub(super) fn of_group(&self, group: GroupId) -> OfGroup {
        self.by_group.get(&group).cloned().unwrap_or_default()
    }

    /// Takes the groups that are to be planned because of their loads.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<GroupId> {
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let due: Vec<GroupId> = due.map(|(group, _)| *group).collect();
        for group in &due {
            self.due.remove(group);
        }
        due
    }

    /// When the next group is to be planned because of its loads.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.values().min().copied()
    }

    /// Moves every moment by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        self.due.values_mut().for_each(|at| *at = *at + gap);
    }

    /// Forgets a group that is gone, or balances by load no more.
    pub(super) fn forget(&mut self, group: GroupId) {
        let gone = self.by_group.remove(&group);
        self.kept -= gone.map_or(0, |loads| loads.len());
        self.due.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    const GROUP: GroupId = GroupId(2);
    const SHARD: ShardIndex = ShardIndex(7);

    fn load(loads: &Loads) -> u64 {
        loads.of_group(GROUP)[&SHARD]
    }

    #[test]
    fn the_first_report_counts_as_it_is_and_later_ones_are_smoothed() {
        let mut loads = Loads::default();
        loads.report(GROUP, SHARD, 100, at(0));
        assert_eq!(load(&loads), 100 * PARTS);
        loads.report(GROUP, SHARD, 200, at(1));
        assert_eq!(load(&loads), 100 * PARTS + 100 * PARTS / SMOOTHING);
        for second in 0..60 {
            loads.report(GROUP, SHARD, 200, at(second));
        }
        // As near as whole parts allow.
        assert!(load(&loads) > 199 * PARTS, "{}", load(&loads));
    }

    #[test]
    fn noise_of_a_tenth_is_left_with_a_fortieth() {
        let mut loads = Loads::default();
        loads.report(GROUP, SHARD, 1_000, at(0));
        for second in 0..1_000_u64 {
            let noise = (second * 7_919) % 201;
            loads.report(GROUP, SHARD, 900 + noise, at(second));
            let load = load(&loads) / PARTS;
            assert!((950..=1_050).contains(&load), "{load}");
        }
    }

    #[test]
    fn the_largest_loads_do_not_overflow() {
        let mut loads = Loads::default();
        loads.report(GROUP, SHARD, u64::MAX, at(0));
        loads.report(GROUP, SHARD, 0, at(0));
        loads.report(GROUP, SHARD, u64::MAX, at(0));
        assert!(load(&loads) <= LOAD_MAX * PARTS);
    }

    #[test]
    fn a_group_is_planned_for_its_loads_now_and_then() {
        let mut loads = Loads::default();
        loads.report(GROUP, SHARD, 1, at(0));
        loads.report(GROUP, SHARD, 2, at(1));
        assert_eq!(loads.next(), Some(at(5)));
        assert_eq!(loads.take_due(at(4)), []);
        assert_eq!(loads.take_due(at(5)), [GROUP]);
        assert_eq!(loads.next(), None);
        loads.forget(GROUP);
        assert!(loads.of_group(GROUP).is_empty());
    }
}
