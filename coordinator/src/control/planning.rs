//! When to plan which group, and what to do about plans that come to nothing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ownership::Rejection;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::ShardIndex;

use crate::clock::Moment;

/// How long a group in which nothing was ever granted waits after each registration for further workers, so
/// that the first of many is not given everything only to hand most of it on.
const FORMATION_LINGER: Duration = Duration::from_millis(200);
/// Longest such wait, however many workers keep coming.
const FORMATION_MAX: Duration = Duration::from_secs(2);

/// So often may a move of one shard be refused, since its last move, before it is reported and
/// delayed.
const REFUSALS_MAX: u32 = 3;

/// The planning of one group.
#[derive(Debug, Default)]
struct Schedule {
    /// A plan is being made, or its moves are being decided.
    busy: bool,
    /// Pieces of the plan whose decision is awaited.
    undecided: usize,
    /// No plan before this moment.
    not_before: Option<Moment>,
    /// When the first worker of a new group registered.
    forming_since: Option<Moment>,
    /// Refusals by shard since its last move that was carried out.
    refusals: BTreeMap<ShardIndex, u32>,
}

/// The planning of all groups.
#[derive(Debug, Default)]
pub(super) struct Planning {
    groups: BTreeMap<GroupId, Schedule>,
    /// Groups that changed since their last plan was begun.
    dirty: BTreeSet<GroupId>,
}

impl Planning {
    /// Notes that a group changed.
    pub(super) fn touch(&mut self, group: GroupId) {
        self.dirty.insert(group);
    }

    /// Notes that a worker registered in a group in which nothing was ever granted.
    pub(super) fn forming(&mut self, group: GroupId, now: Moment) {
        let schedule = self.groups.entry(group).or_default();
        let since = *schedule.forming_since.get_or_insert(now);
        schedule.not_before = Some((now + FORMATION_LINGER).min(since + FORMATION_MAX));
    }

    /// Takes the groups to plan now.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<GroupId> {
        let due =
            |schedule: &Schedule| !schedule.busy && schedule.not_before.is_none_or(|at| at <= now);
        let taken: Vec<GroupId> = self
            .dirty
            .iter()
            .copied()
            .filter(|group| self.groups.get(group).is_none_or(due))
            .collect();
        for group in &taken {
            self.dirty.remove(group);
            let schedule = self.groups.entry(*group).or_default();
            schedule.busy = true;
            schedule.not_before = None;
            schedule.forming_since = None;
        }
        taken
    }

    /// Notes how many pieces of a plan were proposed; with none the group may be planned again.
    pub(super) fn proposed(&mut self, group: GroupId, pieces: usize) {
        let schedule = self.groups.entry(group).or_default();
        schedule.undecided = pieces;
        schedule.busy = pieces > 0;
    }

    /// Notes that one piece of a plan was decided. With `retry_at` it was not proposed, or refused as a
    /// whole, and the next plan waits.
    pub(super) fn decided(&mut self, group: GroupId, retry_at: Option<Moment>) {
        let schedule = self.groups.entry(group).or_default();
        schedule.not_before = schedule.not_before.max(retry_at);
        schedule.undecided = schedule.undecided.saturating_sub(1);
        schedule.busy = schedule.undecided > 0;
        self.dirty.insert(group);
    }

    /// Notes refused moves. Returns the shards whose moves are refused again and again: a plan that
    /// changes nothing must be noticed, and not tried in a tight loop.
    pub(super) fn refused(
        &mut self,
        group: GroupId,
        refused: &[(ShardIndex, Rejection)],
    ) -> Vec<(ShardIndex, u32)> {
        let schedule = self.groups.entry(group).or_default();
        let shards: BTreeSet<ShardIndex> = refused.iter().map(|(shard, _)| *shard).collect();
        let mut repeated = Vec::new();
        for shard in shards {
            let count = schedule.refusals.entry(shard).or_default();
            *count += 1;
            if *count >= REFUSALS_MAX {
                repeated.push((shard, *count));
            }
        }
        repeated
    }

    /// Notes that a move of a shard was carried out: what was refused before it is of the past.
    pub(super) fn moved(&mut self, group: GroupId, shard: ShardIndex) {
        if let Some(schedule) = self.groups.get_mut(&group) {
            schedule.refusals.remove(&shard);
        }
    }

    /// When the next delayed plan is due.
    pub(super) fn due_at(&self) -> Option<Moment> {
        let schedules = self.dirty.iter().filter_map(|group| self.groups.get(group));
        schedules
            .filter(|schedule| !schedule.busy)
            .filter_map(|schedule| schedule.not_before)
            .min()
    }

    /// Moves every delay by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for schedule in self.groups.values_mut() {
            schedule.not_before = schedule.not_before.map(|at| at + gap);
            schedule.forming_since = schedule.forming_since.map(|at| at + gap);
        }
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
        self.dirty.remove(&group);
    }
}
