//! The one rule that decides what a store may accept.
//!
//! Pure functions of what the store has and what is presented. A store that can run code next to its
//! data calls them inside the step that changes the data; one that cannot (a database, an object
//! store) expresses the same comparison in its own terms and is held to it by the conformance kit.
//!
//! The caller looks the fence up by the token's resource; these functions compare epochs and owners
//! and never see the resource of the fence.

use std::cmp::Ordering;

use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

/// What a store keeps for each resource, for ever: the highest epoch it was sealed with, and by whom.
///
/// It outlives the data it guards. No fence at all means that the resource was never sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The highest epoch the store was sealed with.
    pub epoch: Epoch,
    /// The owner that sealed it.
    pub owner: Owner,
}

impl From<&FencingToken> for Fence {
    fn from(token: &FencingToken) -> Self {
        Self {
            epoch: token.epoch,
            owner: token.owner,
        }
    }
}

/// How an admitted seal changes the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealAdmission {
    /// The fence rises to the token's epoch and owner. The sequences of the new epoch start afresh.
    Raise,
    /// The fence is there already: a repeated seal. The sequences of the epoch go on.
    Same,
}

/// What an admitted write or deletion does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceAdmission {
    /// The write is new: store it. A deletion leaves nothing but its sequence and id.
    New,
    /// The write is the retry of one that landed: answer success and store nothing.
    AlreadyWritten,
}

/// Why a store must refuse. Nothing has been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A newer epoch has sealed the store: the presenter was replaced and must stop.
    #[error("fenced: presented epoch {presented}, the fence is at {current}")]
    Fenced {
        /// The epoch that was presented.
        presented: Epoch,
        /// The epoch the store is sealed with.
        current: Epoch,
    },

    /// The presenter has not sealed the store. Nothing but a seal raises a fence.
    #[error("the store was not sealed with the presented epoch")]
    NotSealed,

    /// Another owner sealed the store with the same epoch. One epoch has one owner, so one of the two
    /// tokens is false.
    #[error("another owner has sealed the store with the same epoch")]
    EpochConflict,

    /// The sequence belongs to another content already.
    #[error("sequence {sequence} was used by write {written}, not by write {presented}")]
    SequenceReused {
        /// The sequence that was presented, which is the latest.
        sequence: Sequence,
        /// The write that was presented.
        presented: WriteId,
        /// The write the sequence belongs to.
        written: WriteId,
    },

    /// The sequence is below the latest of the epoch.
    #[error("sequence {presented} is below the latest of the epoch, {latest}")]
    SequenceTooLow {
        /// The sequence that was presented.
        presented: Sequence,
        /// The latest sequence written in the epoch.
        latest: Sequence,
    },
}

/// Decides whether a store may raise its fence to a token's epoch.
///
/// `fence` is `None` when the resource was never sealed.
///
/// # Errors
///
/// [`Refusal::Fenced`] when the fence is higher, [`Refusal::EpochConflict`] when another owner has
/// sealed with the same epoch.
///
/// ```
/// use tenure_fence::{Fence, FencingToken, Refusal, SealAdmission, admit_seal};
///
/// let old: FencingToken = "shard/orders/7@7:00000000000000000000000000c0ffee/917".parse()?;
/// let new: FencingToken = "shard/orders/7@8:00000000000000000000000000c0ffee/944".parse()?;
///
/// assert_eq!(admit_seal(None, &new), Ok(SealAdmission::Raise));
/// let fence = Fence::from(&new);
/// assert_eq!(admit_seal(Some(&fence), &new), Ok(SealAdmission::Same));
/// assert!(matches!(admit_seal(Some(&fence), &old), Err(Refusal::Fenced { .. })));
/// # Ok::<(), tenure_fence::ParseError>(())
/// ```
pub fn admit_seal(fence: Option<&Fence>, token: &FencingToken) -> Result<SealAdmission, Refusal> {
    let Some(fence) = fence else {
        return Ok(SealAdmission::Raise);
    };
    match token.epoch.cmp(&fence.epoch) {
        Ordering::Less => Err(Refusal::Fenced {
            presented: token.epoch,
            current: fence.epoch,
        }),
        Ordering::Greater => Ok(SealAdmission::Raise),
        Ordering::Equal if token.owner != fence.owner => Err(Refusal::EpochConflict),
        Ordering::Equal => Ok(SealAdmission::Same),
    }
}

/// Decides whether a store may accept a write, or a deletion, under a token.
///
/// The fence is raised by a seal and by nothing else, so the token must match it exactly: a lower
/// epoch belongs to an owner that has been replaced, a higher one to an owner that forgot to seal
/// and so has not read what it is about to replace.
///
/// # Errors
///
/// [`Refusal::Fenced`] when the fence is higher, [`Refusal::NotSealed`] when it is lower or absent,
/// [`Refusal::EpochConflict`] when it is equal and another owner's.
pub fn admit_write(fence: Option<&Fence>, token: &FencingToken) -> Result<(), Refusal> {
    let Some(fence) = fence else {
        return Err(Refusal::NotSealed);
    };
    match token.epoch.cmp(&fence.epoch) {
        Ordering::Less => Err(Refusal::Fenced {
            presented: token.epoch,
            current: fence.epoch,
        }),
        Ordering::Greater => Err(Refusal::NotSealed),
        Ordering::Equal if token.owner != fence.owner => Err(Refusal::EpochConflict),
        Ordering::Equal => Ok(()),
    }
}

/// Decides whether a write or deletion that [`admit_write`] let through is new, a retry, or too late.
///
/// A deletion is a write whose content is nothing, and the two share one sequence. `latest` is the
/// latest of either *in the token's epoch*; `None` when there was none in that epoch yet. A write of
/// an earlier epoch is not `latest`: a new epoch starts its sequences afresh.
///
/// A sequence belongs to one content for ever. After an unknown outcome an owner therefore either
/// repeats the same write or goes on with a higher sequence, and a write that was still on its way
/// can neither overwrite the later one nor be mistaken for it.
///
/// # Errors
///
/// [`Refusal::SequenceReused`] when the sequence is the latest and belongs to another write,
/// [`Refusal::SequenceTooLow`] when it is lower, whatever the write id: which write had it is not
/// kept, and the owner has gone past it.
///
/// ```
/// use tenure_fence::{Refusal, Sequence, SequenceAdmission, WriteId, admit_sequence};
///
/// let (one, two) = (Sequence::FIRST, Sequence::new(2).unwrap());
/// let (x, y) = (WriteId::new(0xa), WriteId::new(0xb));
///
/// assert_eq!(admit_sequence(None, (one, x)), Ok(SequenceAdmission::New));
/// assert_eq!(admit_sequence(Some((one, x)), (one, x)), Ok(SequenceAdmission::AlreadyWritten));
/// assert!(matches!(admit_sequence(Some((one, x)), (one, y)), Err(Refusal::SequenceReused { .. })));
/// assert_eq!(admit_sequence(Some((one, x)), (two, y)), Ok(SequenceAdmission::New));
/// assert!(matches!(admit_sequence(Some((two, y)), (one, x)), Err(Refusal::SequenceTooLow { .. })));
/// ```
pub fn admit_sequence(
    latest: Option<(Sequence, WriteId)>,
    presented: (Sequence, WriteId),
) -> Result<SequenceAdmission, Refusal> {
    let Some((latest, written)) = latest else {
        return Ok(SequenceAdmission::New);
    };
    let (sequence, presented) = presented;
    match sequence.cmp(&latest) {
        Ordering::Less => Err(Refusal::SequenceTooLow {
            presented: sequence,
            latest,
        }),
        Ordering::Greater => Ok(SequenceAdmission::New),
        Ordering::Equal if presented != written => Err(Refusal::SequenceReused {
            sequence,
            presented,
            written,
        }),
        Ordering::Equal => Ok(SequenceAdmission::AlreadyWritten),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner {
        cluster: 1,
        session: 10,
    };
    const B: Owner = Owner {
        cluster: 1,
        session: 20,
    };

    fn token(epoch: u64, owner: Owner) -> FencingToken {
        FencingToken {
            resource: "shard/orders/1".parse().unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
            owner,
        }
    }

    fn fence(epoch: u64, owner: Owner) -> Fence {
        Fence::from(&token(epoch, owner))
    }

    fn fenced(presented: u64, current: u64) -> Refusal {
        Refusal::Fenced {
            presented: Epoch::new(presented).unwrap(),
            current: Epoch::new(current).unwrap(),
        }
    }

    #[test]
    fn a_seal_raises_the_fence_or_finds_it_there() {
        assert_eq!(admit_seal(None, &token(7, A)), Ok(SealAdmission::Raise));
        assert_eq!(
            admit_seal(Some(&fence(7, A)), &token(8, B)),
            Ok(SealAdmission::Raise)
        );
        // The same owner may be granted again: its new tenure raises the fence all the same.
        assert_eq!(
            admit_seal(Some(&fence(7, A)), &token(8, A)),
            Ok(SealAdmission::Raise)
        );
        assert_eq!(
            admit_seal(Some(&fence(7, A)), &token(7, A)),
            Ok(SealAdmission::Same)
        );
    }

    #[test]
    fn a_seal_never_lowers_the_fence_and_never_shares_an_epoch() {
        assert_eq!(
            admit_seal(Some(&fence(8, B)), &token(7, A)),
            Err(fenced(7, 8))
        );
        assert_eq!(
            admit_seal(Some(&fence(8, A)), &token(7, A)),
            Err(fenced(7, 8))
        );
        assert_eq!(
            admit_seal(Some(&fence(7, A)), &token(7, B)),
            Err(Refusal::EpochConflict)
        );
    }

    #[test]
    fn the_same_session_number_of_another_cluster_is_another_owner() {
        let stranger = Owner {
            cluster: 2,
            session: A.session,
        };
        assert_eq!(
            admit_seal(Some(&fence(7, A)), &token(7, stranger)),
            Err(Refusal::EpochConflict)
        );
        assert_eq!(
            admit_write(Some(&fence(7, A)), &token(7, stranger)),
            Err(Refusal::EpochConflict)
        );
    }

    #[test]
    fn a_write_must_match_the_fence_exactly() {
        assert_eq!(admit_write(Some(&fence(7, A)), &token(7, A)), Ok(()));
        assert_eq!(
            admit_write(Some(&fence(8, B)), &token(7, A)),
            Err(fenced(7, 8))
        );
        assert_eq!(
            admit_write(Some(&fence(7, A)), &token(8, B)),
            Err(Refusal::NotSealed)
        );
        assert_eq!(
            admit_write(Some(&fence(7, A)), &token(8, A)),
            Err(Refusal::NotSealed)
        );
        assert_eq!(
            admit_write(Some(&fence(7, A)), &token(7, B)),
            Err(Refusal::EpochConflict)
        );
        assert_eq!(admit_write(None, &token(1, A)), Err(Refusal::NotSealed));
    }

    #[test]
    fn no_order_of_seals_admits_a_write_below_the_highest() {
        let tokens: Vec<FencingToken> = (1..=4)
            .map(|epoch| token(epoch, if epoch % 2 == 0 { A } else { B }))
            .collect();
        // Every sequence of five seals among four tokens: 4^5.
        for order in 0..1024_usize {
            let mut current: Option<Fence> = None;
            let mut highest = None;
            for step in 0..5 {
                let sealing = &tokens[order >> (2 * step) & 3];
                if let Ok(SealAdmission::Raise) = admit_seal(current.as_ref(), sealing) {
                    current = Some(Fence::from(sealing));
                }
                highest = highest.max(Some(sealing.epoch));
                assert_eq!(current.map(|fence| fence.epoch), highest);
                for writing in &tokens {
                    let admitted = admit_write(current.as_ref(), writing).is_ok();
                    assert_eq!(admitted, Some(writing.epoch) == highest);
                }
            }
        }
    }

    #[test]
    fn a_sequence_rises_and_belongs_to_one_content() {
        let sequence = |number| Sequence::new(number).unwrap();
        let (x, y) = (WriteId::new(1), WriteId::new(2));
        let latest = Some((sequence(10), x));

        assert_eq!(
            admit_sequence(None, (sequence(10), x)),
            Ok(SequenceAdmission::New)
        );
        assert_eq!(
            admit_sequence(latest, (sequence(11), y)),
            Ok(SequenceAdmission::New)
        );
        assert_eq!(
            admit_sequence(latest, (sequence(500), y)),
            Ok(SequenceAdmission::New)
        );
        assert_eq!(
            admit_sequence(latest, (sequence(10), x)),
            Ok(SequenceAdmission::AlreadyWritten)
        );
        assert_eq!(
            admit_sequence(latest, (sequence(10), y)),
            Err(Refusal::SequenceReused {
                sequence: sequence(10),
                presented: y,
                written: x
            })
        );
        assert_eq!(
            admit_sequence(latest, (sequence(9), x)),
            Err(Refusal::SequenceTooLow {
                presented: sequence(9),
                latest: sequence(10)
            })
        );
    }
}
