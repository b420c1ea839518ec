//! How long the shards of paused workers wait for them. Kept by the leader: a new one begins anew in full.

use std::time::Duration;

use tenure_ownership::group::Group;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::session::Pause;

use super::timers::Timers;
use crate::clock::Moment;

/// A pause, by the revision at which it began: one command pauses one worker.
pub(super) type PauseId = (GroupId, Revision);

/// The clocks of all pauses.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    running: Timers<PauseId>,
}

impl Pauses {
    /// Starts the clocks of a group as a new leader finds it.
    pub(super) fn adopt(&mut self, group: &Group, now: Moment) {
        let pauses = group.workers.values().filter_map(|worker| worker.pause);
        for pause in pauses {
            self.start(group.header.id, pause, now);
        }
    }

    /// Starts the clock of a pause.
    pub(super) fn start(&mut self, group: GroupId, pause: Pause, now: Moment) {
        self.running.set((group, pause.since), now + pause.timeout);
    }

    /// Lets a pause that could not be ended be ended later.
    pub(super) fn retry(&mut self, pause: PauseId, at: Moment) {
        self.running.set(pause, at);
    }

    /// Takes the pauses whose time is over. Some may have been ended or replaced meanwhile.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<PauseId> {
        self.running.take_due(now)
    }

    /// When the next pause is over.
    pub(super) fn next(&self) -> Option<Moment> {
        self.running.next()
    }

    /// Moves every deadline by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        self.running.shift(gap);
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.running.retain(|(of, _)| *of != group);
    }
}

/// The worker that is paused by a pause; `None` if the pause is over already.
pub(super) fn paused(group: &Group, since: Revision) -> Option<&WorkerName> {
    let is_meant = |pause: Pause| pause.since == since;
    let mut workers = group.workers.iter();
    workers
        .find(|(_, worker)| worker.pause.is_some_and(is_meant))
        .map(|(name, _)| name)
}
