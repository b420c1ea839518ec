//! The clock of one simulated machine: it runs at a rate of its own, goes on while its process is
//! paused, and is what both coordinators and workers take their time from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::time::Instant;

/// Longest sleep between two looks at the clock, as in production: the runtime's timers stand still
/// while a machine is suspended.
const SLICE_MAX: Duration = Duration::from_millis(250);

/// Parts of a million.
const MILLION: i64 = 1_000_000;

/// A machine's clock. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct MachineClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// How much faster than true time it runs, in parts per million; may be negative.
    drift_ppm: i64,
    /// Nanoseconds since the boot, at the end of the machine's last turn.
    now_ns: AtomicU64,
    turn: Mutex<Option<Turn>>,
}

/// A turn of the machine's process: its time goes on within it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The runtime's time at the begin.
    begun: Instant,
    /// The clock's time at the begin, and the time that the turn cannot exceed, in nanoseconds.
    from_ns: u64,
    until_ns: u64,
}

impl MachineClock {
    /// Creates a clock that was booted some time ago.
    #[must_use]
    pub fn new(booted_ago: Duration, drift_ppm: i64) -> Self {
        Self {
            shared: Arc::new(Shared {
                drift_ppm,
                now_ns: AtomicU64::new(nanos(booted_ago)),
                turn: Mutex::new(None),
            }),
        }
    }

    /// Returns how long the machine takes a stretch of true time for.
    #[must_use]
    pub fn measured(&self, stretch: Duration) -> Duration {
        let true_ns = i64::try_from(stretch.as_nanos()).unwrap_or(i64::MAX);
        let drift_ns = true_ns / MILLION * self.shared.drift_ppm
            + true_ns % MILLION * self.shared.drift_ppm / MILLION;
        Duration::from_nanos(u64::try_from(true_ns + drift_ns).unwrap_or(0))
    }

    /// Moves the clock forward while nothing runs on the machine.
    pub fn advance(&self, measured: Duration) {
        self.shared
            .now_ns
            .fetch_add(nanos(measured), Ordering::Relaxed);
    }

    /// Begins a turn of that length. To be called within the process's runtime.
    pub fn begin_turn(&self, length: Duration) {
        let from_ns = self.shared.now_ns.load(Ordering::Relaxed);
        *self.turn() = Some(Turn {
            begun: Instant::now(),
            from_ns,
            until_ns: from_ns + nanos(length),
        });
    }

    /// Ends a turn.
    pub fn end_turn(&self) {
        if let Some(turn) = self.turn().take() {
            self.shared.now_ns.store(turn.until_ns, Ordering::Relaxed);
        }
    }

    fn now_ns(&self) -> u64 {
        match *self.turn() {
            None => self.shared.now_ns.load(Ordering::Relaxed),
            // The runtime rounds its timers up to milliseconds, so it may be a little ahead at the end.
            Some(turn) => (turn.from_ns + nanos(turn.begun.elapsed())).min(turn.until_ns),
        }
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn>> {
        self.shared
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn sleep_until_ns(self, moment_ns: u64) {
        loop {
            let rest = Duration::from_nanos(moment_ns.saturating_sub(self.now_ns()));
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(rest.min(SLICE_MAX)).await;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl tenure_coordinator::clock::Clock for MachineClock {
    fn now(&self) -> tenure_coordinator::clock::Moment {
        tenure_coordinator::clock::Moment::from_boot(Duration::from_nanos(self.now_ns()))
    }

    fn sleep_until(&self, moment: tenure_coordinator::clock::Moment) -> BoxFuture<'static, ()> {
        let boot = tenure_coordinator::clock::Moment::default();
        Box::pin(self.clone().sleep_until_ns(nanos(moment.since(boot))))
    }
}

/// The day of every simulation, in milliseconds since 1970: 2026-01-01T00:00:00Z.
const SIMULATED_DAY_MS: u64 = 1_767_225_600_000;

/// The time of day on a machine whose owner set it at the boot, so that it is wrong by how long ago that
/// was, and by its rate.
impl tenure_coordinator::wall_clock::WallClock for MachineClock {
    fn now_ms(&self) -> u64 {
        SIMULATED_DAY_MS + self.now_ns() / 1_000_000
    }
}

#[async_trait]
impl tenure::Clock for MachineClock {
    fn now(&self) -> tenure::Moment {
        tenure::Moment::from_nanos(self.now_ns())
    }

    async fn sleep_until(&self, moment: tenure::Moment) {
        self.clone().sleep_until_ns(moment.as_nanos()).await;
    }
}
