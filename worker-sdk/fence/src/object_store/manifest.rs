//! The object that holds a resource's fence.

use bytes::{BufMut, Bytes, BytesMut};

use crate::record::{Record, RecordError};

use super::backend::Version;

/// What the one conditional object of a resource holds.
///
/// The checkpoint's data in the record is an encoded [`Content`], not the value itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Random. No two manifests have equal bytes, not even of equal records: where a version is made
    /// from the content (an ETag), one that was replaced never comes back.
    pub(super) nonce: u128,
    /// The nonce of the manifest that this one replaced, zero when it was the first. Tells a writer
    /// that has lost an answer whether it was its own manifest that came next.
    pub(super) previous: u128,
    pub(super) record: Record,
}

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
    #[error("the manifest refers to its data in a way that this version does not know")]
    Content,
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The format that is written: the first byte. A change of the layout takes the next.
const FORMAT: u8 = 1;

/// Format, checksum, nonce, previous nonce.
const HEAD_BYTES: usize = 1 + 4 + 16 + 16;

impl Manifest {
    /// Creates the manifest that follows `base`.
    pub(super) fn after(base: Option<&Stored>, record: Record) -> Self {
        Self {
            nonce: rand::random(),
            previous: base.map_or(0, |base| base.manifest.nonce),
            record,
        }
    }

    /// Encodes the manifest: format, CRC-32C of what follows, nonce, previous nonce, record.
    pub(super) fn encode(&self) -> Bytes {
        let record = self.record.encode();
        let mut body = BytesMut::with_capacity(32 + record.len());
        body.put_u128(self.nonce);
        body.put_u128(self.previous);
        body.put_slice(&record);
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + record.len());
        bytes.put_u8(FORMAT);
        bytes.put_u32(crc32c::crc32c(&body));
        bytes.put_slice(&body);
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
        let (previous, record) = rest
            .split_first_chunk::<16>()
            .ok_or(ManifestError::CutOff)?;
        Ok(Self {
            nonce: u128::from_be_bytes(*nonce),
            previous: u128::from_be_bytes(*previous),
            record: Record::decode(bytes.slice_ref(record))?,
        })
    }
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
    use crate::token::FencingToken;

    fn manifest() -> Manifest {
        let token: FencingToken = "shard/orders/7@8:00000000000000000000000000c0ffee/944"
            .parse()
            .unwrap();
        let record = Record::seal(None, &token).unwrap().unwrap();
        Manifest {
            nonce: u128::MAX - 1,
            previous: 7,
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
