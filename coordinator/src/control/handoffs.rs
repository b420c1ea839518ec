//! Deadlines of handoffs, kept by the leader: drains, openings, and delays after an end.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ownership::command::Tenure;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;

use super::timers::Timers;
use crate::clock::Moment;

/// Delay after the first failure to open a shard; it doubles with each one.
const OPEN_RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay after a failure to open.
const OPEN_RETRY_MAX: Duration = Duration::from_secs(30);

/// A shard that was not given back unasked for this long starts afresh.
const GIVEN_BACK_CALM: Duration = Duration::from_secs(60);

/// Who gave a shard back unasked, how often in a row, and when last.
#[derive(Clone, Copy, Debug)]
struct GivenBack {
    by: SessionId,
    times: u32,
    last_at: Moment,
}

/// A tenure of a group.
pub(super) type GroupTenure = (GroupId, Tenure);

/// The clocks of all handoffs.
#[derive(Debug, Default)]
pub(super) struct Handoffs {
    drains: Timers<GroupTenure>,
    openings: Timers<GroupTenure>,
    /// Openings past their deadline, until they are revoked or end.
    overdue_openings: BTreeSet<GroupTenure>,
    lock_delays: Timers<(GroupId, Revision)>,
    restart_graces: Timers<(GroupId, Revision)>,
    back_offs: Timers<(GroupId, ShardIndex)>,
    /// Shards that were given back unasked.
    given_back: BTreeMap<(GroupId, ShardIndex), GivenBack>,
}

impl Handoffs {
    /// Starts the drain clock of a tenure unless it runs already. Returns what remains of it.
    ///
    /// It runs for the longer of drain timeout and belief window from the moment the revocation was
    /// queued for the owner: an owner that never hears of it stops believing within the window.
    pub(super) fn drain(
        &mut self,
        tenure: GroupTenure,
        drain: Duration,
        window: Duration,
        now: Moment,
    ) -> Duration {
        self.openings.clear(tenure);
        self.overdue_openings.remove(&tenure);
        if self.drains.get(tenure).is_none() {
            self.drains.set(tenure, now + drain.max(window));
            return drain;
        }
        let left = self
            .drains
            .get(tenure)
            .map_or(Duration::ZERO, |at| at.since(now));
        left.min(drain)
    }

    /// Starts the clock of an opening.
    pub(super) fn opening(&mut self, tenure: GroupTenure, deadline: Duration, now: Moment) {
        self.openings.set(tenure, now + deadline);
    }

    /// Notes that a tenure is ready.
    pub(super) fn opened(&mut self, tenure: GroupTenure) {
        self.openings.clear(tenure);
        self.overdue_openings.remove(&tenure);
    }

    /// Notes that a tenure ended. Returns whether its owner had been asked for it.
    pub(super) fn ended(&mut self, tenure: GroupTenure) -> bool {
        self.opened(tenure);
        self.drains.clear(tenure)
    }

    /// Delays the next grant of a shard that one and the same session gives back unasked again and
    /// again, the longer the more often. The first time costs nothing: a worker that stops does it.
    pub(super) fn given_back(
        &mut self,
        group: GroupId,
        shard: ShardIndex,
        by: SessionId,
        now: Moment,
    ) {
        let fresh = GivenBack {
            by,
            times: 0,
            last_at: now,
        };
        let known = self.given_back.entry((group, shard)).or_insert(fresh);
        if known.by != by || now.since(known.last_at) > GIVEN_BACK_CALM {
            *known = fresh;
        }
        known.times = known.times.saturating_add(1);
        known.last_at = now;
        if let Some(repeated) = known.times.checked_sub(1).filter(|times| *times > 0) {
            self.open_failed(group, shard, repeated, now);
        }
    }

    /// Starts the lock delay of everything that ended uncleanly at a revision.
    pub(super) fn lock_delay(
        &mut self,
        group: GroupId,
        end: Revision,
        delay: Duration,
        now: Moment,
    ) {
        if !delay.is_zero() && self.lock_delays.get((group, end)).is_none() {
            self.lock_delays.set((group, end), now + delay);
        }
    }

    /// Starts the restart grace of a worker whose session ended at a revision.
    pub(super) fn restart_grace(
        &mut self,
        group: GroupId,
        end: Revision,
        grace: Duration,
        now: Moment,
    ) {
        if !grace.is_zero() && self.restart_graces.get((group, end)).is_none() {
            self.restart_graces.set((group, end), now + grace);
        }
    }

    /// Delays the next grant of a shard that failed to open `failures` times in a row.
    pub(super) fn open_failed(
        &mut self,
        group: GroupId,
        shard: ShardIndex,
        failures: u32,
        now: Moment,
    ) {
        let doubled = OPEN_RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
        self.back_offs
            .set((group, shard), now + doubled.min(OPEN_RETRY_MAX));
    }

    /// Delays the next move of a shard until a moment.
    pub(super) fn back_off(&mut self, group: GroupId, shard: ShardIndex, until: Moment) {
        self.back_offs.set((group, shard), until);
    }

    /// Takes the tenures whose drain is over, by group.
    pub(super) fn take_drained(&mut self, now: Moment) -> BTreeMap<GroupId, Vec<Tenure>> {
        let mut by_group: BTreeMap<GroupId, Vec<Tenure>> = BTreeMap::new();
        for (group, tenure) in self.drains.take_due(now) {
            by_group.entry(group).or_default().push(tenure);
        }
        by_group
    }

    /// Lets a drain that could not be forced be tried again.
    pub(super) fn retry_drain(&mut self, tenure: GroupTenure, at: Moment) {
        self.drains.set(tenure, at);
    }

    /// Ends the delays that are over. Returns the groups that must be planned for that.
    pub(super) fn take_delays(&mut self, now: Moment) -> BTreeSet<GroupId> {
        let late: Vec<GroupTenure> = self.openings.take_due(now);
        let mut groups: BTreeSet<GroupId> = late.iter().map(|(group, _)| *group).collect();
        self.overdue_openings.extend(late);
        groups.extend(
            self.lock_delays
                .take_due(now)
                .into_iter()
                .map(|(group, _)| group),
        );
        groups.extend(
            self.restart_graces
                .take_due(now)
                .into_iter()
                .map(|(group, _)| group),
        );
        groups.extend(
            self.back_offs
                .take_due(now)
                .into_iter()
                .map(|(group, _)| group),
        );
        groups
    }

    /// The next moment at which anything here is over.
    pub(super) fn next(&self) -> Option<Moment> {
        [
            self.drains.next(),
            self.openings.next(),
            self.lock_delays.next(),
            self.restart_graces.next(),
            self.back_offs.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Moves every deadline by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        self.drains.shift(gap);
        self.openings.shift(gap);
        self.lock_delays.shift(gap);
        self.restart_graces.shift(gap);
        self.back_offs.shift(gap);
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.drains.retain(|(of, _)| *of != group);
        self.openings.retain(|(of, _)| *of != group);
        self.overdue_openings.retain(|(of, _)| *of != group);
        self.lock_delays.retain(|(of, _)| *of != group);
        self.restart_graces.retain(|(of, _)| *of != group);
        self.back_offs.retain(|(of, _)| *of != group);
        self.given_back.retain(|(of, _), _| *of != group);
    }

    /// Ends of a group whose lock delay runs.
    pub(super) fn lock_delays_of(&self, group: GroupId) -> BTreeSet<Revision> {
        of_group(&self.lock_delays, group)
    }

    /// Ends of a group whose restart grace runs.
    pub(super) fn restart_graces_of(&self, group: GroupId) -> BTreeSet<Revision> {
        of_group(&self.restart_graces, group)
    }

    /// Shards of a group that are not to be moved yet, neither granted nor asked back.
    pub(super) fn backing_off_of(&self, group: GroupId) -> BTreeSet<ShardIndex> {
        of_group(&self.back_offs, group)
    }

    /// Openings of a group that are past their deadline.
    pub(super) fn overdue_openings_of(&self, group: GroupId) -> BTreeSet<Tenure> {
        self.overdue_openings
            .iter()
            .filter(|(of, _)| *of == group)
            .map(|(_, tenure)| *tenure)
            .collect()
    }
}

fn of_group<T: Ord + Copy>(timers: &Timers<(GroupId, T)>, group: GroupId) -> BTreeSet<T> {
    timers
        .keys()
        .filter(|(of, _)| *of == group)
        .map(|(_, key)| *key)
        .collect()
}
