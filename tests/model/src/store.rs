//! The fenced store: one fence, one latest write, and the requests that are still on their way to it.
//!
//! The counterpart of `worker-sdk/fence/src/admission.rs`. Requests arrive in any order, any time after they were
//! sent, also when their sender is gone; an answer arrives with its request or never.

use crate::few::Few;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::WriteId;
use crate::rules::Rules;

/// Most requests under way at once.
pub const IN_FLIGHT_MAX: usize = 4;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Raise the fence, then return the latest write.
    Seal,
    /// Return the latest write, whoever asks.
    Read,
    /// Write on the basis of what the owner has read.
    Write {
        /// What is written.
        id: WriteId,
        /// What the owner read when it opened the shard.
        basis: WriteId,
    },
}

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Who sent it.
    pub process: ProcessId,
    /// The epoch of its token.
    pub epoch: Epoch,
    /// The owner in its token.
    pub owner: SessionId,
    /// What it asks for.
    pub ask: Ask,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The latest write.
    Found(WriteId),
    /// The write was accepted.
    Written,
    /// Refused: the handle is dead, for ever.
    Refused,
}

/// The store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The epoch of the fence; 0 if it was never sealed.
    pub fence_epoch: Epoch,
    /// The owner of the fence.
    pub fence_owner: SessionId,
    /// The latest accepted write.
    pub latest: WriteId,
    /// Its epoch.
    pub latest_epoch: Epoch,
    /// The latest accepted write of all earlier epochs than that.
    pub before: WriteId,
    /// The highest epoch that was ever sealed. Nobody reads it but the properties.
    pub sealed: Epoch,
    /// Requests on their way.
    pub in_flight: Few<Request, IN_FLIGHT_MAX>,
}

/// What happened at the store, besides the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breach {
    /// A write below a sealed epoch was accepted: P2.
    pub accepted_below_a_seal: bool,
    /// A write was accepted whose owner had not seen the last write of the epochs before: P3.
    pub lost_update: bool,
    /// A write was accepted of an owner that is not the one that sealed the epoch: two owners of one epoch.
    pub two_owners_of_one_epoch: bool,
}

impl Store {
    /// A store that nobody has used.
    pub const EMPTY: Self = Self {
        fence_epoch: 0,
        fence_owner: 0,
        latest: 0,
        latest_epoch: 0,
        before: 0,
        sealed: 0,
        in_flight: Few::EMPTY,
    };

    /// The last accepted write of all epochs below one. `None` when a later epoch has written already.
    pub fn last_below(&self, epoch: Epoch) -> Option<WriteId> {
        match self.latest_epoch.cmp(&epoch) {
            std::cmp::Ordering::Less => Some(self.latest),
            std::cmp::Ordering::Equal => Some(self.before),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Handles a request in one atomic step.
    pub fn handle(&mut self, rules: &Rules, request: Request) -> (Answer, Breach) {
        let mut breach = Breach::default();
        let answer = match request.ask {
            Ask::Read => Answer::Found(self.latest),
            Ask::Seal => self.seal(rules, request),
            Ask::Write { id, basis } => self.write(rules, request, id, basis, &mut breach),
        };
        (answer, breach)
    }

    fn seal(&mut self, rules: &Rules, request: Request) -> Answer {
        let lower = request.epoch < self.fence_epoch;
        if lower && rules.seal_refused_below_the_fence {
            return Answer::Refused;
        }
        let other = request.epoch == self.fence_epoch && request.owner != self.fence_owner;
        if other && rules.equal_epoch_needs_the_same_owner {
            return Answer::Refused;
        }
        self.fence_epoch = request.epoch;
        self.fence_owner = request.owner;
        self.sealed = self.sealed.max(request.epoch);
        Answer::Found(self.latest)
    }

    fn write(
        &mut self,
        rules: &Rules,
        request: Request,
        id: WriteId,
        basis: WriteId,
        breach: &mut Breach,
    ) -> Answer {
        let Request { epoch, owner, .. } = request;
        let below = if rules.write_refused_below_the_fence {
            epoch < self.fence_epoch
        } else {
            epoch + 1 < self.fence_epoch
        };
        let above = rules.write_refused_above_the_fence && epoch > self.fence_epoch;
        let other = epoch == self.fence_epoch && owner != self.fence_owner;
        if below || above || (other && rules.equal_epoch_needs_the_same_owner) {
            return Answer::Refused;
        }
        breach.accepted_below_a_seal = epoch < self.sealed;
        breach.lost_update = self.last_below(epoch).is_some_and(|last| last != basis);
        breach.two_owners_of_one_epoch = other;
        if epoch != self.latest_epoch {
            self.before = self.latest;
            self.latest_epoch = epoch;
        }
        self.latest = id;
        Answer::Written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(epoch: Epoch, owner: SessionId, id: WriteId) -> Request {
        Request {
            process: 0,
            epoch,
            owner,
            ask: Ask::Write { id, basis: 0 },
        }
    }

    #[test]
    fn only_the_owner_that_sealed_writes() {
        let rules = Rules::default();
        let mut store = Store::EMPTY;
        let seal = Request {
            ask: Ask::Seal,
            ..write(2, 5, 0)
        };
        assert_eq!(store.handle(&rules, write(2, 5, 1)).0, Answer::Refused);
        assert_eq!(store.handle(&rules, seal).0, Answer::Found(0));
        assert_eq!(store.handle(&rules, seal).0, Answer::Found(0));
        for (epoch, owner) in [(1, 5), (3, 5), (2, 6)] {
            assert_eq!(
                store.handle(&rules, write(epoch, owner, 1)).0,
                Answer::Refused
            );
        }
        let (answer, breach) = store.handle(&rules, write(2, 5, 1));
        assert_eq!((answer, breach), (Answer::Written, Breach::default()));
        assert_eq!(store.last_below(2), Some(0));
        assert_eq!(store.last_below(3), Some(1));
    }
}
