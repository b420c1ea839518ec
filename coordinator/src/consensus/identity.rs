//! Who a node is and where it is reached.

use std::fmt;

use tenure_ownership::ids::ClusterId;

/// Identifies a node within its cluster. Never used twice: a node that lost its data, or was
/// removed, comes back under another id, because a quorum may count on what the old one promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which node of which cluster a data folder belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn at random when the cluster is initialised.
    pub cluster: ClusterId,
    /// The node's id in it.
    pub node: NodeId,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {}", self.node, self.cluster)
    }
}

/// Where a node is reached, each as `host:port`. Part of the membership, so every node knows it of
/// every other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAddresses {
    /// For its peers.
    pub raft: String,
    /// For workers and clients: the gRPC services.
    pub client: String,
    /// For people and scrapers: the HTTP pages. Empty if the node serves none.
    pub http: String,
}

impl fmt::Display for NodeAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raft {} client {}", self.raft, self.client)
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's id.
    pub id: NodeId,
    /// Where it is reached.
    pub addresses: NodeAddresses,
}
