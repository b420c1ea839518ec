//! Which change of a checkpoint comes next: its sequence, its id, and whether it is a retry.

use bytes::Bytes;
use rand::Rng;
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, Sequence, Write,
    WriteId,
};

use crate::error::ShardError;

/// A write or a deletion, complete: a retry presents the very same one.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) sequence: Sequence,
    write_id: WriteId,
    /// The content to write; `None` for a deletion.
    content: Option<Bytes>,
}

impl Change {
    pub(super) async fn present(
        &self,
        store: &dyn CheckpointStore,
        token: &FencingToken,
    ) -> Result<(), CheckpointError> {
        let (sequence, write_id) = (self.sequence, self.write_id);
        let Some(data) = self.content.clone() else {
            let deletion = Deletion { sequence, write_id };
            return store.delete(token, deletion).await;
        };
        let write = Write {
            sequence,
            write_id,
            data,
        };
        store.write(token, write).await
    }
}

/// What is to be known to write the next checkpoint to one store, or to delete it.
#[derive(Debug, Default)]
pub(super) struct Writer {
    claimed: bool,
    /// The highest sequence that was ever presented, or found, in this tenure.
    latest: Option<Sequence>,
    /// The last change, while it is not known to have landed.
    pending: Option<Change>,
}

impl Writer {
    /// Notes what a seal returned.
    pub(super) fn claim(&mut self, epoch: Epoch, found: Option<&Checkpoint>) {
        self.claimed = true;
        // A repeated claim of the same tenure finds its own writes: go on above them.
        if let Some(found) = found.filter(|found| found.epoch == epoch) {
            self.latest = self.latest.max(Some(found.sequence));
        }
    }

    /// Chooses the change that leaves `content`: the one that is pending if it is the same, otherwise
    /// a new one above everything that was ever presented. So a sequence belongs to one content for
    /// ever, and a change that is still on its way can neither undo a later one nor be taken for it.
    pub(super) fn begin(&mut self, content: Option<Bytes>) -> Result<Change, ShardError> {
        if !self.claimed {
            return Err(ShardError::NotClaimed);
        }
        let pending = self.pending.as_ref();
        if let Some(pending) = pending.filter(|pending| pending.content == content) {
            return Ok(pending.clone());
        }
        let sequence = match self.latest {
            None => Sequence::FIRST,
            Some(latest) => latest.next().ok_or(ShardError::SequencesExhausted)?,
        };
        let change = Change {
            sequence,
            write_id: WriteId::new(rand::rng().random()),
            content,
        };
        self.latest = Some(sequence);
        // Before the store is called: if that call is dropped half way, the change is still pending.
        self.pending = Some(change.clone());
        Ok(change)
    }

    /// Notes that the last change landed.
    pub(super) fn settle(&mut self) {
        self.pending = None;
    }
}
