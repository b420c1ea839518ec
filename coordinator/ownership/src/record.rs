//! How the state is kept on disk: one record per thing, so that a command writes only what it touched.
//!
//! | first byte | key goes on with | value |
//! |---|---|---|
//! | `m` | | cluster, revision, features, what is left of a restore |
//! | `g` | group id | [`GroupHeader`] |
//! | `t` | group name | [`Tombstone`] |
//! | `w` | group id, worker name | [`Worker`] |
//! | `s` | session id | [`Session`] |
//! | `h` | group id, shard index | [`Shard`] |
//! | `p` | group id, shard index | [`Placement`] |
//! | `b` | group id, shard index | a blob: the bytes of a checkpoint, not held in memory |
//!
//! Numbers in keys are big-endian, so that keys sort like the things they name. A shard that was never
//! granted and has no floor has no record: creating a group of a million shards writes one record.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use tenure_fence::GroupName;

use crate::codec;
use crate::feature::Feature;
use crate::group::{GroupHeader, Tombstone};
use crate::ids::{ClusterId, GroupId, Revision, SessionId, ShardIndex, WorkerName};
use crate::placement::Placement;
use crate::policy::bounds;
use crate::restored::Restored;
use crate::session::{Session, Worker};
use crate::shard::Shard;

/// One change on disk: `None` deletes the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// Key of the record.
    pub key: Vec<u8>,
    /// Its new value.
    pub value: Option<Bytes>,
}

/// A record that cannot be read. The state is not usable without it.
#[derive(Debug, thiserror::Error)]
#[error("record {key:02x?} is corrupt: {problem}")]
pub struct CorruptRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub problem: String,
}

/// Key of the blob that holds the checkpoint bytes of a shard.
pub fn checkpoint_key(group: GroupId, shard: ShardIndex) -> Vec<u8> {
    RecordKey::Blob(group, shard).encode()
}

/// What is not specific to a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Meta {
    #[n(0)]
    pub(crate) cluster: Option<ClusterId>,
    #[n(1)]
    pub(crate) revision: Revision,
    #[n(2)]
    pub(crate) features: Vec<Feature>,
    #[n(3)]
    pub(crate) restored: Option<Restored>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordKey {
    Meta,
    Group(GroupId),
    Tombstone(GroupName),
    Worker(GroupId, WorkerName),
    Session(SessionId),
    Shard(GroupId, ShardIndex),
    Placement(GroupId, ShardIndex),
    Blob(GroupId, ShardIndex),
}

impl RecordKey {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Meta => b"m".to_vec(),
            Self::Group(group) => numbered(b'g', group.0).to_vec(),
            Self::Tombstone(name) => [b"t", name.as_str().as_bytes()].concat(),
            Self::Worker(group, name) => {
                [&numbered(b'w', group.0), name.as_str().as_bytes()].concat()
            }
            Self::Session(session) => numbered(b's', session.0).to_vec(),
            Self::Shard(group, shard) => {
                [&numbered(b'h', group.0)[..], &shard.0.to_be_bytes()].concat()
            }
            Self::Placement(group, shard) => {
                [&numbered(b'p', group.0)[..], &shard.0.to_be_bytes()].concat()
            }
            Self::Blob(group, shard) => {
                [&numbered(b'b', group.0)[..], &shard.0.to_be_bytes()].concat()
            }
        }
    }
}

fn numbered(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A record as it is read back.
pub(crate) enum Record {
    Meta(Meta),
    Group(GroupHeader),
    Tombstone(GroupName, Tombstone),
    Worker(GroupId, WorkerName, Worker),
    Session(SessionId, Session),
    Shard(GroupId, ShardIndex, Shard),
    Placement(GroupId, ShardIndex, Placement),
    Blob,
}

impl Record {
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let (&kind, rest) = key.split_first().ok_or("the key is empty")?;
        match kind {
            b'm' => nothing_follows(rest).and_then(|()| Ok(Self::Meta(value_of(value)?))),
            b'g' => whole_number(rest).and_then(|id| Ok(Self::Group(header(GroupId(id), value)?))),
            b't' => text(rest).and_then(|name| {
                let name = GroupName::try_from(name).map_err(|error| error.to_string())?;
                Ok(Self::Tombstone(name, value_of(value)?))
            }),
            b'w' => number(rest).and_then(|(group, rest)| {
                let name = WorkerName::new(text(rest)?).map_err(|error| error.to_string())?;
                Ok(Self::Worker(GroupId(group), name, value_of(value)?))
            }),
            b's' => whole_number(rest)
                .and_then(|session| Ok(Self::Session(SessionId(session), value_of(value)?))),
            b'h' => shard(rest)
                .and_then(|(group, index)| Ok(Self::Shard(group, index, value_of(value)?))),
            b'p' => shard(rest)
                .and_then(|(group, index)| Ok(Self::Placement(group, index, value_of(value)?))),
            b'b' => Ok(Self::Blob),
            _ => Err("unknown kind of record".to_owned()),
        }
    }
}

fn value_of<'b, T: Decode<'b, ()>>(value: &'b [u8]) -> Result<T, String> {
    codec::from_slice(value).map_err(|error| error.to_string())
}

/// The header of a group, if it can be one: its shards are about to be made room for.
fn header(id: GroupId, value: &[u8]) -> Result<GroupHeader, String> {
    let header: GroupHeader = value_of(value)?;
    if header.id != id {
        return Err(format!("it is the header of group #{}", header.id));
    }
    if !bounds::SHARDS.contains(&header.shard_count) {
        return Err(format!("a group of {} shards", header.shard_count));
    }
    Ok(header)
}

fn shard(bytes: &[u8]) -> Result<(GroupId, ShardIndex), String> {
    let (group, rest) = number(bytes)?;
    let index: [u8; 4] = rest
        .try_into()
        .map_err(|_| "shard index is not 4 bytes".to_owned())?;
    Ok((GroupId(group), ShardIndex(u32::from_be_bytes(index))))
}

fn whole_number(bytes: &[u8]) -> Result<u64, String> {
    let (number, rest) = number(bytes)?;
    nothing_follows(rest)?;
    Ok(number)
}

fn nothing_follows(rest: &[u8]) -> Result<(), String> {
    if rest.is_empty() {
        return Ok(());
    }
    Err("key is too long".to_owned())
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), String> {
    let (number, rest) = bytes.split_first_chunk().ok_or("key is too short")?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "name is not text".to_owned())
}
