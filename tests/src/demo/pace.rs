//! How much of the input is released, so that every fault falls into the middle of the work.

use std::time::Duration;

/// Released so far, of the whole input, in hundredths of a per cent.
pub(super) const WHOLE: u32 = 10_000;

/// One step of the release. Each makes one checkpoint per shard.
const STEP: u32 = 200;

/// How often a step is released: all of the input in half a minute if nothing holds it back.
pub(super) const STEP_INTERVAL: Duration = Duration::from_millis(600);

/// How far beyond the point of the next fault input is released step by step.
const LEAD: u32 = 1_000;

/// A step beyond that: while a fault takes its time the work goes on, but is not over before the next
/// one. Enough for six minutes from the middle of the input.
const TRICKLE: u32 = 10;

/// A fault and the progress at which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// A worker is killed and started again.
    KillWorker,
    /// A worker is stopped between its last check and its write.
    StopWorker,
    /// The leader of the coordinators is killed.
    KillLeader,
    /// A fifth worker is started.
    AddWorker,
}

impl Point {
    /// All faults, in their order.
    pub const ALL: [Self; 4] = [
        Self::KillWorker,
        Self::StopWorker,
        Self::KillLeader,
        Self::AddWorker,
    ];

    /// Returns the part of the input that must be in checkpoints first, in hundredths of a per cent.
    #[must_use]
    pub fn progress(self) -> u32 {
        match self {
            Self::KillWorker => 1_000,
            Self::StopWorker => 2_500,
            Self::KillLeader => 5_500,
            Self::AddWorker => 7_500,
        }
    }
}

/// Releases the input step by step, and in small steps when it is far beyond the next fault.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    released: u32,
    over: usize,
}

impl Pace {
    /// Returns how much is released, in hundredths of a per cent.
    #[must_use]
    pub fn released(&self) -> u32 {
        self.released
    }

    /// Releases one step more and returns what is released then.
    pub fn step(&mut self) -> u32 {
        let limit = Point::ALL
            .get(self.over)
            .map_or(WHOLE, |next| next.progress() + LEAD);
        let stepped = (self.released + STEP).min(limit);
        self.released = stepped.max(self.released + TRICKLE).min(WHOLE);
        self.released
    }

    /// Notes that the next fault is over.
    pub fn fault_is_over(&mut self) {
        self.over += 1;
    }

    /// Returns the next fault, if the progress has reached it.
    #[must_use]
    pub fn due(&self, progress: u32) -> Option<Point> {
        Point::ALL
            .get(self.over)
            .copied()
            .filter(|next| progress >= next.progress())
    }
}

/// Returns the part of `bytes` that a release covers.
#[must_use]
pub(super) fn released_bytes(bytes: u64, released: u32) -> u64 {
    let part = u128::from(bytes) * u128::from(released) / u128::from(WHOLE);
    // A part is not larger than the whole.
    u64::try_from(part).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps in a minute: longer than any fault takes.
    const MINUTE: usize = 100;

    #[test]
    fn work_goes_on_during_each_fault_and_is_never_over_before_the_next() {
        let mut pace = Pace::default();
        for point in Point::ALL {
            while pace.released() < point.progress() {
                pace.step();
            }
            assert_eq!(pace.due(point.progress() - 1), None);
            assert_eq!(pace.due(point.progress()), Some(point));
            for _ in 0..MINUTE {
                let before = pace.released();
                assert!(pace.step() > before);
            }
            pace.fault_is_over();
        }
        assert!(pace.released() < WHOLE);
        while pace.step() < WHOLE {}
        assert_eq!(pace.due(WHOLE), None);
        assert_eq!(pace.step(), WHOLE);
    }

    #[test]
    fn a_part_of_the_bytes_is_released_and_all_of_them_at_the_end() {
        assert_eq!(released_bytes(999, 5_000), 499);
        assert_eq!(released_bytes(999, WHOLE), 999);
        assert_eq!(released_bytes(u64::MAX, WHOLE), u64::MAX);
    }
}
