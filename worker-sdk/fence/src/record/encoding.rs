//! How a record is kept as bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::Record;
use crate::admission::Fence;
use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::sequence::{Sequence, WriteId};

/// A record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// It was written in a format that this version does not know.
    #[error("the record has format {0}, this version reads format {FORMAT}")]
    Format(u8),
    /// It is shorter than what it says it holds.
    #[error("the record is cut off")]
    CutOff,
    /// Its bytes have changed since they were written.
    #[error("the record's checksum is wrong")]
    Checksum,
    /// A number in it is out of its range.
    #[error("the record holds a number out of range")]
    OutOfRange,
}

/// The format that is written: the first byte of every record. A change of the layout takes the next.
const FORMAT: u8 = 1;

/// Bits of the second byte: which parts follow.
const HAS_LATEST: u8 = 1;
const HAS_CHECKPOINT: u8 = 2;

/// Format, parts, checksum.
const HEAD_BYTES: usize = 1 + 1 + 4;

impl Record {
    /// Encodes the record.
    ///
    /// ```text
    ///   0      format
    ///   1      which parts follow: 1 latest, 2 checkpoint
    ///   2..6   CRC-32C of everything after it
    ///   6..    fence: epoch, owner's cluster (16 bytes), owner's session
    ///          latest: sequence, write id (16 bytes)
    ///          checkpoint: epoch, owner as above, sequence, write id, then the data to the end
    /// ```
    ///
    /// Numbers are big-endian, of eight bytes unless said otherwise.
    pub(crate) fn encode(&self) -> Bytes {
        let data = self.checkpoint.as_ref().map_or(0, |c| c.data.len());
        let mut bytes = BytesMut::with_capacity(128 + data);
        bytes.put_u8(FORMAT);
        let latest = self.latest.map_or(0, |_| HAS_LATEST);
        let checkpoint = self.checkpoint.as_ref().map_or(0, |_| HAS_CHECKPOINT);
        bytes.put_u8(latest | checkpoint);
        bytes.put_u32(0);
        put_holder(&mut bytes, self.fence.epoch, self.fence.owner);
        if let Some(latest) = self.latest {
            put_write(&mut bytes, latest);
        }
        if let Some(checkpoint) = &self.checkpoint {
            put_holder(&mut bytes, checkpoint.epoch, checkpoint.owner);
            put_write(&mut bytes, (checkpoint.sequence, checkpoint.write_id));
            bytes.put_slice(&checkpoint.data);
        }
        let (head, body) = bytes.split_at_mut(HEAD_BYTES);
        if let Some(checksum) = head.get_mut(2..) {
            checksum.copy_from_slice(&crc32c::crc32c(body).to_be_bytes());
        }
        bytes.freeze()
    }

    /// Decodes a record.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, RecordError> {
        let mut rest = Reader { bytes };
        let format = rest.u8()?;
        if format != FORMAT {
            return Err(RecordError::Format(format));
        }
        let parts = rest.u8()?;
        let checksum = rest.u32()?;
        if crc32c::crc32c(&rest.bytes) != checksum {
            return Err(RecordError::Checksum);
        }
        let (epoch, owner) = rest.holder()?;
        let latest = if parts & HAS_LATEST == 0 {
            None
        } else {
            Some(rest.write()?)
        };
        let checkpoint = if parts & HAS_CHECKPOINT == 0 {
            None
        } else {
            let (epoch, owner) = rest.holder()?;
            let (sequence, write_id) = rest.write()?;
            Some(Checkpoint {
                epoch,
                owner,
                sequence,
                write_id,
                data: rest.bytes,
            })
        };
        Ok(Self {
            fence: Fence { epoch, owner },
            latest,
            checkpoint,
        })
    }
}

fn put_holder(bytes: &mut BytesMut, epoch: Epoch, owner: Owner) {
    bytes.put_u64(epoch.get());
    bytes.put_u128(owner.cluster);
    bytes.put_u64(owner.session);
}

fn put_write(bytes: &mut BytesMut, (sequence, write_id): (Sequence, WriteId)) {
    bytes.put_u64(sequence.get());
    bytes.put_u128(write_id.get());
}

/// Takes a record apart from the front.
struct Reader {
    bytes: Bytes,
}

impl Reader {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let head = self.bytes.first_chunk::<N>().copied();
        let head = head.ok_or(RecordError::CutOff)?;
        self.bytes = self.bytes.slice(N..);
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_be_bytes)
    }

    fn u128(&mut self) -> Result<u128, RecordError> {
        self.array().map(u128::from_be_bytes)
    }

    fn holder(&mut self) -> Result<(Epoch, Owner), RecordError> {
        let epoch = Epoch::new(self.u64()?).ok_or(RecordError::OutOfRange)?;
        let owner = Owner {
            cluster: self.u128()?,
            session: self.u64()?,
        };
        Ok((epoch, owner))
    }

    fn write(&mut self) -> Result<(Sequence, WriteId), RecordError> {
        let sequence = Sequence::new(self.u64()?).ok_or(RecordError::OutOfRange)?;
        Ok((sequence, WriteId::new(self.u128()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Write;
    use crate::token::FencingToken;

    fn record() -> Record {
        let token: FencingToken = "shard/orders/7@8:00000000000000000000000000c0ffee/944"
            .parse()
            .unwrap();
        let write = Write {
            sequence: Sequence::FIRST,
            write_id: WriteId::new(0xab),
            data: Bytes::from_static(b"offset 490"),
        };
        let sealed = Record::seal(None, &token).unwrap().unwrap();
        Record::write(Some(&sealed), &token, write)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let whole = record();
        let no_data = Record {
            checkpoint: None,
            ..whole.clone()
        };
        let sealed = Record {
            latest: None,
            ..no_data.clone()
        };
        for record in [whole, no_data, sealed] {
            assert_eq!(Record::decode(record.encode()), Ok(record));
        }
    }

    #[test]
    fn the_layout_never_changes_within_a_format() {
        let encoded: String = record()
            .encode()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let holder = "0000000000000008 00000000000000000000000000c0ffee 00000000000003b0";
        let write = "0000000000000001 000000000000000000000000000000ab";
        let data = "6f666673657420343930";
        let expected = format!("0103{:08x}{holder}{write}{holder}{write}{data}", CHECKSUM);
        assert_eq!(encoded, expected.replace(' ', ""));
    }

    /// CRC-32C of what follows it, worked out by another program.
    const CHECKSUM: u32 = 0x0316_8bd4;

    #[test]
    fn a_damaged_record_is_refused() {
        let whole = record().encode();
        for length in 0..HEAD_BYTES {
            let cut = Record::decode(whole.slice(..length));
            assert_eq!(cut, Err(RecordError::CutOff));
        }
        assert_eq!(
            Record::decode(whole.slice(..whole.len() - 1)),
            Err(RecordError::Checksum)
        );
        for position in 2..whole.len() {
            let mut damaged = BytesMut::from(whole.as_ref());
            damaged[position] ^= 1;
            let damaged = Record::decode(damaged.freeze());
            assert_eq!(damaged, Err(RecordError::Checksum), "byte {position}");
        }
        let newer = Record::decode(Bytes::from_static(b"\x02rest"));
        assert_eq!(newer, Err(RecordError::Format(2)));
    }
}
