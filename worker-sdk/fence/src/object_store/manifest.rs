//! The object that holds a resource's fence.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

use crate::epoch::Epoch;
use crate::record::{Record, RecordError};
use crate::sequence::Sequence;

use super::backend::Version;

/// What the one conditional object of a resource holds.
///
/// The checkpoint's data in the record is an encoded [`Content`], not the value itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Random. No two manifests have equal bytes, not even of equal records: where a version is made
    /// from the content (an ETag), one that was replaced never comes back.
    pub(super) nonce: u128,
    /// The manifests before this one, the latest first: the last [`BEFORE_MAX`], and of those before
    /// them the last of each tenure. They tell a writer that has lost an answer whether its own
    /// manifest was among them.
    pub(super) before: Vec<Before>,
    pub(super) record: Record,
}

/// What is kept of a manifest that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) nonce: u128,
    pub(super) epoch: Epoch,
    /// The latest write or deletion of the epoch then.
    pub(super) sequence: Option<Sequence>,
}

/// How many of the manifests before one are kept in a row: more than are put while an answer is waited
/// for, but for a writer in a hurry.
const BEFORE_MAX: usize = 8;

/// How many are kept altogether, so that an owner that sleeps through some tenures is told that it was
/// replaced, however much was written in them.
const KEPT_MAX: usize = 16;

/// A manifest that is in the bucket, or was a moment ago.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) manifest: Manifest,
    pub(super) version: Version,
}

/// A manifest that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("the manifest has format {0}, this version reads format {FORMAT}")]
    Format(u8),
    #[error("the manifest is cut off")]
    CutOff,
    #[error("the manifest's checksum is wrong")]
    Checksum,
    #[error("the manifest names one before it that cannot be")]
    Before,
    #[error("the manifest refers to its data in a way that this version does not know")]
    Content,
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The format that is written: the first byte. A change of the layout takes the next.
const FORMAT: u8 = 1;

/// Format, checksum, nonce, count of what was before.
const HEAD_BYTES: usize = 1 + 4 + 16 + 1;

/// Nonce, epoch, sequence.
const BEFORE_BYTES: usize = 16 + 8 + 8;

impl Manifest {
    /// Creates the manifest that follows `base`.
    pub(super) fn after(base: Option<&Stored>, record: Record) -> Self {
        Self {
            nonce: rand::random(),
            before: base.map_or_else(Vec::new, |base| kept(base.manifest.line())),
            record,
        }
    }

    /// Returns this manifest and those before it that are known, the latest first.
    pub(super) fn line(&self) -> impl Iterator<Item = Before> {
        let this = Before {
            nonce: self.nonce,
            epoch: self.record.fence.epoch,
            sequence: self.record.latest.map(|(sequence, _)| sequence),
        };
        std::iter::once(this).chain(self.before.iter().copied())
    }

    /// Encodes the manifest: format, CRC-32C of what follows, nonce, what was before, record.
    pub(super) fn encode(&self) -> Bytes {
        let record = self.record.encode();
        let before_bytes = self.before.len() * BEFORE_BYTES;
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + before_bytes + record.len());
        bytes.put_u8(FORMAT);
        bytes.put_u32(0);
        bytes.put_u128(self.nonce);
        // At most `KEPT_MAX`.
        bytes.put_u8(u8::try_from(self.before.len()).unwrap_or(u8::MAX));
        for before in &self.before {
            bytes.put_u128(before.nonce);
            bytes.put_u64(before.epoch.get());
            bytes.put_u64(before.sequence.map_or(0, Sequence::get));
        }
        bytes.put_slice(&record);
        let checksum = crc32c::crc32c(&bytes[5..]);
        bytes[1..5].copy_from_slice(&checksum.to_be_bytes());
        bytes.freeze()
    }

    /// Decodes a manifest.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, ManifestError> {
        let (format, rest) = bytes.split_first().ok_or(ManifestError::CutOff)?;
        if *format != FORMAT {
            return Err(ManifestError::Format(*format));
        }
        let (checksum, body) = rest.split_first_chunk::<4>().ok_or(ManifestError::CutOff)?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*checksum) {
            return Err(ManifestError::Checksum);
        }
        let (nonce, rest) = body
            .split_first_chunk::<16>()
            .ok_or(ManifestError::CutOff)?;
        let (&count, mut rest) = rest.split_first().ok_or(ManifestError::CutOff)?;
        let mut before = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (bytes, after) = rest
                .split_first_chunk::<BEFORE_BYTES>()
                .ok_or(ManifestError::CutOff)?;
            before.push(Before::decode(*bytes)?);
            rest = after;
        }
        Ok(Self {
            nonce: u128::from_be_bytes(*nonce),
            before,
            record: Record::decode(bytes.slice_ref(rest))?,
        })
    }
}

impl Before {
    fn decode(bytes: [u8; BEFORE_BYTES]) -> Result<Self, ManifestError> {
        let mut bytes = bytes.as_slice();
        Ok(Self {
            nonce: bytes.get_u128(),
            epoch: Epoch::new(bytes.get_u64()).ok_or(ManifestError::Before)?,
            sequence: match bytes.get_u64() {
                0 => None,
                number => Some(Sequence::new(number).ok_or(ManifestError::Before)?),
            },
        })
    }
}

/// Chooses what a manifest keeps of those before it.
fn kept(line: impl Iterator<Item = Before>) -> Vec<Before> {
    let mut kept: Vec<Before> = Vec::with_capacity(KEPT_MAX);
    for before in line {
        let is_last_of_epoch = kept.last().is_none_or(|after| after.epoch != before.epoch);
        if kept.len() < BEFORE_MAX || is_last_of_epoch {
            kept.push(before);
        }
    }
    kept.truncate(KEPT_MAX);
    kept
}

/// Where the data of a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Here. Small values: one request for each write.
    Inline(Bytes),
    /// In objects of its own.
    Parts(Parts),
}

/// A value in objects of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Random, in the objects' names: no object is ever written by two uploads, not even by two of
    /// the same write.
    pub(super) upload: u64,
    pub(super) length_bytes: u64,
    /// The length of each part but the last, which may be shorter. Not zero.
    pub(super) part_bytes: u32,
    /// CRC-32C of the whole value.
    pub(super) checksum: u32,
}

const INLINE: u8 = 0;
const PARTS: u8 = 1;

impl Content {
    pub(super) fn encode(&self) -> Bytes {
        match self {
            Self::Inline(data) => {
                let mut bytes = BytesMut::with_capacity(1 + data.len());
                bytes.put_u8(INLINE);
                bytes.put_slice(data);
                bytes.freeze()
            }
            Self::Parts(parts) => {
                let mut bytes = BytesMut::with_capacity(32);
                bytes.put_u8(PARTS);
                bytes.put_u64(parts.upload);
                bytes.put_u64(parts.length_bytes);
                bytes.put_u32(parts.part_bytes);
                bytes.put_u32(parts.checksum);
                bytes.freeze()
            }
        }
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, ManifestError> {
        match bytes.split_first().ok_or(ManifestError::CutOff)? {
            (&INLINE, data) => Ok(Self::Inline(bytes.slice_ref(data))),
            (&PARTS, parts) => Parts::decode(parts).map(Self::Parts),
            _ => Err(ManifestError::Content),
        }
    }
}

impl Parts {
    fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (upload, rest) = bytes
            .split_first_chunk::<8>()
            .ok_or(ManifestError::CutOff)?;
        let (length, rest) = rest.split_first_chunk::<8>().ok_or(ManifestError::CutOff)?;
        let (part, rest) = rest.split_first_chunk::<4>().ok_or(ManifestError::CutOff)?;
        let (checksum, rest) = rest.split_first_chunk::<4>().ok_or(ManifestError::CutOff)?;
        let parts = Self {
            upload: u64::from_be_bytes(*upload),
            length_bytes: u64::from_be_bytes(*length),
            part_bytes: u32::from_be_bytes(*part),
            checksum: u32::from_be_bytes(*checksum),
        };
        if parts.part_bytes == 0 || !rest.is_empty() {
            return Err(ManifestError::Content);
        }
        Ok(parts)
    }

    /// Returns how many objects it is in.
    pub(super) fn count(&self) -> u64 {
        self.length_bytes.div_ceil(u64::from(self.part_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::WriteId;
    use crate::token::FencingToken;

    fn manifest() -> Manifest {
        let token: FencingToken = "shard/orders/7@8:00000000000000000000000000c0ffee/944"
            .parse()
            .unwrap();
        let record = Record::seal(None, &token).unwrap().unwrap();
        Manifest {
            nonce: u128::MAX - 1,
            before: vec![
                Before {
                    nonce: 7,
                    epoch: Epoch::new(7).unwrap(),
                    sequence: Some(Sequence::MAX),
                },
                Before {
                    nonce: u128::MAX,
                    epoch: Epoch::FIRST,
                    sequence: None,
                },
            ],
            record,
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = manifest();
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }

    #[test]
    fn two_manifests_of_one_record_differ() {
        let record = manifest().record;
        let one = Manifest::after(None, record.clone());
        let two = Manifest::after(None, record);
        assert_ne!(one.encode(), two.encode());
    }

    #[test]
    fn a_damaged_manifest_is_refused() {
        let whole = manifest().encode();
        for position in 1..whole.len() {
            let mut damaged = BytesMut::from(whole.as_ref());
            damaged[position] ^= 1;
            let refused = Manifest::decode(&damaged.freeze());
            assert_eq!(refused, Err(ManifestError::Checksum), "byte {position}");
        }
        assert_eq!(Manifest::decode(&Bytes::new()), Err(ManifestError::CutOff));
        let cut = whole.slice(..whole.len() - 1);
        assert_eq!(Manifest::decode(&cut), Err(ManifestError::Checksum));
        let newer = Bytes::from_static(b"\x02anything");
        assert_eq!(Manifest::decode(&newer), Err(ManifestError::Format(2)));
    }

    #[test]
    fn the_last_manifest_of_a_tenure_is_kept_however_much_follows() {
        let token = |epoch: u64| -> FencingToken {
            format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
                .parse()
                .unwrap()
        };
        let stored = |manifest: Manifest| Stored {
            version: Version(manifest.encode()),
            manifest,
        };
        let mut last_of_tenures = Vec::new();
        let mut latest: Option<Stored> = None;
        for epoch in 1..=20 {
            let current = latest.as_ref().map(|stored| &stored.manifest.record);
            let mut record = Record::seal(current, &token(epoch)).unwrap().unwrap();
            for number in 1..=100 {
                latest = Some(stored(Manifest::after(latest.as_ref(), record.clone())));
                let deletion = (Sequence::new(number).unwrap(), WriteId::new(1));
                record = Record::delete(Some(&record), &token(epoch), deletion)
                    .unwrap()
                    .unwrap();
            }
            let manifest = &latest.as_ref().unwrap().manifest;
            last_of_tenures.push(manifest.line().next().unwrap());
        }
        let before = latest.unwrap().manifest.before;
        assert_eq!(before.len(), KEPT_MAX);
        let sequences = before[..BEFORE_MAX].iter().map(|before| before.sequence);
        let expected = (91..99).rev().map(Sequence::new);
        assert!(sequences.eq(expected));
        last_of_tenures.pop();
        last_of_tenures.reverse();
        assert_eq!(
            before[BEFORE_MAX..],
            last_of_tenures[..KEPT_MAX - BEFORE_MAX]
        );
    }

    #[test]
    fn content_is_read_as_it_was_written() {
        let parts = Parts {
            upload: u64::MAX,
            length_bytes: (1 << 40) + 1,
            part_bytes: 16 << 20,
            checksum: 0xdead_beef,
        };
        assert_eq!(parts.count(), (1 << 16) + 1);
        let contents = [
            Content::Inline(Bytes::new()),
            Content::Inline(Bytes::from_static(b"\x01")),
            Content::Parts(parts),
        ];
        for content in contents {
            assert_eq!(Content::decode(&content.encode()), Ok(content));
        }
        for bytes in [b"".as_slice(), b"\x01", b"\x02", &[1; 24], &[1; 26]] {
            assert!(Content::decode(&Bytes::copy_from_slice(bytes)).is_err());
        }
    }
}
