//! The calls on stores, by what they are on.

use std::collections::BTreeMap;
use std::fmt;

use tenure::FencingToken;

use crate::worker::{Answer, Asked};

/// What has one value and one fence: a shard in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register {
    /// The store.
    pub store: String,
    /// The shard.
    pub shard: u32,
}

impl fmt::Display for Register {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shard {} in {}", self.shard, self.store)
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The process that made it.
    pub caller: String,
    /// What it is on.
    pub register: Register,
    /// The token; `None` of a read.
    pub token: Option<FencingToken>,
    /// What was asked.
    pub asked: Asked,
    /// What was answered; `None` if nothing was.
    pub answer: Option<Answer>,
    /// A moment before it was made, in nanoseconds.
    pub began: u64,
    /// A moment after it was answered; `u64::MAX` if it was not.
    pub ended: u64,
}

impl Call {
    /// Creates a call without an answer.
    #[must_use]
    pub fn new(
        caller: String,
        register: Register,
        token: Option<FencingToken>,
        asked: Asked,
        began: u64,
    ) -> Self {
        Self {
            caller,
            register,
            token,
            asked,
            answer: None,
            began,
            ended: u64::MAX,
        }
    }

    /// Returns the epoch; 0 of a read.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.token.as_ref().map_or(0, |token| token.epoch.get())
    }

    /// Returns whether it is a seal that was accepted.
    #[must_use]
    pub fn is_seal(&self) -> bool {
        self.asked == Asked::Seal && matches!(self.answer, Some(Answer::Found { .. }))
    }

    /// Returns whether it is a write that was accepted.
    #[must_use]
    pub fn is_accepted_write(&self) -> bool {
        matches!(self.asked, Asked::Write { .. }) && self.answer == Some(Answer::Done)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (began, ended, caller) = (self.began, self.ended, &self.caller);
        write!(formatter, "{began}..{ended} {caller} ")?;
        if let Some(token) = &self.token {
            write!(formatter, "{token} ")?;
        }
        write!(formatter, "{:?} -> {:?}", self.asked, self.answer)
    }
}

/// All calls, by register.
#[derive(Debug, Default)]
pub struct Calls {
    registers: BTreeMap<Register, Vec<Call>>,
}

impl Calls {
    /// Adds a call.
    pub fn add(&mut self, call: Call) {
        let register = self.registers.entry(call.register.clone());
        register.or_default().push(call);
    }

    /// Returns the calls on each register.
    pub fn registers(&self) -> impl Iterator<Item = (&Register, &[Call])> {
        self.registers
            .iter()
            .map(|(register, calls)| (register, calls.as_slice()))
    }

    /// Returns all calls.
    pub fn all(&self) -> impl Iterator<Item = &Call> {
        self.registers.values().flatten()
    }
}

#[cfg(test)]
pub(super) mod made {
    //! Histories made by hand.

    use super::*;
    use crate::worker::Content;

    pub(crate) fn token(epoch: u64, owner: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:{:032x}/{owner}", 7)
            .parse()
            .unwrap()
    }

    fn made(token: Option<FencingToken>, asked: Asked, answer: Answer, span: (u64, u64)) -> Call {
        let register = Register {
            store: "sqlite".to_owned(),
            shard: 7,
        };
        Call {
            answer: Some(answer),
            ended: span.1,
            ..Call::new("worker-1".to_owned(), register, token, asked, span.0)
        }
    }

    /// A write of the content `number`, which is its sequence and its id as well.
    pub(crate) fn write(epoch: u64, number: u64, answer: Answer, span: (u64, u64)) -> Call {
        let asked = Asked::Write {
            sequence: number,
            write_id: format!("{number:032x}"),
            data: number.to_string(),
        };
        made(Some(token(epoch, epoch)), asked, answer, span)
    }

    /// What a call finds after [`write`].
    pub(crate) fn content(epoch: u64, number: u64) -> Answer {
        let content = Some(Content {
            epoch,
            sequence: number,
            write_id: format!("{number:032x}"),
            data: number.to_string(),
        });
        Answer::Found { content }
    }

    pub(crate) const NOTHING: Answer = Answer::Found { content: None };

    pub(crate) fn seal(epoch: u64, answer: Answer, span: (u64, u64)) -> Call {
        made(Some(token(epoch, epoch)), Asked::Seal, answer, span)
    }

    pub(crate) fn read(answer: Answer, span: (u64, u64)) -> Call {
        made(None, Asked::Read, answer, span)
    }

    pub(crate) fn calls(made: impl IntoIterator<Item = Call>) -> Calls {
        let mut calls = Calls::default();
        made.into_iter().for_each(|call| calls.add(call));
        calls
    }
}
