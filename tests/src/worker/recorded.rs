//! A store whose calls are put down before they are made and after they are answered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, FencingToken, Resource, Sequence, Write,
};
use tenure_fence::Fence;

use super::call::{Answer, Asked};
use super::report::{Report, now_ns};

/// Where calls are put down.
type Sink = Box<dyn Fn(&Report) + Send + Sync>;

/// Puts down the calls of one process.
pub struct CallLog {
    sink: Sink,
    calls: AtomicU64,
}

impl fmt::Debug for CallLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CallLog").finish_non_exhaustive()
    }
}

impl CallLog {
    /// Creates a log that hands every line to `sink`, which must have kept it when it returns.
    #[must_use]
    pub fn new(sink: impl Fn(&Report) + Send + Sync + 'static) -> Self {
        Self {
            sink: Box::new(sink),
            calls: AtomicU64::new(0),
        }
    }

    /// Puts down that a call is about to be made, and returns its number. One that is never answered may
    /// have happened.
    pub fn called(
        &self,
        store: &str,
        shard: u32,
        token: Option<&FencingToken>,
        asked: Asked,
    ) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        (self.sink)(&Report::Called {
            call,
            store: store.to_owned(),
            shard,
            token: token.map(ToString::to_string),
            at_ns: now_ns(),
            asked,
        });
        call
    }

    /// Puts down an answer.
    pub fn answered(&self, call: u64, answer: Answer) {
        let at_ns = now_ns();
        (self.sink)(&Report::Answered {
            call,
            at_ns,
            answer,
        });
    }
}

/// A store whose calls are put down. Everything is passed on as it is.
pub struct RecordedStore {
    name: String,
    store: Arc<dyn CheckpointStore>,
    log: Arc<CallLog>,
    /// The highest sequence that was presented with each token.
    // Never held across an await.
    sequences: Mutex<BTreeMap<String, Sequence>>,
}

impl RecordedStore {
    /// Puts a log before a store that is called `name` in the history.
    #[must_use]
    pub fn new(name: &str, store: Arc<dyn CheckpointStore>, log: Arc<CallLog>) -> Self {
        let sequences = Mutex::default();
        Self {
            name: name.to_owned(),
            store,
            log,
            sequences,
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a sequence that was not presented with this token.
    #[must_use]
    pub fn next_sequence(&self, token: &FencingToken) -> Option<Sequence> {
        match self.sequences().get(&token.to_string()) {
            Some(sequence) => sequence.next(),
            None => Some(Sequence::FIRST),
        }
    }

    fn called(&self, token: &FencingToken, asked: Asked) -> u64 {
        let shard = shard_of(&token.resource);
        self.log.called(&self.name, shard, Some(token), asked)
    }

    fn sealed(&self, call: u64, sealed: &Result<Option<Checkpoint>, CheckpointError>) {
        let answer = Answer::of(sealed, |found| Answer::found(found.clone()));
        self.log.answered(call, answer);
    }

    fn sequences(&self) -> MutexGuard<'_, BTreeMap<String, Sequence>> {
        // Every change is whole before the lock is given back.
        self.sequences
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CheckpointStore for RecordedStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = self.called(token, Asked::Seal);
        let sealed = self.store.seal(token).await;
        self.sealed(call, &sealed);
        sealed
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let calls: Vec<u64> = tokens
            .iter()
            .map(|token| self.called(token, Asked::Seal))
            .collect();
        let sealed = self.store.seal_many(tokens).await;
        for (call, sealed) in calls.into_iter().zip(&sealed) {
            self.sealed(call, sealed);
        }
        sealed
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        {
            let mut sequences = self.sequences();
            let highest = sequences.entry(token.to_string()).or_insert(write.sequence);
            *highest = (*highest).max(write.sequence);
        }
        let asked = Asked::write(write.sequence, write.write_id, &write.data);
        let call = self.called(token, asked);
        let written = self.store.write(token, write).await;
        self.log
            .answered(call, Answer::of(&written, |()| Answer::Done));
        written
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = self
            .log
            .called(&self.name, shard_of(resource), None, Asked::Read);
        let found = self.store.read(resource).await;
        let answer = Answer::of(&found, |found| Answer::found(found.clone()));
        self.log.answered(call, answer);
        found
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        self.store.fence(resource).await
    }

    /// Not put down: nothing in a history is deleted.
    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        self.store.delete(token, deletion).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.store.probe().await
    }

    fn max_value_bytes(&self) -> usize {
        self.store.max_value_bytes()
    }
}

fn shard_of(resource: &Resource) -> u32 {
    match resource {
        Resource::Shard(shard) => shard.index,
        // A worker is granted shards only.
        Resource::Lease(_) => u32::MAX,
    }
}
