//! A new cluster from a backup: whole, or not at all.

use std::io::Read as _;

use openraft::RaftSnapshotBuilder as _;
use openraft::storage::RaftStateMachine as _;

use super::super::identity::{Identity, NodeAddresses, NodeId};
use super::super::meta;
use super::super::restore::{RestoreError, RestoreOptions, restore};
use super::*;
use crate::storage::MemoryStorage;

const NEW: ClusterId = ClusterId(0xb0b);
const FLOOR: u64 = 77 << 32;

fn options() -> RestoreOptions {
    RestoreOptions {
        cluster: NEW,
        addresses: NodeAddresses {
            raft: "127.0.0.1:1".to_owned(),
            client: "127.0.0.1:2".to_owned(),
            http: String::new(),
        },
        floor_min: FLOOR,
        index_min: 5_000,
        quiet_min: std::time::Duration::from_secs(1),
    }
}

/// The bytes of a backup at index 12.
async fn backup() -> Vec<u8> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut stores = open_stores(Arc::clone(&storage));
    stores.apply_history(12).await;
    let builder = stores.state_machine.try_create_snapshot_builder(true).await;
    let snapshot = builder.unwrap().build_snapshot().await.unwrap();
    let mut bytes = Vec::new();
    let mut file = storage.files().open(&snapshot.snapshot.name).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    stores.close().await;
    bytes
}

fn restore_bytes(
    storage: &dyn Storage,
    bytes: &[u8],
) -> Result<super::super::RestoredCluster, RestoreError> {
    restore(
        storage,
        Box::new(std::io::Cursor::new(bytes.to_vec())),
        &options(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_folder_is_that_of_a_node_alone_in_a_new_cluster() {
    let bytes = backup().await;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let restored = restore_bytes(storage.as_ref(), &bytes).unwrap();
    assert_eq!(
        (restored.from, restored.backup_revision),
        (CLUSTER, Revision(12))
    );
    assert_eq!(
        (restored.groups, restored.shards),
        (10, u64::from(10 * SHARDS))
    );
    let identity = Identity {
        cluster: NEW,
        node: NodeId(13),
    };
    assert_eq!(restored.identity, identity);
    assert_eq!(meta::identity(storage.as_ref()).unwrap(), Some(identity));

    let shared = Shared::load(Arc::clone(&storage), NEW, Arc::new(Blind)).unwrap();
    assert_eq!(shared.last_applied(), Some(log_id(2, 5_000)));
    let floors = shared.read(|state| {
        assert_eq!(state.cluster(), Some(NEW));
        assert_eq!(state.revision(), Revision(5_000));
        assert_eq!(
            state.restored().map(|restored| restored.from),
            Some(CLUSTER)
        );
        let shards = state.groups().flat_map(|group| group.shards.iter());
        shards.map(|shard| shard.floor).collect::<Vec<_>>()
    });
    assert_eq!(floors, vec![FLOOR; 10 * SHARDS as usize]);
    // Nodes that are added begin with its snapshot, and its log goes on after the restore.
    assert!(shared.current_snapshot().is_some());
    let found = FoundLog::read(Arc::clone(&storage)).unwrap();
    let (commit, sync_task) = GroupCommit::start(Arc::clone(&storage)).unwrap();
    let mut log = LogStore::new(found, commit, Arc::new(LogSize::new()));
    let state = openraft::storage::RaftLogStorage::get_log_state(&mut log)
        .await
        .unwrap();
    assert_eq!(state.last_log_id, Some(log_id(2, 5_000)));
    assert_eq!(state.last_purged_log_id, Some(log_id(2, 5_000)));
    drop(log);
    sync_task.join().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_not_whole_makes_no_node() {
    let bytes = backup().await;
    let step = bytes.len() / 97 + 1;
    let refused = |damaged: &[u8], what: &str| {
        let storage = MemoryStorage::new();
        let error = restore_bytes(&storage, damaged).expect_err(what);
        assert!(
            matches!(error, RestoreError::Backup { .. }),
            "{what}: {error}"
        );
        assert_eq!(meta::identity(&storage).unwrap(), None, "{what}");
    };
    for index in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x10;
        refused(&damaged, &format!("byte {index}"));
        refused(&bytes[..index], &format!("cut at {index}"));
    }
    refused(&[&bytes[..], b"x"].concat(), "something behind it");
    refused(b"", "nothing");
    refused(b"TENURESN", "its first bytes");
    refused(b"tenure.toml = something else entirely", "another file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_in_use_is_refused_and_what_a_broken_restore_left_does_no_harm() {
    let bytes = backup().await;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    restore_bytes(storage.as_ref(), &bytes[..bytes.len() - 1]).unwrap_err();
    restore_bytes(storage.as_ref(), &bytes).unwrap();
    let error = restore_bytes(storage.as_ref(), &bytes).unwrap_err();
    assert!(matches!(error, RestoreError::Used { .. }), "{error}");
}

/// A backup of a restored cluster is one as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_restored_cluster_is_restored_above_it() {
    let first: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    restore_bytes(first.as_ref(), &backup().await).unwrap();
    let snapshot = Shared::load(Arc::clone(&first), NEW, Arc::new(Blind))
        .unwrap()
        .current_snapshot()
        .unwrap();
    let again: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let file = first.files().open(&snapshot.snapshot.name).unwrap();
    let options = RestoreOptions {
        cluster: ClusterId(0xb0c),
        ..options()
    };
    let restored = restore(again.as_ref(), file, &options).unwrap();
    assert_eq!((restored.from, restored.revision), (NEW, Revision(5_001)));
    let shared = Shared::load(again, ClusterId(0xb0c), Arc::new(Blind)).unwrap();
    let lowest = shared.read(|state| {
        let shards = state.groups().flat_map(|group| group.shards.iter());
        shards.map(|shard| shard.floor).min()
    });
    assert_eq!(
        lowest,
        Some(FLOOR + (1 << 32)),
        "the clock stood still, the epochs did not"
    );
}
