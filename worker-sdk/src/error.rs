//! What a worker and its handlers are told when something cannot go on.

use std::error::Error;
use std::fmt;

use tenure_fence::{CheckpointError, Epoch, NameError};

use crate::connection::CallError;

/// Why a handle is dead. It stays dead: every call on it fails at once, for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The handler returned, and the shard was given back.
    #[error("the shard was released")]
    Released,
    /// A store refused the token: a newer tenure has begun.
    #[error("store {store} is fenced by epoch {current}")]
    Fenced {
        /// The store.
        store: String,
        /// The epoch that is current there.
        current: Epoch,
    },
    /// A store is sealed with the same epoch by another owner.
    #[error("store {store} has the epoch of another owner")]
    EpochConflict {
        /// The store.
        store: String,
    },
    /// A store had a fence above the epoch that was granted. The shard is granted anew, above it.
    #[error("store {store} is ahead: its fence is at {fence}")]
    StoreAhead {
        /// The store.
        store: String,
        /// The fence found there.
        fence: Epoch,
    },
    /// A store forgot a fence it had: it was restored to an older state, and so was its data.
    #[error("store {store} fell back: epoch {recorded} had been sealed there, it is at {found}")]
    StoreRegressed {
        /// The store.
        store: String,
        /// The highest epoch that was ever reported ready with it.
        recorded: Epoch,
        /// The fence found there; 0 if there was none.
        found: u64,
    },
    /// No heartbeat was acknowledged for as long as the session lives.
    #[error("the lease ended")]
    LeaseEnded,
    /// The shard was revoked and the handler did not return in time.
    #[error("the time to drain was over")]
    DrainDeadline,
    /// The coordinator says that the tenure is over.
    #[error("the coordinator ended the tenure")]
    Ended,
    /// A newer tenure of the shard was granted to this same worker.
    #[error("the shard was granted anew at epoch {epoch}")]
    GrantedAnew {
        /// The newer epoch.
        epoch: Epoch,
    },
    /// The session ended.
    #[error("the session ended")]
    SessionEnded,
    /// A newer process registered under the worker's name.
    #[error("a newer process replaced the worker")]
    Replaced,
    /// The worker stopped before the handler returned.
    #[error("the worker stopped")]
    Stopped,
}

/// Why a call on a [`HeldShard`](crate::HeldShard) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The handle is dead. Return from the handler; another one is started if the shard is granted
    /// again.
    #[error("the shard is lost")]
    Lost(#[source] LostReason),

    /// It cannot be said at this moment that no other worker owns the shard, so an answer from what
    /// was read must not be given. Writes go on: the store decides. Try again, or send the client
    /// elsewhere.
    #[error("the shard is at risk: no heartbeat was acknowledged lately")]
    AtRisk,

    /// The store did not, or may not have, done what it was asked to. What to do next depends on the
    /// kind: see [`CheckpointError`].
    #[error("checkpoint store {store} reports a failure")]
    Store {
        /// The store.
        store: String,
        /// What it said.
        #[source]
        source: CheckpointError,
    },

    /// The shard was not claimed yet: seal first, read second, write third.
    #[error("the shard is not claimed")]
    NotClaimed,

    /// No store of that name is attached to the worker.
    #[error("no store is named {store}")]
    UnknownStore {
        /// The name.
        store: String,
    },

    /// All sequences of the epoch are used.
    #[error("the sequences of the tenure are used up")]
    SequencesExhausted,

    /// The coordinator could not be asked, or not answer.
    #[error("the coordinator does not answer")]
    Coordinator(#[source] CallError),
}

impl ShardError {
    /// Returns whether the handle is dead, so that no call on it can succeed any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// What a handler ends with when it cannot go on: any error, boxed.
///
/// Everything that is an error becomes one with `?`, and so does text with [`WorkerError::new`]. The
/// shard is given back and the text, up to 256 bytes of it, is shown to operators.
///
/// ```
/// use tenure::WorkerError;
///
/// fn parse(text: &str) -> Result<u64, WorkerError> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// assert_eq!(WorkerError::new("no input").to_string(), "no input");
/// ```
pub struct WorkerError(Box<dyn Error + Send + Sync>);

impl WorkerError {
    /// Creates an error from text or from another error.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// Returns the error itself.
    #[must_use]
    pub fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }

    /// Returns the messages of the error and its sources, outermost first, separated by ": ".
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        text
    }
}

// WorkerError itself is no std::error::Error, or this would collide with `From<T> for T`.
impl<E: Error + Send + Sync + 'static> From<E> for WorkerError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for WorkerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Why a worker cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No coordinator address was given.
    #[error("no coordinator address is given")]
    NoAddress,
    /// The group has no name, or an unacceptable one.
    #[error("the group's name is not acceptable")]
    Group(#[source] NameError),
    /// The worker has no name, or an unacceptable one.
    #[error("a worker name is 1 to 128 bytes of printable ASCII without spaces, not {name:?}")]
    Name {
        /// The name that was given.
        name: String,
    },
    /// No handler was given.
    #[error("no handler is given")]
    NoHandler,
    /// Two stores have one name, there are too many, or a name is unacceptable.
    #[error("stores need 1 to 16 different names of 1 to 64 bytes, {name:?} is not one")]
    Store {
        /// The name that is in the way.
        name: String,
    },
    /// A setting is out of bounds.
    #[error("{field} is out of bounds, allowed is {allowed}")]
    OutOfBounds {
        /// The setting.
        field: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// An address or a certificate cannot be used.
    #[error("the connection cannot be set up")]
    Connection(#[source] crate::connection::ConnectionError),
}

/// Why a worker stopped although it was not asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A newer process registered under the worker's name. Do not start again under it: the two would
    /// only take turns.
    #[error("a newer process registered as {worker}")]
    Replaced {
        /// The name.
        worker: String,
    },
    /// The coordinator refuses the registration, and would again: a field is out of bounds, or the
    /// worker may not. A group that does not exist is no such reason: the worker waits for it.
    #[error("the coordinator refuses the registration: {message}")]
    Refused {
        /// The machine-readable reason; empty if there is none.
        reason: String,
        /// What the coordinator said.
        message: String,
    },
    /// A task of the worker panicked.
    #[error("a task of the worker panicked")]
    Panicked,
}
