//! A store that can hold a write at the worst moment: after every check of the worker, before the
//! store's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tenure::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, Resource, Write,
};
use tenure_fence::Fence;
use tokio::sync::Notify;

use super::report::{Report, Reports};

/// Holds the next write, once.
#[derive(Debug, Default)]
pub struct Gate {
    armed: AtomicBool,
    proceed: Notify,
}

impl Gate {
    /// Lets the next write wait.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Lets the write that waits, or the next that does, go on.
    pub fn open(&self) {
        self.proceed.notify_one();
    }

    /// Returns whether this write is the one to wait.
    fn takes(&self) -> bool {
        self.armed.swap(false, Ordering::AcqRel)
    }
}

/// A store behind a gate. Everything is passed on as it is; refused writes are reported.
pub struct GatedStore<S> {
    store: Arc<S>,
    gate: Arc<Gate>,
    reports: Reports,
}

impl<S: CheckpointStore + 'static> GatedStore<S> {
    /// Puts a gate before a store.
    #[must_use]
    pub fn new(store: S, gate: Arc<Gate>, reports: Reports) -> Self {
        Self {
            store: Arc::new(store),
            gate,
            reports,
        }
    }

    /// Waits for the story, then writes. On a task of its own: the SDK may drop the call when it
    /// notices that the shard is lost, and the write that this is about must still be made.
    async fn write_when_told(
        &self,
        token: &FencingToken,
        write: Write,
    ) -> Result<(), CheckpointError> {
        let (store, gate) = (Arc::clone(&self.store), Arc::clone(&self.gate));
        let (token, reports) = (token.clone(), self.reports);
        let writing = tokio::spawn(async move {
            let (shard, epoch) = (shard_of(&token.resource), token.epoch.get());
            reports.send(&Report::Held { shard, epoch });
            gate.proceed.notified().await;
            let written = store.write(&token, write).await;
            report_refused(reports, &token, &written);
            written
        });
        let joined = writing.await;
        joined.unwrap_or_else(|error| {
            Err(CheckpointError::OutcomeUnknown {
                source: error.into(),
            })
        })
    }
}

#[async_trait]
impl<S: CheckpointStore + 'static> CheckpointStore for GatedStore<S> {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        self.store.seal(token).await
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        self.store.seal_many(tokens).await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        if self.gate.takes() {
            return self.write_when_told(token, write).await;
        }
        let written = self.store.write(token, write).await;
        report_refused(self.reports, token, &written);
        written
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        self.store.read(resource).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        self.store.fence(resource).await
    }

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

fn report_refused(reports: Reports, token: &FencingToken, written: &Result<(), CheckpointError>) {
    if let Err(CheckpointError::Fenced {
        presented, current, ..
    }) = written
    {
        let shard = shard_of(&token.resource);
        let epochs = |epoch: &Epoch| epoch.get();
        let (presented, current) = (epochs(presented), epochs(current));
        reports.send(&Report::Refused {
            shard,
            presented,
            current,
        });
    }
}

fn shard_of(resource: &Resource) -> u32 {
    match resource {
        Resource::Shard(shard) => shard.index,
        // A worker is granted shards only.
        Resource::Lease(_) => u32::MAX,
    }
}
