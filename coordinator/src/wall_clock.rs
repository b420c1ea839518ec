//! The time of day, for people.
//!
//! It jumps, and differs from node to node: nothing is decided by it. It stands in log entries, in the
//! history and in events, so that an operator can tell last night's move from last week's.

use std::fmt;
use std::sync::Arc;

/// Where the time of day comes from.
pub trait WallClock: Send + Sync + fmt::Debug + 'static {
    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> u64;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallClock;

impl WallClock for SystemWallClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the time of day, and nothing is decided by it"
    )]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        // A clock before 1970 is one that nobody has set.
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }
}

/// A wall clock that stands still at a moment, in milliseconds since 1970. For tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedWallClock(pub u64);

impl WallClock for FixedWallClock {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

/// Returns the machine's wall clock, shared.
pub(crate) fn system() -> Arc<dyn WallClock> {
    Arc::new(SystemWallClock)
}
