//! The history of this node: read by whoever asks, pruned in the background.

use std::sync::Arc;
use std::time::Duration;

use tenure_ownership::ids::{GroupId, ShardIndex};
use tokio_util::sync::CancellationToken;

use super::handle::Consensus;
use super::runtime::blocking;
use crate::history::{self, HistoryOptions, Page, Query, Reader, ShardHistory};
use crate::storage::{Storage, StorageError};
use crate::wall_clock::WallClock;

/// How often is looked for what is too old. What is kept is a matter of days.
const INTERVAL: Duration = Duration::from_secs(60);

/// Pause between two steps, so that what is applied is held up by one of them at most.
const STEP_PAUSE: Duration = Duration::from_millis(100);

impl Consensus {
    /// Returns what happened, as this node knows it.
    ///
    /// # Errors
    ///
    /// [`StorageError`] if it cannot be read.
    pub async fn history(&self, query: Query) -> Result<Page, StorageError> {
        self.read_history(move |reader| reader.page(&query)).await
    }

    /// Returns the latest tenures of a shard, up to a limit, as this node knows them.
    ///
    /// # Errors
    ///
    /// [`StorageError`] if they cannot be read.
    pub async fn shard_history(
        &self,
        group: GroupId,
        shard: ShardIndex,
        limit: usize,
    ) -> Result<ShardHistory, StorageError> {
        self.read_history(move |reader| reader.tenures((group, shard), limit))
            .await
    }

    async fn read_history<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader<'_>) -> Result<R, StorageError> + Send + 'static,
    ) -> Result<R, StorageError> {
        let shared = self.running().map(|running| Arc::clone(&running.shared));
        let Some(shared) = shared else {
            return Err(StorageError::Io {
                operation: "read the history",
                source: std::io::Error::other("this node is not part of a cluster yet"),
            });
        };
        blocking(move || shared.history(read))
            .await
            .map_err(|source| StorageError::Io {
                operation: "read the history",
                source,
            })?
    }
}

/// Prunes the history until told to stop.
pub(super) struct Pruner {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: HistoryOptions,
    pub(super) wall_clock: Arc<dyn WallClock>,
    pub(super) stop: CancellationToken,
}

impl Pruner {
    pub(super) async fn run(self) {
        let stop = self.stop.clone();
        let _ = stop.run_until_cancelled(self.prune()).await;
    }

    async fn prune(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            while self.step().await {
                tokio::time::sleep(STEP_PAUSE).await;
            }
        }
    }

    /// Removes the oldest segment, if it is time to. Returns whether it did.
    async fn step(&self) -> bool {
        let (storage, options) = (Arc::clone(&self.storage), self.options);
        let now_ms = self.wall_clock.now_ms();
        let step = move || history::prune_step(storage.as_ref(), &options, now_ms);
        let pruned = blocking(step).await.map_err(|source| StorageError::Io {
            operation: "prune the history",
            source,
        });
        match pruned.and_then(|pruned| pruned) {
            Ok(pruned) => pruned,
            // Tried again at the next interval; whoever applies notices a storage that fails.
            Err(error) => {
                tracing::warn!(%error, "history cannot be pruned");
                false
            }
        }
    }
}
