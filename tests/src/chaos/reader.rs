//! Reads of this process: what the registers hold, asked by somebody who owns nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tenure::{CheckpointStore, Resource};
use tenure_fence::sqlx::sqlite::SqliteConnectOptions;
use tenure_fence::{SqlOptions, SqliteStore};
use tenure_proto::v1::Checkpoint;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::check::READER;
use super::lines::LineFile;
use super::{GROUP, SHARDS};
use crate::client::Client;
use crate::failure::Failure;
use crate::worker::{Answer, Asked, CallLog, Content, RecordedStore};

/// Time between two reads.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long a read may take while things go wrong.
const READ_TIME: Duration = Duration::from_secs(3);

/// Reads shards at random until it is told to stop.
#[derive(Debug)]
pub(super) struct Reader {
    stop: CancellationToken,
    reading: JoinHandle<()>,
    reads: Reads,
}

/// How registers are read.
#[derive(Clone)]
struct Reads {
    client: Client,
    log: Arc<CallLog>,
    sqlite: Arc<RecordedStore>,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reads").finish_non_exhaustive()
    }
}

impl Reader {
    /// Begins to read, and to put it down in a file of the history.
    ///
    /// # Errors
    ///
    /// When the file, or the store, cannot be opened.
    pub(super) async fn start(
        client: &Client,
        sqlite: &Path,
        histories: &Path,
    ) -> Result<Self, Failure> {
        let file = LineFile::open(histories, READER)?;
        let log = Arc::new(CallLog::new(move |report| file.add(report)));
        let connect = SqliteConnectOptions::new().filename(sqlite);
        let store = Arc::new(SqliteStore::open(connect, SqlOptions::default()).await?);
        let reads = Reads {
            client: client.clone(),
            sqlite: Arc::new(RecordedStore::new("sqlite", store, Arc::clone(&log))),
            log,
        };
        let stop = CancellationToken::new();
        let reading = tokio::spawn(read_at_random(reads.clone(), stop.clone()));
        Ok(Self {
            stop,
            reading,
            reads,
        })
    }

    /// Stops, and reads everything once more. When nobody writes any more this is what must be left of
    /// all that was acknowledged.
    ///
    /// # Errors
    ///
    /// When something cannot be read although nothing goes wrong any more.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        self.stop.cancel();
        self.reading.await?;
        for shard in 0..SHARDS {
            self.reads.replicated(shard).await?;
            self.reads.sqlite(shard).await?;
        }
        Ok(())
    }
}

impl Reads {
    /// Reads from the replicated store, after a round that a quorum answered.
    async fn replicated(&self, shard: u32) -> Result<(), Failure> {
        let call = self.log.called("replicated", shard, None, Asked::Read);
        let found = self.checkpoint(shard).await?;
        let content = found.map(|found| {
            let id = <[u8; 16]>::try_from(found.write_id.as_ref()).map(u128::from_be_bytes)?;
            Ok::<_, std::array::TryFromSliceError>(Content {
                epoch: found.epoch,
                sequence: found.sequence,
                write_id: format!("{id:032x}"),
                data: String::from_utf8_lossy(&found.data).into_owned(),
            })
        });
        let content = content.transpose()?;
        self.log.answered(call, Answer::Found { content });
        Ok(())
    }

    /// Asks one node after the other until one can say what a quorum knows.
    async fn checkpoint(&self, shard: u32) -> Result<Option<Checkpoint>, Failure> {
        let mut said = Failure::new("there is no node");
        for address in self.client.addresses() {
            match self.client.checkpoint_at(address, GROUP, shard).await {
                Ok(found) => return Ok(found),
                Err(status) => said = Failure::from(status).during(address),
            }
        }
        Err(said)
    }

    async fn sqlite(&self, shard: u32) -> Result<(), Failure> {
        let resource: Resource = format!("shard/{GROUP}/{shard}").parse()?;
        self.sqlite.read(&resource).await?;
        Ok(())
    }
}

async fn read_at_random(reads: Reads, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _tick = ticks.tick() => {}
        }
        let shard = rand::rng().random_range(0..SHARDS);
        let replicated = rand::random();
        let reading = async {
            match replicated {
                true => reads.replicated(shard).await,
                false => reads.sqlite(shard).await,
            }
        };
        // A read that fails, or is given up, says nothing.
        let _answer = tokio::time::timeout(READ_TIME, reading).await;
    }
}
