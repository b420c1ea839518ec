//! One task that syncs the log, for many writes at a time.
//!
//! ```text
//!   append ─ write ─┐
//!   append ─ write ─┼─▶ queue ─▶ [ take all ─▶ one sync ─▶ complete each, in order ] ─▶ ...
//!   vote   ─ write ─┘
//! ```
//!
//! Whoever queues a completion has written its batch before, so the next sync covers it. While a
//! sync runs the queue fills, and the next sync covers all of that: the more load, the more writes
//! share one.
//!
//! # Invariants
//!
//! * Completions run in the order in which they were queued.
//! * After a sync has failed, every completion gets that error, for ever: nobody knows what is
//!   durable, and a disk that failed a sync may report success for the next without having stored
//!   anything.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::Instant as _;
use tokio::sync::{mpsc, oneshot};

use super::runtime;
use super::sync_times::SyncTimes;
use crate::storage::Storage;

/// Completions that may wait for the next sync. One more makes the writer wait, which is how a slow
/// disk slows down its proposers.
const QUEUED_MAX: usize = 1024;

/// Called once with the result of a sync that covers what was written before it was queued.
type Completion = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Hands completions to the sync task. Dropping the last clone ends the task.
#[derive(Clone)]
pub(super) struct GroupCommit {
    queue: mpsc::Sender<Completion>,
}

/// The running sync task.
pub(super) struct SyncTask(Arc<Mutex<Option<Running>>>);

#[cfg(not(tenure_simulation))]
type Running = std::thread::JoinHandle<()>;
#[cfg(tenure_simulation)]
type Running = tokio::task::JoinHandle<()>;

impl GroupCommit {
    /// Starts the sync task.
    ///
    /// # Errors
    ///
    /// An error if the operating system has no thread to give.
    #[cfg(test)]
    pub(super) fn start(storage: Arc<dyn Storage>) -> io::Result<(Self, SyncTask)> {
        Self::start_timed(storage, Arc::default())
    }

    /// As [`GroupCommit::start`]; `times` keeps how long the syncs take.
    pub(super) fn start_timed(
        storage: Arc<dyn Storage>,
        times: Arc<SyncTimes>,
    ) -> io::Result<(Self, SyncTask)> {
        let (queue, queued) = mpsc::channel(QUEUED_MAX);
        let running = start_task(
            Syncer {
                storage,
                times,
                failure: None,
            },
            queued,
        )?;
        Ok((
            Self { queue },
            SyncTask(Arc::new(Mutex::new(Some(running)))),
        ))
    }

    /// Queues a completion for what has been written so far.
    ///
    /// # Errors
    ///
    /// An error if the sync task has ended; the completion was dropped.
    pub(super) async fn complete(
        &self,
        completion: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<()> {
        self.queue
            .send(Box::new(completion))
            .await
            .map_err(|_| ended())
    }

    /// Returns once what has been written so far is durable.
    ///
    /// # Errors
    ///
    /// An error if it is not known to be.
    pub(super) async fn durable(&self) -> io::Result<()> {
        let (done, result) = oneshot::channel();
        self.complete(move |synced| {
            // The waiter may have been cancelled; then nobody needs to know.
            let _ = done.send(synced);
        })
        .await?;
        result.await.map_err(|_| ended())?
    }
}

fn ended() -> io::Error {
    io::Error::other("the log's sync task has ended")
}

impl SyncTask {
    /// Waits for the task to end, which it does when the last [`GroupCommit`] is gone.
    pub(super) async fn join(&self) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        #[cfg(not(tenure_simulation))]
        let joined = runtime::blocking(move || running.join().is_ok())
            .await
            .unwrap_or(false);
        #[cfg(tenure_simulation)]
        let joined = running.await.is_ok();
        if !joined {
            tracing::error!("the log's sync task panicked");
        }
    }
}

#[cfg(not(tenure_simulation))]
fn start_task(mut syncer: Syncer, mut queued: mpsc::Receiver<Completion>) -> io::Result<Running> {
    std::thread::Builder::new()
        .name("log-sync".to_owned())
        .spawn(move || {
            let mut batch = Vec::with_capacity(QUEUED_MAX);
            while queued.blocking_recv_many(&mut batch, QUEUED_MAX) > 0 {
                syncer.commit(&mut batch);
            }
        })
}

#[cfg(tenure_simulation)]
fn start_task(mut syncer: Syncer, mut queued: mpsc::Receiver<Completion>) -> io::Result<Running> {
    Ok(tokio::spawn(async move {
        let mut batch = Vec::with_capacity(QUEUED_MAX);
        while queued.recv_many(&mut batch, QUEUED_MAX).await > 0 {
            // One thread serves all nodes, so a slow disk must not hold it.
            tokio::time::sleep(syncer.storage.begin_sync()).await;
            syncer.commit(&mut batch);
        }
    }))
}

/// What the task does, without the task.
struct Syncer {
    storage: Arc<dyn Storage>,
    times: Arc<SyncTimes>,
    /// The first failure, which is final.
    failure: Option<String>,
}

impl Syncer {
    /// Syncs once and completes everything in the batch.
    fn commit(&mut self, batch: &mut Vec<Completion>) {
        if self.failure.is_none() {
            let begun = runtime::now();
            if let Err(error) = self.storage.sync() {
                let error = io::Error::from(error).to_string();
                tracing::error!(%error, "log cannot be synced, the node stops serving");
                self.failure = Some(error);
            }
            let took = begun.elapsed();
            self.times.note(took);
            metrics::histogram!(crate::metrics::LOG_SYNC).record(took.as_secs_f64());
        }
        for completion in batch.drain(..) {
            completion(match &self.failure {
                None => Ok(()),
                Some(error) => Err(io::Error::other(error.clone())),
            });
        }
    }
}
