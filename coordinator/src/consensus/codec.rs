//! Translates between openraft's types and our own messages, which are what stands on disk and goes
//! over the wire. openraft's types change between its releases; the messages only grow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use openraft::entry::RaftEntry as _;
use openraft::{EntryPayload, Vote as RaftVote};
use prost::Message;
use tenure_ownership::ids::ClusterId;
use tenure_proto::raft::v1 as pb;

use super::envelope::{Envelope, Origin};
use super::identity::{Identity, NodeAddresses, NodeId};
use super::types::{EncodedCommand, Entry, LogId, Membership, StoredMembership, Vote};

/// A message that no release of ours writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CodecError {
    /// The bytes are not a message.
    #[error("undecodable {what}: {reason}")]
    Undecodable {
        /// What was expected.
        what: &'static str,
        /// What prost says.
        reason: String,
    },
    /// A field that is always set is missing.
    #[error("{what} without {field}")]
    Missing {
        /// The message.
        what: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// A field holds what it cannot hold.
    #[error("{what} is invalid: {reason}")]
    Invalid {
        /// The message.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

impl From<CodecError> for std::io::Error {
    fn from(error: CodecError) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// Decodes a message.
pub(super) fn decode<M: Message + Default>(
    what: &'static str,
    bytes: impl bytes::Buf,
) -> Result<M, CodecError> {
    M::decode(bytes).map_err(|error| CodecError::Undecodable {
        what,
        reason: error.to_string(),
    })
}

fn missing(what: &'static str, field: &'static str) -> CodecError {
    CodecError::Missing { what, field }
}

pub(super) fn log_id_to_proto(log_id: &LogId) -> pb::LogId {
    pb::LogId {
        term: log_id.committed_leader_id().term,
        index: log_id.index(),
    }
}

pub(super) fn log_id_from_proto(log_id: pb::LogId) -> LogId {
    LogId::new_term_index(log_id.term, log_id.index)
}

pub(super) fn vote_to_proto(vote: &Vote) -> pb::Vote {
    pb::Vote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn vote_from_proto(vote: pb::Vote) -> Vote {
    if vote.committed {
        return RaftVote::new_committed(vote.term, vote.node_id);
    }
    RaftVote::new(vote.term, vote.node_id)
}

/// Unwraps a vote that a message always carries.
pub(super) fn required_vote(
    what: &'static str,
    vote: Option<pb::Vote>,
) -> Result<Vote, CodecError> {
    vote.map(vote_from_proto)
        .ok_or_else(|| missing(what, "vote"))
}

pub(super) fn member_to_proto(id: u64, addresses: &NodeAddresses) -> pb::Member {
    pb::Member {
        node_id: id,
        raft_address: addresses.raft.clone(),
        client_address: addresses.client.clone(),
        http_address: addresses.http.clone(),
    }
}

fn member_from_proto(member: pb::Member) -> (u64, NodeAddresses) {
    let addresses = NodeAddresses {
        raft: member.raft_address,
        client: member.client_address,
        http: member.http_address,
    };
    (member.node_id, addresses)
}

pub(super) fn membership_to_proto(membership: &Membership) -> pb::Membership {
    pb::Membership {
        voter_sets: membership
            .get_joint_config()
            .iter()
            .map(|set| pb::VoterSet {
                node_ids: set.iter().copied().collect(),
            })
            .collect(),
        members: membership
            .nodes()
            .map(|(id, node)| member_to_proto(*id, node))
            .collect(),
    }
}

pub(super) fn membership_from_proto(membership: pb::Membership) -> Result<Membership, CodecError> {
    let voters: Vec<BTreeSet<u64>> = membership
        .voter_sets
        .into_iter()
        .map(|set| set.node_ids.into_iter().collect())
        .collect();
    let nodes: BTreeMap<u64, NodeAddresses> = membership
        .members
        .into_iter()
        .map(member_from_proto)
        .collect();
    // The membership before the first entry has neither voters nor nodes, which openraft's
    // constructor refuses.
    if voters.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(voters, nodes).map_err(|error| CodecError::Invalid {
        what: "membership",
        reason: error.to_string(),
    })
}

pub(super) fn stored_membership_to_proto(stored: &StoredMembership) -> pb::StoredMembership {
    pb::StoredMembership {
        log_id: stored.log_id().as_ref().map(log_id_to_proto),
        membership: Some(membership_to_proto(stored.membership())),
    }
}

pub(super) fn stored_membership_from_proto(
    stored: Option<pb::StoredMembership>,
) -> Result<StoredMembership, CodecError> {
    let stored = stored.ok_or_else(|| missing("snapshot or record", "membership"))?;
    let membership = stored
        .membership
        .ok_or_else(|| missing("stored membership", "membership"))?;
    Ok(StoredMembership::new(
        stored.log_id.map(log_id_from_proto),
        membership_from_proto(membership)?,
    ))
}

pub(super) fn entry_to_proto(entry: Entry) -> pb::Entry {
    let log_id = Some(log_id_to_proto(&entry.log_id));
    let mut envelope = None;
    let payload = match entry.payload {
        EntryPayload::Blank => pb::entry::Payload::Blank(pb::Blank {}),
        EntryPayload::Normal(command) => {
            envelope = envelope_to_proto(&command.envelope);
            pb::entry::Payload::Command(command.bytes)
        }
        EntryPayload::Membership(membership) => {
            pb::entry::Payload::Membership(membership_to_proto(&membership))
        }
    };
    pb::Entry {
        log_id,
        payload: Some(payload),
        envelope,
    }
}

/// One that says nothing is left out.
fn envelope_to_proto(envelope: &Envelope) -> Option<pb::Envelope> {
    (*envelope != Envelope::default()).then(|| pb::Envelope {
        at_ms: envelope.at_ms,
        by: envelope.by().to_owned(),
        reason: envelope.reason().to_owned(),
        operation: envelope.operation().to_owned(),
    })
}

fn envelope_from_proto(envelope: Option<pb::Envelope>) -> Envelope {
    let pb::Envelope {
        at_ms,
        by,
        reason,
        operation,
    } = envelope.unwrap_or_default();
    let said = !by.is_empty() || !reason.is_empty();
    Envelope {
        at_ms,
        origin: said.then(|| Arc::new(Origin { by, reason })),
        operation: (!operation.is_empty()).then(|| operation.into()),
    }
}

pub(super) fn entry_from_proto(entry: pb::Entry) -> Result<Entry, CodecError> {
    let log_id = entry.log_id.ok_or_else(|| missing("entry", "log_id"))?;
    // A payload of a later release decodes to none: this node must not guess what it means.
    let payload = match entry
        .payload
        .ok_or_else(|| missing("entry", "a payload known here"))?
    {
        pb::entry::Payload::Blank(_) => EntryPayload::Blank,
        pb::entry::Payload::Command(bytes) => EntryPayload::Normal(EncodedCommand {
            bytes,
            envelope: envelope_from_proto(entry.envelope),
        }),
        pb::entry::Payload::Membership(membership) => {
            EntryPayload::Membership(membership_from_proto(membership)?)
        }
    };
    Ok(Entry::new(log_id_from_proto(log_id), payload))
}

pub(super) fn encode_entry(entry: Entry) -> Vec<u8> {
    entry_to_proto(entry).encode_to_vec()
}

/// Decodes a log record; the index it was stored under must be the entry's own.
pub(super) fn decode_entry(index: u64, record: Vec<u8>) -> Result<Entry, CodecError> {
    let entry = entry_from_proto(decode("entry", Bytes::from(record))?)?;
    if entry.log_id.index() != index {
        return Err(CodecError::Invalid {
            what: "entry",
            reason: format!("entry {} is stored at index {index}", entry.log_id),
        });
    }
    Ok(entry)
}

pub(super) fn cluster_to_proto(cluster: ClusterId) -> Bytes {
    Bytes::copy_from_slice(&cluster.0.to_be_bytes())
}

pub(super) fn cluster_from_proto(bytes: &[u8]) -> Result<ClusterId, CodecError> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| CodecError::Invalid {
        what: "cluster id",
        reason: format!("{} bytes instead of 16", bytes.len()),
    })?;
    Ok(ClusterId(u128::from_be_bytes(bytes)))
}

pub(super) fn identity_to_proto(identity: Identity) -> pb::Identity {
    pb::Identity {
        cluster_id: cluster_to_proto(identity.cluster),
        node_id: identity.node.0,
    }
}

pub(super) fn identity_from_proto(identity: &pb::Identity) -> Result<Identity, CodecError> {
    Ok(Identity {
        cluster: cluster_from_proto(&identity.cluster_id)?,
        node: NodeId(identity.node_id),
    })
}
