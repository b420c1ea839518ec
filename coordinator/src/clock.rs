//! Time, as everything that grants or expires must take it.
//!
//! Deadlines are measured on `CLOCK_BOOTTIME`: Rust's and tokio's `Instant` stop while the machine is
//! suspended, so a lease measured with them would outlive its ttl by the length of the suspend. The
//! clock is a trait, so that tests and simulations drive it.
//!
//! # Not here
//!
//! Wall-clock time. Nothing that grants or expires may read it.
//!
//! # Invariants
//!
//! * The moments of one clock never go back.
//! * A sleep does not end before its moment. After a suspend it ends at most one slice of sleep late.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use crate::wall_clock::WallClock;

/// Longest sleep between two looks at the clock.
///
/// tokio's timer stands still during a suspend; after it a sleeper is late by at most this. One
/// second: the shortest ttl, and a wake-up a second costs nothing.
const SLICE_MAX: Duration = Duration::from_secs(1);

/// A moment on a [`Clock`]: the time since the machine booted, suspends included.
///
/// Moments of different machines, or of different boots of one machine, have nothing to do with each
/// other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// A moment that no clock reaches: a deadline that never comes.
    pub const NEVER: Self = Self(Duration::MAX);

    /// Creates the moment that lies `since_boot` after the boot.
    #[must_use]
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `duration` before this one; the boot if that would lie before it.
    #[must_use]
    pub const fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Returns the moment `duration` later; [`Moment::NEVER`] instead of an overflow.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// The wall clock against the clock that leases are measured with, for people: nothing is decided by it.
#[derive(Clone, Copy, Debug)]
pub struct ClockComparison {
    boot: Moment,
    wall_ms: u64,
}

impl ClockComparison {
    /// Begins to compare.
    #[must_use]
    pub fn begin(clock: &dyn Clock, wall: &dyn WallClock) -> Self {
        Self {
            boot: clock.now(),
            wall_ms: wall.now_ms(),
        }
    }

    /// Returns how long was compared, and by how much the wall clock went faster, in millionths of that. A
    /// wall clock that was set meanwhile shows here too.
    #[must_use]
    pub fn read(&self, clock: &dyn Clock, wall: &dyn WallClock) -> (Duration, i64) {
        let compared = clock.now().since(self.boot);
        let of_ms = i128::try_from(compared.as_millis()).unwrap_or(i128::MAX);
        let wall_ms = i128::from(wall.now_ms()) - i128::from(self.wall_ms);
        let ppm = (wall_ms - of_ms).saturating_mul(1_000_000) / of_ms.max(1);
        let bounded = ppm.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        (compared, i64::try_from(bounded).unwrap_or_default())
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns the present moment.
    fn now(&self) -> Moment;

    /// Waits until the clock has reached `moment`; not at all if it has already.
    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

fn boot_time() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // Neither is negative: the clock starts at zero with the boot.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    Moment(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanoseconds)))
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        boot_time()
    }

    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let remaining = moment.since(boot_time());
                if remaining.is_zero() {
                    return;
                }
                tokio::time::sleep(remaining.min(SLICE_MAX)).await;
            }
        })
    }
}

/// A clock that stands still until it is told to move. For tests and simulations.
///
/// Clones share the time.
#[derive(Clone, Default)]
pub struct ManualClock {
    state: Arc<Mutex<ManualState>>,
}

#[derive(Default)]
struct ManualState {
    now: Moment,
    /// Who sleeps until when. The number keeps sleepers of one moment apart, in the order they came.
    sleepers: BTreeMap<(Moment, u64), oneshot::Sender<()>>,
    number: u64,
}

impl ManualClock {
    /// Creates a clock that stands at the boot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock and wakes everybody whose moment has come, the earliest first.
    ///
    /// A sleeper that is woken runs when its executor lets it: wait for what it does.
    pub fn advance(&self, duration: Duration) {
        let due = {
            let mut state = self.lock();
            state.now = state.now + duration;
            let later = state.now;
            let rest = state.sleepers.split_off(&(later, u64::MAX));
            std::mem::replace(&mut state.sleepers, rest)
        };
        for sleeper in due.into_values() {
            // It may have stopped waiting.
            let _ = sleeper.send(());
        }
    }

    /// Returns the earliest moment somebody sleeps until; `None` if nobody does.
    #[must_use]
    pub fn next_wake(&self) -> Option<Moment> {
        let mut state = self.lock();
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        state.sleepers.keys().next().map(|(moment, _)| *moment)
    }

    fn lock(&self) -> MutexGuard<'_, ManualState> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.lock().now
    }

    /// Registers the sleeper at once, not when the future is first polled: an [`advance`] right after
    /// the call wakes it.
    ///
    /// [`advance`]: ManualClock::advance
    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        let (waker, woken) = oneshot::channel();
        let mut state = self.lock();
        if moment <= state.now {
            return Box::pin(std::future::ready(()));
        }
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        let number = state.number;
        state.number += 1;
        state.sleepers.insert((moment, number), waker);
        drop(state);
        Box::pin(async move {
            if woken.await.is_err() {
                // The clock is gone and will never reach the moment.
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let early = Moment::from_boot(SECOND);
        let late = early + SECOND;
        assert_eq!(late.since(early), SECOND);
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.before(2 * SECOND), Moment::default());
        assert_eq!(late + Duration::MAX, Moment::NEVER);
    }

    #[test]
    fn a_driven_clock_wakes_exactly_those_whose_moment_has_come() {
        let clock = ManualClock::new();
        let mut first = clock.sleep_until(Moment::from_boot(SECOND));
        let mut second = clock.sleep_until(Moment::from_boot(2 * SECOND));
        assert_eq!(clock.next_wake(), Some(Moment::from_boot(SECOND)));

        clock.advance(SECOND - Duration::from_nanos(1));
        assert!(first.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_nanos(1));
        assert!(first.now_or_never().is_some());
        assert!(second.as_mut().now_or_never().is_none());
        clock.advance(SECOND);
        assert!(second.now_or_never().is_some());
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn a_sleeper_that_gave_up_is_forgotten() {
        let clock = ManualClock::new();
        drop(clock.sleep_until(Moment::from_boot(SECOND)));
        assert_eq!(clock.next_wake(), None);
    }

    #[tokio::test]
    async fn the_machine_s_clock_does_not_end_a_sleep_early() {
        let clock = SystemClock;
        let until = clock.now() + Duration::from_millis(20);
        clock.sleep_until(until).await;
        assert!(clock.now() >= until);
        // A moment that has passed does not wait.
        assert!(clock.sleep_until(until).now_or_never().is_some());
    }
}
