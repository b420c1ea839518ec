//! Registrations that wait for the belief of the process they replace to be over.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tenure_fence::GroupName;
use tenure_ownership::command::Register;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::WorkerName;

use super::message::StreamId;
use crate::clock::Moment;

/// Replacements of one name that are not delayed: a few restarts in a row are ordinary.
const UNDAMPED: u32 = 3;
/// A name that was not replaced for this long starts afresh.
const CALM: Duration = Duration::from_secs(60);
/// First delay of a damped replacement; it doubles with each one.
const DELAY_FIRST: Duration = Duration::from_secs(1);
/// Longest delay of a damped replacement.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// A registration waiting for its turn.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) register: Box<Register>,
    pub(super) attempt: u64,
    pub(super) replaces: SessionId,
    pub(super) stage: Stage,
    /// End of the stage.
    pub(super) not_before: Moment,
}

/// How far a registration has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits because its name is fought over. The holder goes on undisturbed.
    Damped,
    /// The replacement is decided on: the holder is neither acknowledged nor resumed, and its belief
    /// is waited for.
    Decided,
}

/// A worker's name.
pub(super) type Name = (GroupName, WorkerName);

/// How often a name changed hands lately.
#[derive(Clone, Copy, Debug)]
struct Contest {
    replacements: u32,
    last_at: Moment,
}

/// Registrations in waiting, and the memory of names that two processes fight over.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    waiting: BTreeMap<StreamId, Candidate>,
    queue: BTreeSet<(Moment, StreamId)>,
    by_replaced: BTreeMap<SessionId, StreamId>,
    contests: BTreeMap<Name, Contest>,
}

impl Registrations {
    /// Lets a registration wait.
    pub(super) fn wait(&mut self, stream: StreamId, candidate: Candidate) {
        self.queue.insert((candidate.not_before, stream));
        self.by_replaced.insert(candidate.replaces, stream);
        self.waiting.insert(stream, candidate);
    }

    /// Takes out a registration whose stream is gone.
    pub(super) fn cancel(&mut self, stream: StreamId) -> Option<Candidate> {
        let candidate = self.waiting.remove(&stream)?;
        self.queue.remove(&(candidate.not_before, stream));
        self.by_replaced.remove(&candidate.replaces);
        Some(candidate)
    }

    /// The stream of another registration that already waits to replace the session.
    pub(super) fn replacing(&self, session: SessionId) -> Option<StreamId> {
        self.by_replaced.get(&session).copied()
    }

    /// Takes out all registrations whose time has come.
    pub(super) fn due(&mut self, now: Moment) -> Vec<(StreamId, Candidate)> {
        let mut due = Vec::new();
        while let Some((at, stream)) = self.queue.first().copied()
            && at <= now
        {
            due.extend(self.cancel(stream).map(|candidate| (stream, candidate)));
        }
        due
    }

    /// When the next registration is due.
    pub(super) fn due_at(&self) -> Option<Moment> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Moves every waiting time by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for candidate in self.waiting.values_mut() {
            candidate.not_before = candidate.not_before + gap;
        }
        self.queue = self
            .waiting
            .iter()
            .map(|(stream, candidate)| (candidate.not_before, *stream))
            .collect();
    }

    /// Notes that a process replaced another under a name.
    pub(super) fn replaced(&mut self, name: Name, now: Moment) {
        self.contests
            .retain(|_, contest| now.since(contest.last_at) < CALM);
        let contest = self.contests.entry(name).or_insert(Contest {
            replacements: 0,
            last_at: now,
        });
        contest.replacements += 1;
        contest.last_at = now;
    }

    /// How long the next replacement under a name must wait before it is decided on, because the name
    /// is fought over.
    pub(super) fn damping(&self, name: &Name, now: Moment) -> Duration {
        let contest = self.contests.get(name);
        let contest = contest.filter(|contest| now.since(contest.last_at) < CALM);
        match contest.and_then(|contest| contest.replacements.checked_sub(UNDAMPED)) {
            None => Duration::ZERO,
            Some(excess) => DELAY_FIRST
                .saturating_mul(1 << excess.min(16))
                .min(DELAY_MAX),
        }
    }
}
