//! What can go wrong, by what the caller does next.

use tenure_ownership::ids::ClusterId;

use super::identity::{Identity, Member, NodeId};
use super::options::OptionsError;
use crate::storage::StorageError;

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings do not fit together.
    #[error(transparent)]
    Options(#[from] OptionsError),

    /// The data folder belongs to another node or cluster. Nothing was changed.
    #[error("the data folder belongs to {found}, this is {expected}")]
    ForeignFolder {
        /// Who the folder belongs to.
        found: Identity,
        /// Who this node is told to be.
        expected: Identity,
    },

    /// What is stored cannot be read, or is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// The snapshot is damaged or belongs to another cluster.
    #[error("{reason}")]
    Snapshot {
        /// What is wrong with it.
        reason: String,
    },

    /// The data folder is empty, but the configuration says that the node is part of a cluster.
    #[error(
        "the data folder is empty, but the configuration names it {expected}, which had data: mount its folder, or, if \
         that is lost, remove the node from the cluster, remove `identity` from the configuration, and add the node anew"
    )]
    EmptyFolder {
        /// Who the configuration says it is.
        expected: Identity,
    },

    /// Raft does not start on what is stored.
    #[error("raft does not start: {reason}")]
    Raft {
        /// What openraft says.
        reason: String,
    },
}

/// Why a command was not applied, or is not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none is known to. The command was not proposed: send it there.
    #[error("this node does not lead")]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<Member>,
    },

    /// The command was not proposed. Try again.
    #[error("this node cannot propose: {reason}")]
    Unavailable {
        /// Why not.
        reason: &'static str,
    },

    /// The command may be applied, now or later, or never. Repeat it only if that is harmless.
    #[error("the outcome of the command is unknown")]
    OutcomeUnknown,

    /// The command was not proposed and never will be.
    #[error("the command has {bytes} bytes, {bytes_max} are accepted")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The largest size accepted.
        bytes_max: usize,
    },

    /// The node has stopped. The command was not proposed.
    #[error("the node has stopped")]
    Stopped,
}

/// Why a linearizable read is not possible. Nothing was changed: try again, here or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader that a quorum follows was found in time.
    #[error("no quorum answered: {reason}")]
    Unavailable {
        /// What was tried last.
        reason: String,
    },

    /// A quorum answered, but this node did not catch up with it in time.
    #[error("this node is behind index {index}")]
    Behind {
        /// The index it would have had to apply.
        index: u64,
    },

    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// Why a node was not made part of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AssignError {
    /// It is part of another.
    #[error("this is {found}, it cannot become part of cluster {wanted}")]
    OtherCluster {
        /// Who it is.
        found: Identity,
        /// The cluster that asked.
        wanted: ClusterId,
    },
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It is stopping.
    #[error("the node has stopped")]
    Stopped,
}

/// Why the cluster was not changed, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// Another node leads, or none is known to. Nothing was changed: ask there.
    #[error("this node does not lead")]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<Member>,
    },
    /// The cluster exists already. Nothing was changed.
    #[error("the cluster is initialised already")]
    Initialized,
    /// The node is not a member. Nothing was changed.
    #[error("node {node} is not a member")]
    UnknownNode {
        /// The node asked for.
        node: NodeId,
    },
    /// The node is a learner and cannot lead. Nothing was changed.
    #[error("node {node} does not vote")]
    NotVoter {
        /// The node asked for.
        node: NodeId,
    },
    /// The node was a member before and must come back empty, under another id.
    #[error("the node at {address} was node {node} before: remove its data folder first")]
    UsedNode {
        /// Where the node is.
        address: String,
        /// The id it has.
        node: NodeId,
    },
    /// The last voter cannot be removed. Nothing was changed.
    #[error("node {node} is the only voter")]
    LastVoter {
        /// The node asked for.
        node: NodeId,
    },
    /// Two nodes, or two purposes, have one address, or it is not one.
    #[error("invalid address: {reason}")]
    Address {
        /// What is wrong.
        reason: String,
    },
    /// The node could not be reached or refused. It is not a voter.
    #[error("the node at {address} did not join: {reason}")]
    Peer {
        /// Where it is.
        address: String,
        /// What it said.
        reason: String,
    },
    /// Another change is under way. Try again.
    #[error("another change of the membership is under way")]
    InProgress,
    /// The change did not end in time. It may still; the status tells.
    #[error("the change did not end in time: {waiting_for}")]
    TimedOut {
        /// What had not happened yet.
        waiting_for: &'static str,
    },
    /// The node that does not lead was started under one identity, and the cluster under another.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}
