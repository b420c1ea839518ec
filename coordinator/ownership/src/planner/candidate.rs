//! The workers that a plan is made for.

use crate::group::Group;
use crate::ids::{SessionId, WorkerName};
use crate::planner::observed::Observed;
use crate::planner::share::{Level, Share};
use crate::session::WorkerMode;
use crate::shard::Shard;
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
    /// Gives back what it has of itself: does not count in the shares, is given nothing.
    Stopping,
    /// Is to be emptied.
    Draining,
}

/// A registered worker.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a WorkerName,
    pub(super) session: SessionId,
    pub(super) weight: u32,
    pub(super) standing: Standing,
    /// Zero for a worker that stops or drains.
    pub(super) share: Share,
    /// Shards it will have: those it owns and is not asked to give up, those on their way to it, and
    /// those of this plan.
    pub(super) load: u32,
}

impl Candidate<'_> {
    pub(super) fn level(&self) -> Level {
        Level::new(self.load, self.weight)
    }

    /// Whether it may be given one more shard.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many more shards it may be given.
    pub(super) fn room(&self) -> u32 {
        match self.standing {
            Standing::Open => self.share.cap.saturating_sub(self.load),
            Standing::Disconnected | Standing::Stopping | Standing::Draining => 0,
        }
    }

    /// Whether the latest failure to open the shard was on this worker.
    pub(super) fn has_failed(&self, shard: &Shard) -> bool {
        shard
            .open_failure
            .as_ref()
            .is_some_and(|failure| failure.worker == *self.name)
    }
}

/// The registered workers of a group in order of name, loaded with what they own.
pub(super) fn candidates<'a>(
    state: &'a State,
    group: &'a Group,
    observed: &Observed,
) -> Vec<Candidate<'a>> {
    let mut workers: Vec<Candidate<'a>> = Vec::new();
    for (name, worker) in group.workers.iter() {
        let Some((id, session)) = worker.session.and_then(|id| Some((id, state.session(id)?)))
        else {
            continue;
        };
        let standing = match worker.mode {
            WorkerMode::Draining => Standing::Draining,
            WorkerMode::Active if observed.stopping.contains(&id) => Standing::Stopping,
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
            share: Share::default(),
            load,
        });
    }
    let sharing = |worker: &&mut Candidate<'_>| {
        matches!(worker.standing, Standing::Open | Standing::Disconnected)
    };
    let weights = workers
        .iter_mut()
        .filter(sharing)
        .map(|worker| u64::from(worker.weight))
        .sum();
    let (shards, factor) = (
        group.header.shard_count,
        group.header.policy.load_factor_permille,
    );
    for worker in workers.iter_mut().filter(sharing) {
        worker.share = Share::new(shards, worker.weight, weights, factor);
    }
    workers
}
