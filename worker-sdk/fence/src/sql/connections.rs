//! Connections that are used again.
//!
//! Not the driver's pool: that one asks the server twice around every use whether a connection still
//! works. Here a connection that has died is noticed by the call that uses it, which is safe to
//! repeat, and then all that are idle are closed. So a write takes one round trip.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::backend::{Connected, SqlBackend};
use super::call::Failure;

/// A bounded number of connections.
pub(super) struct Connections<B: SqlBackend> {
    backend: Arc<B>,
    slots: Semaphore,
    idle: Mutex<Idle<Connected<B>>>,
}

struct Idle<C> {
    connections: Vec<C>,
    /// Rises when a connection breaks: those opened before are not used again.
    generation: u64,
}

impl<B: SqlBackend> Connections<B> {
    pub(super) fn new(backend: Arc<B>, connections_max: u32) -> Self {
        let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX);
        Self {
            backend,
            slots: Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)),
            idle: Mutex::new(Idle {
                connections: Vec::new(),
                generation: 0,
            }),
        }
    }

    /// Takes a connection, and waits for one if all are taken.
    pub(super) async fn take(&self) -> Result<Taken<'_, B>, Failure> {
        let slot = self.slots.acquire().await;
        let slot = slot.map_err(|closed| Failure::NotReached(closed.into()))?;
        let (idle, generation) = {
            let mut idle = self.idle();
            (idle.connections.pop(), idle.generation)
        };
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let opened = self.backend.connect().await;
                opened.map_err(|error| Failure::NotReached(error.into()))?
            }
        };
        Ok(Taken {
            connection,
            abandoned: Abandoned {
                connections: self,
                generation,
                settled: false,
            },
            _slot: slot,
        })
    }

    fn idle(&self) -> MutexGuard<'_, Idle<Connected<B>>> {
        // A list is whole whatever happened to the thread that held the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped without being given back it is closed: what is still on its way
/// there belongs to nobody.
pub(super) struct Taken<'c, B: SqlBackend> {
    connection: Connected<B>,
    abandoned: Abandoned<'c, B>,
    _slot: SemaphorePermit<'c>,
}

impl<B: SqlBackend> Taken<'_, B> {
    /// Gives the connection back unless it broke, and passes the outcome on.
    pub(super) fn settle<T>(self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if !matches!(&outcome, Err(failure) if failure.breaks_connection()) {
            self.give_back();
        }
        outcome
    }

    /// Gives the connection back, to be used again.
    pub(super) fn give_back(mut self) {
        self.abandoned.settled = true;
        let mut idle = self.abandoned.connections.idle();
        if idle.generation == self.abandoned.generation {
            idle.connections.push(self.connection);
        }
    }
}

impl<B: SqlBackend> Deref for Taken<'_, B> {
    type Target = Connected<B>;

    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl<B: SqlBackend> DerefMut for Taken<'_, B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
}

/// Closes the idle connections when one was not given back: it broke, or nobody waited for its
/// answer. The server or the way to it may be gone, and with it the others; each would cost a caller
/// its deadline.
struct Abandoned<'c, B: SqlBackend> {
    connections: &'c Connections<B>,
    generation: u64,
    settled: bool,
}

impl<B: SqlBackend> Drop for Abandoned<'_, B> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut idle = self.connections.idle();
        if idle.generation == self.generation {
            idle.generation += 1;
            idle.connections.clear();
        }
    }
}
