//! Applies the committed log to the state, in memory and on disk.
//!
//! ```text
//!   entries ─▶ ownership::apply ─▶ State (memory)        one entry at a time
//!                     │ touched records
//!                     ▼
//!              one Batch: records + last applied + membership
//!                     │ written
//!                     ▼
//!              Observer, then whoever waits for the index, then the proposers
//! ```
//!
//! # Invariants
//!
//! * Records, last applied entry and membership change in one batch: after a crash the state on
//!   disk is that of exactly one log index.
//! * The batch is not synced. Its entries are in the log, which is written before it and in the same
//!   order, so what is lost with the power is applied again.
//! * A snapshot is installed under the next generation and becomes current in one synced batch:
//!   after a crash there is the old state or the new one, whole.

mod builder;
mod current;
mod install;
mod pieces;
mod shared;

use std::io;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use openraft::entry::RaftEntry as _;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use tenure_ownership::Command;
use tenure_ownership::ids::Revision;

pub(super) use self::builder::SnapshotBuilder;
pub(super) use self::pieces::SnapshotPieces;
pub(super) use self::shared::Shared;
use super::Outcome;
use super::meta;
use super::runtime::blocking;
use super::snapshot::{SnapshotContent, SnapshotFile};
use super::types::{
    EncodedCommand, Entry, LogId, Reply, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use crate::storage::{Batch, StorageError, Table};

/// Entries applied before their batch is written, at most. Proposers wait for the whole batch.
const APPLY_ENTRIES_MAX: usize = 512;

/// Bytes of records after which a batch is written.
const APPLY_BYTES_MAX: usize = 4 << 20;

/// A batch larger than this is written on a blocking thread: filling the write buffers can make it
/// wait for a flush.
const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;

/// openraft's state machine.
pub(super) struct StateMachine {
    shared: Arc<Shared>,
    membership: StoredMembership,
}

/// What was applied to memory and waits for its batch.
#[derive(Default)]
struct Pending {
    batch: Batch,
    last: Option<LogId>,
    applied: Vec<(u64, Option<Outcome>, Option<ApplyResponder<TypeConfig>>)>,
}

impl StateMachine {
    /// Returns a state machine that goes on where the loaded state stands.
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self, StorageError> {
        let membership = meta::membership(shared.storage.as_ref())?;
        Ok(Self { shared, membership })
    }

    fn apply_entry(
        &mut self,
        entry: Entry,
        responder: Option<ApplyResponder<TypeConfig>>,
        pending: &mut Pending,
    ) -> io::Result<()> {
        let log_id = entry.log_id();
        let outcome = match entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(log_id), membership);
                meta::put_membership(&mut pending.batch, &self.membership);
                None
            }
            EntryPayload::Normal(EncodedCommand(bytes)) => {
                Some(self.apply_command(log_id.index(), &bytes, &mut pending.batch)?)
            }
        };
        pending.last = Some(log_id);
        pending.applied.push((log_id.index(), outcome, responder));
        Ok(())
    }

    fn apply_command(&self, index: u64, bytes: &[u8], batch: &mut Batch) -> io::Result<Outcome> {
        // An entry that this release cannot read was proposed by a newer one. Passing it over would
        // let this node's state differ from the others'.
        let command = Command::decode(bytes).map_err(|error| {
            let reason = format!("committed command {index} cannot be decoded: {error}");
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })?;
        let applied = self
            .shared
            .change(|state| tenure_ownership::apply(state, Revision(index), command));
        let generation = self.shared.generation();
        for write in applied.writes {
            let key = generation.key(&write.key);
            match write.value {
                Some(value) => batch.put(Table::State, key, value),
                None => batch.delete(Table::State, key),
            }
        }
        Ok(applied.outcome)
    }

    /// Writes a batch, then tells everybody.
    async fn commit(&self, mut pending: Pending) -> io::Result<()> {
        let Some(last) = pending.last else {
            return Ok(());
        };
        meta::put_applied(&mut pending.batch, &last);
        let (storage, batch) = (Arc::clone(&self.shared.storage), pending.batch);
        if batch.size_bytes() <= INLINE_WRITE_BYTES_MAX {
            storage.write(batch)?;
        } else {
            blocking(move || storage.write(batch)).await??;
        }
        for (index, outcome, _) in &pending.applied {
            if let Some(outcome) = outcome {
                self.shared.observer.applied(Revision(*index), outcome);
            }
        }
        self.shared.applied.send_replace(Some(last));
        for (_, outcome, responder) in pending.applied {
            // Always used: a responder that is dropped leaves its proposer waiting.
            if let Some(responder) = responder {
                responder.send(Reply(outcome));
            }
        }
        metrics::gauge!(crate::metrics::APPLIED_REVISION).set(last.index() as f64);
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.shared.last_applied(), self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut pending = Pending::default();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.apply_entry(entry, responder, &mut pending)?;
            if pending.applied.len() >= APPLY_ENTRIES_MAX
                || pending.batch.size_bytes() >= APPLY_BYTES_MAX
            {
                self.commit(std::mem::take(&mut pending)).await?;
            }
        }
        self.commit(pending).await
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder::start(Arc::clone(&self.shared)).await
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        file: SnapshotFile,
    ) -> io::Result<()> {
        let expected = SnapshotContent {
            cluster: self.shared.cluster,
            last_log_id: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        let shared = Arc::clone(&self.shared);
        let installed =
            blocking(move || install::install_snapshot(&shared, &expected, file)).await?;
        installed.inspect_err(|error| {
            tracing::error!(%error, "snapshot is refused, the node stops serving");
        })?;
        self.membership = meta.last_membership.clone();
        let revision = Revision(meta.last_log_id.map_or(0, |log_id| log_id.index()));
        self.shared.observer.replaced(revision);
        self.shared.applied.send_replace(meta.last_log_id);
        tracing::info!(%revision, "snapshot installed");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.shared.current_snapshot())
    }
}
