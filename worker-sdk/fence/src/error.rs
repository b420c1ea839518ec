//! The outcomes that a caller of a store must tell apart.

use crate::admission::Refusal;
use crate::epoch::Epoch;
use crate::resource::Resource;
use crate::sequence::Sequence;
use crate::token::FencingToken;

/// What went wrong inside a store: an adapter's own error.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not, or may not have, done what it was asked to.
///
/// One variant for each thing a caller does next. There are exactly these; an adapter maps whatever
/// its store can say to one of them, and when it cannot tell whether something happened, to
/// [`CheckpointError::OutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The tenure is over: a newer one has begun. Nothing was changed.
    ///
    /// Next: stop working on the resource and drop the token. No retry can succeed.
    #[error("{resource} is fenced: presented epoch {presented}, the fence is at {current}")]
    Fenced {
        /// What the token was for.
        resource: Resource,
        /// The epoch that was presented.
        presented: Epoch,
        /// The epoch that is current. Higher than the presented one; a store that knows of grants
        /// also refuses an equal one, when that tenure has ended and no other has begun.
        current: Epoch,
    },

    /// It did not happen: the store was not reached, or said that it could not.
    ///
    /// Next: repeat it.
    #[error("the checkpoint store is unavailable")]
    Unavailable {
        /// What the store said.
        #[source]
        source: StoreError,
    },

    /// It may have happened, or may still happen.
    ///
    /// Next, after a seal: repeat it. After a write or a deletion: repeat the very same one, or go on
    /// with another at a higher sequence; never present anything else at the same sequence.
    #[error("the outcome in the checkpoint store is unknown")]
    OutcomeUnknown {
        /// What made it unknown.
        #[source]
        source: StoreError,
    },

    /// Another owner has sealed with the same epoch. Nothing was changed.
    ///
    /// One epoch has one owner, so this never happens while epochs come from one coordinator.
    ///
    /// Next: stop, drop the token, and find out who else hands out epochs.
    #[error("epoch {epoch} of {resource} belongs to another owner")]
    EpochConflict {
        /// What the token was for.
        resource: Resource,
        /// The epoch that both present.
        epoch: Epoch,
    },

    /// The epoch is above the fence: it was not sealed. Nothing was changed.
    ///
    /// Next: seal, and go on from what the seal returns. To an owner that has sealed already it says
    /// that the store lost its fence, so what it returns then may be old.
    #[error("{resource} is not sealed with epoch {epoch}")]
    NotSealed {
        /// What the token was for.
        resource: Resource,
        /// The epoch that was presented.
        epoch: Epoch,
    },

    /// The sequence belongs to other content, or is below the latest of the epoch. Nothing was
    /// changed.
    ///
    /// The two are one outcome because the way out is the same. A late retry is answered so when the
    /// owner has gone past it meanwhile: then all is well.
    ///
    /// Next: write or delete at a sequence above `latest`.
    #[error("sequence {presented} of {resource} is used, the latest is {latest}")]
    SequenceReused {
        /// What the write or deletion was for.
        resource: Resource,
        /// The sequence that was presented: at most `latest`.
        presented: Sequence,
        /// The latest sequence of the epoch.
        latest: Sequence,
    },

    /// The data is larger than the store takes. Nothing was changed.
    ///
    /// Next: write less. The sequence is still free.
    #[error("a value of {length_bytes} bytes is too large, the store takes {max_bytes}")]
    TooLarge {
        /// How large the data is.
        length_bytes: usize,
        /// How large it may be, inclusive.
        max_bytes: usize,
    },

    /// The store cannot check and write in one step, so it cannot fence.
    ///
    /// Found by [`CheckpointStore::probe`](crate::CheckpointStore::probe) when the store is opened.
    ///
    /// Next: use another store. Never go on unfenced.
    #[error("the store cannot fence")]
    Unsupported {
        /// What it lacks.
        #[source]
        source: StoreError,
    },

    /// What is stored cannot be read: damaged, or written by something else.
    ///
    /// Next: give the resource back with the reason. A person must look; a retry reads the same.
    #[error("what is stored for {resource} is corrupt")]
    Corrupt {
        /// Whose data it is.
        resource: Resource,
        /// What is wrong with it.
        #[source]
        source: StoreError,
    },
}

/// The outcomes as adapters make them.
#[allow(
    dead_code,
    reason = "each of the adapters makes some of them, and no adapter need be there"
)]
impl CheckpointError {
    pub(crate) fn unavailable(source: impl Into<StoreError>) -> Self {
        Self::Unavailable {
            source: source.into(),
        }
    }

    pub(crate) fn unknown(source: impl Into<StoreError>) -> Self {
        Self::OutcomeUnknown {
            source: source.into(),
        }
    }

    pub(crate) fn unsupported(source: impl Into<StoreError>) -> Self {
        Self::Unsupported {
            source: source.into(),
        }
    }

    pub(crate) fn corrupt(resource: &Resource, source: impl Into<StoreError>) -> Self {
        Self::Corrupt {
            resource: resource.clone(),
            source: source.into(),
        }
    }
}

impl CheckpointError {
    /// Creates the outcome that tells the presenter of `token` about a refusal.
    #[must_use]
    pub fn refused(token: &FencingToken, refusal: Refusal) -> Self {
        let resource = token.resource.clone();
        match refusal {
            Refusal::Fenced { presented, current } => Self::Fenced {
                resource,
                presented,
                current,
            },
            Refusal::NotSealed => Self::NotSealed {
                resource,
                epoch: token.epoch,
            },
            Refusal::EpochConflict => Self::EpochConflict {
                resource,
                epoch: token.epoch,
            },
            Refusal::SequenceReused { sequence, .. } => Self::SequenceReused {
                resource,
                presented: sequence,
                latest: sequence,
            },
            Refusal::SequenceTooLow { presented, latest } => Self::SequenceReused {
                resource,
                presented,
                latest,
            },
        }
    }

    /// Returns whether the tenure is over on this store: nothing can succeed under the token again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Fenced { .. } | Self::EpochConflict { .. } => true,
            Self::Unavailable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::NotSealed { .. }
            | Self::SequenceReused { .. }
            | Self::TooLarge { .. }
            | Self::Unsupported { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Returns whether the very same call may succeed when it is repeated.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::OutcomeUnknown { .. } => true,
            Self::Fenced { .. }
            | Self::EpochConflict { .. }
            | Self::NotSealed { .. }
            | Self::SequenceReused { .. }
            | Self::TooLarge { .. }
            | Self::Unsupported { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Returns whether the call may have happened although it is reported as an error.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Returns what a seal, write or deletion answers whose last try said this, when an earlier try of it
    /// may have been carried out: the outcome is not known, for what refuses the repetition may have come
    /// after what was carried out.
    ///
    /// For a store that tries again by itself: a refusal says that nothing was changed.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::OutcomeUnknown { .. } => self,
            said => Self::OutcomeUnknown {
                source: Box::new(said),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::WriteId;

    fn token() -> FencingToken {
        "shard/orders/7@7:00000000000000000000000000000001/5"
            .parse()
            .unwrap()
    }

    fn sequence(number: u64) -> Sequence {
        Sequence::new(number).unwrap()
    }

    #[test]
    fn a_refusal_names_the_resource_and_what_is_current() {
        let current = Epoch::new(8).unwrap();
        let refusal = Refusal::Fenced {
            presented: token().epoch,
            current,
        };
        assert_eq!(
            CheckpointError::refused(&token(), refusal).to_string(),
            "shard/orders/7 is fenced: presented epoch 7, the fence is at 8"
        );
        assert_eq!(
            CheckpointError::refused(&token(), Refusal::NotSealed).to_string(),
            "shard/orders/7 is not sealed with epoch 7"
        );
        assert_eq!(
            CheckpointError::refused(&token(), Refusal::EpochConflict).to_string(),
            "epoch 7 of shard/orders/7 belongs to another owner"
        );
    }

    #[test]
    fn a_used_and_a_low_sequence_are_one_outcome_that_says_where_to_go_on() {
        let used = Refusal::SequenceReused {
            sequence: sequence(10),
            presented: WriteId::new(1),
            written: WriteId::new(2),
        };
        let low = Refusal::SequenceTooLow {
            presented: sequence(9),
            latest: sequence(10),
        };
        for (refusal, number) in [(used, 10), (low, 9)] {
            let error = CheckpointError::refused(&token(), refusal);
            assert!(matches!(
                error,
                CheckpointError::SequenceReused { presented, latest, .. }
                    if presented == sequence(number) && latest == sequence(10)
            ));
        }
    }

    #[test]
    fn only_an_over_tenure_is_final_and_only_a_lost_call_is_repeated() {
        let fenced = CheckpointError::refused(
            &token(),
            Refusal::Fenced {
                presented: Epoch::FIRST,
                current: Epoch::MAX,
            },
        );
        let conflict = CheckpointError::refused(&token(), Refusal::EpochConflict);
        let unsealed = CheckpointError::refused(&token(), Refusal::NotSealed);
        let unavailable = CheckpointError::Unavailable {
            source: "no route".into(),
        };
        let unknown = CheckpointError::OutcomeUnknown {
            source: "no answer".into(),
        };

        assert!(fenced.is_final() && conflict.is_final());
        assert!(
            ![&unsealed, &unavailable, &unknown]
                .iter()
                .any(|error| error.is_final())
        );
        assert!(unavailable.is_retryable() && unknown.is_retryable());
        assert!(
            ![&fenced, &conflict, &unsealed]
                .iter()
                .any(|error| error.is_retryable())
        );
        assert!(unknown.may_have_happened() && !unavailable.may_have_happened());
    }

    #[test]
    fn what_may_have_happened_is_not_undone_by_a_refusal_that_came_later() {
        let refused = CheckpointError::refused(&token(), Refusal::EpochConflict);
        let said = refused.to_string();
        let doubtful = refused.in_doubt();
        assert!(doubtful.may_have_happened() && !doubtful.is_final());
        let source = std::error::Error::source(&doubtful).map(ToString::to_string);
        assert_eq!(source, Some(said));
    }
}
