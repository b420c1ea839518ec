//! How long syncs of the log took lately.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Syncs that are kept: some seconds of a busy node, an hour of an idle one.
const KEPT: usize = 1_024;

/// The latest syncs.
#[derive(Debug, Default)]
pub(super) struct SyncTimes {
    latest: Mutex<VecDeque<Duration>>,
}

/// What the latest syncs of the log took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSyncs {
    /// How many were measured.
    pub count: usize,
    /// Half took no longer.
    pub p50: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl SyncTimes {
    pub(super) fn note(&self, took: Duration) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() >= KEPT {
            latest.pop_front();
        }
        latest.push_back(took);
    }

    pub(super) fn summary(&self) -> LogSyncs {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<Duration> = latest.iter().copied().collect();
        drop(latest);
        sorted.sort_unstable();
        let count = sorted.len();
        // The smallest that so many in a hundred do not exceed.
        let at = |hundredths: usize| {
            let rank = (count * hundredths).div_ceil(100);
            sorted
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or_default()
        };
        LogSyncs {
            count,
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_summed_up_and_older_ones_forgotten() {
        let times = SyncTimes::default();
        assert_eq!(times.summary(), LogSyncs::default());
        for _ in 0..KEPT {
            times.note(Duration::from_secs(9));
        }
        for millis in 1..=u64::try_from(KEPT).unwrap() {
            times.note(Duration::from_millis(millis));
        }
        let expected = LogSyncs {
            count: KEPT,
            p50: Duration::from_millis(512),
            p99: Duration::from_millis(1_014),
            max: Duration::from_millis(1_024),
        };
        assert_eq!(times.summary(), expected);
    }
}
