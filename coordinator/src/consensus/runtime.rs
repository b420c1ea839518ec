//! What consensus needs of the machine it runs on: tasks, time, blocking work. One file, so that a
//! simulation replaces all of it with one `cfg`. (Randomness it replaces at its source, which is the
//! operating system's, for all crates at once.)

use std::io;
use std::time::Duration;

use openraft::AsyncRuntime;
use openraft::type_config::TypeConfigExt as _;

use super::types::TypeConfig;

/// The runtime openraft runs on.
pub(super) type Runtime = openraft_rt_tokio::TokioRuntime;

/// A moment on the runtime's clock, which a test can drive.
pub(super) type Moment = <Runtime as AsyncRuntime>::Instant;

/// Returns the present moment.
pub(super) fn now() -> Moment {
    TypeConfig::now()
}

/// Runs blocking work and waits for its result.
///
/// # Errors
///
/// An error if the work panicked or the runtime is stopping.
#[cfg(not(tenure_simulation))]
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<R> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
}

/// Runs blocking work in place: a simulation has one thread, so that it can be repeated.
#[cfg(tenure_simulation)]
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<R> {
    Ok(work())
}

/// A task, which is joined by awaiting it.
pub(super) type Task = openraft::type_config::alias::JoinHandleOf<TypeConfig, ()>;

/// Starts a task.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
    TypeConfig::spawn(work)
}

/// Waits for a future, at most for `within`; `None` if it was not ready by then.
pub(super) async fn at_most<F: Future>(within: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(within, future).await.ok()
}
