//! Connections that are used again, for drivers that bring no pool without a price.

use std::sync::{Mutex, PoisonError};

use cluster_tests::failure::Failure;
use tokio::sync::{Semaphore, SemaphorePermit};

/// As many connections as the store has.
pub(super) struct Connections<C> {
    slots: Semaphore,
    idle: Mutex<Vec<C>>,
}

impl<C> Connections<C> {
    pub(super) fn new(connections: Vec<C>) -> Self {
        Self {
            slots: Semaphore::new(connections.len()),
            idle: Mutex::new(connections),
        }
    }

    /// Takes a connection, and waits for one if all are taken.
    pub(super) async fn take(&self) -> Result<(C, SemaphorePermit<'_>), Failure> {
        let slot = self.slots.acquire().await?;
        let taken = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = taken.ok_or_else(|| Failure::new("no connection is left"))?;
        Ok((connection, slot))
    }

    /// Gives a connection back that works.
    pub(super) fn give_back(&self, connection: C) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
    }
}
