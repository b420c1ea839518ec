//! A process: real code on a runtime of its own, with time of its own, that can be paused at any
//! moment and killed without a word.

use std::time::Duration;

use tokio::runtime::{Builder, RngSeed, Runtime};
use tokio::time::Instant;

use crate::clock::MachineClock;

/// What a process's time does while it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The process alone is stopped (SIGSTOP): all of its timers are due when it goes on.
    Stopped,
    /// The machine is suspended: the timers of the runtime stand still with it, the clock does not.
    Suspended,
}

/// A running process. Dropping it kills it.
pub struct Process {
    runtime: Runtime,
    clock: MachineClock,
    /// Until when, in the runtime's time, it has had its turns.
    reached: Instant,
    paused: Option<Pause>,
    /// How much the runtime's time has to catch up at the next turn.
    missed: Duration,
}

impl Process {
    /// Starts a process, whose first turn comes with the next [`Process::turn`].
    ///
    /// # Errors
    ///
    /// What the runtime says if it cannot be built.
    pub fn start(
        clock: MachineClock,
        seed: u64,
        main: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
            .build()?;
        let reached = runtime.block_on(async {
            // Timers count whole milliseconds.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Instant::now()
        });
        runtime.spawn(main);
        Ok(Self {
            runtime,
            clock,
            reached,
            paused: None,
            missed: Duration::ZERO,
        })
    }

    /// Lets a stretch of true time pass: the process does what it does in it, unless it is paused.
    pub fn turn(&mut self, stretch: Duration) {
        let length = self.clock.measured(stretch);
        match self.paused {
            Some(pause) => {
                self.clock.advance(length);
                if pause == Pause::Stopped {
                    self.missed += length;
                }
            }
            None => self.run(length),
        }
    }

    fn run(&mut self, length: Duration) {
        let missed = std::mem::take(&mut self.missed);
        self.reached += missed + length;
        let (clock, reached) = (&self.clock, self.reached);
        self.runtime.block_on(async {
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            clock.begin_turn(length);
            tokio::time::sleep_until(reached).await;
        });
        clock.end_turn();
    }

    /// Stops the process where it is, until [`Process::resume`].
    pub fn pause(&mut self, pause: Pause) {
        self.paused = Some(pause);
    }

    /// Lets a paused process go on.
    pub fn resume(&mut self) {
        self.paused = None;
    }

    /// Tells whether the process is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }
}
