//! Applies the committed log to the state, in memory and on disk.
//!
//! ```text
//!   entries ─▶ ownership::apply ─▶ State (memory)        one entry at a time
//!                     │ touched records
//!                     ▼
//!                 Unwritten ─▶ Observer, then whoever waits for the index, then the proposers
//!                     │ at times
//!                     ▼
//!              one Batch: records + last applied + membership
//! ```
//!
//! # Invariants
//!
//! * Records, last applied entry and membership change in one batch: after a crash the state on
//!   disk is that of exactly one log index.
//! * The batch may come later than what it changes is seen, and is not synced. Its entries are in the
//!   log, which is written before it and in the same order, so what is lost with the power is applied
//!   again.
//! * A snapshot is installed under the next generation and becomes current in one synced batch:
//!   after a crash there is the old state or the new one, whole.

mod builder;
mod current;
mod install;
mod pieces;
mod shared;
mod unwritten;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use openraft::entry::RaftEntry as _;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use tenure_ownership::Command;
use tenure_ownership::ids::Revision;
use tenure_ownership::record::RecordWrite;

pub(super) use self::builder::SnapshotBuilder;
pub(super) use self::pieces::SnapshotPieces;
pub(super) use self::shared::Shared;
use super::Outcome;
use super::envelope::Envelope;
use super::meta;
use super::runtime::blocking;
use super::snapshot::{SnapshotContent, SnapshotFile};
use super::types::{
    EncodedCommand, Entry, LogId, Reply, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use crate::storage::StorageError;

/// Entries applied before their effects are told, at most. Proposers wait for all of them.
const APPLY_ENTRIES_MAX: usize = 512;

/// Bytes of records after which the effects are told as well; a snapshot is installed in batches of them.
const APPLY_BYTES_MAX: usize = 4 << 20;

/// A batch larger than this is written on a blocking thread: filling the write buffers can make it
/// wait for a flush.
const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;

/// openraft's state machine.
pub(super) struct StateMachine {
    shared: Arc<Shared>,
    membership: StoredMembership,
}

/// What was applied to memory and was not told yet.
#[derive(Default)]
struct Pending {
    writes: Vec<RecordWrite>,
    bytes: usize,
    membership: Option<StoredMembership>,
    last: Option<LogId>,
    applied: Vec<AppliedEntry>,
}

/// An entry that was applied to memory.
struct AppliedEntry {
    index: u64,
    /// `None` for an entry without a command.
    command: Option<(Envelope, Outcome)>,
    responder: Option<ApplyResponder<TypeConfig>>,
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
        let command = match entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(log_id), membership);
                pending.membership = Some(self.membership.clone());
                None
            }
            EntryPayload::Normal(EncodedCommand { bytes, envelope }) => {
                let outcome = self.apply_command(log_id.index(), &bytes, pending)?;
                Some((envelope, outcome))
            }
        };
        pending.last = Some(log_id);
        pending.applied.push(AppliedEntry {
            index: log_id.index(),
            command,
            responder,
        });
        Ok(())
    }

    fn apply_command(
        &self,
        index: u64,
        bytes: &[u8],
        pending: &mut Pending,
    ) -> io::Result<Outcome> {
        // An entry that this release cannot read was proposed by a newer one. Passing it over would
        // let this node's state differ from the others'.
        let command = Command::decode(bytes).map_err(|error| {
            let reason = format!("committed command {index} cannot be decoded: {error}");
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })?;
        let applied = self
            .shared
            .change(|state| tenure_ownership::apply(state, Revision(index), command));
        for write in &applied.writes {
            pending.bytes += write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
        }
        pending.writes.extend(applied.writes);
        Ok(applied.outcome)
    }

    /// Lets everybody know of what was applied, and writes it if it is time to.
    async fn commit(&self, pending: Pending) -> io::Result<()> {
        let Some(last) = pending.last else {
            return Ok(());
        };
        let is_due = self.shared.unwritten(|unwritten| {
            let generation = self.shared.generation();
            for write in pending.writes {
                unwritten.set(generation.key(&write.key), write.value);
            }
            if let Some(membership) = pending.membership {
                unwritten.set_membership(membership);
            }
            unwritten.set_applied(last);
            unwritten.is_due()
        });
        if is_due {
            self.write().await?;
        }
        for entry in &pending.applied {
            if let Some((envelope, outcome)) = &entry.command {
                let revision = Revision(entry.index);
                self.shared.observer.applied(revision, envelope, outcome);
            }
        }
        self.shared.applied.send_replace(Some(last));
        for entry in pending.applied {
            // Always used: a responder that is dropped leaves its proposer waiting.
            if let Some(responder) = entry.responder {
                responder.send(Reply(entry.command.map(|(_, outcome)| outcome)));
            }
        }
        metrics::gauge!(crate::metrics::APPLIED_REVISION).set(last.index() as f64);
        Ok(())
    }

    /// Writes what waits.
    async fn write(&self) -> io::Result<()> {
        let waiting_bytes = self.shared.unwritten(|unwritten| unwritten.bytes());
        if waiting_bytes <= INLINE_WRITE_BYTES_MAX {
            return Ok(self.shared.write_unwritten()?);
        }
        let shared = Arc::clone(&self.shared);
        Ok(blocking(move || shared.write_unwritten()).await??)
    }
}

/// A node that stops in good order leaves nothing to be applied again.
impl Drop for StateMachine {
    fn drop(&mut self) {
        if let Err(error) = self.shared.write_unwritten() {
            tracing::warn!(%error, "what was applied last is not written, the next start applies it again");
        }
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
            if pending.applied.len() >= APPLY_ENTRIES_MAX || pending.bytes >= APPLY_BYTES_MAX {
                self.commit(std::mem::take(&mut pending)).await?;
            }
        }
        self.commit(pending).await
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        // A failure comes again with the next write, which ends the node: until then a snapshot of what
        // was written before is as true as one of now.
        if let Err(error) = self.write().await {
            tracing::error!(%error, "what was applied cannot be written before a snapshot");
        }
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
        // Of the state that the snapshot replaces. Nothing of it may wait while that happens: written
        // later, it would put the new state's note of what is applied back.
        self.write().await?;
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
