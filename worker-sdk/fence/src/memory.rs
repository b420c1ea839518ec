//! A store in the memory of this process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::admission::{Fence, Refusal};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::record::Record;
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// A store in the memory of this process, for tests and demonstrations.
///
/// It keeps the whole contract but outlives nothing: what ends with the process is the fence as well
/// as the data. It counts what it refuses, so that a demonstration can show it.
///
/// ```
/// use tenure_fence::{
///     CheckpointError, CheckpointStore, FencingToken, MemoryStore, Sequence, Write, WriteId,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let old: FencingToken = "shard/orders/7@7:00000000000000000000000000c0ffee/917".parse()?;
/// let new: FencingToken = "shard/orders/7@8:00000000000000000000000000c0ffee/944".parse()?;
/// let first = Write {
///     sequence: Sequence::FIRST,
///     write_id: WriteId::new(1),
///     data: "offset 490".into(),
/// };
///
/// store.seal(&old).await?;
/// store.write(&old, first.clone()).await?;
///
/// // The shard is granted to another worker. It seals, and the same step tells it where to go on.
/// let checkpoint = store.seal(&new).await?.ok_or("nothing was written")?;
/// assert_eq!(checkpoint.data, "offset 490");
///
/// // The old owner wakes up and goes on where it stopped.
/// let late = Write { sequence: Sequence::new(2).ok_or("range")?, write_id: WriteId::new(2), ..first };
/// let refused = store.write(&old, late).await;
/// assert!(matches!(refused, Err(CheckpointError::Fenced { .. })));
/// assert_eq!(store.refusals().fenced, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    max_value_bytes: usize,
    // Never held across an await. All of the store under one lock is what makes check and write one
    // step; a store for tests needs no finer one.
    contents: Mutex<Contents>,
}

/// How many writes and deletions a [`MemoryStore`] has refused, by reason. Seals are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The epoch was below the fence: the writes of owners that had been replaced.
    pub fenced: u64,
    /// The epoch was above the fence.
    pub not_sealed: u64,
    /// The epoch was another owner's.
    pub epoch_conflict: u64,
    /// The sequence was used or too low.
    pub sequence_reused: u64,
}

#[derive(Debug, Default)]
struct Contents {
    /// What is kept for each resource; nothing before its first seal.
    records: BTreeMap<Resource, Record>,
    refusals: Refusals,
}

impl MemoryStore {
    /// The largest value unless another limit is set: 1 MiB, like the replicated store's, so that
    /// what works in a test works there.
    pub const MAX_VALUE_BYTES_DEFAULT: usize = 1024 * 1024;

    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_value_bytes(Self::MAX_VALUE_BYTES_DEFAULT)
    }

    /// Creates an empty store that takes values of up to `max_value_bytes`, inclusive.
    #[must_use]
    pub fn with_max_value_bytes(max_value_bytes: usize) -> Self {
        Self {
            max_value_bytes,
            contents: Mutex::default(),
        }
    }

    /// Returns how many writes and deletions were refused so far.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.contents().refusals
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Nothing between taking and giving back the lock can panic half way through a change, so
        // the contents are whole even if a thread died elsewhere with the lock in its hands.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Contents {
    fn seal(&mut self, token: &FencingToken) -> Result<Option<Checkpoint>, Refusal> {
        self.change(token, |record| Record::seal(record, token))?;
        let record = self.records.get(&token.resource);
        Ok(record.and_then(|record| record.checkpoint.clone()))
    }

    fn write(&mut self, token: &FencingToken, write: Write) -> Result<(), Refusal> {
        self.change(token, |record| Record::write(record, token, write))
    }

    fn delete(&mut self, token: &FencingToken, deletion: Deletion) -> Result<(), Refusal> {
        let deletion = (deletion.sequence, deletion.write_id);
        self.change(token, |record| Record::delete(record, token, deletion))
    }

    fn change(
        &mut self,
        token: &FencingToken,
        decide: impl FnOnce(Option<&Record>) -> Result<Option<Record>, Refusal>,
    ) -> Result<(), Refusal> {
        if let Some(changed) = decide(self.records.get(&token.resource))? {
            self.records.insert(token.resource.clone(), changed);
        }
        Ok(())
    }
}

impl Refusals {
    fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Fenced { .. } => self.fenced += 1,
            Refusal::NotSealed => self.not_sealed += 1,
            Refusal::EpochConflict => self.epoch_conflict += 1,
            Refusal::SequenceReused { .. } | Refusal::SequenceTooLow { .. } => {
                self.sequence_reused += 1;
            }
        }
    }
}

#[async_trait]
impl CheckpointStore for MemoryStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        self.contents()
            .seal(token)
            .map_err(|refusal| CheckpointError::refused(token, refusal))
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes)?;
        let mut contents = self.contents();
        let written = contents.write(token, write);
        written
            .inspect_err(|&refusal| contents.refusals.count(refusal))
            .map_err(|refusal| CheckpointError::refused(token, refusal))
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        Ok(self
            .contents()
            .records
            .get(resource)
            .and_then(|record| record.checkpoint.clone()))
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        Ok(self
            .contents()
            .records
            .get(resource)
            .map(|record| record.fence))
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let mut contents = self.contents();
        let deleted = contents.delete(token, deletion);
        deleted
            .inspect_err(|&refusal| contents.refusals.count(refusal))
            .map_err(|refusal| CheckpointError::refused(token, refusal))
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn max_value_bytes(&self) -> usize {
        self.max_value_bytes
    }
}
