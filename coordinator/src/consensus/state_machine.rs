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
pub(super) use self::current::pointer_to;
pub(super) use self::pieces::SnapshotPieces;
pub(super) use self::shared::{Shared, load_state};
use super::Outcome;
use super::envelope::Envelope;
use super::meta;
use super::runtime::blocking;
use super::snapshot::{SnapshotContent, SnapshotFile};
use super::types::{
    EncodedCommand, Entry, LogId, Membership, Reply, Snapshot, SnapshotMeta, StoredMembership,
    TypeConfig,
};
use crate::history::{self, HistoryOptions, Names, NodeNote, Occasion, Writer, Written};
use crate::storage::StorageError;
use crate::wall_clock::WallClock;

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
    history: Writer,
    wall_clock: Arc<dyn WallClock>,
}

/// What was applied to memory and was not told yet.
#[derive(Default)]
struct Pending {
    writes: Vec<RecordWrite>,
    history: Written,
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
    pub(super) fn new(
        shared: Arc<Shared>,
        history: HistoryOptions,
        wall_clock: Arc<dyn WallClock>,
    ) -> Result<Self, StorageError> {
        let storage = shared.storage.as_ref();
        let membership = meta::membership(storage)?;
        if !history.is_kept() {
            history::forget(storage)?;
        }
        let history = Writer::load(storage, history)?;
        Ok(Self {
            shared,
            membership,
            history,
            wall_clock,
        })
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
                self.note_members(log_id, &membership, pending);
                self.membership = StoredMembership::new(Some(log_id), membership);
                pending.membership = Some(self.membership.clone());
                None
            }
            EntryPayload::Normal(EncodedCommand { bytes, envelope }) if bytes.is_empty() => {
                self.note_operation(log_id, &envelope, pending);
                None
            }
            EntryPayload::Normal(EncodedCommand { bytes, envelope }) => {
                let occasion = Occasion {
                    revision: Revision(log_id.index()),
                    now_ms: self.wall_clock.now_ms(),
                    envelope: &envelope,
                };
                let outcome = self.apply_command(&occasion, &bytes, pending)?;
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
        &mut self,
        occasion: &Occasion<'_>,
        bytes: &[u8],
        pending: &mut Pending,
    ) -> io::Result<Outcome> {
        // An entry that this release cannot read was proposed by a newer one. Passing it over would
        // let this node's state differ from the others'.
        let command = Command::decode(bytes).map_err(|error| {
            let index = occasion.revision;
            let reason = format!("committed command {index} cannot be decoded: {error}");
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })?;
        let is_kept = self.history.is_kept();
        let (applied, names) = self.shared.change(|state| {
            let applied = tenure_ownership::apply(state, occasion.revision, command);
            let names = match &applied.outcome {
                Ok(effect) if is_kept => Names::of(&effect.events, state),
                _ => Names::default(),
            };
            (applied, names)
        });
        if let Ok(effect) = &applied.outcome {
            self.history
                .events(occasion, &effect.events, &names, &mut pending.history);
        }
        for write in &applied.writes {
            pending.bytes += write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
        }
        pending.writes.extend(applied.writes);
        Ok(applied.outcome)
    }

    /// Notes in the history what somebody asked for. The state does not change.
    fn note_operation(&mut self, log_id: LogId, envelope: &Envelope, pending: &mut Pending) {
        let occasion = Occasion {
            revision: Revision(log_id.index()),
            now_ms: self.wall_clock.now_ms(),
            envelope,
        };
        let operation = envelope.operation().to_owned();
        self.history
            .operation(&occasion, operation, &mut pending.history);
    }

    /// Notes in the history that others are members than before. A change is two entries, of which the
    /// second changes nothing more.
    fn note_members(&mut self, log_id: LogId, membership: &Membership, pending: &mut Pending) {
        let members = members_of(membership);
        if members == members_of(self.membership.membership()) {
            return;
        }
        let now_ms = self.wall_clock.now_ms();
        // An entry of openraft's own carries nothing beside the members, so the time is this node's.
        let envelope = Envelope {
            at_ms: now_ms,
            ..Envelope::default()
        };
        let occasion = Occasion {
            revision: Revision(log_id.index()),
            now_ms,
            envelope: &envelope,
        };
        self.history
            .members(&occasion, members, &mut pending.history);
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
            unwritten.add_history(pending.history);
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

/// Who the members are once a change of them is done.
fn members_of(membership: &Membership) -> Vec<NodeNote> {
    let voters = membership.get_joint_config().last();
    membership
        .nodes()
        .map(|(id, node)| NodeNote {
            id: *id,
            voter: voters.is_some_and(|voters| voters.contains(id)),
            peer_address: node.raft.clone(),
        })
        .collect()
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
            if pending.applied.len() >= APPLY_ENTRIES_MAX
                || pending.bytes + pending.history.bytes() >= APPLY_BYTES_MAX
            {
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
