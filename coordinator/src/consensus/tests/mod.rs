//! Tests that need to see what the folder hides.

#![cfg_attr(
    not(feature = "rocksdb"),
    allow(
        dead_code,
        unused_imports,
        reason = "the tests on disks use the rest of the helpers"
    )
)]

#[cfg(feature = "rocksdb")]
mod crash;
#[cfg(feature = "rocksdb")]
mod durability;
mod encoding;
#[cfg(feature = "rocksdb")]
mod refusal;
mod restores;
#[cfg(feature = "rocksdb")]
mod snapshots;
#[cfg(feature = "rocksdb")]
mod suite;
#[cfg(feature = "rocksdb")]
mod unwritten;

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;
use openraft::storage::RaftStateMachine as _;
#[cfg(feature = "rocksdb")]
use tempfile::TempDir;
use tenure_ownership::Command;
use tenure_ownership::command::CreateGroup;
use tenure_ownership::ids::{ClusterId, Revision};
use tenure_ownership::policy::Policy;

use super::Outcome;
use super::envelope::Envelope;
use super::group_commit::{GroupCommit, SyncTask};
use super::log_size::LogSize;
use super::log_store::{FoundLog, LogStore};
use super::observer::Observer;
use super::snapshot::SnapshotFile;
use super::state_machine::{Shared, StateMachine};
use super::types::{EncodedCommand, Entry, LogId, Snapshot};
use crate::history::HistoryOptions;
use crate::storage::Storage;
#[cfg(feature = "rocksdb")]
use crate::storage::{RocksOptions, RocksStorage};
use crate::wall_clock::system;

const CLUSTER: ClusterId = ClusterId(0x7e);

/// An observer that forgets everything.
struct Blind;

impl Observer for Blind {
    fn applied(&self, _: Revision, _: &Envelope, _: &Outcome) {}
    fn replaced(&self, _: Revision) {}
}

/// What openraft sees of a node's storage.
struct Stores {
    shared: Arc<Shared>,
    log: LogStore,
    state_machine: StateMachine,
    sync_task: SyncTask,
}

/// Small buffers: many of these are opened.
#[cfg(feature = "rocksdb")]
const SMALL: RocksOptions = RocksOptions {
    write_buffer_bytes: 1 << 20,
    background_jobs: 1,
};

#[cfg(feature = "rocksdb")]
fn open_rocks(folder: &TempDir) -> Arc<dyn Storage> {
    Arc::new(RocksStorage::open(folder.path().join("data"), SMALL).unwrap())
}

fn open_stores(storage: Arc<dyn Storage>) -> Stores {
    open_observed(storage, Arc::new(Blind))
}

fn open_observed(storage: Arc<dyn Storage>, observer: Arc<dyn Observer>) -> Stores {
    let shared = Shared::load(Arc::clone(&storage), CLUSTER, observer).unwrap();
    let shared = Arc::new(shared);
    let history = HistoryOptions::default();
    let state_machine = StateMachine::new(Arc::clone(&shared), history, system()).unwrap();
    let found = FoundLog::read(Arc::clone(&storage)).unwrap();
    let (commit, sync_task) = GroupCommit::start(storage).unwrap();
    let log = LogStore::new(found, commit, Arc::new(LogSize::new()));
    Stores {
        shared,
        log,
        state_machine,
        sync_task,
    }
}

impl Stores {
    /// Applies the entries of [`history`] that are not applied yet, up to `last`.
    async fn apply_history(&mut self, last: u64) {
        let first = self
            .shared
            .last_applied()
            .map_or(0, |log_id| log_id.index() + 1);
        let entries = (first..=last).map(|index| Ok((history(index), None)));
        self.state_machine
            .apply(stream::iter(entries))
            .await
            .unwrap();
    }

    /// Brings a snapshot file to this node, as the network does.
    fn receive(&self, from: &dyn Storage, snapshot: &Snapshot) -> SnapshotFile {
        let mut bytes = Vec::new();
        from.files()
            .open(&snapshot.snapshot.name)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        self.store_file(&bytes)
    }

    fn store_file(&self, bytes: &[u8]) -> SnapshotFile {
        let name = self.shared.unfinished_file_name();
        let mut file = self.shared.storage.files().create(&name).unwrap();
        file.write_all(bytes).unwrap();
        file.sync().unwrap();
        SnapshotFile {
            name,
            size_bytes: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        }
    }

    /// Ends the sync task, after which nothing holds the storage but its owners.
    async fn close(self) {
        let Self {
            shared,
            log,
            state_machine,
            sync_task,
        } = self;
        drop((shared, log, state_machine));
        sync_task.join().await;
    }
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

fn command_entry(log_id: LogId, bytes: impl Into<Bytes>) -> Entry {
    let command = EncodedCommand {
        bytes: bytes.into(),
        envelope: Envelope::default(),
    };
    Entry::new(log_id, EntryPayload::Normal(command))
}

const SHARDS: u32 = 300;

/// The same entry for an index in every test: a blank one, the cluster's first command, then groups.
fn history(index: u64) -> Entry {
    let command = match index {
        0 | 1 => return Entry::new(log_id(1, index), EntryPayload::Blank),
        2 => Command::InitCluster(CLUSTER),
        _ => Command::CreateGroup(CreateGroup {
            name: format!("g{index}").parse().unwrap(),
            shard_count: SHARDS,
            policy: Policy::default(),
        }),
    };
    command_entry(log_id(1, index), command.encode())
}

/// Returns the vote on record.
fn meta_vote(storage: &dyn Storage) -> Option<super::types::Vote> {
    super::meta::vote(storage as &dyn crate::storage::Records).unwrap()
}
