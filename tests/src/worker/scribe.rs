//! A handler that writes all the time, and goes on writing when it must not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use tenure::{
    CheckpointError, CheckpointStore, HeldShard, ShardError, ShardHandler, WorkerError, Write,
    WriteId,
};
use tokio_util::task::TaskTracker;

use super::belief::Watched;
use super::recorded::RecordedStore;
use super::report::Reports;

/// Spans of belief are reported in pieces of this length, so that a killed process leaves most of them.
const SPAN_MAX: Duration = Duration::from_millis(50);

/// Writes with the token of a tenure that is over, to each store.
const HAUNTS: u32 = 3;

/// Longest time before each of them.
const HAUNT_DELAY_MAX: Duration = Duration::from_secs(2);

/// Writes to every store of every shard it is given. After the end of a tenure it presents the token a
/// few times more, past the SDK, which would not let it: whoever sealed since must not notice.
#[derive(Clone)]
pub struct Scribe {
    stores: Arc<[Arc<RecordedStore>]>,
    interval: Duration,
    watched: Watched,
    haunting: TaskTracker,
}

impl Scribe {
    /// Creates a scribe that writes to each store of a shard once in `interval`.
    #[must_use]
    pub fn new(stores: impl IntoIterator<Item = Arc<RecordedStore>>, interval: Duration) -> Self {
        Self {
            stores: stores.into_iter().collect(),
            interval,
            watched: Watched::in_pieces(SPAN_MAX),
            haunting: TaskTracker::new(),
        }
    }

    /// Reports what is believed of the shards, until it is dropped.
    pub async fn watch_belief(&self) {
        self.watched.clone().run(Reports).await;
    }

    async fn serve(&self, shard: &HeldShard) -> Result<(), ShardError> {
        shard.claim_all().await?;
        let writing = self
            .stores
            .iter()
            .map(|store| self.write_for_ever(shard, store.name()));
        futures::future::try_join_all(writing).await.map(drop)
    }

    /// Writes to one store until the shard is revoked.
    async fn write_for_ever(&self, shard: &HeldShard, store: &str) -> Result<(), ShardError> {
        let mut count: u64 = 0;
        // Not all at once, or the log takes all shards in one batch.
        let mut pause = self.interval.mul_f64(rand::random());
        while shard
            .until_revoked(tokio::time::sleep(pause))
            .await?
            .is_some()
        {
            pause = self.interval;
            count += 1;
            match shard.write_to(store, content(shard, count)).await {
                Ok(()) => {}
                // The next write has a higher sequence, so it is another one.
                Err(ShardError::Store { source, .. }) if source.is_retryable() => {}
                Err(ShardError::Store {
                    source: CheckpointError::SequenceReused { .. },
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes with a token whose tenure is over, or is about to be.
    fn haunt(&self, shard: &HeldShard) {
        for store in self.stores.iter() {
            let (store, shard) = (Arc::clone(store), shard.clone());
            self.haunting.spawn(async move {
                for count in 1..=HAUNTS {
                    let delay = HAUNT_DELAY_MAX.mul_f64(rand::random());
                    tokio::time::sleep(delay).await;
                    let Some(sequence) = store.next_sequence(shard.token()) else {
                        return;
                    };
                    let write = Write {
                        sequence,
                        write_id: WriteId::new(rand::rng().random()),
                        data: format!("{} from beyond, {count}", shard.token()).into(),
                    };
                    // Whatever it is answered is in the history.
                    let _answer = store.write(shard.token(), write).await;
                }
            });
        }
    }
}

impl ShardHandler for Scribe {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        self.watched.add(&shard);
        let outcome = self.serve(&shard).await;
        self.haunt(&shard);
        Ok(outcome?)
    }
}

fn content(shard: &HeldShard, count: u64) -> Bytes {
    format!("{} {count}", shard.token()).into()
}
