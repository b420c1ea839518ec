//! What a log entry says beside its command, for people: when it was proposed, by whom and why.
//!
//! `ownership::apply` never sees it, so nothing can be decided by it. It goes with the entry to every
//! node, and from there with the events to watchers, to the log lines and into the history.

use std::sync::Arc;

/// When an entry was proposed, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Milliseconds since 1970 on the wall clock of the proposing node; 0 if it is not known.
    pub at_ms: u64,
    /// Who asked for it and why; `None` for what the cluster did by itself.
    pub origin: Option<Arc<Origin>>,
    /// What was asked for, in words, of an entry that carries no command: it tells of something that is
    /// done to the cluster itself and not by the log.
    pub operation: Option<Arc<str>>,
}

impl Envelope {
    /// Returns who asked for it; empty if nobody did, or did not say.
    #[must_use]
    pub fn by(&self) -> &str {
        self.origin.as_ref().map_or("", |origin| &origin.by)
    }

    /// Returns what was asked for; empty for an entry with a command.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.operation.as_deref().unwrap_or_default()
    }

    /// Returns why; empty if nobody said.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.origin.as_ref().map_or("", |origin| &origin.reason)
    }
}

/// Who asked for a change and why, in their own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Who, such as `alice@laptop`; may be empty. At most [`Origin::BY_BYTES_MAX`] bytes.
    pub by: String,
    /// Why; may be empty. At most [`Origin::REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

impl Origin {
    /// Longest name: a user, an `@` and a long host name.
    pub const BY_BYTES_MAX: usize = 128;

    /// Longest reason: one line for whoever looks for it at night.
    pub const REASON_BYTES_MAX: usize = 256;
}
