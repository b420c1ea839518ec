//! What a node refuses to start on, before anything is changed.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use openraft::RaftSnapshotBuilder as _;
use openraft::storage::RaftStateMachine as _;
use tempfile::TempDir;
use tenure_ownership::ids::ClusterId;

use super::super::{
    Consensus, ConsensusOptions, Identity, NodeAddresses, NodeId, StartError, TcpConnector, meta,
};
use super::{Blind, CLUSTER, SMALL, open_rocks, open_stores};
use crate::storage::{Batch, RocksStorage, Storage, StorageError};

const OWN: Identity = Identity {
    cluster: CLUSTER,
    node: NodeId(3),
};

async fn start(storage: Arc<dyn Storage>, identity: Identity) -> Result<Consensus, StartError> {
    let addresses = NodeAddresses {
        raft: "127.0.0.1:1".to_owned(),
        client: "127.0.0.1:2".to_owned(),
        http: String::new(),
    };
    let mut options = ConsensusOptions::new(addresses);
    options.identity = Some(identity);
    let connector = TcpConnector::new(None, Duration::from_secs(1));
    Consensus::start(options, storage, Arc::new(connector), Arc::new(Blind))
        .await
        .map(|(consensus, _service)| consensus)
}

fn identify(storage: &dyn Storage) {
    let mut batch = Batch::new();
    meta::put_identity(&mut batch, OWN);
    storage.write(batch).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folder_of_another_cluster_or_node_is_refused() {
    let folder = TempDir::new().unwrap();
    let storage = open_rocks(&folder);
    identify(storage.as_ref());
    let others = [
        Identity {
            cluster: ClusterId(1),
            ..OWN
        },
        Identity {
            node: NodeId(4),
            ..OWN
        },
    ];
    for other in others {
        let refused = start(Arc::clone(&storage), other).await.unwrap_err();
        assert!(
            matches!(refused, StartError::ForeignFolder { found: OWN, expected } if expected == other)
        );
        assert_eq!(meta::identity(storage.as_ref()).unwrap(), Some(OWN));
    }
    start(storage, OWN).await.unwrap().shutdown().await;
}

/// It would vote as a node that has forgotten what it has acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_is_not_made_that_of_a_node_which_had_data() {
    let folder = TempDir::new().unwrap();
    let storage = open_rocks(&folder);
    let refused = start(Arc::clone(&storage), OWN).await.unwrap_err();
    assert!(matches!(refused, StartError::EmptyFolder { expected: OWN }));
    assert_eq!(meta::identity(storage.as_ref()).unwrap(), None);
}

/// Half of a restored folder is not an empty one.
#[test]
fn a_folder_whose_database_is_gone_is_refused() {
    let folder = TempDir::new().unwrap();
    drop(open_rocks(&folder));
    let data = folder.path().join("data");
    fs::remove_dir_all(data.join("db")).unwrap();
    let refused = RocksStorage::open(&data, SMALL).unwrap_err();
    assert!(matches!(refused, StorageError::Corrupt { .. }), "{refused}");
    assert!(!data.join("db").exists());
}

/// A node that has lost part of its log would vote as if it had all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_a_hole_is_refused() {
    let folder = TempDir::new().unwrap();
    let storage = open_rocks(&folder);
    identify(storage.as_ref());
    let mut batch = Batch::new();
    for index in [1, 2, 4] {
        batch.put_log(index, b"entry".to_vec());
    }
    storage.write(batch).unwrap();
    let refused = start(storage, OWN).await.unwrap_err();
    assert!(
        matches!(refused, StartError::Storage(StorageError::Corrupt { .. })),
        "{refused}"
    );
}

#[test]
fn folder_of_a_newer_release_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("FORMAT"), "tenure-data 3\n").unwrap();
    let refused = RocksStorage::open(&data, SMALL).unwrap_err();
    assert!(matches!(
        refused,
        StorageError::NewerFormat {
            found: 3,
            supported: 2,
            ..
        }
    ));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(data.join("FORMAT")).unwrap(),
        "tenure-data 3\n"
    );
}

#[test]
fn folder_of_an_earlier_release_is_marked_as_this_one_before_it_is_used() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    drop(RocksStorage::open(&data, SMALL).unwrap());
    fs::write(data.join("FORMAT"), "tenure-data 1\n").unwrap();
    drop(RocksStorage::open(&data, SMALL).unwrap());
    assert_eq!(
        fs::read_to_string(data.join("FORMAT")).unwrap(),
        "tenure-data 2\n"
    );
}

#[test]
fn folder_of_something_else_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let refused = RocksStorage::open(folder.path(), SMALL).unwrap_err();
    assert!(matches!(refused, StorageError::Foreign { .. }));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn folder_in_use_is_refused() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let _first = RocksStorage::open(&data, SMALL).unwrap();
    let refused = RocksStorage::open(&data, SMALL).unwrap_err();
    assert!(matches!(refused, StorageError::Locked { .. }), "{refused}");
}

/// Scenario 45: a node with a damaged snapshot says so and does not serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_a_corrupt_snapshot_does_not_start() {
    let folder = TempDir::new().unwrap();
    let storage = open_rocks(&folder);
    identify(storage.as_ref());
    let mut stores = open_stores(Arc::clone(&storage));
    stores.apply_history(5).await;
    let builder = stores.state_machine.try_create_snapshot_builder(true).await;
    let snapshot = builder.unwrap().build_snapshot().await.unwrap();
    stores.close().await;

    let path = folder
        .path()
        .join("data/snapshots")
        .join(&snapshot.snapshot.name);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let refused = start(Arc::clone(&storage), OWN).await.unwrap_err();
    assert!(
        matches!(&refused, StartError::Snapshot { .. }),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("corrupt snapshot"),
        "{refused}"
    );

    fs::remove_file(&path).unwrap();
    let refused = start(storage, OWN).await.unwrap_err();
    assert!(matches!(refused, StartError::Storage(_)), "{refused:?}");
}
