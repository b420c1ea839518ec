//! What a store keeps, and what is written to it.

use bytes::Bytes;

use crate::epoch::Epoch;
use crate::error::CheckpointError;
use crate::owner::Owner;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

/// The latest accepted write of a resource, as a store returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The epoch it was written in: that of the fence, or an earlier one.
    pub epoch: Epoch,
    /// The owner that wrote it.
    pub owner: Owner,
    /// Its place among the writes of that epoch.
    pub sequence: Sequence,
    /// Which write it was.
    pub write_id: WriteId,
    /// The content, as it was written.
    pub data: Bytes,
}

impl Checkpoint {
    /// Creates the checkpoint that `write` leaves behind when a store accepts it under `token`.
    #[must_use]
    pub fn of(token: &FencingToken, write: Write) -> Self {
        Self {
            epoch: token.epoch,
            owner: token.owner,
            sequence: write.sequence,
            write_id: write.write_id,
            data: write.data,
        }
    }
}

/// One write, complete: a retry presents the very same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its place among the writes and deletions of the epoch: higher than that of any earlier one of
    /// other content, also of one whose outcome is unknown.
    pub sequence: Sequence,
    /// Which write it is: chosen once for this content, kept for its retries, and never that of other
    /// content or of a deletion. A store tells a retry by sequence and id alone.
    pub write_id: WriteId,
    /// The content, which replaces what was there. May be empty.
    pub data: Bytes,
}

impl Write {
    /// Refuses a write that is larger than a store takes.
    #[allow(dead_code, reason = "a build may be without any store")]
    pub(crate) fn check_size(&self, max_bytes: usize) -> Result<(), CheckpointError> {
        let length_bytes = self.data.len();
        if length_bytes > max_bytes {
            return Err(CheckpointError::TooLarge {
                length_bytes,
                max_bytes,
            });
        }
        Ok(())
    }
}

/// One deletion, complete: a retry presents the very same one.
///
/// It is a write whose content is nothing, and has its place among the writes of the epoch: it cannot
/// remove a later write, however late it arrives, and no earlier one comes back after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its place among the writes and deletions of the epoch, like that of a [`Write`].
    pub sequence: Sequence,
    /// Which deletion it is: chosen once for it, kept for its retries, and never a write's. A store
    /// tells a retry by sequence and id alone.
    pub write_id: WriteId,
}
