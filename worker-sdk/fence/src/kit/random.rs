//! Random choices that a seed repeats.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns the seed of a run: the one given, or the environment's, or a new one.
pub(super) fn seed(given: Option<u64>) -> u64 {
    if let Some(seed) = given {
        return seed;
    }
    match std::env::var("TENURE_KIT_SEED") {
        Ok(text) => match text.parse() {
            Ok(seed) => seed,
            Err(error) => panic!("TENURE_KIT_SEED is not a number: {error}"),
        },
        Err(_) => entropy(),
    }
}

/// Returns a number that no other call returns. The standard library's source of hash keys is random
/// enough for names and seeds, and needs no crate.
pub(super) fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A sequence of random numbers: SplitMix64, by Steele, Lea and Flood ("Fast splittable pseudorandom
/// number generators", OOPSLA 2014).
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from zero to `bound`, exclusive. `bound` is small and not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub(super) fn wide_number(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (random.number(), random.wide_number(), random.bytes(13))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // The first number of the reference implementation for seed 0.
        assert_eq!(Random::new(0).number(), 0xe220_a839_7b1d_cdaf);
    }
}
