//! openraft's own suite for storages, against both of ours.

use std::io;
use std::sync::Arc;

use futures::Stream;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt as _;
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use tempfile::TempDir;

use super::super::log_store::LogStore;
use super::super::state_machine::SnapshotBuilder;
use super::super::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use super::{Stores, open_rocks, open_stores};
use crate::storage::{MemoryStorage, Storage};

/// A state machine whose snapshots can be handed to that of another node: what the network does
/// otherwise.
struct Handing {
    stores: Stores,
}

/// A snapshot and where its file is.
struct Handed {
    storage: Arc<dyn Storage>,
    snapshot: Snapshot,
}

type HandedSnapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Handed>;

fn hand(storage: &Arc<dyn Storage>, snapshot: Snapshot) -> HandedSnapshot {
    HandedSnapshot {
        meta: snapshot.meta.clone(),
        snapshot: Handed {
            storage: Arc::clone(storage),
            snapshot,
        },
    }
}

struct HandingBuilder {
    storage: Arc<dyn Storage>,
    builder: SnapshotBuilder,
}

impl RaftSnapshotBuilder<TypeConfig> for HandingBuilder {
    type SnapshotData = Handed;

    async fn build_snapshot(&mut self) -> io::Result<HandedSnapshot> {
        Ok(hand(&self.storage, self.builder.build_snapshot().await?))
    }
}

impl RaftStateMachine<TypeConfig> for Handing {
    type SnapshotData = Handed;
    type SnapshotBuilder = HandingBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        self.stores.state_machine.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        self.stores.state_machine.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> HandingBuilder {
        HandingBuilder {
            storage: Arc::clone(&self.stores.shared.storage),
            builder: self.stores.state_machine.get_snapshot_builder().await,
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, handed: Handed) -> io::Result<()> {
        let file = self
            .stores
            .receive(handed.storage.as_ref(), &handed.snapshot);
        self.stores.state_machine.install_snapshot(meta, file).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<HandedSnapshot>> {
        let current = self.stores.state_machine.get_current_snapshot().await?;
        Ok(current.map(|snapshot| hand(&self.stores.shared.storage, snapshot)))
    }
}

fn split(storage: Arc<dyn Storage>) -> (LogStore, Handing) {
    // Two sets of stores over one storage: the suite wants the log and the state machine apart, and
    // they share nothing but the storage.
    let log = open_stores(Arc::clone(&storage)).log;
    (
        log,
        Handing {
            stores: open_stores(storage),
        },
    )
}

struct Rocks;

impl StoreBuilder<TypeConfig, LogStore, Handing, TempDir> for Rocks {
    async fn build(&self) -> Result<(TempDir, LogStore, Handing), StorageError<TypeConfig>> {
        let folder = TempDir::new().unwrap();
        let (log, state_machine) = split(open_rocks(&folder));
        Ok((folder, log, state_machine))
    }
}

struct Memory;

impl StoreBuilder<TypeConfig, LogStore, Handing> for Memory {
    async fn build(&self) -> Result<((), LogStore, Handing), StorageError<TypeConfig>> {
        let (log, state_machine) = split(Arc::new(MemoryStorage::new()));
        Ok(((), log, state_machine))
    }
}

#[test]
fn rocksdb_passes_openrafts_suite() {
    TypeConfig::run(async { Suite::test_all(Rocks).await.unwrap() });
}

#[test]
fn memory_passes_openrafts_suite() {
    TypeConfig::run(async { Suite::test_all(Memory).await.unwrap() });
}
