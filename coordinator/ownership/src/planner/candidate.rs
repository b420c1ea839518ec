//! The workers that a plan is made for.

use std::collections::BTreeMap;

use crate::command::Tenure;
use crate::group::Group;
use crate::ids::{SessionId, ShardIndex, WorkerName};
use crate::planner::observed::Observed;
use crate::planner::share::{Division, Level, Share};
use crate::planner::zone::{Zones, zones};
use crate::session::{Session, Worker, WorkerMode};
use crate::shard::{Shard, ShardState};
use crate::state::State;

/// Position of a worker among the registered workers of the group, in order of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkerOrdinal(pub(super) u32);

/// What the planner may do with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Takes shards.
    Open,
    /// Has no stream: keeps its shards, counts in the shares, is given nothing.
    Disconnected,
    /// Keeps what it has and is given nothing: others share what it does not have.
    Cordoned,
    /// The same, but what was its own comes back to it.
    Paused,
    /// Is about to go: is to be emptied like one that drains.
    Stopping,
    /// Lacks a label that the policy requires: is emptied, does not count in the shares.
    Unfit,
    /// Is to be emptied.
    Draining,
}

impl Standing {
    /// Whether the worker counts in the shares.
    pub(super) fn shares(self) -> bool {
        matches!(self, Self::Open | Self::Disconnected)
    }
}

/// A registered worker.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a WorkerName,
    pub(super) session: SessionId,
    pub(super) weight: u32,
    pub(super) standing: Standing,
    /// Whether its shards wait for it while it is away.
    pub(super) is_paused: bool,
    /// Zero for a worker that takes no part in the shares.
    pub(super) share: Share,
    /// Shards it will have: those it owns and is not asked to give up, those on their way to it, and
    /// those of this plan.
    pub(super) load: u32,
    /// Shards that are pinned to it and are neither its own nor on their way to it.
    pub(super) reserved: u32,
    /// Which of the zones it is in.
    pub(super) zone: usize,
    /// Whether it lacks a label that the policy prefers.
    pub(super) unpreferred: bool,
}

impl Candidate<'_> {
    /// Shards it will have when those that are pinned to it have come.
    pub(super) fn expected(&self) -> u32 {
        self.load + self.reserved
    }

    pub(super) fn level(&self) -> Level {
        Level::new(self.expected(), self.weight)
    }

    /// Whether it may be given one more shard.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many more shards it may be given.
    pub(super) fn room(&self) -> u32 {
        match self.standing {
            Standing::Open => self.share.cap.saturating_sub(self.expected()),
            Standing::Disconnected
            | Standing::Cordoned
            | Standing::Paused
            | Standing::Stopping
            | Standing::Unfit
            | Standing::Draining => 0,
        }
    }

    /// Whether what it has stays with it, whatever the shares: the others share the rest.
    pub(super) fn keeps_all(&self) -> bool {
        self.is_paused || self.standing == Standing::Cordoned
    }

    /// Whether a shard on its way to it will be granted to it.
    pub(super) fn may_follow(&self) -> bool {
        matches!(
            self.standing,
            Standing::Open | Standing::Disconnected | Standing::Stopping | Standing::Unfit
        )
    }

    /// Whether the latest failure to open the shard was on this worker.
    pub(super) fn has_failed(&self, shard: &Shard) -> bool {
        shard
            .open_failure
            .as_ref()
            .is_some_and(|failure| failure.worker == *self.name)
    }
}

/// The registered workers of a group in order of name, loaded with what they own; see [`share_out`].
pub(super) fn candidates<'a>(
    state: &'a State,
    group: &'a Group,
    observed: &Observed,
) -> Vec<Candidate<'a>> {
    let policy = &group.header.policy;
    let mut workers: Vec<Candidate<'a>> = Vec::new();
    for (name, worker) in group.workers.iter() {
        let Some((id, session)) = worker.session.and_then(|id| Some((id, state.session(id)?)))
        else {
            continue;
        };
        let standing = match worker.mode {
            WorkerMode::Draining => Standing::Draining,
            _ if observed.stopping.contains(&id) => Standing::Stopping,
            WorkerMode::Cordoned => Standing::Cordoned,
            WorkerMode::Paused => Standing::Paused,
            WorkerMode::Active if !has(session, &policy.required_labels) => Standing::Unfit,
            WorkerMode::Active if observed.is_disconnected(id) => Standing::Disconnected,
            WorkerMode::Active => Standing::Open,
        };
        // Shards are numbered with `u32`, so nobody owns more.
        let load = u32::try_from(state.owned(id).len()).unwrap_or(u32::MAX);
        workers.push(Candidate {
            name,
            session: id,
            weight: session.weight.max(1),
            standing,
            is_paused: worker.mode == WorkerMode::Paused,
            share: Share::default(),
            load,
            reserved: 0,
            zone: 0,
            unpreferred: !has(session, &policy.preferred_labels),
        });
    }
    workers
}

/// Gives every worker its share, once all are loaded with what they will have. Shards that stay where they
/// are, or wait for a paused worker, are nobody's to share.
///
/// Returns the zones that the workers are in, with what they have.
pub(super) fn share_out(
    state: &State,
    workers: &mut [Candidate<'_>],
    group: &Group,
    observed: &Observed,
) -> Zones {
    let kept: u64 = workers
        .iter()
        .filter(|worker| worker.keeps_all())
        .map(|worker| u64::from(worker.load))
        .sum();
    let kept = (kept + waiting(group)).saturating_sub(overdue(workers, group, observed));
    let kept = u32::try_from(kept).unwrap_or(u32::MAX);
    let shards = group.header.shard_count.saturating_sub(kept);
    let sharing = workers.iter().filter(|worker| worker.standing.shares());
    let weights = sharing.map(|worker| worker.weight).collect();
    let division = Division::new(shards, weights, &group.header.policy);
    for worker in workers.iter_mut().filter(|worker| worker.standing.shares()) {
        worker.share = division.of_worker(worker.weight);
    }
    let mut zones = zones(state, group, &division, workers);
    zones.count(workers);
    zones
}

/// Whether a worker has all of some labels.
fn has(session: &Session, labels: &BTreeMap<String, String>) -> bool {
    let mut labels = labels.iter();
    labels.all(|(key, value)| session.labels.get(key) == Some(value))
}

/// How many shards do not stay with workers that keep what they have, because they do not open there.
fn overdue(workers: &[Candidate<'_>], group: &Group, observed: &Observed) -> u64 {
    let keeps = |owner: SessionId| {
        let mut of_owner = workers.iter().filter(|worker| worker.session == owner);
        of_owner.any(Candidate::keeps_all)
    };
    let leaves = |tenure: &&Tenure| {
        let shard = group.shard(tenure.shard);
        shard.is_some_and(|shard| {
            let opens = |owner: &SessionId| shard.epoch == Some(tenure.epoch) && keeps(*owner);
            matches!(&shard.state, ShardState::Opening(owner) if opens(owner))
        })
    };
    let leaving = observed.opening_overdue.iter().filter(leaves).count();
    u64::try_from(leaving).unwrap_or(u64::MAX)
}

/// How many unowned shards wait for paused workers. One that did not open on its worker, which is back, does
/// not.
fn waiting(group: &Group) -> u64 {
    let paused = |worker: &Worker| worker.mode == WorkerMode::Paused;
    if !group.workers.values().any(paused) {
        return 0;
    }
    let of_paused = |(index, shard): &(ShardIndex, &Shard)| {
        let placement = group.placements.get(index);
        let waits_for = shard.waits_for_paused(group);
        waits_for.is_some_and(|worker| {
            let is_back = group
                .workers
                .get(worker)
                .is_some_and(|of| of.session.is_some());
            let failed = shard.open_failure.as_ref();
            let failed = failed.is_some_and(|failure| failure.worker == *worker);
            !(is_back && failed) && placement.is_none_or(|of| !of.kept_off.contains(worker))
        })
    };
    let waiting = group.unowned().filter(of_paused).count();
    u64::try_from(waiting).unwrap_or(u64::MAX)
}
