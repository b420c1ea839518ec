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

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use openraft::entry::RaftEntry as _;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use tenure_ownership::ids::{ClusterId, Revision};
use tenure_ownership::{Command, State};
use tenure_proto::raft::v1 as pb;
use tokio::sync::{oneshot, watch};

use super::meta::{self, Generation};
use super::observer::Observer;
use super::runtime::{self, blocking};
use super::snapshot::{
    SnapshotContent, SnapshotError, SnapshotFile, SnapshotReader, SnapshotWriter,
};
use super::types::{
    EncodedCommand, Entry, LogId, Reply, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use super::{Outcome, codec};
use crate::storage::{Batch, Storage, StorageError, Table};

/// Entries applied before their batch is written, at most. Proposers wait for the whole batch.
const APPLY_ENTRIES_MAX: usize = 512;

/// Bytes of records after which a batch is written.
const APPLY_BYTES_MAX: usize = 4 << 20;

/// A batch larger than this is written on a blocking thread: filling the write buffers can make it
/// wait for a flush.
const INLINE_WRITE_BYTES_MAX: usize = 64 << 10;

/// Names of snapshot files that are not finished end in this; they are removed at start.
pub(super) const UNFINISHED: &str = ".unfinished";

/// What the applying task shares with readers.
pub(super) struct Shared {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) cluster: ClusterId,
    state: RwLock<State>,
    generation: AtomicU64,
    applied: watch::Sender<Option<LogId>>,
    snapshot: Mutex<Option<Snapshot>>,
    /// Held while the current snapshot is switched, on disk and in memory.
    switching: Mutex<()>,
    /// Numbers snapshot files, so that no name is used twice while the node runs.
    file_number: AtomicU64,
    observer: Arc<dyn Observer>,
}

impl Shared {
    /// Loads the state, checks the current snapshot, and removes what a crash left behind. Blocks.
    pub(super) fn load(
        storage: Arc<dyn Storage>,
        cluster: ClusterId,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, SnapshotError> {
        let generation = meta::generation(storage.as_ref())?;
        remove_other_generations(storage.as_ref(), generation)?;
        let snapshot = load_snapshot(storage.as_ref(), cluster)?;
        remove_other_files(storage.as_ref(), snapshot.as_ref())?;
        let state = load_state(storage.as_ref(), generation)?;
        let applied = meta::applied(storage.as_ref())?;
        Ok(Self {
            storage,
            cluster,
            state: RwLock::new(state),
            generation: AtomicU64::new(generation.0),
            applied: watch::Sender::new(applied),
            snapshot: Mutex::new(snapshot),
            switching: Mutex::new(()),
            file_number: AtomicU64::new(0),
            observer,
        })
    }

    /// Reads the state.
    ///
    /// # Panics
    ///
    /// If applying a command panicked: the state may be half changed, and nobody may see it.
    pub(super) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        let guard = self.state.read();
        assert!(
            guard.is_ok(),
            "the state is unusable: a command panicked while it was applied"
        );
        f(&guard.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the last entry applied.
    pub(super) fn last_applied(&self) -> Option<LogId> {
        *self.applied.borrow()
    }

    /// Follows the last entry applied. It changes after the effect is readable.
    pub(super) fn watch_applied(&self) -> watch::Receiver<Option<LogId>> {
        self.applied.subscribe()
    }

    /// Returns the value of a state record. Blocks.
    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        loop {
            let generation = self.generation();
            let value = self.storage.get(Table::State, &generation.key(key))?;
            // A snapshot installed meanwhile took the records of the old generation away.
            if generation == self.generation() {
                return Ok(value);
            }
        }
    }

    /// Tells whether a snapshot is still the one to send.
    pub(super) fn is_current_snapshot(&self, file: &SnapshotFile) -> bool {
        self.current_snapshot()
            .is_some_and(|current| current.snapshot == *file)
    }

    /// Returns an unused file name.
    pub(super) fn unfinished_file_name(&self) -> String {
        let number = self.file_number.fetch_add(1, Ordering::Relaxed);
        format!("snapshot-{number:06}{UNFINISHED}")
    }

    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    fn current_snapshot(&self) -> Option<Snapshot> {
        self.snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes the state.
    fn change<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let guard = self.state.write();
        assert!(
            guard.is_ok(),
            "the state is unusable: a command panicked while it was applied"
        );
        f(&mut guard.unwrap_or_else(PoisonError::into_inner))
    }
}

fn remove_other_generations(
    storage: &dyn Storage,
    current: Generation,
) -> Result<(), StorageError> {
    let mut batch = Batch::new();
    batch.delete_range(Table::State, Generation(0).start(), current.start());
    batch.delete_range(
        Table::State,
        current.next().start(),
        Generation(u64::MAX).start(),
    );
    storage.write(batch)
}

/// Loads and fully checks the current snapshot, so that damage is found while the node does not
/// serve yet rather than when a peer depends on it.
fn load_snapshot(
    storage: &dyn Storage,
    cluster: ClusterId,
) -> Result<Option<Snapshot>, SnapshotError> {
    let Some(pointer) = meta::snapshot(storage)? else {
        return Ok(None);
    };
    let mut reader = SnapshotReader::open(storage.files(), &pointer.file_name, cluster)?;
    while reader.next_record()?.is_some() {}
    let file = SnapshotFile {
        name: pointer.file_name,
        size_bytes: pointer.size_bytes,
        crc32c: pointer.crc32c,
    };
    Ok(Some(snapshot_of(reader.content(), file)))
}

fn snapshot_of(content: &SnapshotContent, file: SnapshotFile) -> Snapshot {
    Snapshot {
        meta: SnapshotMeta {
            last_log_id: content.last_log_id,
            last_membership: content.membership.clone(),
        },
        snapshot: file,
    }
}

fn pointer_to(content: &SnapshotContent, file: &SnapshotFile) -> pb::SnapshotPointer {
    pb::SnapshotPointer {
        file_name: file.name.clone(),
        size_bytes: file.size_bytes,
        crc32c: file.crc32c,
        last_log_id: content.last_log_id.as_ref().map(codec::log_id_to_proto),
        membership: Some(codec::stored_membership_to_proto(&content.membership)),
    }
}

fn remove_other_files(
    storage: &dyn Storage,
    current: Option<&Snapshot>,
) -> Result<(), StorageError> {
    for name in storage.files().list()? {
        if current.is_none_or(|current| current.snapshot.name != name) {
            storage.files().remove(&name)?;
        }
    }
    Ok(())
}

fn load_state(storage: &dyn Storage, generation: Generation) -> Result<State, StorageError> {
    let mut failure = None;
    let records = storage
        .scan(
            Table::State,
            &generation.start(),
            &generation.next().start(),
        )
        .map_while(|record| match record {
            Ok((key, value)) => Some((Generation::strip(&key).to_vec(), value)),
            Err(error) => {
                failure = Some(error);
                None
            }
        });
    let state = State::from_records(records);
    if let Some(error) = failure {
        return Err(error);
    }
    state.map_err(|error| StorageError::Corrupt {
        what: format!("state: {error}"),
    })
}

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

    async fn start_builder(&self) -> SnapshotBuilder {
        let (viewed, is_viewed) = oneshot::channel();
        let (done, result) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let task = runtime::spawn(async move {
            // A receiver may have gone with a stopping node; then nobody needs to know.
            let built = blocking(move || {
                build_snapshot(&shared, || {
                    let _ = viewed.send(());
                })
            });
            let _ = done.send(
                built
                    .await
                    .map_err(SnapshotError::Io)
                    .and_then(|built| built),
            );
        });
        // Nothing is applied until the view is taken, so the snapshot is of what openraft believes
        // to be applied. An error means that the work ended without, which its result tells.
        let _ = is_viewed.await;
        SnapshotBuilder {
            result: Some(result),
            task,
            shared: Arc::clone(&self.shared),
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
                || pending.batch.size_bytes() >= APPLY_BYTES_MAX
            {
                self.commit(std::mem::take(&mut pending)).await?;
            }
        }
        self.commit(pending).await
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        self.start_builder().await
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
        let installed = blocking(move || install_snapshot(&shared, &expected, file)).await?;
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

/// Waits for a snapshot that is being written.
pub(super) struct SnapshotBuilder {
    result: Option<oneshot::Receiver<Result<Snapshot, SnapshotError>>>,
    task: runtime::Task,
    shared: Arc<Shared>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let Some(result) = self.result.take() else {
            // Asked again: the snapshot that was built is still the current one, or a newer one is.
            return self
                .shared
                .current_snapshot()
                .ok_or_else(|| io::Error::other("no snapshot was built"));
        };
        let built = result.await.map_err(io::Error::other)?;
        (&mut self.task)
            .await
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(built.inspect_err(|error| tracing::error!(%error, "snapshot cannot be built"))?)
    }
}

/// Writes a snapshot of the records as they are now and makes it the current one. Blocks.
fn build_snapshot(shared: &Shared, viewed: impl FnOnce()) -> Result<Snapshot, SnapshotError> {
    let begun = runtime::now();
    let storage = shared.storage.as_ref();
    let view = storage.view();
    viewed();
    let content = SnapshotContent {
        cluster: shared.cluster,
        last_log_id: meta::applied(view.as_ref())?,
        membership: meta::membership(view.as_ref())?,
    };
    let generation = meta::generation(view.as_ref())?;
    let mut writer =
        SnapshotWriter::create(storage.files(), &shared.unfinished_file_name(), &content)?;
    for record in view.scan(
        Table::State,
        &generation.start(),
        &generation.next().start(),
    ) {
        let (key, value) = record?;
        writer.record(Generation::strip(&key), &value)?;
    }
    drop(view);
    let unfinished = writer.finish()?;

    let _switching = shared
        .switching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(current) = shared.current_snapshot()
        && current.meta.last_log_id > content.last_log_id
    {
        // A newer one was installed meanwhile; the log before it is gone.
        storage.files().remove(&unfinished.name)?;
        return Ok(current);
    }
    let file = name_finally(shared, &content, unfinished)?;
    let mut batch = Batch::new();
    meta::put_snapshot(&mut batch, &pointer_to(&content, &file));
    let snapshot = snapshot_of(&content, file);
    make_current(shared, batch, snapshot.clone())?;
    let seconds = openraft::Instant::elapsed(&begun).as_secs_f64();
    metrics::histogram!(crate::metrics::SNAPSHOT_BUILD).record(seconds);
    Ok(snapshot)
}

/// Gives a finished file its final name.
fn name_finally(
    shared: &Shared,
    content: &SnapshotContent,
    mut file: SnapshotFile,
) -> Result<SnapshotFile, StorageError> {
    let index = content.last_log_id.map_or(0, |log_id| log_id.index());
    // Numbered by the index for people, and by the generation and a count so that a snapshot never
    // replaces the file of another one, which the pointer on disk may still name.
    let mut count = 0_u64;
    let existing = shared.storage.files().list()?;
    let name = loop {
        let name = format!("snapshot-{index:020}-{count}");
        if !existing.contains(&name) {
            break name;
        }
        count += 1;
    };
    shared.storage.files().rename(&file.name, &name)?;
    file.name = name;
    Ok(file)
}

/// Switches to another snapshot in one synced batch, then removes the file of the one before.
/// The caller holds the `switching` lock.
fn make_current(shared: &Shared, batch: Batch, snapshot: Snapshot) -> Result<(), StorageError> {
    shared.storage.write(batch)?;
    shared.storage.sync()?;
    let replaced = shared
        .snapshot
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(snapshot);
    match replaced {
        Some(replaced) => shared.storage.files().remove(&replaced.snapshot.name),
        None => Ok(()),
    }
}

/// Replaces the state by a snapshot's. Blocks.
fn install_snapshot(
    shared: &Shared,
    expected: &SnapshotContent,
    file: SnapshotFile,
) -> Result<(), SnapshotError> {
    let storage = shared.storage.as_ref();
    let mut reader = SnapshotReader::open(storage.files(), &file.name, shared.cluster)?;
    if reader.content() != expected {
        return Err(SnapshotError::Corrupt {
            name: file.name,
            reason: "it does not contain what its sender said".to_owned(),
        });
    }
    let old = shared.generation();
    let new = old.next();
    // An installation that failed may have left records.
    let mut batch = Batch::new();
    batch.delete_range(Table::State, new.start(), new.next().start());
    while let Some((key, value)) = reader.next_record()? {
        batch.put(Table::State, new.key(&key), value);
        if batch.size_bytes() >= APPLY_BYTES_MAX {
            storage.write(std::mem::take(&mut batch))?;
        }
    }
    storage.write(batch)?;
    let state = load_state(storage, new)?;

    // The file has been checked to its end, and its records make a state: from here on it counts.
    let _switching = shared
        .switching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let file = if file.name.ends_with(UNFINISHED) {
        name_finally(shared, expected, file)?
    } else {
        file
    };
    let mut batch = Batch::new();
    meta::put_generation(&mut batch, new);
    if let Some(last) = &expected.last_log_id {
        meta::put_applied(&mut batch, last);
    }
    meta::put_membership(&mut batch, &expected.membership);
    meta::put_snapshot(&mut batch, &pointer_to(expected, &file));
    make_current(shared, batch, snapshot_of(expected, file))?;

    shared.change(|current| {
        *current = state;
        shared.generation.store(new.0, Ordering::Release);
    });
    let mut batch = Batch::new();
    batch.delete_range(Table::State, old.start(), new.start());
    storage.write(batch)?;
    Ok(())
}

/// Reads a whole snapshot file in pieces, to send it.
pub(super) struct SnapshotPieces {
    file: Box<dyn io::Read + Send>,
}

impl SnapshotPieces {
    /// Opens a file. Blocks.
    pub(super) fn open(shared: &Shared, name: &str) -> Result<Self, StorageError> {
        Ok(Self {
            file: shared.storage.files().open(name)?,
        })
    }

    /// Returns the next piece of at most `bytes_max` bytes, or `None` at the end. Blocks.
    pub(super) fn next(&mut self, bytes_max: usize) -> io::Result<Option<Bytes>> {
        let mut piece = vec![0; bytes_max];
        let mut filled = 0;
        while let Some(room) = piece.get_mut(filled..)
            && !room.is_empty()
        {
            match self.file.read(room)? {
                0 => break,
                read => filled += read,
            }
        }
        piece.truncate(filled);
        Ok((filled > 0).then(|| Bytes::from(piece)))
    }
}
