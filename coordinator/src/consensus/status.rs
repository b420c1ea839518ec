//! How the cluster is doing, as one node sees it.

use openraft::async_runtime::watch::WatchReceiver as _;
use tenure_ownership::ids::Revision;

use super::handle::Consensus;
use super::identity::{Identity, Member, NodeId};
use super::types::LogId;

/// How a node and its cluster are doing, as that node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Who the node is; `None` while it is not part of a cluster.
    pub identity: Option<Identity>,
    /// The latest term it knows of.
    pub term: u64,
    /// The leader of that term, if it knows one.
    pub leader: Option<NodeId>,
    /// The last entry in its log.
    pub last_log: Option<Revision>,
    /// The last entry it knows to be committed.
    pub committed: Option<Revision>,
    /// The last entry it has applied.
    pub applied: Option<Revision>,
    /// The last entry contained in its snapshot.
    pub snapshot: Option<Revision>,
    /// The last entry it has removed from its log.
    pub purged: Option<Revision>,
    /// All nodes, ascending by id.
    pub nodes: Vec<NodeStatus>,
}

/// How one node is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node.
    pub member: Member,
    /// Its part in the cluster.
    pub role: Role,
    /// The last entry it is known to have; `None` if this node does not lead, or has not heard.
    pub matched: Option<Revision>,
    /// How many entries it lacks; `None` as above.
    pub lag: Option<u64>,
}

/// A node's part in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads.
    Leader,
    /// Votes.
    Follower,
    /// Receives the log and has no vote.
    Learner,
}

fn revision(log_id: Option<LogId>) -> Option<Revision> {
    log_id.map(|log_id| Revision(log_id.index()))
}

impl Consensus {
    /// Tells how the cluster is doing, as this node sees it.
    pub fn status(&self) -> ClusterStatus {
        let Some(running) = self.running() else {
            return ClusterStatus::default();
        };
        let metrics = running.raft.metrics();
        let metrics = metrics.borrow_watched().clone();
        let membership = &metrics.membership_config;
        let last_log = metrics.last_log_index;
        let voters: Vec<u64> = membership.voter_ids().collect();
        let nodes = membership.nodes().map(|(id, addresses)| {
            let role = if metrics.current_leader == Some(*id) {
                Role::Leader
            } else if voters.contains(id) {
                Role::Follower
            } else {
                Role::Learner
            };
            let matched = metrics
                .replication
                .as_ref()
                .and_then(|peers| peers.get(id).copied().flatten())
                .map(|log_id| log_id.index());
            NodeStatus {
                member: Member {
                    id: NodeId(*id),
                    addresses: addresses.clone(),
                },
                role,
                matched: matched.map(Revision),
                lag: matched.map(|matched| last_log.unwrap_or(0).saturating_sub(matched)),
            }
        });
        ClusterStatus {
            identity: Some(running.identity),
            term: metrics.current_term,
            leader: metrics.current_leader.map(NodeId),
            last_log: last_log.map(Revision),
            committed: revision(metrics.local_committed),
            applied: revision(metrics.last_applied),
            snapshot: revision(metrics.snapshot),
            purged: revision(metrics.purged),
            nodes: nodes.collect(),
        }
    }
}
