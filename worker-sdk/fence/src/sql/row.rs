//! The row that is kept for a resource.

use bytes::Bytes;
use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::admission::Fence;
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

/// The columns of a [`FenceRow`], in its order.
pub(crate) const FENCE_COLUMNS: &str = "resource, epoch, cluster, session, fence_checksum";

/// The columns of a [`KeptRow`], in its order.
pub(crate) const KEPT_COLUMNS: &str = "resource, epoch, cluster, session, fence_checksum, \
     written_epoch, written_cluster, written_session, written_sequence, write_id, data, checksum";

/// What replaces what was written: a write, or a deletion, whose content is nothing.
#[derive(Clone, Debug)]
pub struct Change {
    pub(crate) sequence: Sequence,
    pub(crate) write_id: WriteId,
    pub(crate) data: Option<Bytes>,
}

impl Change {
    pub(crate) fn presented(&self) -> (Sequence, WriteId) {
        (self.sequence, self.write_id)
    }

    /// The checksum of everything the change leaves in a row.
    pub(crate) fn checksum(&self, token: &FencingToken) -> i64 {
        let head = Head {
            epoch: token.epoch,
            owner: token.owner,
            sequence: self.sequence,
            write_id: self.write_id,
        };
        head.checksum(&token.resource.to_string(), self.data.as_deref())
    }
}

impl From<Write> for Change {
    fn from(write: Write) -> Self {
        Self {
            sequence: write.sequence,
            write_id: write.write_id,
            data: Some(write.data),
        }
    }
}

impl From<Deletion> for Change {
    fn from(deletion: Deletion) -> Self {
        Self {
            sequence: deletion.sequence,
            write_id: deletion.write_id,
            data: None,
        }
    }
}

/// The checksum a fence is kept with.
pub(crate) fn fence_checksum(token: &FencingToken) -> i64 {
    checksum_of_fence(&token.resource.to_string(), &Fence::from(token))
}

fn checksum_of_fence(resource: &str, fence: &Fence) -> i64 {
    let sum = crc32c::crc32c(resource.as_bytes());
    i64::from(append_holder(sum, fence.epoch, fence.owner))
}

fn append_holder(sum: u32, epoch: Epoch, owner: Owner) -> u32 {
    let sum = crc32c::crc32c_append(sum, &epoch.get().to_be_bytes());
    let sum = crc32c::crc32c_append(sum, &owner.cluster.to_be_bytes());
    crc32c::crc32c_append(sum, &owner.session.to_be_bytes())
}

/// What a row says that is no fence, or no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    #[error("a number in the row is out of range")]
    OutOfRange,
    #[error("an id in the row has not 16 bytes")]
    NoId,
    #[error("some columns of what was written are set and others are not")]
    HalfWritten,
    #[error("the checksum of the fence is wrong")]
    FenceChecksum,
    #[error("the checksum of what was written is wrong")]
    Checksum,
}

/// The fence of a row as the database returned it; nothing is verified yet.
#[derive(Debug)]
pub struct FenceRow {
    pub(crate) resource: String,
    epoch: i64,
    cluster: Vec<u8>,
    session: i64,
    fence_checksum: i64,
}

/// A row as the database returned it; nothing is verified yet.
#[derive(Debug)]
pub struct KeptRow {
    pub(crate) fence: FenceRow,
    written_epoch: Option<i64>,
    written_cluster: Option<Vec<u8>>,
    written_session: Option<i64>,
    written_sequence: Option<i64>,
    write_id: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    checksum: Option<i64>,
}

impl FenceRow {
    /// Takes [`FENCE_COLUMNS`], which a row begins with.
    pub(crate) fn take<R>(row: &R) -> Result<Self, sqlx::Error>
    where
        R: Row,
        usize: ColumnIndex<R>,
        i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    {
        Ok(Self {
            resource: row.try_get(0)?,
            epoch: row.try_get(1)?,
            cluster: row.try_get(2)?,
            session: row.try_get(3)?,
            fence_checksum: row.try_get(4)?,
        })
    }

    /// Verifies the fence.
    pub(crate) fn fence(&self) -> Result<Fence, RowError> {
        let fence = Fence {
            epoch: epoch(self.epoch)?,
            owner: Owner {
                cluster: id(&self.cluster)?,
                session: self.session.cast_unsigned(),
            },
        };
        if checksum_of_fence(&self.resource, &fence) != self.fence_checksum {
            return Err(RowError::FenceChecksum);
        }
        Ok(fence)
    }
}

impl KeptRow {
    /// Takes [`KEPT_COLUMNS`].
    pub(crate) fn take<R>(row: &R) -> Result<Self, sqlx::Error>
    where
        R: Row,
        usize: ColumnIndex<R>,
        i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    {
        Ok(Self {
            fence: FenceRow::take(row)?,
            written_epoch: row.try_get(5)?,
            written_cluster: row.try_get(6)?,
            written_session: row.try_get(7)?,
            written_sequence: row.try_get(8)?,
            write_id: row.try_get(9)?,
            data: row.try_get(10)?,
            checksum: row.try_get(11)?,
        })
    }

    /// Verifies the row.
    pub(crate) fn kept(self) -> Result<Kept, RowError> {
        let fence = self.fence.fence()?;
        let head = match (
            self.written_epoch,
            self.written_cluster,
            self.written_session,
            self.written_sequence,
            self.write_id,
        ) {
            (None, None, None, None, None) if self.data.is_none() => {
                return Ok(Kept {
                    fence,
                    written: None,
                });
            }
            (Some(written), Some(cluster), Some(session), Some(sequence), Some(write_id)) => Head {
                epoch: epoch(written)?,
                owner: Owner {
                    cluster: id(&cluster)?,
                    session: session.cast_unsigned(),
                },
                sequence: u64::try_from(sequence)
                    .ok()
                    .and_then(Sequence::new)
                    .ok_or(RowError::OutOfRange)?,
                write_id: WriteId::new(id(&write_id)?),
            },
            _ => return Err(RowError::HalfWritten),
        };
        let checksum = head.checksum(&self.fence.resource, self.data.as_deref());
        if self.checksum != Some(checksum) {
            return Err(RowError::Checksum);
        }
        Ok(Kept {
            fence,
            written: Some((head, self.data.map(Bytes::from))),
        })
    }
}

fn epoch(number: i64) -> Result<Epoch, RowError> {
    let number = u64::try_from(number).ok().and_then(Epoch::new);
    number.ok_or(RowError::OutOfRange)
}

fn id(bytes: &[u8]) -> Result<u128, RowError> {
    let bytes = bytes.try_into().map_err(|_| RowError::NoId)?;
    Ok(u128::from_be_bytes(bytes))
}

/// Who wrote last, and which write it was.
#[derive(Clone, Copy, Debug)]
struct Head {
    epoch: Epoch,
    owner: Owner,
    sequence: Sequence,
    write_id: WriteId,
}

impl Head {
    fn checksum(&self, resource: &str, data: Option<&[u8]>) -> i64 {
        let sum = crc32c::crc32c(resource.as_bytes());
        let sum = append_holder(sum, self.epoch, self.owner);
        let sum = crc32c::crc32c_append(sum, &self.sequence.get().to_be_bytes());
        let sum = crc32c::crc32c_append(sum, &self.write_id.get().to_be_bytes());
        // An empty value is not the same as none.
        let sum = crc32c::crc32c_append(sum, &[u8::from(data.is_some())]);
        i64::from(crc32c::crc32c_append(sum, data.unwrap_or_default()))
    }
}

/// What is kept for a resource, verified.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fence: Fence,
    /// What was written last, in any epoch; without data it was a deletion.
    written: Option<(Head, Option<Bytes>)>,
}

impl Kept {
    /// The latest write or deletion of the fence's epoch.
    pub(crate) fn latest(&self) -> Option<(Sequence, WriteId)> {
        let (head, _) = self.written.as_ref()?;
        (head.epoch == self.fence.epoch).then_some((head.sequence, head.write_id))
    }

    /// The latest write of any epoch, unless it was deleted.
    pub(crate) fn into_checkpoint(self) -> Option<Checkpoint> {
        let (head, data) = self.written?;
        Some(Checkpoint {
            epoch: head.epoch,
            owner: head.owner,
            sequence: head.sequence,
            write_id: head.write_id,
            data: data?,
        })
    }
}

/// Returns the resource that a row is for, if its text is one.
pub(crate) fn resource_of(row: &FenceRow) -> Option<Resource> {
    row.resource.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> FencingToken {
        "shard/orders/7@9223372036854775807:ffffffffffffffffffffffffffffffff/18446744073709551615"
            .parse()
            .unwrap()
    }

    fn change(data: Option<&'static [u8]>) -> Change {
        Change {
            sequence: Sequence::MAX,
            write_id: WriteId::new(u128::MAX),
            data: data.map(Bytes::from_static),
        }
    }

    fn row(change: Option<&Change>) -> KeptRow {
        let token = token();
        let cluster = token.owner.cluster.to_be_bytes().to_vec();
        KeptRow {
            fence: FenceRow {
                resource: token.resource.to_string(),
                epoch: token.epoch.get().cast_signed(),
                cluster: cluster.clone(),
                session: token.owner.session.cast_signed(),
                fence_checksum: fence_checksum(&token),
            },
            written_epoch: change.map(|_| token.epoch.get().cast_signed()),
            written_cluster: change.map(|_| cluster),
            written_session: change.map(|_| token.owner.session.cast_signed()),
            written_sequence: change.map(|change| change.sequence.get().cast_signed()),
            write_id: change.map(|change| change.write_id.get().to_be_bytes().to_vec()),
            data: change.and_then(|change| change.data.as_deref().map(<[u8]>::to_vec)),
            checksum: change.map(|change| change.checksum(&token)),
        }
    }

    #[test]
    fn the_largest_numbers_are_read_as_they_were_written() {
        let kept = row(Some(&change(Some(b"x")))).kept().unwrap();
        assert_eq!(kept.fence, Fence::from(&token()));
        assert_eq!(
            kept.latest(),
            Some((Sequence::MAX, WriteId::new(u128::MAX)))
        );
        let checkpoint = kept.into_checkpoint().unwrap();
        assert_eq!(checkpoint.owner, token().owner);
        assert_eq!(checkpoint.data, "x");
    }

    #[test]
    fn a_deletion_leaves_its_sequence_and_no_checkpoint() {
        let kept = row(Some(&change(None))).kept().unwrap();
        assert!(kept.latest().is_some());
        assert_eq!(kept.into_checkpoint(), None);
        let kept = row(None).kept().unwrap();
        assert_eq!(kept.latest(), None);
        assert_eq!(kept.into_checkpoint(), None);
    }

    #[test]
    fn damage_is_noticed() {
        let whole = || row(Some(&change(Some(b"data"))));
        let mut lowered = whole();
        lowered.fence.epoch -= 1;
        assert_eq!(lowered.kept().unwrap_err(), RowError::FenceChecksum);
        let mut flipped = whole();
        flipped.data = Some(b"dato".to_vec());
        assert_eq!(flipped.kept().unwrap_err(), RowError::Checksum);
        let mut emptied = whole();
        emptied.data = None;
        assert_eq!(emptied.kept().unwrap_err(), RowError::Checksum);
        let mut older = whole();
        older.written_epoch = Some(3);
        assert_eq!(older.kept().unwrap_err(), RowError::Checksum);
        let mut half = whole();
        half.write_id = None;
        assert_eq!(half.kept().unwrap_err(), RowError::HalfWritten);
        let mut negative = whole();
        negative.fence.epoch = -1;
        assert_eq!(negative.kept().unwrap_err(), RowError::OutOfRange);
        let mut short = whole();
        short.fence.cluster.pop();
        assert_eq!(short.kept().unwrap_err(), RowError::NoId);
    }
}
