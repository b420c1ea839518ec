//! Runs one seed in surroundings that are the same every time.
//!
//! That takes a process of its own: what a process keeps for good is drawn from the seed of its first run,
//! and a second one would find it.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::run::{self, Report, RunError, Scenario};
use crate::trace::{Stamp, Trace};

/// How long a seed may take, in real time. A second is usual, on a busy machine some: one that is still
/// at it then will not end.
const REAL_MAX: Duration = Duration::from_secs(300);

/// What came of a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Counts and violations.
    pub report: Report,
    /// Digest of the trace: equal for equal runs.
    pub digest: u64,
    /// Everything that happened, one line each, in order. Stays in the process.
    #[serde(skip)]
    pub trace: String,
}

impl Outcome {
    /// Creates the outcome of a run that told nothing.
    #[must_use]
    pub fn of_failure(what: String) -> Self {
        let mut report = Report::default();
        report.totals.seeds = 1;
        report.totals.violations = 1;
        report.violations.push(what);
        Self {
            report,
            digest: 0,
            trace: String::new(),
        }
    }
}

/// Why a seed could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// This process has run a seed before.
    #[error("a process runs one seed: what it kept of the first would change the second")]
    SecondSeed,
    /// There was no thread for it.
    #[error("a thread cannot be started")]
    Thread(#[from] std::io::Error),
}

/// Runs a seed: once in the life of a process.
///
/// A panic, a run that does not end, and a mistake of the simulation are violations like others, so that
/// their traces are there as well. After a run that does not end the process must do so: it goes on.
///
/// # Errors
///
/// [`SeedError`] if it was not begun.
pub fn run_seed(seed: u64, scenario: Scenario) -> Result<Outcome, SeedError> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::SeqCst) {
        return Err(SeedError::SecondSeed);
    }
    // From here on the operating system's randomness is drawn from the seed.
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    let stamp = Arc::new(Stamp::default());
    let trace = Trace::new(Arc::clone(&stamp));
    let (sender, ended) = mpsc::sync_channel(1);
    // Through a thread that sleeps: in this process clocks stand still, so that no wait knows when to end.
    let late = sender.clone();
    thread::spawn(move || {
        sleep();
        let _told = late.send(None);
    });
    let subscriber = tracing_subscriber::registry().with(trace.clone());
    // What threads keep for themselves is drawn anew by each: the keys of hash maps, `rand::rng()`.
    thread::Builder::new()
        .name(format!("seed {seed}"))
        .stack_size(16 << 20)
        .spawn(move || {
            let run = || run::run(seed, scenario, stamp);
            let run = || tracing::subscriber::with_default(subscriber, run);
            let ended = panic::catch_unwind(AssertUnwindSafe(run));
            // Nobody waits for a run that took too long.
            let _told = sender.send(Some(ended));
        })?;
    let mut outcome = match ended.recv().unwrap_or(None) {
        Some(Ok(Ok(report))) => Outcome {
            report,
            digest: 0,
            trace: String::new(),
        },
        Some(Ok(Err(error))) => Outcome::of_failure(chain(&error)),
        Some(Err(panic)) => {
            Outcome::of_failure(format!("the run panicked: {}", text_of(panic.as_ref())))
        }
        None => {
            let limit = REAL_MAX.as_secs();
            Outcome::of_failure(format!("the run has not ended after {limit} s"))
        }
    };
    outcome.digest = trace.digest();
    outcome.trace = trace.text();
    Ok(outcome)
}

fn chain(error: &RunError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "on a thread that has no part in the run, to notice that it does not end"
)]
fn sleep() {
    thread::sleep(REAL_MAX);
}
