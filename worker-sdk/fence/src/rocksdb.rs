//! A store in a RocksDB database of this process.

mod contents;
mod stripes;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{RwLock, Semaphore};

use crate::admission::Fence;
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::{CheckpointError, StoreError};
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use contents::Contents;

/// How many resources one batch of [`RocksStore::seal_many`] seals. While it does, no other write
/// to them, or to resources that share a lock with them, goes on.
const SEALS_IN_BATCH: usize = 512;

/// How many calls may wait for the disk at once: half of the threads that tokio has for such work. A
/// disk that hangs keeps each of them, with its value, until it goes on; the calls beyond give up.
const CALLS_MAX: usize = 256;

/// A store in a RocksDB database of this process: the default for one machine.
///
/// # How it fences
///
/// RocksDB lets one process at a time open a database, and this store is the only one in that
/// process. So a lock in memory, taken for the resource, makes reading the fence, deciding and
/// writing one step. The fence and the latest sequence are remembered, so that a write reads nothing,
/// and are kept apart from the data, so that it puts one value: it costs what the same unfenced
/// write costs. Writes that come at the same time share a sync of the disk.
///
/// # What it promises
///
/// What was acknowledged outlives a crash of the process and of the machine: every seal, write and
/// deletion is synced to the write-ahead log first. A log that is damaged before its end is refused
/// when the database is opened; RocksDB's default would drop the damaged part, and fences with it,
/// in silence.
///
/// # What it does not promise
///
/// It is as durable as its disk, and on one machine: a shard that moves to another machine does not
/// find its checkpoint there. A copy of the folder that is put back brings back the fences it had;
/// tokens granted since then are above them and raise them again, but those between are not refused.
/// A tool that opens the database for writing while the process is down can do as it likes.
#[derive(Clone)]
pub struct RocksStore {
    // Shared by all calls; alone only for whoever closes it, and `None` from then on.
    contents: Arc<RwLock<Option<Contents>>>,
    /// Each is held by a call that waits for the disk, whether or not it is still waited for.
    turns: Arc<Semaphore>,
    deadline: Duration,
    max_value_bytes: usize,
}

/// How a [`RocksStore`] is opened.
#[derive(Clone, Debug)]
pub struct RocksStoreOptions {
    /// The longest a call waits for the disk. 10 seconds by default.
    ///
    /// A call that takes longer is answered `OutcomeUnknown` (a read `Unavailable`) but goes on: work
    /// on a disk cannot be taken back. One whose turn has not come by then is answered `Unavailable`.
    pub deadline: Duration,
    /// The largest value, in bytes, inclusive. 64 MiB by default. Larger state belongs into files of
    /// its own, named by the checkpoint.
    pub max_value_bytes: usize,
    /// Size of the buffer in memory that is written to a file when it is full, in bytes. 32 MiB by
    /// default.
    pub write_buffer_bytes: usize,
}

impl Default for RocksStoreOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            max_value_bytes: 64 << 20,
            write_buffer_bytes: 32 << 20,
        }
    }
}

impl fmt::Debug for RocksStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RocksStore")
            .field("deadline", &self.deadline)
            .field("max_value_bytes", &self.max_value_bytes)
            .finish_non_exhaustive()
    }
}

impl RocksStore {
    /// Opens the database in a folder, which is created if it is not there.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unavailable`] when the database cannot be opened: another process has it
    /// open, or it is damaged. [`CheckpointError::Unsupported`] when it holds something else, or was
    /// written by a newer version.
    pub async fn open(
        folder: impl Into<PathBuf>,
        options: RocksStoreOptions,
    ) -> Result<Self, CheckpointError> {
        let folder = folder.into();
        let (deadline, max_value_bytes) = (options.deadline, options.max_value_bytes);
        let opening = tokio::task::spawn_blocking(move || Contents::open(&folder, &options));
        let contents = match opening.await {
            Ok(opened) => opened?,
            Err(source) => return Err(CheckpointError::unavailable(source)),
        };
        let store = Self {
            contents: Arc::new(RwLock::new(Some(contents))),
            turns: Arc::new(Semaphore::new(CALLS_MAX)),
            deadline,
            max_value_bytes,
        };
        store.probe().await?;
        Ok(store)
    }

    /// Closes the database, so that it can be opened again: waits for the calls that are running, also
    /// for those that were answered at their deadline. Calls that come later are answered
    /// `Unavailable`.
    ///
    /// A store that is dropped closes its database too, when the last of its calls has ended.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unavailable`] when the runtime stops before the database is closed.
    pub async fn close(&self) -> Result<(), CheckpointError> {
        let contents = self.contents.write().await.take();
        let closing = tokio::task::spawn_blocking(move || drop(contents));
        closing.await.map_err(CheckpointError::unavailable)
    }

    /// Returns resources and their fences in the order of their names: at most `limit`, of those
    /// after `after`, or from the first.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] when a fence cannot be read, or `Unavailable`.
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let after = after.cloned();
        self.read_with(move |contents| contents.list(after.as_ref(), limit))
            .await
    }

    /// Does something that changes nothing.
    async fn read_with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Contents) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.on_disk(work)
            .await
            .unwrap_or_else(|source| Err(CheckpointError::unavailable(source)))
    }

    /// Does something that changes the database.
    async fn change_with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Contents) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.on_disk(work)
            .await
            .unwrap_or_else(|source| Err(CheckpointError::unknown(source)))
    }

    /// Runs `work` where it may wait for the disk; the error says that it was not waited for to its end.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Contents) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<Result<T, CheckpointError>, StoreError> {
        let has_begun = AtomicBool::new(false);
        let done = tokio::time::timeout(self.deadline, async {
            // Both may be kept by calls that hang: the second by one that closes the store.
            let turn = self.turns.clone().acquire_owned().await?;
            let contents = self.contents.clone().read_owned().await;
            has_begun.store(true, Ordering::Relaxed);
            let running = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                match &*contents {
                    Some(contents) => work(contents),
                    None => Err(CheckpointError::unavailable("the store is closed")),
                }
            });
            Ok::<_, StoreError>(running.await?)
        });
        match done.await {
            Ok(done) => done,
            Err(elapsed) if has_begun.into_inner() => Err(elapsed.into()),
            Err(elapsed) => Ok(Err(CheckpointError::unavailable(elapsed))),
        }
    }
}

#[async_trait]
impl CheckpointStore for RocksStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let token = token.clone();
        self.change_with(move |contents| contents.seal(&token))
            .await
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let mut answers = Vec::with_capacity(tokens.len());
        for batch in tokens.chunks(SEALS_IN_BATCH) {
            let tokens = batch.to_vec();
            let sealed = self
                .change_with(move |contents| Ok(contents.seal_batch(&tokens)))
                .await;
            match sealed {
                Ok(sealed) => answers.extend(sealed),
                // Only the wait for the whole batch fails as a whole.
                Err(error) => answers.extend(batch.iter().map(|_| Err(copy(&error)))),
            }
        }
        answers
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes())?;
        let token = token.clone();
        self.change_with(move |contents| contents.write(&token, write))
            .await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let resource = resource.clone();
        self.read_with(move |contents| contents.read(&resource))
            .await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let resource = resource.clone();
        self.read_with(move |contents| contents.fence(&resource))
            .await
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let token = token.clone();
        self.change_with(move |contents| contents.delete(&token, deletion))
            .await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.read_with(Contents::probe).await
    }

    fn max_value_bytes(&self) -> usize {
        self.max_value_bytes
    }
}

/// Says again that something could not be waited for, or done.
fn copy(error: &CheckpointError) -> CheckpointError {
    let reason = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    if error.may_have_happened() {
        return CheckpointError::unknown(reason);
    }
    CheckpointError::unavailable(reason)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sequence::{Sequence, WriteId};

    const DEADLINE: Duration = Duration::from_millis(200);

    /// Far longer than any call may take.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn open(folder: &tempfile::TempDir) -> RocksStore {
        let options = RocksStoreOptions {
            deadline: DEADLINE,
            ..RocksStoreOptions::default()
        };
        RocksStore::open(folder.path(), options).await.unwrap()
    }

    fn token() -> FencingToken {
        "shard/orders/7@7:00000000000000000000000000c0ffee/1"
            .parse()
            .unwrap()
    }

    fn write() -> Write {
        Write {
            sequence: Sequence::FIRST,
            write_id: WriteId::new(1),
            data: "x".into(),
        }
    }

    /// Requires that every call is answered, and says that nothing was begun.
    async fn answers_that_nothing_was_begun(store: &RocksStore) {
        let calls = async {
            [
                store.seal(&token()).await.map(drop),
                store.write(&token(), write()).await,
                store.read(&token().resource).await.map(drop),
            ]
        };
        for answer in tokio::time::timeout(PATIENCE, calls).await.unwrap() {
            assert!(
                matches!(answer, Err(CheckpointError::Unavailable { .. })),
                "{answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_disk_that_hangs_while_the_store_is_being_closed_keeps_no_call_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder).await;
        let (release, hanging) = mpsc::sync_channel::<()>(0);
        let hangs = store.change_with(move |_| {
            let _released = hanging.recv();
            Ok(())
        });
        // What hangs goes on after its deadline.
        let given_up = hangs.await;
        assert!(matches!(
            given_up,
            Err(CheckpointError::OutcomeUnknown { .. })
        ));
        let closing = tokio::spawn({
            let store = store.clone();
            async move { store.close().await }
        });
        // Until the one that closes waits: from then on nobody else comes in before it.
        while store.contents.try_read().is_ok() {
            tokio::task::yield_now().await;
        }
        answers_that_nothing_was_begun(&store).await;
        drop(release);
        closing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn calls_beyond_those_that_a_hanging_disk_keeps_are_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder).await;
        store.seal(&token()).await.unwrap();
        let all = u32::try_from(CALLS_MAX).unwrap();
        let kept = store.turns.try_acquire_many(all).unwrap();
        answers_that_nothing_was_begun(&store).await;
        drop(kept);
        store.write(&token(), write()).await.unwrap();
        store.close().await.unwrap();
    }
}
