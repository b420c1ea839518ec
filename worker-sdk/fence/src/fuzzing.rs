//! What a fuzzer reaches of this crate: everything that reads bytes from a store.
//!
//! What can be read is written again and read once more: the two must be the same.

use bytes::Bytes;

use crate::object_store::fuzzing as object_store;
use crate::parts;
use crate::record::Record;

/// Reads a record: with a checksum as it is, or with the right one in its place, without which nearly
/// everything is refused at once.
pub fn record(bytes: &[u8], mends: bool) {
    let bytes = match mends {
        true => mended(bytes, 2),
        false => Bytes::copy_from_slice(bytes),
    };
    let _fence = parts::decode_fence(bytes.clone());
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(record.encode()), Ok(record));
    }
}

/// Puts a fence and the latest write together, from bytes with right checksums.
pub fn joined(fence: &[u8], last: &[u8]) {
    let fence = parts::decode_fence(mended(fence, 2)).ok();
    let last = (!last.is_empty()).then(|| mended(last, 2));
    if let Ok(Some(record)) = parts::join(fence, last) {
        assert_eq!(Some(record.fence), fence);
    }
}

/// Reads the manifest of an object store.
pub fn manifest(bytes: &[u8], mends: bool) {
    let bytes = match mends {
        true => mended(bytes, 1),
        false => Bytes::copy_from_slice(bytes),
    };
    object_store::manifest(&bytes);
}

/// Puts the right checksum of what follows it at `at`.
fn mended(bytes: &[u8], at: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    if let Some((head, body)) = bytes.split_at_mut_checked(at + 4) {
        head[at..].copy_from_slice(&crc32c::crc32c(body).to_be_bytes());
    }
    bytes.into()
}
