//! What calls do, and a store that does one thing at a time: by the rules of `tenure-fence` itself.

use tenure::{Epoch, FencingToken, Sequence, WriteId};
use tenure_fence::{
    Fence, Refusal, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};

use super::calls::{Call, Register};
use crate::worker::{Answer, Asked, Content};

/// The store that knows of grants: it refuses an old owner before anybody has sealed.
pub(super) const KNOWS_GRANTS: &str = "replicated";

/// Which content a register has.
pub(super) type Version = (Epoch, Sequence, WriteId);

/// What a call that takes part in the search does.
#[derive(Debug)]
pub(super) enum Deed {
    /// Raises the fence, and finds this.
    Seal(FencingToken, Outcome),
    /// Replaces the content.
    Write(FencingToken, (Sequence, WriteId), Outcome),
    /// Finds this.
    Read(Option<Version>),
}

/// What a call was answered, as far as the search depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Found(Option<Version>),
    Done,
    Fenced,
    NotSealed,
    EpochConflict,
    SequenceReused,
    Unknown,
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced { .. } => Self::Fenced,
            Refusal::NotSealed => Self::NotSealed,
            Refusal::EpochConflict => Self::EpochConflict,
            Refusal::SequenceReused { .. } | Refusal::SequenceTooLow { .. } => Self::SequenceReused,
        }
    }
}

impl Deed {
    /// Returns what a call does; `None` if its answer says that nothing happened.
    pub(super) fn of(register: &Register, call: &Call) -> Result<Option<Self>, String> {
        let Some(outcome) = outcome(register, call)? else {
            return Ok(None);
        };
        Ok(match (&call.token, &call.asked) {
            (Some(token), Asked::Seal) => Some(Self::Seal(token.clone(), outcome)),
            (Some(token), Asked::Write { .. }) => {
                let (_, sequence, id) =
                    written(call).ok_or_else(|| format!("{call} is no write"))?;
                Some(Self::Write(token.clone(), (sequence, id), outcome))
            }
            (_, Asked::Read) => match outcome {
                Outcome::Found(found) => Some(Self::Read(found)),
                _ => None,
            },
            (None, _) => return Err(format!("{call} has no token")),
        })
    }

    /// Returns what it was answered.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Seal(_, outcome) | Self::Write(_, _, outcome) => *outcome,
            Self::Read(found) => Outcome::Found(*found),
        }
    }
}

fn outcome(register: &Register, call: &Call) -> Result<Option<Outcome>, String> {
    Ok(Some(match &call.answer {
        None | Some(Answer::Unknown) => Outcome::Unknown,
        Some(Answer::Unavailable) => return Ok(None),
        Some(Answer::Fenced) if register.store == KNOWS_GRANTS => return Ok(None),
        Some(Answer::Fenced) => Outcome::Fenced,
        Some(Answer::Found { content: None }) => Outcome::Found(None),
        Some(Answer::Found {
            content: Some(found),
        }) => Outcome::Found(Some(
            version(found).ok_or_else(|| format!("{call} found no checkpoint"))?,
        )),
        Some(Answer::Done) => Outcome::Done,
        Some(Answer::NotSealed) => Outcome::NotSealed,
        Some(Answer::EpochConflict) => Outcome::EpochConflict,
        Some(Answer::SequenceReused) => Outcome::SequenceReused,
        Some(Answer::Wrong { text }) => return Err(format!("no call may be answered {text}")),
    }))
}

/// Returns which version a content is.
pub(super) fn version(content: &Content) -> Option<Version> {
    let id = u128::from_str_radix(&content.write_id, 16).ok()?;
    let epoch = Epoch::new(content.epoch)?;
    Some((epoch, Sequence::new(content.sequence)?, WriteId::new(id)))
}

/// Returns which version a write makes.
pub(super) fn written(call: &Call) -> Option<Version> {
    let Asked::Write {
        sequence, write_id, ..
    } = &call.asked
    else {
        return None;
    };
    let id = u128::from_str_radix(write_id, 16).ok()?;
    let epoch = call.token.as_ref()?.epoch;
    Some((epoch, Sequence::new(*sequence)?, WriteId::new(id)))
}

/// A store that does one thing at a time, as far as answers depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Model {
    fence: Option<Fence>,
    latest: Option<(Sequence, WriteId)>,
    /// What is there.
    pub(super) content: Option<Version>,
}

impl Model {
    /// Does something, and returns the answer.
    pub(super) fn does(&mut self, deed: &Deed) -> Outcome {
        let done = match deed {
            Deed::Read(_) => Ok(Outcome::Found(self.content)),
            Deed::Seal(token, _) => self.seal(token),
            Deed::Write(token, presented, _) => self.write(token, *presented),
        };
        done.unwrap_or_else(Outcome::from)
    }

    fn seal(&mut self, token: &FencingToken) -> Result<Outcome, Refusal> {
        if admit_seal(self.fence.as_ref(), token)? == SealAdmission::Raise {
            self.fence = Some(Fence::from(token));
            self.latest = None;
        }
        Ok(Outcome::Found(self.content))
    }

    fn write(
        &mut self,
        token: &FencingToken,
        presented: (Sequence, WriteId),
    ) -> Result<Outcome, Refusal> {
        admit_write(self.fence.as_ref(), token)?;
        if admit_sequence(self.latest, presented)? == SequenceAdmission::New {
            self.latest = Some(presented);
            self.content = Some((token.epoch, presented.0, presented.1));
        }
        Ok(Outcome::Done)
    }

    /// Returns whether something can change nothing, now and ever after.
    pub(super) fn is_past(&self, deed: &Deed) -> bool {
        let Some(fence) = &self.fence else {
            return false;
        };
        match deed {
            Deed::Read(_) => true,
            Deed::Seal(token, _) => fence.epoch >= token.epoch,
            Deed::Write(token, (sequence, _), _) => {
                let used = self.latest.is_some_and(|(latest, _)| latest >= *sequence);
                fence.epoch > token.epoch || (fence.epoch == token.epoch && used)
            }
        }
    }
}
