//! The request of a stream to a peer that waits for its answer.

use tokio::sync::watch;

use super::runtime::{self, Moment};

/// When the request that is not answered yet was sent: one at most, on a stream. While it waits entries
/// gather, and the next request takes them all: under load a follower syncs once for many.
pub(super) struct Unanswered {
    since: watch::Sender<Option<Moment>>,
}

impl Unanswered {
    /// Begins with none.
    pub(super) fn new() -> Self {
        Self {
            since: watch::Sender::new(None),
        }
    }

    /// Notes that a request is sent now.
    pub(super) fn sent(&self) {
        self.since.send_replace(Some(runtime::now()));
    }

    /// Notes that it was answered.
    pub(super) fn answered(&self) {
        self.since.send_replace(None);
    }

    /// Returns when the request that waits was sent.
    pub(super) fn since(&self) -> Option<Moment> {
        *self.since.borrow()
    }

    /// Waits until a request waits.
    pub(super) async fn is_sent(&self) {
        self.until(Option::is_some).await;
    }

    /// Waits until none does.
    pub(super) async fn is_answered(&self) {
        self.until(Option::is_none).await;
    }

    async fn until(&self, is: fn(&Option<Moment>) -> bool) {
        let mut since = self.since.subscribe();
        // No error: its sender is here.
        drop(since.wait_for(is).await);
    }
}
