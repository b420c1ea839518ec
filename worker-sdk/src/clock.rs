//! Where time comes from.
//!
//! A worker measures intervals on one clock only, its own, and never compares it with another
//! machine's. In production that clock is `CLOCK_BOOTTIME`: Rust's and tokio's `Instant` stop while
//! a Linux machine is suspended, and a worker that slept through its lease would go on believing.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// A point in time on one clock: nanoseconds since that clock's start, whatever that was.
///
/// Moments of different clocks have nothing to do with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of a clock.
    pub const START: Self = Self(0);

    /// A moment that is never reached: 584 years after the start.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the moment that many nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns how much later this moment is than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Returns the moment `duration` later, at most [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// A clock that goes on while the machine is suspended.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the present moment. Never earlier than one returned before.
    fn now(&self) -> Moment;

    /// Returns once [`now`](Self::now) has reached `moment`, and not before.
    async fn sleep_until(&self, moment: Moment);
}

/// The clock of the machine since it was started, suspends included (`CLOCK_BOOTTIME`).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

/// Timers of the runtime stop while the machine is suspended, so a long wait is cut into steps of
/// this length: that late, at most, does a waiting task notice what the clock says after a suspend.
const STEP_MAX: Duration = Duration::from_millis(250);

#[async_trait]
impl Clock for BootClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        // Neither is ever negative on this clock, and 584 years of uptime fit.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    async fn sleep_until(&self, moment: Moment) {
        loop {
            let rest = moment.since(self.now());
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(rest.min(STEP_MAX)).await;
        }
    }
}

/// A clock that stands still until it is told to move: for tests of code that waits.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now().since(before), Duration::from_secs(30));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Moment>,
}

impl ManualClock {
    /// Creates a clock that stands at one second after its start.
    #[must_use]
    pub fn new() -> Self {
        let now = watch::Sender::new(Moment::START + Duration::from_secs(1));
        Self { now }
    }

    /// Moves the clock forward and wakes whoever waited for a moment that is now reached.
    pub fn advance(&self, duration: Duration) {
        self.now.send_modify(|now| *now = *now + duration);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.now.borrow()
    }

    async fn sleep_until(&self, moment: Moment) {
        let mut now = self.now.subscribe();
        // The sender is part of this clock, so it cannot be gone while the clock is borrowed.
        let _reached = now.wait_for(|now| *now >= moment).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_clock_of_the_machine_never_falls_and_never_wakes_early() {
        let clock = BootClock;
        let before = clock.now();
        let until = before + Duration::from_millis(3);
        clock.sleep_until(until).await;
        assert!(clock.now() >= until && until > before);
    }

    #[tokio::test]
    async fn a_driven_clock_wakes_at_the_moment_and_not_before() {
        let clock = ManualClock::new();
        let until = clock.now() + Duration::from_secs(2);
        let mut sleeping = std::pin::pin!(clock.sleep_until(until));
        assert!(futures::poll!(sleeping.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1_999));
        assert!(futures::poll!(sleeping.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1));
        assert!(futures::poll!(sleeping.as_mut()).is_ready());
    }
}
