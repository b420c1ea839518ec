//! Histories of calls that overlap, and the check that they are linear.
//!
//! A store is right if every call can be thought to have happened at one moment between its start
//! and its answer, such that the answers are those of a store that does one thing at a time
//! (linearizability: Herlihy and Wing, "Linearizability: a correctness condition for concurrent
//! objects", TOPLAS 1990). The search is Wing and Gong's ("Testing and verifying concurrent
//! objects", JPDC 1993): take any call that may have been next, and go on; a state of the store that
//! was reached with the same calls behind it is not searched twice.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;

use crate::admission::{
    Fence, Refusal, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::error::CheckpointError;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

/// Most calls of one history: those behind a point of the search are kept as bits.
pub(super) const CALLS_MAX: usize = 64;

/// Which content a resource has. The write id stands for the data: it is chosen once for each.
type Content = (Epoch, Sequence, WriteId);

/// Returns the data of a write of a history, by which it is known again.
pub(super) fn data_of(id: WriteId) -> Bytes {
    Bytes::copy_from_slice(&id.get().to_be_bytes())
}

/// What is asked of a resource.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Seal,
    Write(Sequence, WriteId),
    Delete(Sequence, WriteId),
    Read,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Of a seal or read: the content.
    Found(Option<Content>),
    /// Of a seal or read: data that is not that of the write it names.
    Mixed(WriteId),
    Done,
    Fenced,
    NotSealed,
    EpochConflict,
    SequenceReused {
        latest: Sequence,
    },
    /// It may have happened at any moment after its start, or never.
    Unknown,
}

impl Answer {
    /// Returns what an answer says; `None` when it says that nothing happened for want of the store.
    ///
    /// # Errors
    ///
    /// The answer itself, when no call may be answered so.
    pub(super) fn of<T>(
        answer: Result<T, CheckpointError>,
        found: impl FnOnce(T) -> Self,
    ) -> Result<Option<Self>, CheckpointError> {
        Ok(Some(match answer {
            Ok(value) => found(value),
            Err(CheckpointError::Fenced { .. }) => Self::Fenced,
            Err(CheckpointError::NotSealed { .. }) => Self::NotSealed,
            Err(CheckpointError::EpochConflict { .. }) => Self::EpochConflict,
            Err(CheckpointError::SequenceReused { latest, .. }) => Self::SequenceReused { latest },
            Err(CheckpointError::OutcomeUnknown { .. }) => Self::Unknown,
            Err(CheckpointError::Unavailable { .. }) => return Ok(None),
            Err(other) => return Err(other),
        }))
    }

    /// Returns what a seal or read found.
    pub(super) fn found(checkpoint: Option<Checkpoint>) -> Self {
        match checkpoint {
            Some(c) if c.data != data_of(c.write_id) => Self::Mixed(c.write_id),
            found => Self::Found(found.map(|c| (c.epoch, c.sequence, c.write_id))),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced { .. } => Self::Fenced,
            Refusal::NotSealed => Self::NotSealed,
            Refusal::EpochConflict => Self::EpochConflict,
            Refusal::SequenceReused { sequence, .. } => Self::SequenceReused { latest: sequence },
            Refusal::SequenceTooLow { latest, .. } => Self::SequenceReused { latest },
        }
    }
}

/// One call on the resource of a history.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Whose; `None` for a read.
    pub(super) token: Option<FencingToken>,
    pub(super) asked: Asked,
    pub(super) answer: Answer,
    /// Moments, on one count for all calls.
    pub(super) began: u64,
    pub(super) ended: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (began, ended) = (self.began, self.ended);
        write!(formatter, "{began:>4}..{ended:<4} ")?;
        match &self.token {
            Some(token) => write!(formatter, "epoch {} ", token.epoch)?,
            None => formatter.write_str("reader ")?,
        }
        write!(formatter, "{:?} -> {:?}", self.asked, self.answer)
    }
}

/// All calls on one resource, from its first seal on.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) calls: Vec<Call>,
    /// When each tenure was asked for. A store may know of grants, and refuse older ones from then on.
    pub(super) grants: Vec<(Epoch, u64)>,
    /// Whether a seal raises the fence at one moment and reads at a later one.
    pub(super) seals_in_two_steps: bool,
}

impl fmt::Display for History {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|call| call.began);
        for call in calls {
            write!(formatter, "\n    {call}")?;
        }
        Ok(())
    }
}

impl History {
    /// Says whether the calls can be put in one order that explains every answer.
    ///
    /// # Panics
    ///
    /// When there are more than [`CALLS_MAX`] calls.
    pub(super) fn is_linear(&self) -> bool {
        assert!(
            self.calls.len() <= CALLS_MAX,
            "a history of more than {CALLS_MAX} calls"
        );
        let mut search = Search {
            history: self,
            seen: HashSet::new(),
        };
        search.explains(Past::default(), Model::default())
    }

    /// Says whether a newer tenure had been granted before a call was answered.
    fn granted_on(&self, epoch: Epoch, before: u64) -> bool {
        self.grants
            .iter()
            .any(|(newer, at)| *newer > epoch && *at < before)
    }
}

/// A store that does one thing at a time, as far as answers depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Model {
    fence: Option<Fence>,
    latest: Option<(Sequence, WriteId)>,
    content: Option<Content>,
}

impl Model {
    /// Does what is asked, and returns the answer.
    fn does(&mut self, call: &Call) -> Answer {
        let done = match (&call.token, &call.asked) {
            (None, _) | (_, Asked::Read) => Ok(Answer::Found(self.content)),
            (Some(token), Asked::Seal) => self.seal(token),
            (Some(token), Asked::Write(sequence, id)) => {
                let content = (token.epoch, *sequence, *id);
                self.change(token, (*sequence, *id), Some(content))
            }
            (Some(token), Asked::Delete(sequence, id)) => {
                self.change(token, (*sequence, *id), None)
            }
        };
        done.unwrap_or_else(Answer::from)
    }

    fn seal(&mut self, token: &FencingToken) -> Result<Answer, Refusal> {
        if admit_seal(self.fence.as_ref(), token)? == SealAdmission::Raise {
            self.fence = Some(Fence::from(token));
            self.latest = None;
        }
        Ok(Answer::Found(self.content))
    }

    fn change(
        &mut self,
        token: &FencingToken,
        presented: (Sequence, WriteId),
        content: Option<Content>,
    ) -> Result<Answer, Refusal> {
        admit_write(self.fence.as_ref(), token)?;
        if admit_sequence(self.latest, presented)? == SequenceAdmission::New {
            self.latest = Some(presented);
            self.content = content;
        }
        Ok(Answer::Done)
    }
}

/// Calls that a search has put in order, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Past {
    /// Those that are over.
    over: u64,
    /// Seals that have raised the fence and not read yet.
    raised: u64,
}

impl Past {
    fn with(self, index: usize) -> Self {
        Self {
            over: self.over | 1 << index,
            raised: self.raised & !(1 << index),
        }
    }
}

struct Search<'h> {
    history: &'h History,
    /// Calls of the past, and the state they led to.
    seen: HashSet<(Past, Model)>,
}

impl Search<'_> {
    /// Says whether the calls that are not in the past can follow a state.
    fn explains(&mut self, past: Past, model: Model) -> bool {
        let calls = &self.history.calls;
        let ahead = |index: &usize| past.over & (1 << index) == 0;
        let known = |index: &usize| calls[*index].answer != Answer::Unknown;
        // Nothing can follow a call that was answered before it began.
        let first_ended = (0..calls.len())
            .filter(ahead)
            .filter(known)
            .map(|index| calls[index].ended)
            .min();
        let Some(first_ended) = first_ended else {
            // What is left may never have happened.
            return true;
        };
        if !self.seen.insert((past, model.clone())) {
            return false;
        }
        for index in (0..calls.len()).filter(ahead) {
            let call = &calls[index];
            if call.began > first_ended {
                continue;
            }
            let mut next = model.clone();
            let (answer, raised) = if past.raised & (1 << index) == 0 {
                let answer = next.does(call);
                let raised = matches!((&call.asked, &answer), (Asked::Seal, Answer::Found(_)));
                (answer, raised && self.history.seals_in_two_steps)
            } else {
                (Answer::Found(model.content), false)
            };
            let explained = call.answer == Answer::Unknown || call.answer == answer;
            if explained && self.explains(past.with(index), next.clone()) {
                return true;
            }
            if raised {
                let raised = past.raised | 1 << index;
                if self.explains(Past { raised, ..past }, next) {
                    return true;
                }
            }
            let refused_by_grant = call.answer == Answer::Fenced
                && call
                    .token
                    .as_ref()
                    .is_some_and(|token| self.history.granted_on(token.epoch, call.ended));
            if refused_by_grant && self.explains(past.with(index), model.clone()) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(epoch: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:{:032x}/{epoch}", 7)
            .parse()
            .unwrap()
    }

    fn number(number: u64) -> (Sequence, WriteId) {
        (Sequence::new(number).unwrap(), WriteId::new(number.into()))
    }

    fn content(epoch: u64, of: u64) -> Answer {
        let (sequence, id) = number(of);
        Answer::Found(Some((Epoch::new(epoch).unwrap(), sequence, id)))
    }

    fn call(epoch: u64, asked: Asked, answer: Answer, moments: (u64, u64)) -> Call {
        Call {
            token: Some(token(epoch)),
            asked,
            answer,
            began: moments.0,
            ended: moments.1,
        }
    }

    fn write(epoch: u64, of: u64, answer: Answer, moments: (u64, u64)) -> Call {
        let (sequence, id) = number(of);
        call(epoch, Asked::Write(sequence, id), answer, moments)
    }

    fn linear(calls: Vec<Call>) -> bool {
        let history = History {
            calls,
            grants: vec![(Epoch::new(7).unwrap(), 0), (Epoch::new(8).unwrap(), 5)],
            seals_in_two_steps: false,
        };
        history.is_linear()
    }

    fn linear_in_two_steps(calls: Vec<Call>) -> bool {
        let history = History {
            calls,
            seals_in_two_steps: true,
            ..History::default()
        };
        history.is_linear()
    }

    fn sealed() -> Call {
        call(7, Asked::Seal, Answer::Found(None), (1, 2))
    }

    #[test]
    fn a_write_beside_a_seal_lands_before_it_or_is_fenced() {
        let seal = |answer| call(8, Asked::Seal, answer, (10, 20));
        let beside = (11, 19);
        let landed = write(7, 1, Answer::Done, beside);
        assert!(linear(vec![sealed(), landed.clone(), seal(content(7, 1))]));
        assert!(!linear(vec![sealed(), landed, seal(Answer::Found(None))]));
        let fenced = write(7, 1, Answer::Fenced, beside);
        assert!(linear(vec![sealed(), fenced, seal(Answer::Found(None))]));
    }

    #[test]
    fn a_write_after_a_seal_never_lands() {
        let seal = call(8, Asked::Seal, Answer::Found(None), (10, 20));
        let late = write(7, 1, Answer::Done, (21, 22));
        assert!(!linear(vec![sealed(), seal, late]));
    }

    #[test]
    fn a_seal_of_two_steps_may_read_what_its_owner_wrote_beside_it_and_nothing_less() {
        let sealing = |answer| call(7, Asked::Seal, answer, (3, 20));
        // The tenure is sealed a second time, and writes twice meanwhile.
        let written = |answer| {
            vec![
                sealed(),
                sealing(answer),
                write(7, 1, Answer::Done, (4, 5)),
                write(7, 2, Answer::Done, (6, 7)),
            ]
        };
        for answer in [Answer::Found(None), content(7, 1), content(7, 2)] {
            assert!(linear_in_two_steps(written(answer)));
        }
        let read_early = call(8, Asked::Seal, Answer::Found(None), (10, 20));
        let landed = write(7, 1, Answer::Done, (3, 4));
        let fenced = write(7, 2, Answer::Fenced, (11, 12));
        let own = write(8, 3, Answer::Done, (13, 14));
        assert!(!linear_in_two_steps(vec![
            sealed(),
            landed.clone(),
            read_early.clone()
        ]));
        let seal = |answer| Call {
            answer,
            ..read_early.clone()
        };
        let around = |answer| {
            vec![
                sealed(),
                landed.clone(),
                fenced.clone(),
                own.clone(),
                seal(answer),
            ]
        };
        assert!(linear_in_two_steps(around(content(8, 3))));
        assert!(linear_in_two_steps(around(content(7, 1))));
        // In one step it cannot return what was written only because the fence had been raised.
        assert!(!linear(around(content(8, 3))));
    }

    #[test]
    fn an_unknown_write_may_land_late_or_never_and_once() {
        let read = |answer, moments| Call {
            token: None,
            ..call(7, Asked::Read, answer, moments)
        };
        let unknown = write(7, 1, Answer::Unknown, (3, 4));
        for answer in [content(7, 1), Answer::Found(None)] {
            assert!(linear(vec![
                sealed(),
                unknown.clone(),
                read(answer, (9, 10))
            ]));
        }
        let comes = read(Answer::Found(None), (5, 6));
        let is_there = read(content(7, 1), (7, 8));
        let gone = read(Answer::Found(None), (9, 10));
        assert!(linear(vec![
            sealed(),
            unknown.clone(),
            comes.clone(),
            is_there.clone()
        ]));
        assert!(!linear(vec![sealed(), unknown, comes, is_there, gone]));
    }

    #[test]
    fn a_store_that_knows_of_grants_may_refuse_before_the_seal_but_not_before_the_grant() {
        let early = write(7, 1, Answer::Fenced, (3, 4));
        assert!(!linear(vec![sealed(), early]));
        let after_the_grant = write(7, 1, Answer::Fenced, (6, 7));
        assert!(linear(vec![sealed(), after_the_grant]));
    }
}
