//! The bytes on disk and on the wire. A change of these tests is a change of the format: older
//! folders and peers must still be understood.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;
use prost::Message as _;
use tenure_ownership::ids::ClusterId;

use super::super::codec;
use super::super::envelope::{Envelope, Origin};
use super::super::identity::{Identity, NodeAddresses, NodeId};
use super::super::meta::{self, Generation};
use super::super::snapshot::{SnapshotContent, SnapshotWriter};
use super::super::types::{EncodedCommand, Entry, Membership, StoredMembership, Vote};
use super::{CLUSTER, command_entry, log_id};
use crate::storage::{Batch, Files, MemoryFiles, MemoryStorage, Records as _, Storage as _, Table};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const MEMBERSHIP: &str =
    "0a040a020102120c08011203613a311a03613a32121108021203623a311a03623a322203623a33";

fn membership() -> Membership {
    let node = |raft: &str, client: &str, http: &str| NodeAddresses {
        raft: raft.to_owned(),
        client: client.to_owned(),
        http: http.to_owned(),
    };
    let nodes = BTreeMap::from([(1, node("a:1", "a:2", "")), (2, node("b:1", "b:2", "b:3"))]);
    Membership::new(vec![BTreeSet::from([1, 2])], nodes).unwrap()
}

fn stored_membership() -> StoredMembership {
    StoredMembership::new(Some(log_id(3, 7)), membership())
}

/// Checks the bytes, and that they are read back as what was written.
fn check_entry(entry: Entry, bytes: &str) {
    let index = entry.log_id.index();
    let encoded = codec::encode_entry(entry.clone());
    assert_eq!(hex(&encoded), bytes);
    assert_eq!(codec::decode_entry(index, encoded).unwrap(), entry);
}

#[test]
fn entries_have_these_bytes() {
    check_entry(
        command_entry(log_id(3, 7), "hello"),
        "0a04080310071a0568656c6c6f",
    );
    check_entry(
        Entry::new(log_id(3, 7), EntryPayload::Blank),
        "0a04080310071200",
    );
    check_entry(
        Entry::new(log_id(3, 7), EntryPayload::Membership(membership())),
        &format!("0a04080310072227{MEMBERSHIP}"),
    );
    check_entry(Entry::new(log_id(0, 0), EntryPayload::Blank), "0a001200");
}

#[test]
fn an_entry_says_when_by_whom_and_why_it_was_proposed() {
    let origin = Origin {
        by: "al".to_owned(),
        reason: "why".to_owned(),
    };
    let mut command = EncodedCommand {
        bytes: "hello".into(),
        envelope: Envelope {
            at_ms: 300,
            origin: Some(Arc::new(origin)),
            operation: None,
        },
    };
    check_entry(
        Entry::new(log_id(3, 7), EntryPayload::Normal(command.clone())),
        "0a04080310071a0568656c6c6f2a0c08ac021202616c1a03776879",
    );
    command.bytes = "".into();
    command.envelope.origin = None;
    command.envelope.operation = Some("go".into());
    check_entry(
        Entry::new(log_id(3, 7), EntryPayload::Normal(command)),
        "0a04080310071a002a0708ac022202676f",
    );
}

#[test]
fn joint_membership_is_read_back() {
    let nodes: BTreeMap<u64, NodeAddresses> = membership()
        .nodes()
        .map(|(id, node)| (*id, node.clone()))
        .collect();
    let voters = vec![BTreeSet::from([1]), BTreeSet::from([1, 2])];
    let joint = Membership::new(voters, nodes).unwrap();
    let message = codec::membership_to_proto(&joint);
    assert_eq!(message.voter_sets.len(), 2);
    assert_eq!(codec::membership_from_proto(message).unwrap(), joint);
}

#[test]
fn entry_that_is_not_understood_is_an_error() {
    // A payload of a later release: field 9.
    let unknown = vec![0x0a, 0x04, 0x08, 0x03, 0x10, 0x07, 0x4a, 0x00];
    codec::decode_entry(7, unknown).unwrap_err();
    let misplaced = codec::encode_entry(command_entry(log_id(3, 7), "hello"));
    codec::decode_entry(8, misplaced).unwrap_err();
    codec::decode_entry(7, vec![0xff; 9]).unwrap_err();
}

#[test]
fn records_of_a_node_have_these_bytes() {
    let storage = MemoryStorage::new();
    let mut batch = Batch::new();
    let identity = Identity {
        cluster: ClusterId(0x7e),
        node: NodeId(3),
    };
    meta::put_identity(&mut batch, identity);
    meta::put_vote(&mut batch, &Vote::new_committed(3, 2));
    meta::put_purged(&mut batch, &log_id(3, 7));
    meta::put_applied(&mut batch, &log_id(3, 8));
    meta::put_generation(&mut batch, Generation(5));
    meta::put_membership(&mut batch, &stored_membership());
    storage.write(batch).unwrap();

    let bytes = |key: &str| hex(&storage.get(Table::Meta, key.as_bytes()).unwrap().unwrap());
    assert_eq!(
        bytes("identity"),
        "0a100000000000000000000000000000007e1003"
    );
    assert_eq!(bytes("vote"), "080310021801");
    assert_eq!(bytes("purged"), "08031007");
    assert_eq!(bytes("applied"), "08031008");
    assert_eq!(bytes("generation"), "0000000000000005");
    assert_eq!(bytes("membership"), format!("0a04080310071227{MEMBERSHIP}"));
    assert_eq!(hex(&Generation(5).key(b"k")), "00000000000000056b");

    assert_eq!(meta::identity(&storage).unwrap(), Some(identity));
    assert_eq!(
        meta::vote(&storage).unwrap(),
        Some(Vote::new_committed(3, 2))
    );
    assert_eq!(meta::purged(&storage).unwrap(), Some(log_id(3, 7)));
    assert_eq!(meta::applied(&storage).unwrap(), Some(log_id(3, 8)));
    assert_eq!(meta::generation(&storage).unwrap(), Generation(5));
    assert_eq!(meta::membership(&storage).unwrap(), stored_membership());
}

#[test]
fn snapshot_file_has_these_bytes() {
    let files = MemoryFiles::default();
    let content = SnapshotContent {
        cluster: CLUSTER,
        last_log_id: Some(log_id(3, 7)),
        membership: stored_membership(),
    };
    let mut writer = SnapshotWriter::create(&files, "s", &content).unwrap();
    writer.record(b"k", b"vw").unwrap();
    writer.record(b"kk", b"").unwrap();
    writer.finish().unwrap();
    let mut bytes = Vec::new();
    files.open("s").unwrap().read_to_end(&mut bytes).unwrap();
    let expected = [
        "54454e555245534e", // magic
        "4b0000009ab0ce8e", // header: length, checksum
        "080112100000000000000000000000000000007e1a0408031007222f0a04080310071227",
        MEMBERSHIP,
        "1500000098080771", // chunk: length, checksum
        "01000000020000006b7677",
        "02000000000000006b6b",
        "00000000980807710200000000000000", // end, checksum of the records, their number
    ];
    assert_eq!(hex(&bytes), expected.concat());
}

#[test]
fn vote_without_a_grant_is_read_back() {
    let vote = Vote::new(4, 9);
    let message = codec::vote_to_proto(&vote);
    assert_eq!(hex(&message.encode_to_vec()), "08041009");
    assert_eq!(codec::vote_from_proto(message), vote);
}
