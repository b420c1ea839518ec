//! A worker inside the process of a story.

use std::time::Duration;

use tenure::{RunError, Worker, WorkerHandle};

use super::holder::{Holder, HolderOptions};
use crate::failure::Failure;

/// How long a worker may take to give its shards back.
const STOP_TIME: Duration = Duration::from_secs(60);

/// A worker on tasks of its own, which holds what it is given. Stops when dropped.
#[derive(Debug)]
pub struct LocalWorker {
    name: String,
    holder: Holder,
    handle: WorkerHandle,
}

impl LocalWorker {
    /// Starts a worker with the replicated store.
    ///
    /// # Errors
    ///
    /// When a name or an address is malformed.
    pub fn start(coordinators: Vec<String>, group: &str, name: &str) -> Result<Self, Failure> {
        let holder = Holder::new(HolderOptions::default());
        let worker = Worker::builder()
            .coordinators(coordinators)
            .group(group)
            .name(name)
            .handler(holder.clone())
            .build()?;
        Ok(Self {
            name: name.to_owned(),
            holder,
            handle: worker.spawn(),
        })
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its handler.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the worker itself.
    #[must_use]
    pub fn handle(&self) -> &WorkerHandle {
        &self.handle
    }

    /// Stops the worker in good order: it gives its shards back and leaves.
    ///
    /// # Errors
    ///
    /// When it had stopped of itself, or does not stop.
    pub async fn stop(self) -> Result<(), Failure> {
        let stopped: Result<Result<(), RunError>, _> =
            tokio::time::timeout(STOP_TIME, self.handle.shutdown()).await;
        let stopped = stopped.map_err(|_| Failure::new(format!("{} does not stop", self.name)))?;
        Ok(stopped?)
    }
}
