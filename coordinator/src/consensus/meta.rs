//! Raft's own facts on disk: the records of [`Table::Meta`], and where in [`Table::State`] the
//! state stands.
//!
//! | key | value |
//! |---|---|
//! | `identity` | which node of which cluster the folder belongs to |
//! | `vote` | the last vote |
//! | `purged` | the last log entry removed by a purge |
//! | `generation` | which generation of state records is current: 8 bytes, big-endian |
//! | `applied` | the last log entry applied to the state |
//! | `membership` | the last membership applied |
//! | `snapshot` | the current snapshot file |
//!
//! A state record's key is its generation (8 bytes, big-endian) and its own key. A snapshot is
//! installed by writing the next generation beside the current one and switching the pointer.

use bytes::Bytes;
use prost::Message;
use tenure_proto::raft::v1 as pb;

use super::codec::{self, CodecError};
use super::identity::Identity;
use super::types::{LogId, StoredMembership, Vote};
use crate::storage::{Batch, Records, StorageError, Table};

const IDENTITY: &[u8] = b"identity";
const VOTE: &[u8] = b"vote";
const PURGED: &[u8] = b"purged";
const GENERATION: &[u8] = b"generation";
const APPLIED: &[u8] = b"applied";
const MEMBERSHIP: &[u8] = b"membership";
const SNAPSHOT: &[u8] = b"snapshot";

/// Which set of state records is current. Rises with every snapshot that is installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(pub(super) u64);

impl Generation {
    /// Returns the generation after this one.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the key under which a state record of this generation is stored.
    pub(super) fn key(self, key: &[u8]) -> Vec<u8> {
        let mut full = Vec::with_capacity(8 + key.len());
        full.extend_from_slice(&self.0.to_be_bytes());
        full.extend_from_slice(key);
        full
    }

    /// Returns the first key of this generation, which is the end of the one before.
    pub(super) fn start(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    /// Returns a record's own key.
    pub(super) fn strip(full: &[u8]) -> &[u8] {
        full.get(8..).unwrap_or_default()
    }
}

impl From<CodecError> for StorageError {
    fn from(error: CodecError) -> Self {
        Self::Corrupt {
            what: error.to_string(),
        }
    }
}

fn read<M: Message + Default>(
    records: &dyn Records,
    key: &[u8],
    what: &'static str,
) -> Result<Option<M>, StorageError> {
    let Some(bytes) = records.get(Table::Meta, key)? else {
        return Ok(None);
    };
    Ok(Some(codec::decode(what, Bytes::from(bytes))?))
}

pub(super) fn identity(records: &dyn Records) -> Result<Option<Identity>, StorageError> {
    let found: Option<pb::Identity> = read(records, IDENTITY, "identity")?;
    Ok(found.as_ref().map(codec::identity_from_proto).transpose()?)
}

pub(super) fn put_identity(batch: &mut Batch, identity: Identity) {
    batch.put(
        Table::Meta,
        IDENTITY,
        codec::identity_to_proto(identity).encode_to_vec(),
    );
}

pub(super) fn vote(records: &dyn Records) -> Result<Option<Vote>, StorageError> {
    Ok(read(records, VOTE, "vote")?.map(codec::vote_from_proto))
}

pub(super) fn put_vote(batch: &mut Batch, vote: &Vote) {
    batch.put(
        Table::Meta,
        VOTE,
        codec::vote_to_proto(vote).encode_to_vec(),
    );
}

pub(super) fn purged(records: &dyn Records) -> Result<Option<LogId>, StorageError> {
    Ok(read(records, PURGED, "purged log id")?.map(codec::log_id_from_proto))
}

pub(super) fn put_purged(batch: &mut Batch, log_id: &LogId) {
    batch.put(
        Table::Meta,
        PURGED,
        codec::log_id_to_proto(log_id).encode_to_vec(),
    );
}

pub(super) fn generation(records: &dyn Records) -> Result<Generation, StorageError> {
    let Some(bytes) = records.get(Table::Meta, GENERATION)? else {
        return Ok(Generation::default());
    };
    let bytes = bytes.try_into().map_err(|_| StorageError::Corrupt {
        what: "generation is not of 8 bytes".to_owned(),
    })?;
    Ok(Generation(u64::from_be_bytes(bytes)))
}

pub(super) fn put_generation(batch: &mut Batch, generation: Generation) {
    batch.put(Table::Meta, GENERATION, generation.start());
}

pub(super) fn applied(records: &dyn Records) -> Result<Option<LogId>, StorageError> {
    Ok(read(records, APPLIED, "applied log id")?.map(codec::log_id_from_proto))
}

pub(super) fn put_applied(batch: &mut Batch, log_id: &LogId) {
    batch.put(
        Table::Meta,
        APPLIED,
        codec::log_id_to_proto(log_id).encode_to_vec(),
    );
}

pub(super) fn membership(records: &dyn Records) -> Result<StoredMembership, StorageError> {
    match read(records, MEMBERSHIP, "membership")? {
        None => Ok(StoredMembership::default()),
        stored => Ok(codec::stored_membership_from_proto(stored)?),
    }
}

pub(super) fn put_membership(batch: &mut Batch, membership: &StoredMembership) {
    let message = codec::stored_membership_to_proto(membership);
    batch.put(Table::Meta, MEMBERSHIP, message.encode_to_vec());
}

pub(super) fn snapshot(records: &dyn Records) -> Result<Option<pb::SnapshotPointer>, StorageError> {
    read(records, SNAPSHOT, "snapshot pointer")
}

pub(super) fn put_snapshot(batch: &mut Batch, pointer: &pb::SnapshotPointer) {
    batch.put(Table::Meta, SNAPSHOT, pointer.encode_to_vec());
}
