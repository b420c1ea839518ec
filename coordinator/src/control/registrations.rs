//! Registrations that wait for the belief of the process they replace to be over.

use std::collections::BTreeMap;
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
    contests: BTreeMap<(GroupName, WorkerName), Contest>,
}

impl Registrations {
    /// Lets a registration wait.
    pub(super) fn wait(&mut self, stream: StreamId, candidate: Candidate) {
        self.waiting.insert(stream, candidate);
    }

    /// Takes out a registration whose stream is gone.
    pub(super) fn cancel(&mut self, stream: StreamId) -> Option<Candidate> {
        self.waiting.remove(&stream)
    }

    /// Whether another registration already waits to replace the session.
    pub(super) fn replacing(&self, session: SessionId) -> Option<StreamId> {
        self.waiting
            .iter()
            .find(|(_, c)| c.replaces == session)
            .map(|(stream, _)| *stream)
    }

    /// Takes out all registrations whose time has come, in order of arrival.
    pub(super) fn due(&mut self, now: Moment) -> Vec<(StreamId, Candidate)> {
        let due: Vec<StreamId> = self
            .waiting
            .iter()
            .filter(|(_, c)| c.not_before <= now)
            .map(|(stream, _)| *stream)
            .collect();
        due.into_iter()
            .filter_map(|stream| Some((stream, self.waiting.remove(&stream)?)))
            .collect()
    }

    /// When the next registration is due.
    pub(super) fn due_at(&self) -> Option<Moment> {
        self.waiting
            .values()
            .map(|candidate| candidate.not_before)
            .min()
    }

    /// Moves every waiting time by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for candidate in self.waiting.values_mut() {
            candidate.not_before = candidate.not_before + gap;
        }
    }

    /// Notes a replacement of the name and returns how long it must wait before it is decided on,
    /// because the name is fought over.
    pub(super) fn damping(&mut self, register: &Register, now: Moment) -> Duration {
        self.contests
            .retain(|_, contest| now.since(contest.last_at) < CALM);
        let key = (register.group.clone(), register.worker.clone());
        let contest = self.contests.entry(key).or_insert(Contest {
            replacements: 0,
            last_at: now,
        });
        contest.replacements += 1;
        contest.last_at = now;
        match contest.replacements.checked_sub(UNDAMPED + 1) {
            None => Duration::ZERO,
            Some(excess) => DELAY_FIRST
                .saturating_mul(1 << excess.min(16))
                .min(DELAY_MAX),
        }
    }
}
