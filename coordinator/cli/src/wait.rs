//! Waiting for what a change leads to: progress on stderr, and a way out.

use std::future::Future;
use std::time::Duration;

use tenure::{BootClock, Clock};

use crate::command::WaitArguments;
use crate::console::Console;
use crate::error::CliError;

/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Something that is on its way.
pub(crate) enum Progress {
    /// Not there yet; in words.
    Underway(String),
    /// There.
    Reached,
}

/// Looks again and again until it is reached, the time is over, or `interrupted` resolves. Whenever the
/// progress reads differently it is written to stderr. Returns how long it took.
///
/// # Errors
///
/// [`CliError::NotReached`] with `take_back`, which says how to undo the change; and whatever `look` fails with.
pub(crate) async fn until_reached<F, L>(
    console: &mut Console<'_>,
    wait: &WaitArguments,
    interrupted: impl Future<Output = ()>,
    take_back: &str,
    mut look: F,
) -> Result<Duration, CliError>
where
    F: FnMut() -> L,
    L: Future<Output = Result<Progress, CliError>>,
{
    let begun = BootClock.now();
    let elapsed = || BootClock.now().since(begun);
    let mut interrupted = std::pin::pin!(interrupted);
    let mut said = String::new();
    let not_reached = |said: &str, why: &str| CliError::NotReached {
        message: format!("{why} ({said}), and it goes on; {take_back}"),
    };
    loop {
        match look().await? {
            Progress::Reached => return Ok(elapsed()),
            Progress::Underway(text) if text != said => {
                console.note(&text)?;
                said = text;
            }
            Progress::Underway(_) => {}
        }
        let left = wait.wait_timeout.map(|most| most.saturating_sub(elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(not_reached(&said, "it was not reached in time"));
        }
        let pause = left.map_or(LOOK_PAUSE, |left| left.min(LOOK_PAUSE));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut interrupted => return Err(not_reached(&said, "no longer waiting for it")),
        }
    }
}

/// A time as people read it: to a tenth of a second.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
