//! The contract of a fenced checkpoint store.

use async_trait::async_trait;

use crate::admission::Fence;
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::token::FencingToken;

/// A store of one checkpoint for each resource, which accepts writes of the current owner only.
///
/// The contract, which the conformance kit (feature `kit`) checks of every adapter:
///
/// 1. A seal makes the fence durable, *then* reads: what it returns is the last write of all
///    earlier epochs, and no later one of them can land.
/// 2. A write is accepted only if the fence equals the token's epoch and owner; the check and the
///    write are **one atomic step in the store**. A check in the adapter, before the write, is no
///    check: the fence may rise in between.
/// 3. Within an epoch a sequence belongs to one content for ever, and a deletion is a write whose
///    content is nothing. An equal sequence succeeds only with an equal write id, a lower one never.
/// 4. What is refused changes nothing.
/// 5. The fence outlives the data: nothing ever lowers or removes it.
///
/// The rule itself is [`admit_seal`](crate::admit_seal), [`admit_write`](crate::admit_write) and
/// [`admit_sequence`](crate::admit_sequence), asked in this order: a stale token is told that it is
/// fenced, whatever its sequence. The size of a value may be checked before any of them.
///
/// Every method may be called from many tasks and machines at once. A call that is dropped before
/// it has answered may or may not have happened, like one that ends in
/// [`CheckpointError::OutcomeUnknown`]. An adapter bounds each call in time.
#[async_trait]
pub trait CheckpointStore: Send + Sync {
    /// Raises the fence to the token's epoch and owner durably, then returns the latest checkpoint.
    ///
    /// `None` when nothing was ever written, or it was deleted. Sealing again with the same token
    /// changes nothing and returns what is the latest then, so a seal may always be repeated.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Fenced`] when the fence is higher, [`CheckpointError::EpochConflict`] when
    /// another owner has sealed with the same epoch; [`CheckpointError::Corrupt`] when the fence is
    /// up but what it guards cannot be read; `Unavailable` or `OutcomeUnknown`.
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError>;

    /// Seals many resources; the answers stand in the order of the tokens, one for each.
    ///
    /// Each is as [`seal`](Self::seal) would have answered. They are independent: one that is
    /// refused does not keep the others from being sealed, and nothing is promised about the order
    /// in which they are. Name a resource once. An adapter whose store takes batches overrides this:
    /// a worker that joins may be given thousands of shards at once.
    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let mut answers = Vec::with_capacity(tokens.len());
        for token in tokens {
            answers.push(self.seal(token).await);
        }
        answers
    }

    /// Replaces the checkpoint, if the fence equals the token's epoch and owner.
    ///
    /// The retry of a write that landed succeeds and changes nothing. Its id is its content's: a write
    /// with the sequence and the id of a deletion would be taken for its retry.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Fenced`], [`CheckpointError::EpochConflict`] or
    /// [`CheckpointError::NotSealed`] when the fence differs, [`CheckpointError::SequenceReused`]
    /// when the sequence is used or too low, [`CheckpointError::TooLarge`] above
    /// [`max_value_bytes`](Self::max_value_bytes); `Unavailable` or `OutcomeUnknown`.
    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError>;

    /// Returns the latest checkpoint, **unfenced**: it may be about to be replaced.
    ///
    /// For tools and monitoring. An owner that is going to write reads with [`seal`](Self::seal);
    /// one that reads with this first and seals afterwards loses the old owner's last write.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] or `Unavailable`.
    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError>;

    /// Returns the fence, unfenced: it may be about to rise. `None` when there is none yet.
    ///
    /// With it an owner notices, before it seals, that the store was restored to an older state:
    /// fences never fall, so one below an epoch that was once sealed has been lost.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the adapter cannot show its fences, as here;
    /// [`CheckpointError::Corrupt`] or `Unavailable`.
    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        Err(CheckpointError::Unsupported {
            source: format!("this store does not show the fence of {resource}").into(),
        })
    }

    /// Deletes the checkpoint, if the fence equals the token's epoch and owner.
    ///
    /// A deletion is a write whose content is nothing. It is admitted as a write is and takes its
    /// sequence for ever; afterwards there is no checkpoint, whichever epoch had written it. The fence
    /// stays, and so does the latest sequence of the epoch. Deleting what is not there succeeds, and
    /// takes the sequence all the same.
    ///
    /// The retry of a deletion that landed succeeds and changes nothing. So a deletion whose outcome
    /// is unknown is repeated, or gone past with a write at a higher sequence, which it can never
    /// remove; and a write whose outcome is unknown never comes back after a deletion above it.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Fenced`], [`CheckpointError::EpochConflict`] or
    /// [`CheckpointError::NotSealed`] when the fence differs, [`CheckpointError::SequenceReused`]
    /// when the sequence is used or too low; `Unavailable` or `OutcomeUnknown`.
    async fn delete(&self, token: &FencingToken, deletion: Deletion)
    -> Result<(), CheckpointError>;

    /// Finds out whether the store is there and able to fence. Called when a store is opened.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when it cannot fence, for instance because it ignores
    /// conditions on writes; `Unavailable`.
    async fn probe(&self) -> Result<(), CheckpointError>;

    /// Returns the largest value the store takes, in bytes, inclusive.
    fn max_value_bytes(&self) -> usize;
}
