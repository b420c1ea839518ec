//! Which shard a key belongs to.
//!
//! A key is hashed with XXH3 (64 bits, seed 0, over the key's bytes), and the hashes are cut into as
//! many contiguous ranges as the group has shards: `shard = floor(hash × count / 2^64)`. Ranges, not
//! a remainder, so that a shard can later be cut in two without moving the keys of any other.
//!
//! The rule is part of the wire contract: `docs/keys.md` describes it for other languages, and
//! `proto/testdata/keys.txt` has vectors to check an implementation against.

use std::num::NonZeroU32;

use xxhash_rust::xxh3::xxh3_64;

/// Returns the hash of a key: XXH3, 64 bits, seed 0.
#[must_use]
pub fn hash_of_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Returns the shard whose range holds a hash, from 0 up to but not including `count`.
///
/// ```
/// use std::num::NonZeroU32;
/// use tenure_proto::keys::shard_of_hash;
///
/// let count = NonZeroU32::new(64).unwrap();
/// assert_eq!(shard_of_hash(0, count), 0);
/// assert_eq!(shard_of_hash(1 << 58, count), 1);
/// assert_eq!(shard_of_hash(u64::MAX, count), 63);
/// ```
#[must_use]
pub fn shard_of_hash(hash: u64, count: NonZeroU32) -> u32 {
    let product = u128::from(hash) * u128::from(count.get());
    // The product is below count × 2^64, so what is left is below count.
    u32::try_from(product >> 64).unwrap_or(count.get() - 1)
}

/// Returns the shard a key belongs to in a group of `count` shards.
///
/// ```
/// use std::num::NonZeroU32;
/// use tenure_proto::keys::shard_of_key;
///
/// let count = NonZeroU32::new(64).unwrap();
/// assert!(shard_of_key(b"customer-4711", count) < 64);
/// ```
#[must_use]
pub fn shard_of_key(key: &[u8], count: NonZeroU32) -> u32 {
    shard_of_hash(hash_of_key(key), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        (0..hexadecimal.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn the_published_vectors_hold() {
        let vectors = include_str!("../testdata/keys.txt");
        let mut checked = 0;
        for line in vectors
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let [key, hash, count, shard] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("four fields: {line}");
            };
            let key = bytes(key.strip_prefix("0x").unwrap());
            let count: NonZeroU32 = count.parse().unwrap();
            assert_eq!(format!("{:016x}", hash_of_key(&key)), hash, "{line}");
            assert_eq!(shard_of_key(&key, count).to_string(), shard, "{line}");
            checked += 1;
        }
        assert!(checked >= 30, "{checked}");
    }

    #[test]
    fn ranges_are_contiguous_and_cover_every_hash() {
        for count in [1, 2, 3, 7, 64, 1_000, 1_000_000] {
            let count = NonZeroU32::new(count).unwrap();
            assert_eq!(shard_of_hash(0, count), 0);
            assert_eq!(shard_of_hash(u64::MAX, count), count.get() - 1);
            let mut previous = 0;
            for step in 0..10_000_u64 {
                let shard = shard_of_hash(step << 50 | step, count);
                assert!(shard >= previous && shard < count.get());
                previous = shard;
            }
        }
    }

    #[test]
    fn doubling_the_count_splits_every_range_and_moves_nothing_else() {
        let (single, double) = (NonZeroU32::new(7).unwrap(), NonZeroU32::new(14).unwrap());
        for number in 0..1_000_u32 {
            let key = number.to_be_bytes();
            assert_eq!(shard_of_key(&key, double) / 2, shard_of_key(&key, single));
        }
    }
}
