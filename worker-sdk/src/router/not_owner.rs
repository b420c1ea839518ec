//! What a worker answers that is asked for a shard it does not own, and did nothing.

use std::fmt;
use std::str::FromStr;

use tenure_fence::{Epoch, ShardRef};

use super::{Route, Router};
use crate::held_shard::HeldShard;

/// A worker's answer to a request for a shard it does not own: it did nothing, and perhaps it knows who owns
/// the shard now.
///
/// As text (`Display`, `FromStr`) it goes over any transport: `not-owner`, or
/// `not-owner epoch=5 worker=w-2 address=10.0.0.2:9000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotOwner {
    /// Who owns the shard now, as far as the worker knows.
    pub hint: Option<Hint>,
}

/// Who owns a shard now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The epoch of the tenure.
    pub epoch: Epoch,
    /// The worker.
    pub worker: String,
    /// The address the worker advertises.
    pub address: String,
}

/// A text that is no [`NotOwner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the text of a NotOwner")]
pub struct ParseNotOwnerError;

const WORD: &str = "not-owner";

impl fmt::Display for NotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORD)?;
        match &self.hint {
            None => Ok(()),
            // The address comes last: it may be anything.
            Some(Hint {
                epoch,
                worker,
                address,
            }) => write!(
                f,
                " epoch={} worker={worker} address={address}",
                epoch.get()
            ),
        }
    }
}

impl FromStr for NotOwner {
    type Err = ParseNotOwnerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == WORD {
            return Ok(Self::default());
        }
        let hint = || {
            let rest = text.strip_prefix(WORD)?.strip_prefix(" epoch=")?;
            let (epoch, rest) = rest.split_once(" worker=")?;
            let (worker, address) = rest.split_once(" address=")?;
            Some(Hint {
                epoch: Epoch::new(epoch.parse().ok()?)?,
                worker: worker.to_owned(),
                address: address.to_owned(),
            })
        };
        let hint = hint().ok_or(ParseNotOwnerError)?;
        Ok(Self { hint: Some(hint) })
    }
}

impl Hint {
    /// The route to that owner of a shard.
    pub(super) fn route(self, shard: ShardRef) -> Route {
        Route {
            shard,
            epoch: self.epoch,
            worker: self.worker,
            address: self.address,
        }
    }
}

impl Router {
    /// Returns what a worker answers that was asked for a shard and does not own it: with a hint, if this
    /// router knows an owner of a later tenure than `epoch`, the worker's own one; `None` if it had none.
    #[must_use]
    pub fn not_owner(&self, index: u32, epoch: Option<Epoch>) -> NotOwner {
        let route = self
            .route_shard(index)
            .filter(|route| epoch.is_none_or(|epoch| route.epoch > epoch));
        NotOwner {
            hint: route.map(|route| Hint {
                epoch: route.epoch,
                worker: route.worker,
                address: route.address,
            }),
        }
    }
}

impl HeldShard {
    /// Returns what to answer to a request that came too late; `None` while the shard is held and
    /// [current](HeldShard::is_current). To be asked before anything is done for the request. A worker that
    /// has a router of its group can say where the shard went.
    #[must_use]
    pub fn not_owner(&self, router: Option<&Router>) -> Option<NotOwner> {
        if self.is_current() {
            return None;
        }
        let known = router.map(|router| router.not_owner(self.id().index, Some(self.epoch())));
        Some(known.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_from_its_text() {
        let hint = Hint {
            epoch: Epoch::new(5).unwrap(),
            worker: "w-2".to_owned(),
            address: "http://[::1]:9000/a path?worker=x address=y".to_owned(),
        };
        for hint in [None, Some(hint)] {
            let told = NotOwner { hint };
            assert_eq!(told.to_string().parse(), Ok(told));
        }
        for text in [
            "",
            "not-owner ",
            "not-owner epoch=0 worker=a address=b",
            "no",
        ] {
            assert_eq!(text.parse::<NotOwner>(), Err(ParseNotOwnerError), "{text}");
        }
    }
}
