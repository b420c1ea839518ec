//! Waiting for conditions instead of for time.

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How often a condition is looked at. Short against everything that is waited for, long against what
/// looking costs.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `check` gives a value, looking every 20 ms, for at most `within`.
///
/// `check` says what is still missing as `Err`. It must bound its own time.
///
/// # Errors
///
/// Says what was waited for, how long, and what was missing last.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, Failure> {
    let begin = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let missing = match check().await {
            Ok(value) => return Ok(value),
            Err(missing) => missing,
        };
        if begin.elapsed() >= within {
            return Err(Failure::new(format!(
                "{what}: not within {within:?}; at last {missing}"
            )));
        }
    }
}
