//! A worker: one process of a group.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::CheckpointStore;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::builder::WorkerBuilder;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::RunError;
use crate::handler::AnyHandler;
use crate::held_shard::HandleContext;
use crate::load::Loads;
use crate::session::belief::BeliefView;
use crate::session::{Session, SessionOptions};
use crate::status::{Observer, Tally};
use crate::stores::Stores;

/// Reports of handles that may wait for the session. A claim or a refused write beyond it waits.
const REPORTS_MAX: usize = 4_096;

/// A worker that is set up and not started.
///
/// It registers with the coordinators, is granted shards, and runs the handler once for each tenure
/// of each of them.
///
/// ```no_run
/// use tenure::{HeldShard, ShardHandler, Worker, WorkerError};
///
/// struct Idle;
///
/// impl ShardHandler for Idle {
///     async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
///         shard.claim().await?;
///         shard.revoked().await;
///         Ok(())
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let worker = Worker::builder()
///     .coordinators(["127.0.0.1:7001"])
///     .group("orders")
///     .name("worker-1")
///     .handler(Idle)
///     .build()?
///     .spawn();
/// worker.observer().wait_until(|status| status.session.is_some()).await;
/// worker.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    options: SessionOptions,
    stores: Vec<(String, Arc<dyn CheckpointStore>)>,
    handler: Arc<dyn AnyHandler>,
    clock: Arc<dyn Clock>,
    calls: Connection,
    store_timeout: Duration,
    tally: Arc<Tally>,
}

impl Worker {
    /// Begins to set up a worker.
    #[must_use]
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::new()
    }

    pub(crate) fn new(
        options: SessionOptions,
        stores: Vec<(String, Arc<dyn CheckpointStore>)>,
        handler: Arc<dyn AnyHandler>,
        clock: Arc<dyn Clock>,
        calls: Connection,
        store_timeout: Duration,
    ) -> Self {
        let tally = Arc::new(Tally::new());
        Self {
            options,
            stores,
            handler,
            clock,
            calls,
            store_timeout,
            tally,
        }
    }

    /// Returns a view of what the worker does, valid before, while and after it runs.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::new(Arc::clone(&self.tally))
    }

    /// Runs the worker until `shutdown` resolves, and then stops it in good order: its shards are moved to
    /// other workers one after the other while it serves the rest; what nobody takes is given back after
    /// last checkpoints; and the session is ended. See [`crate::terminated`] for a `shutdown` and
    /// [`WorkerBuilder::drain_timeout`] for how long it may take. A worker that an operator has paused
    /// gives everything back at once: its shards wait for it.
    ///
    /// A group that does not exist, yet or any more, is waited for, with a warning in the log: workers
    /// may be started before it is created.
    ///
    /// # Errors
    ///
    /// [`RunError::Replaced`] when a newer process has taken the name; [`RunError::Refused`] when the
    /// coordinator will not have the worker. All handlers have ended when it returns.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RunError> {
        let mut tasks = JoinSet::new();
        let stop = CancellationToken::new();
        let stores = Arc::new(Stores::attach(self.stores, &mut tasks, &stop));
        let (reporter, reports) = mpsc::channel(REPORTS_MAX);
        let context = Arc::new(HandleContext {
            clock: self.clock,
            belief: Arc::new(BeliefView::default()),
            stores,
            connection: self.calls,
            tally: self.tally,
            loads: Loads::default(),
            store_timeout: self.store_timeout,
            reports: reporter,
        });
        let session = Session::new(self.options, self.handler, context, reports);
        // Boxed: the state of the session is large, and moved around by whoever awaits this.
        let mut outcome = Box::pin(session.run(shutdown)).await;
        stop.cancel();
        while let Some(joined) = tasks.join_next().await {
            if joined.is_err() {
                outcome = outcome.and(Err(RunError::Panicked));
            }
        }
        outcome
    }

    /// Runs the worker on a task of its own.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(self) -> WorkerHandle {
        let observer = self.observer();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { self.run(stopped.cancelled_owned()).await });
        WorkerHandle {
            observer,
            stop,
            task,
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Worker")
            .field("group", &self.options.group)
            .field("name", &self.options.name)
            .finish_non_exhaustive()
    }
}

/// A worker that runs. Dropping it without [`shutdown`](Self::shutdown) asks the worker to stop, but
/// does not wait for it.
#[derive(Debug)]
pub struct WorkerHandle {
    observer: Observer,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl WorkerHandle {
    /// Returns a view of what the worker does.
    #[must_use]
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Waits until the worker stops of itself.
    ///
    /// # Errors
    ///
    /// Why it stopped; see [`Worker::run`].
    pub async fn stopped(&mut self) -> Result<(), RunError> {
        (&mut self.task).await.unwrap_or(Err(RunError::Panicked))
    }

    /// Stops the worker in good order and waits until it has stopped.
    ///
    /// # Errors
    ///
    /// What went wrong before or meanwhile; see [`Worker::run`].
    pub async fn shutdown(mut self) -> Result<(), RunError> {
        self.stop.cancel();
        self.stopped().await
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
