//! What a store keeps for one resource, and how each request changes it.
//!
//! For the stores that read a record, decide, and put it back in one step of their own: under a
//! lock, in a transaction, or on the condition that nobody has replaced it since. The decision is
//! [`admit_seal`], [`admit_write`] and [`admit_sequence`]; here is only what follows from it.

#[cfg(any(
    feature = "etcd",
    feature = "object-store",
    feature = "redis",
    feature = "rocksdb"
))]
mod encoding;

use crate::admission::{
    Fence, Refusal, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::{Checkpoint, Write};
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

#[cfg(any(
    feature = "etcd",
    feature = "object-store",
    feature = "redis",
    feature = "rocksdb"
))]
pub(crate) use self::encoding::RecordError;

/// What a store keeps for one resource from the first seal on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The fence.
    pub(crate) fence: Fence,
    /// The latest write or deletion of the fence's epoch. It outlives its data.
    pub(crate) latest: Option<(Sequence, WriteId)>,
    /// The latest write of any epoch, unless it was deleted.
    pub(crate) checkpoint: Option<Checkpoint>,
}

impl Record {
    /// Decides a seal of what is kept, `None` before the first. Returns what is to be kept instead,
    /// or `None` when nothing changes: the fence is there already.
    pub(crate) fn seal(
        current: Option<&Self>,
        token: &FencingToken,
    ) -> Result<Option<Self>, Refusal> {
        match admit_seal(current.map(|record| &record.fence), token)? {
            SealAdmission::Same => Ok(None),
            SealAdmission::Raise => Ok(Some(Self {
                fence: Fence::from(token),
                latest: None,
                checkpoint: current.and_then(|record| record.checkpoint.clone()),
            })),
        }
    }

    /// Decides a write. Returns what is to be kept instead, or `None` when nothing changes: it is
    /// the retry of one that landed.
    pub(crate) fn write(
        current: Option<&Self>,
        token: &FencingToken,
        write: Write,
    ) -> Result<Option<Self>, Refusal> {
        let presented = (write.sequence, write.write_id);
        Ok(Self::admit(current, token, presented)?.map(|fence| Self {
            fence,
            latest: Some(presented),
            checkpoint: Some(Checkpoint::of(token, write)),
        }))
    }

    /// Decides a deletion. Otherwise like [`write`](Self::write).
    pub(crate) fn delete(
        current: Option<&Self>,
        token: &FencingToken,
        deletion: (Sequence, WriteId),
    ) -> Result<Option<Self>, Refusal> {
        Ok(Self::admit(current, token, deletion)?.map(|fence| Self {
            fence,
            latest: Some(deletion),
            checkpoint: None,
        }))
    }

    /// Returns the fence, if what is presented is admitted and new.
    fn admit(
        current: Option<&Self>,
        token: &FencingToken,
        presented: (Sequence, WriteId),
    ) -> Result<Option<Fence>, Refusal> {
        admit_write(current.map(|record| &record.fence), token)?;
        let latest = current.and_then(|record| record.latest);
        match admit_sequence(latest, presented)? {
            SequenceAdmission::New => Ok(Some(Fence::from(token))),
            SequenceAdmission::AlreadyWritten => Ok(None),
        }
    }
}
