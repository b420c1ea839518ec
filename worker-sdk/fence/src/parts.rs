//! A record that is kept in two values: the fence, and the latest write or deletion.
//!
//! Only a seal replaces the first and only a write or deletion the second, so that a write puts one
//! value, like an unfenced one. The second carries the fence it was admitted by. That tells whether
//! its sequence belongs to the epoch of the fence as it is now, or to an earlier one.

use bytes::Bytes;

use crate::admission::Fence;
use crate::record::{Record, RecordError};

/// Two values that are not one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartsError {
    /// One of them cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is data without a fence: somebody removed the fence, or wrote past it.
    #[error("there is data, but no fence")]
    NoFence,
    /// The data was admitted by a fence that is not there: the fence was put back, or written past.
    #[error("the data was written above the fence")]
    AboveFence,
}

/// Encodes a fence as the first value.
pub(crate) fn encode_fence(fence: Fence) -> Bytes {
    let record = Record {
        fence,
        latest: None,
        checkpoint: None,
    };
    record.encode()
}

/// Decodes the first value.
pub(crate) fn decode_fence(value: Bytes) -> Result<Fence, RecordError> {
    Ok(Record::decode(value)?.fence)
}

/// Puts the two values together. `None` when the resource was never sealed.
///
/// The second value is the encoding of what [`Record::write`] or [`Record::delete`] returned.
pub(crate) fn join(
    fence: Option<Fence>,
    last: Option<Bytes>,
) -> Result<Option<Record>, PartsError> {
    let last = last.map(Record::decode).transpose()?;
    let (fence, last) = match (fence, last) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(PartsError::NoFence),
        (Some(fence), None) => {
            return Ok(Some(Record {
                fence,
                latest: None,
                checkpoint: None,
            }));
        }
        (Some(fence), Some(last)) => (fence, last),
    };
    if last.fence == fence {
        return Ok(Some(last));
    }
    if last.fence.epoch >= fence.epoch {
        return Err(PartsError::AboveFence);
    }
    Ok(Some(Record {
        fence,
        latest: None,
        checkpoint: last.checkpoint,
    }))
}

/// What is remembered of a record, to decide the next write without reading: all but the data.
pub(crate) fn without_data(record: &Record) -> Record {
    Record {
        fence: record.fence,
        latest: record.latest,
        checkpoint: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Write;
    use crate::sequence::{Sequence, WriteId};
    use crate::token::FencingToken;

    fn token(epoch: u64, session: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{session}")
            .parse()
            .unwrap()
    }

    fn written(epoch: u64, session: u64) -> Record {
        let token = token(epoch, session);
        let sealed = Record::seal(None, &token).unwrap();
        let write = Write {
            sequence: Sequence::FIRST,
            write_id: WriteId::new(1),
            data: "offset 490".into(),
        };
        Record::write(sealed.as_ref(), &token, write)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn the_sequences_of_an_earlier_epoch_are_over_and_its_data_stays() {
        let last = written(7, 1);
        let same = join(Some(last.fence), Some(last.encode())).unwrap();
        assert_eq!(same, Some(last.clone()));

        let fence = Fence::from(&token(8, 2));
        let joined = join(Some(fence), Some(last.encode())).unwrap().unwrap();
        assert_eq!((joined.fence, joined.latest), (fence, None));
        assert_eq!(joined.checkpoint, last.checkpoint);
    }

    #[test]
    fn data_that_no_fence_admitted_is_refused() {
        let last = written(7, 1).encode();
        assert_eq!(join(None, Some(last.clone())), Err(PartsError::NoFence));
        for below in [token(6, 1), token(7, 2)] {
            let joined = join(Some(Fence::from(&below)), Some(last.clone()));
            assert_eq!(joined, Err(PartsError::AboveFence), "{below}");
        }
        assert_eq!(join(None, None), Ok(None));
    }

    #[test]
    fn a_fence_is_read_as_it_was_written() {
        let fence = Fence::from(&token(9, 3));
        assert_eq!(decode_fence(encode_fence(fence)), Ok(fence));
    }
}
