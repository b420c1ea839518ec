//! Runs one seed in surroundings that are the same every time.

use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::run::{self, Report, RunError, Scenario};
use crate::trace::{Stamp, Trace};

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts and violations.
    pub report: Report,
    /// Everything that happened, in order; empty unless asked for.
    pub trace: String,
}

/// Why a seed could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The run could not be carried out.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There was no thread for it.
    #[error("a thread cannot be started")]
    Thread(#[from] std::io::Error),
    /// Something panicked: in the simulation, or in what it runs.
    #[error("the run panicked: {0}")]
    Panicked(String),
}

/// What answers for the operating system's randomness is one for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a seed.
///
/// # Errors
///
/// [`SeedError`] if it could not be run to its end. Broken promises are in the report.
pub fn run_seed(seed: u64, scenario: Scenario, traced: bool) -> Result<Outcome, SeedError> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    reseed(seed);
    // What threads keep for themselves is drawn anew by each: the keys of hash maps, `rand::rng()`.
    let running = thread::Builder::new()
        .name(format!("seed {seed}"))
        .stack_size(16 << 20)
        .spawn(move || run_here(seed, scenario, traced))?;
    match running.join() {
        Ok(outcome) => Ok(outcome?),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(SeedError::Panicked(text.unwrap_or_default()))
        }
    }
}

/// From here on the operating system's randomness is drawn from the seed.
fn reseed(seed: u64) {
    static FIRST: Once = Once::new();
    let mut first = false;
    FIRST.call_once(|| {
        mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
        first = true;
    });
    if !first {
        *mad_turmoil::rand::get_rng() = StdRng::seed_from_u64(seed);
    }
}

fn run_here(seed: u64, scenario: Scenario, traced: bool) -> Result<Outcome, RunError> {
    let stamp = Arc::new(Stamp::default());
    if !traced {
        let report = run::run(seed, scenario, stamp)?;
        return Ok(Outcome {
            report,
            trace: String::new(),
        });
    }
    let trace = Trace::new(Arc::clone(&stamp));
    let subscriber = tracing_subscriber::registry().with(trace.clone());
    let report = tracing::subscriber::with_default(subscriber, || run::run(seed, scenario, stamp))?;
    Ok(Outcome {
        report,
        trace: trace.text(),
    })
}
