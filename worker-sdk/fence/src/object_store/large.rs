//! Values too large to be held in memory.

use std::fmt;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};

use crate::checkpoint::{Checkpoint, Write};
use crate::epoch::Epoch;
use crate::error::{CheckpointError, StoreError};
use crate::owner::Owner;
use crate::record::Record;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

use super::manifests::Call;
use super::store::{Inner, ObjectStore};
use super::values::Value;

/// A checkpoint whose value is read piece by piece.
pub struct LargeCheckpoint {
    /// The epoch it was written in.
    pub epoch: Epoch,
    /// The owner that wrote it.
    pub owner: Owner,
    /// Its place among the writes of that epoch.
    pub sequence: Sequence,
    /// Which write it was.
    pub write_id: WriteId,
    /// The length of the value in bytes.
    pub length_bytes: u64,
    /// The value, in order, in pieces of any length. It ends with [`CheckpointError::Corrupt`] when it
    /// is not what was written, which for the whole value shows only at its end: take nothing for
    /// read before the stream has ended well.
    pub data: BoxStream<'static, Result<Bytes, CheckpointError>>,
}

impl fmt::Debug for LargeCheckpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LargeCheckpoint")
            .field("epoch", &self.epoch)
            .field("owner", &self.owner)
            .field("sequence", &self.sequence)
            .field("write_id", &self.write_id)
            .field("length_bytes", &self.length_bytes)
            .finish_non_exhaustive()
    }
}

impl ObjectStore {
    /// Replaces the checkpoint with a value that comes in pieces, of any length.
    ///
    /// Like [`write`](crate::CheckpointStore::write), but the value is uploaded while it comes, in parts of
    /// [`part_bytes`](super::ObjectStoreOptions::part_bytes), and then the manifest is made to refer
    /// to it. Until then nothing has changed. A retry presents the same value again, from its
    /// beginning. Each request has a deadline; how long the value itself takes to come has none.
    ///
    /// # Errors
    ///
    /// As `write`, but never `TooLarge`. What the source of the value reports is
    /// [`CheckpointError::Unavailable`]: nothing was changed.
    pub async fn write_large(
        &self,
        token: &FencingToken,
        sequence: Sequence,
        write_id: WriteId,
        value: impl Stream<Item = Result<Bytes, StoreError>> + Send,
    ) -> Result<(), CheckpointError> {
        let write = Write {
            sequence,
            write_id,
            data: Bytes::new(),
        };
        let call = Call::default();
        self.inner.write_parts(&call, token, &write, value).await
    }

    /// Raises the fence like [`seal`](crate::CheckpointStore::seal), and returns the latest checkpoint
    /// to be read piece by piece.
    ///
    /// What is returned stays readable for as long as the tenure lasts and writes nothing.
    ///
    /// # Errors
    ///
    /// As `seal`.
    pub async fn seal_large(
        &self,
        token: &FencingToken,
    ) -> Result<Option<LargeCheckpoint>, CheckpointError> {
        let call = Call::default();
        let raised = self.inner.raise(&call, token);
        let record = self.inner.bounded(&call, raised).await?;
        self.inner.large(&call, &token.resource, record)
    }

    /// Returns the latest checkpoint to be read piece by piece, **unfenced**, like
    /// [`read`](crate::CheckpointStore::read).
    ///
    /// # Errors
    ///
    /// As `read`. When the checkpoint is replaced while it is being read, its stream ends with
    /// [`CheckpointError::Corrupt`].
    pub async fn read_large(
        &self,
        resource: &Resource,
    ) -> Result<Option<LargeCheckpoint>, CheckpointError> {
        let call = Call::default();
        let fetched = async {
            let stored = self.inner.manifests.fetch(resource).await;
            stored.map_err(|error| error.during(&call, resource))
        };
        let Some(stored) = self.inner.bounded(&call, fetched).await? else {
            return Ok(None);
        };
        self.inner.large(&call, resource, stored.manifest.record)
    }
}

impl Inner {
    fn large(
        &self,
        call: &Call,
        resource: &Resource,
        record: Record,
    ) -> Result<Option<LargeCheckpoint>, CheckpointError> {
        let Some(recorded) = record.checkpoint else {
            return Ok(None);
        };
        let value = Value::of(resource, &recorded);
        let (length_bytes, data) = match value.map_err(|error| error.during(call, resource))? {
            Value::Inline(data) => {
                let length_bytes = data.len() as u64;
                (length_bytes, stream::iter([Ok(data)]).boxed())
            }
            Value::Uploaded(upload) => {
                let length_bytes = upload.parts.length_bytes;
                let resource = resource.clone();
                let pieces = self.values.read(upload).map(move |piece| {
                    // Nothing can have been changed by reading.
                    piece.map_err(|error| error.during(&Call::default(), &resource))
                });
                (length_bytes, pieces.boxed())
            }
        };
        let Checkpoint {
            epoch,
            owner,
            sequence,
            write_id,
            ..
        } = recorded;
        Ok(Some(LargeCheckpoint {
            epoch,
            owner,
            sequence,
            write_id,
            length_bytes,
            data,
        }))
    }
}
