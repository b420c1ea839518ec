//! Choices, drawn from the seed of a run.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A source of choices. Each purpose has one of its own, so that a choice more here changes nothing
/// there.
#[derive(Debug)]
pub struct Dice(StdRng);

impl Dice {
    /// Creates the dice of a purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a: a hash that is the same in every build.
        let mut mixed = 0xcbf2_9ce4_8422_2325_u64;
        for byte in seed.to_le_bytes().into_iter().chain(purpose.bytes()) {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(StdRng::seed_from_u64(mixed))
    }

    /// Returns a number for whatever needs a seed itself.
    pub fn seed(&mut self) -> u64 {
        self.0.random()
    }

    /// Returns true `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.0.random_range(0..1_000) < permille
    }

    /// Returns a number below `bound`, which is above 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// Returns a number of a range.
    pub fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        self.0.random_range(range)
    }

    /// Returns a duration of a range, given in milliseconds.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_micros(
            self.0
                .random_range(range.start() * 1_000..=range.end() * 1_000),
        )
    }

    /// Returns one of several; `None` if there is none.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        if among.is_empty() {
            return None;
        }
        among.get(self.below(among.len())).copied()
    }
}
