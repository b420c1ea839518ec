//! Snapshot files: written, read back, damaged, installed.

use std::io::Read as _;
use std::sync::Arc;

use openraft::RaftSnapshotBuilder as _;
use openraft::storage::RaftStateMachine as _;
use tempfile::TempDir;
use tenure_ownership::ids::ClusterId;

use super::super::snapshot::{
    CHUNK_BYTES_MAX, SnapshotContent, SnapshotError, SnapshotReader, SnapshotWriter,
};
use super::super::types::{Snapshot, StoredMembership};
use super::{CLUSTER, Stores, log_id, open_rocks, open_stores};
use crate::storage::{Files, MemoryFiles, MemoryStorage, Record, Storage};

fn content() -> SnapshotContent {
    SnapshotContent {
        cluster: CLUSTER,
        last_log_id: Some(log_id(3, 7)),
        membership: StoredMembership::default(),
    }
}

fn write(files: &dyn Files, records: &[Record]) -> Vec<u8> {
    let mut writer = SnapshotWriter::create(files, "written", &content()).unwrap();
    for (key, value) in records {
        writer.record(key, value).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut bytes = Vec::new();
    files
        .open("written")
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(bytes.len() as u64, file.size_bytes);
    assert_eq!(crc32c::crc32c(&bytes), file.crc32c);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, SnapshotError> {
    let files = MemoryFiles::default();
    files.create("read").unwrap().write_all(bytes).unwrap();
    let mut reader = SnapshotReader::open(&files, "read", CLUSTER)?;
    assert_eq!(*reader.content(), content());
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(records)
}

fn record(number: u32, length: usize) -> Record {
    (
        number.to_be_bytes().to_vec(),
        vec![u8::try_from(number % 251).unwrap(); length],
    )
}

#[test]
fn records_of_all_sizes_are_read_back() {
    let sizes = [
        0,
        1,
        7,
        CHUNK_BYTES_MAX - 12,
        CHUNK_BYTES_MAX,
        CHUNK_BYTES_MAX + 1,
        5 << 20,
        3,
    ];
    let records: Vec<Record> = (0..).zip(sizes).map(|(n, size)| record(n, size)).collect();
    let bytes = write(&MemoryFiles::default(), &records);
    assert_eq!(read(&bytes).unwrap(), records);
    assert_eq!(read(&write(&MemoryFiles::default(), &[])).unwrap(), []);
}

/// Scenario 45: whatever is damaged, it is noticed.
#[test]
fn every_damaged_byte_and_every_cut_is_noticed() {
    let records: Vec<Record> = (0..20).map(|number| record(number, 10)).collect();
    let bytes = write(&MemoryFiles::default(), &records);
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x10;
        assert!(read(&damaged).is_err(), "byte {index}");
        assert!(read(&bytes[..index]).is_err(), "cut at {index}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(read(&longer).is_err());
}

#[test]
fn snapshot_of_another_cluster_is_refused() {
    let files = MemoryFiles::default();
    write(&files, &[record(1, 1)]);
    let refused = SnapshotReader::open(&files, "written", ClusterId(9))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(
        refused,
        SnapshotError::Foreign { found: CLUSTER, .. }
    ));
}

async fn build(stores: &mut Stores) -> Snapshot {
    let builder = stores.state_machine.try_create_snapshot_builder(true).await;
    builder.unwrap().build_snapshot().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_snapshot_replaces_the_state_and_survives_a_restart() {
    let source_storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut source = open_stores(Arc::clone(&source_storage));
    source.apply_history(12).await;
    let snapshot = build(&mut source).await;

    let folder = TempDir::new().unwrap();
    let mut target = open_stores(open_rocks(&folder));
    target.apply_history(5).await;
    let file = target.receive(source_storage.as_ref(), &snapshot);
    target
        .state_machine
        .install_snapshot(&snapshot.meta, file)
        .await
        .unwrap();
    let expected = source.shared.read(Clone::clone);
    assert_eq!(target.shared.read(Clone::clone), expected);
    let current = target
        .state_machine
        .get_current_snapshot()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(current.meta, snapshot.meta);
    assert_eq!(
        target.shared.storage.files().list().unwrap(),
        std::slice::from_ref(&current.snapshot.name)
    );
    target.close().await;

    let mut target = open_stores(open_rocks(&folder));
    assert_eq!(target.shared.read(Clone::clone), expected);
    assert_eq!(target.shared.last_applied(), Some(log_id(1, 12)));
    // It goes on from there.
    target.apply_history(14).await;
    source.apply_history(14).await;
    assert_eq!(
        target.shared.read(Clone::clone),
        source.shared.read(Clone::clone)
    );
    target.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_snapshot_is_refused_and_the_state_stays() {
    let source_storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut source = open_stores(Arc::clone(&source_storage));
    source.apply_history(12).await;
    let snapshot = build(&mut source).await;
    let mut bytes = Vec::new();
    let name = &snapshot.snapshot.name;
    source_storage
        .files()
        .open(name)
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();

    let folder = TempDir::new().unwrap();
    let mut target = open_stores(open_rocks(&folder));
    target.apply_history(5).await;
    let before = target.shared.read(Clone::clone);
    // In the last part, when all records have been written already.
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    let file = target.store_file(&bytes);
    let refused = target
        .state_machine
        .install_snapshot(&snapshot.meta, file)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("corrupt snapshot"),
        "{refused}"
    );
    assert_eq!(target.shared.read(Clone::clone), before);
    target.close().await;

    let target = open_stores(open_rocks(&folder));
    assert_eq!(target.shared.read(Clone::clone), before);
    assert_eq!(target.shared.last_applied(), Some(log_id(1, 5)));
    target.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_is_of_one_moment_while_commands_go_on() {
    let mut source = open_stores(Arc::new(MemoryStorage::new()));
    source.apply_history(6).await;
    let mut builder = source
        .state_machine
        .try_create_snapshot_builder(true)
        .await
        .unwrap();
    source.apply_history(20).await;
    let snapshot = builder.build_snapshot().await.unwrap();
    assert_eq!(snapshot.meta.last_log_id, Some(log_id(1, 6)));

    let mut target = open_stores(Arc::new(MemoryStorage::new()));
    let file = target.receive(source.shared.storage.as_ref(), &snapshot);
    target
        .state_machine
        .install_snapshot(&snapshot.meta, file)
        .await
        .unwrap();
    let mut expected = open_stores(Arc::new(MemoryStorage::new()));
    expected.apply_history(6).await;
    assert_eq!(
        target.shared.read(Clone::clone),
        expected.shared.read(Clone::clone)
    );
}
