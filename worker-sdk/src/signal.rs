//! The signals by which operating systems and orchestrators ask a process to stop.

use std::future::Future;
use std::io;

/// Resolves when the process is asked to stop: by SIGTERM or SIGINT on Unix, by Ctrl-C elsewhere.
///
/// For [`Worker::run`](crate::Worker::run), so that a worker that is told to stop hands its shards over:
///
/// ```no_run
/// # async fn example(worker: tenure::Worker) -> Result<(), Box<dyn std::error::Error>> {
/// let terminated = tenure::terminated()?;
/// worker.run(terminated).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// When the handlers of the signals cannot be installed.
///
/// # Panics
///
/// Outside a tokio runtime.
#[cfg(unix)]
pub fn terminated() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Resolves when the process is asked to stop: by SIGTERM or SIGINT on Unix, by Ctrl-C elsewhere.
///
/// # Errors
///
/// None here; see the one for Unix.
#[cfg(not(unix))]
pub fn terminated() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
