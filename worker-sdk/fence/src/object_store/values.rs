//! Values in objects of their own.
//!
//! ```text
//!   value ──▶ part 0, part 1, part 2 ...   each a plain put, several at a time
//!         └─▶ upload name, length, checksum ──▶ manifest, by conditional put
//! ```
//!
//! The parts are what a multipart upload is on a server that has one, but the same on all, and what
//! an upload leaves behind that was broken off is objects like any other, which the collector finds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use crate::checkpoint::Checkpoint;
use crate::error::{CheckpointError, StoreError};
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

use super::backend::{Backend, BackendError, repeated};
use super::layout::{Layout, UploadName};
use super::manifest::{Content, Parts};
use super::manifests::Call;

/// How many parts are on their way at once.
const PARALLEL: usize = 4;

/// How many uploads that were replaced are remembered, to be deleted. What is beyond is left to the
/// collector.
const REPLACED_MAX: usize = 1_024;

/// The values of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) layout: Layout,
    pub(super) part_bytes: u32,
    /// How long one request for a part may take.
    pub(super) part_deadline: Duration,
    /// Uploads that no manifest refers to any more, to be deleted beside the next upload.
    // Never held across an await.
    pub(super) replaced: Arc<Mutex<VecDeque<Upload>>>,
}

/// An upload, with all it takes to find its objects.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) resource: Resource,
    pub(super) name: UploadName,
    pub(super) parts: Parts,
}

/// Why a value was not uploaded.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The bucket.
    Backend(BackendError),
    /// The source of the value.
    Source(StoreError),
}

/// Why a value cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The bucket.
    Backend(BackendError),
    /// An object is not there: the value was replaced meanwhile, or is damaged.
    Missing,
    /// The objects are not what was uploaded.
    Damaged(StoreError),
    /// It is too large to be held in memory.
    TooLarge {
        length_bytes: usize,
        max_bytes: usize,
    },
}

impl ReadError {
    /// The outcome of a call that has ended with it.
    pub(super) fn during(self, call: &Call, resource: &Resource) -> CheckpointError {
        let corrupt = |source| CheckpointError::Corrupt {
            resource: resource.clone(),
            source,
        };
        match self {
            Self::Backend(error) => call.failed(error.into_source()),
            Self::Missing => corrupt("an object that the manifest refers to is missing".into()),
            Self::Damaged(source) => corrupt(source),
            Self::TooLarge {
                length_bytes,
                max_bytes,
            } => CheckpointError::TooLarge {
                length_bytes,
                max_bytes,
            },
        }
    }
}

/// The value of a recorded checkpoint, or where it is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Inline(Bytes),
    Uploaded(Upload),
}

impl Value {
    pub(super) fn of(resource: &Resource, recorded: &Checkpoint) -> Result<Self, ReadError> {
        let content = Content::decode(&recorded.data);
        let content = content.map_err(|error| ReadError::Damaged(error.into()))?;
        Ok(match content {
            Content::Inline(data) => Self::Inline(data),
            Content::Parts(parts) => Self::Uploaded(Upload {
                resource: resource.clone(),
                name: UploadName::of(recorded, parts.upload),
                parts,
            }),
        })
    }
}

impl Values {
    /// Uploads a value that comes in pieces, without knowing how long it is.
    pub(super) async fn upload(
        &self,
        token: &FencingToken,
        sequence: Sequence,
        write_id: WriteId,
        value: impl Stream<Item = Result<Bytes, StoreError>> + Send,
    ) -> Result<Upload, UploadError> {
        let upload = rand::random();
        let name = UploadName::new(token, sequence, write_id, upload);
        let empty = Parts {
            upload,
            length_bytes: 0,
            part_bytes: self.part_bytes,
            checksum: 0,
        };
        let parts = in_parts(value, empty);
        let sent = parts.map(|part| async {
            let (number, bytes, so_far) = part?;
            let object = self.layout.part(&token.resource, &name, number);
            let put = || self.backend.put(&object, bytes.clone());
            repeated(self.part_deadline, put)
                .await
                .map_err(UploadError::Backend)?;
            Ok(so_far)
        });
        let sent = sent.buffer_unordered(PARALLEL);
        let parts = sent.try_fold(empty, |longest, so_far| async move {
            let is_longer = so_far.length_bytes > longest.length_bytes;
            Ok(if is_longer { so_far } else { longest })
        });
        Ok(Upload {
            resource: token.resource.clone(),
            name,
            parts: parts.await?,
        })
    }

    /// Reads a value piece by piece. Ends with an error when it is not what was uploaded.
    pub(super) fn read(&self, upload: Upload) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let parts = upload.parts;
        let values = self.clone();
        let objects = stream::iter(0..parts.count()).map(move |number| {
            let (values, upload) = (values.clone(), upload.clone());
            async move { values.read_part(&upload, number).await }
        });
        let objects = objects.buffered(PARALLEL);
        let checked = stream::try_unfold((objects, 0), move |(mut objects, checksum)| async move {
            if let Some(bytes) = objects.try_next().await? {
                let checksum = crc32c::crc32c_append(checksum, &bytes);
                return Ok(Some((bytes, (objects, checksum))));
            }
            if checksum != parts.checksum {
                return Err(ReadError::Damaged("the value's checksum is wrong".into()));
            }
            Ok(None)
        });
        checked.boxed()
    }

    async fn read_part(&self, upload: &Upload, number: u64) -> Result<Bytes, ReadError> {
        let parts = &upload.parts;
        let object = self.layout.part(&upload.resource, &upload.name, number);
        let read = repeated(self.part_deadline, || self.backend.get(&object)).await;
        let bytes = read
            .map_err(ReadError::Backend)?
            .ok_or(ReadError::Missing)?
            .bytes;
        let part_bytes = u64::from(parts.part_bytes);
        let rest_bytes = parts.length_bytes - number * part_bytes;
        if bytes.len() as u64 != rest_bytes.min(part_bytes) {
            let error = format!("part {number} has a wrong length of {} bytes", bytes.len());
            return Err(ReadError::Damaged(error.into()));
        }
        Ok(bytes)
    }

    /// Remembers an upload that no manifest refers to any more.
    pub(super) fn is_replaced(&self, upload: Upload) {
        let mut replaced = self.replaced();
        if replaced.len() < REPLACED_MAX {
            replaced.push_back(upload);
        }
    }

    /// Deletes the uploads that were replaced. What fails is left to the collector; what is not done
    /// when this is dropped is done the next time.
    pub(super) async fn delete_replaced(&self) {
        // Not more than there are now: others may add to them all the time.
        let count = self.replaced().len();
        for _ in 0..count {
            let Some(mut replaced) = Replaced::take(self) else {
                return;
            };
            if let Some(upload) = &replaced.upload {
                self.delete(upload).await;
            }
            replaced.upload = None;
        }
    }

    async fn delete(&self, upload: &Upload) {
        let numbers = stream::iter(0..upload.parts.count());
        let deleted = numbers.for_each_concurrent(PARALLEL, |number| {
            let object = self.layout.part(&upload.resource, &upload.name, number);
            async move {
                let request = repeated(self.part_deadline, || self.backend.delete(&object));
                let _left_to_the_collector = request.await.is_err();
            }
        });
        deleted.await;
    }

    fn replaced(&self) -> MutexGuard<'_, VecDeque<Upload>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload that is being deleted: remembered again, unless it is taken out, when this is dropped.
struct Replaced<'a> {
    values: &'a Values,
    upload: Option<Upload>,
}

impl<'a> Replaced<'a> {
    fn take(values: &'a Values) -> Option<Self> {
        let upload = Some(values.replaced().pop_front()?);
        Some(Self { values, upload })
    }
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.values.is_replaced(upload);
        }
    }
}

/// Cuts a value into parts: the number of each, its bytes, and what there is of the value with it.
fn in_parts(
    value: impl Stream<Item = Result<Bytes, StoreError>> + Send,
    empty: Parts,
) -> impl Stream<Item = Result<(u64, Bytes, Parts), UploadError>> + Send {
    let part_bytes = usize::try_from(empty.part_bytes).unwrap_or(usize::MAX);
    // Fused: it is asked once more after its end when that falls into a part.
    let start = (Box::pin(value.fuse()), BytesMut::new(), empty, 0);
    stream::try_unfold(
        start,
        move |(mut value, mut rest, mut parts, number)| async move {
            while rest.len() < part_bytes {
                match value.try_next().await.map_err(UploadError::Source)? {
                    Some(bytes) => rest.extend_from_slice(&bytes),
                    None if rest.is_empty() => return Ok(None),
                    None => break,
                }
            }
            let part = rest.split_to(rest.len().min(part_bytes)).freeze();
            parts.length_bytes += part.len() as u64;
            parts.checksum = crc32c::crc32c_append(parts.checksum, &part);
            Ok(Some((
                (number, part, parts),
                (value, rest, parts, number + 1),
            )))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn cut(pieces: &[&'static [u8]]) -> Vec<(u64, Bytes, Parts)> {
        let empty = Parts {
            upload: 1,
            length_bytes: 0,
            part_bytes: 4,
            checksum: 0,
        };
        let pieces = pieces.iter().map(|piece| Ok(Bytes::from_static(piece)));
        in_parts(stream::iter(pieces.collect::<Vec<_>>()), empty)
            .try_collect()
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_value_is_cut_into_parts_of_one_length() {
        assert!(cut(&[]).await.is_empty());
        assert!(cut(&[b"", b""]).await.is_empty());
        for pieces in [
            vec![b"0123456789".as_slice()],
            vec![b"0123", b"4567", b"89"],
            vec![b"0", b"12345678", b"9"],
        ] {
            let parts = cut(&pieces).await;
            let shown: Vec<&[u8]> = parts.iter().map(|(_, bytes, _)| bytes.as_ref()).collect();
            assert_eq!(shown, [b"0123".as_slice(), b"4567", b"89"]);
            let (number, _, whole) = parts.last().unwrap();
            assert_eq!((*number, whole.length_bytes, whole.count()), (2, 10, 3));
            assert_eq!(whole.checksum, crc32c::crc32c(b"0123456789"));
        }
    }
}
