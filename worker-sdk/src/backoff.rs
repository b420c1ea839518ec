//! Growing, jittered pauses between tries.

use std::time::Duration;

use rand::Rng;

/// The first pause: a leader that has just died is replaced within about a second, and whoever asks
/// early is told early.
const FIRST: Duration = Duration::from_millis(20);

/// The longest pause. Thousands of workers that lost their coordinator ask it this often.
const LONGEST: Duration = Duration::from_millis(400);

/// The pauses of one series of tries: doubling, each between a half and the whole, so that workers
/// that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    /// Begins a series.
    pub(crate) fn new() -> Self {
        Self { pause: FIRST }
    }

    /// Returns how long to wait before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_within(LONGEST)
    }

    /// Returns how long to wait before the next try, at most `longest`.
    pub(crate) fn next_within(&mut self, longest: Duration) -> Duration {
        let pause = self.pause.min(longest);
        self.pause = (self.pause * 2).min(LONGEST);
        rand::rng().random_range(pause / 2..=pause)
    }

    /// Begins anew after a success.
    pub(crate) fn reset(&mut self) {
        self.pause = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new();
        let mut expected = FIRST;
        for _ in 0..8 {
            let pause = backoff.next();
            assert!(
                pause >= expected / 2 && pause <= expected,
                "{pause:?}, {expected:?}"
            );
            expected = (expected * 2).min(LONGEST);
        }
        assert_eq!(expected, LONGEST);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    #[test]
    fn whoever_is_in_a_hurry_waits_less() {
        let mut backoff = Backoff::new();
        for _ in 0..8 {
            assert!(backoff.next_within(FIRST * 3) <= FIRST * 3);
        }
    }
}
