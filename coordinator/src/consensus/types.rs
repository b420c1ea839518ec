//! The types openraft is instantiated with. None of them leaves this folder.

use std::fmt;

use bytes::Bytes;
use openraft::errors::ForwardToLeader;

use super::Outcome;
use super::envelope::Envelope;
use super::identity::{Member, NodeAddresses, NodeId};
use super::runtime::Runtime;

openraft::declare_raft_types!(
    /// One leader per term, so that a term names its leader; everything else is openraft's default.
    pub(super) TypeConfig:
        D = EncodedCommand,
        R = Reply,
        NodeId = u64,
        Node = NodeAddresses,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

pub(super) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(super) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(super) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(super) type Membership = openraft::Membership<u64, NodeAddresses>;
pub(super) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(super) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(super) type Snapshot =
    openraft::type_config::alias::SnapshotOf<TypeConfig, super::snapshot::SnapshotFile>;
pub(super) type Raft = openraft::Raft<TypeConfig, super::state_machine::StateMachine>;

/// A command as it stands in the log. It stays encoded until it is applied, so that writing,
/// sending and reading the log cost no more than copying it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct EncodedCommand {
    pub(super) bytes: Bytes,
    /// When, by whom and why it was proposed.
    pub(super) envelope: Envelope,
}

impl fmt::Debug for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.bytes.len())
    }
}

/// What applying an entry answers to its proposer; `None` for an entry that carries no command.
#[derive(Debug)]
pub(super) struct Reply(pub(super) Option<Outcome>);

/// Returns the leader openraft points at.
pub(super) fn leader_in(to: ForwardToLeader<TypeConfig>) -> Option<Member> {
    let (id, addresses) = (to.leader_id?, to.leader_node?);
    Some(Member {
        id: NodeId(id),
        addresses,
    })
}
