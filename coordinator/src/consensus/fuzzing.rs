//! What a fuzzer reaches of this folder: everything that reads bytes from a disk or from a peer.
//!
//! What can be read is written again and read once more: the two must be the same.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tenure_ownership::ids::ClusterId;
use tenure_proto::raft::v1 as pb;

use super::codec;
use super::identity::NodeAddresses;
use super::meta;
use super::restore::{RestoreOptions, restore};
use super::snapshot::{SnapshotContent, SnapshotError, SnapshotReader, SnapshotWriter};
use super::types::StoredMembership;
use super::wire;
use crate::storage::{Files as _, MemoryFiles, MemoryStorage, Storage};

const CLUSTER: ClusterId = ClusterId(7);
const FILE: &str = "fuzzed";

/// Reads a record of the log, as if it were stored at `index`.
pub fn log_record(index: u64, bytes: &[u8]) {
    let Ok(entry) = codec::decode_entry(index, bytes.to_vec()) else {
        return;
    };
    let again = codec::decode_entry(index, codec::encode_entry(entry.clone()));
    assert_eq!(again, Ok(entry));
}

/// Reads a message of a peer, of the kind that `kind` picks.
pub fn peer_message(kind: u8, bytes: &[u8]) {
    match kind % 6 {
        0 => append_request(bytes),
        1 => {
            let response = pb::AppendResponse::decode(bytes).map(wire::appended_from_proto);
            if let Ok(Ok(response)) = response {
                let again = wire::appended_from_proto(wire::appended_to_proto(response.clone()));
                assert_eq!(again, Ok(response));
            }
        }
        2 => {
            let request = pb::VoteRequest::decode(bytes).map(wire::vote_request_from_proto);
            if let Ok(Ok(request)) = request {
                let again = wire::vote_request_from_proto(wire::vote_request_to_proto(&request));
                assert_eq!(again, Ok(request));
            }
        }
        3 => {
            let response = pb::VoteResponse::decode(bytes).map(wire::vote_response_from_proto);
            if let Ok(Ok(response)) = response {
                let again = wire::vote_response_from_proto(wire::vote_response_to_proto(&response));
                assert_eq!(again, Ok(response));
            }
        }
        4 => {
            let request = pb::TransferLeaderRequest::decode(bytes).map(wire::transfer_from_proto);
            if let Ok(Ok(request)) = request {
                let again = wire::transfer_from_proto(wire::transfer_to_proto(&request));
                assert_eq!(again, Ok(request));
            }
        }
        _ => {
            let stored = pb::StoredMembership::decode(bytes)
                .map(|stored| codec::stored_membership_from_proto(Some(stored)));
            if let Ok(Ok(stored)) = stored {
                let again = codec::stored_membership_to_proto(&stored);
                let again = codec::stored_membership_from_proto(Some(again));
                assert_eq!(again, Ok(stored));
            }
        }
    }
}

fn append_request(bytes: &[u8]) {
    let Ok(Ok(request)) = pb::AppendRequest::decode(bytes).map(wire::append_from_proto) else {
        return;
    };
    let _last = wire::last_of(&request);
    let written = wire::append_to_proto(request);
    let again = wire::append_from_proto(written.clone()).map(wire::append_to_proto);
    assert_eq!(again, Ok(written));
}

/// Reads a file as a snapshot.
pub fn snapshot(bytes: &[u8]) {
    // Refusing is all that may happen to a file that nobody wrote.
    let _ = read(bytes);
}

/// Writes a snapshot of some records, reads it back, changes one byte and reads it again.
pub fn changed_snapshot(records: &[(Vec<u8>, Vec<u8>)], position: usize, change: u8) {
    let mut bytes = written(records);
    assert_eq!(read(&bytes).ok().as_deref(), Some(records));
    let position = position % bytes.len();
    if change != 0 {
        bytes[position] ^= change;
        assert!(
            read(&bytes).is_err(),
            "byte {position} was changed unnoticed"
        );
    }
}

/// Makes a cluster of a backup of some records, as of a log index.
pub fn restored(records: &[(Vec<u8>, Vec<u8>)], index: u64) {
    restore_file(written_at(records, index));
}

/// Makes a cluster of any bytes.
pub fn restored_file(bytes: &[u8]) {
    restore_file(bytes.to_vec());
}

fn restore_file(bytes: Vec<u8>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = RestoreOptions {
        cluster: ClusterId(8),
        addresses: NodeAddresses {
            raft: "a:1".to_owned(),
            client: "a:2".to_owned(),
            http: String::new(),
        },
        floor_min: 1 << 40,
        index_min: 1 << 20,
        quiet_min: Duration::from_secs(1),
    };
    let file = Box::new(std::io::Cursor::new(bytes));
    let found = meta::identity(storage.as_ref());
    assert!(matches!(found, Ok(None)));
    match restore(storage.as_ref(), file, &options) {
        // Refusing is all that may happen to a file that nobody wrote, and it leaves no node.
        Err(_) => assert!(matches!(meta::identity(storage.as_ref()), Ok(None))),
        Ok(restored) => {
            let identity = meta::identity(storage.as_ref());
            assert!(matches!(identity, Ok(Some(found)) if found == restored.identity));
        }
    }
}

fn written(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    written_at(records, 7)
}

fn written_at(records: &[(Vec<u8>, Vec<u8>)], index: u64) -> Vec<u8> {
    let files = MemoryFiles::default();
    let content = SnapshotContent {
        cluster: CLUSTER,
        last_log_id: Some(super::types::LogId::new_term_index(3, index)),
        membership: StoredMembership::default(),
    };
    let write = || -> Result<Vec<u8>, SnapshotError> {
        let mut writer = SnapshotWriter::create(&files, FILE, &content)?;
        for (key, value) in records {
            writer.record(key, value)?;
        }
        writer.finish()?;
        let mut bytes = Vec::new();
        files.open(FILE)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    write().unwrap_or_else(|error| panic!("a file in memory cannot be written: {error}"))
}

fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, SnapshotError> {
    let files = MemoryFiles::default();
    files.create(FILE)?.write_all(bytes)?;
    let mut reader = SnapshotReader::open(&files, FILE, CLUSTER)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(records)
}
