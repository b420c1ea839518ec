//! Whether this node still belongs to its cluster.
//!
//! A node that is removed is mostly not told: the leader ends its replication, and the entry that removes
//! it may never arrive. It would stand for election for ever, or go on believing in the leader it heard
//! last. So every node that does not lead asks the others who is in the cluster.
//!
//! A membership that was committed later than the one in which this node is, and does not name it, removes
//! it for good, because no id is used twice.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver as _;
use tenure_proto::raft::v1 as pb;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::codec;
use super::connector::Lane;
use super::handle::Consensus;
use super::identity::{Identity, NodeId};
use super::links::{Links, addressed, answer};
use super::membership::membership_of;
use super::runtime;
use super::types::{Raft, StoredMembership};

/// How often a node that does not lead asks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long one node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Asks whether this node was removed while it does not lead.
pub(super) struct Standing {
    pub(super) raft: Raft,
    pub(super) links: Arc<Links>,
    pub(super) identity: Identity,
    pub(super) removed: Arc<watch::Sender<bool>>,
    pub(super) stop: CancellationToken,
}

impl Standing {
    pub(super) async fn run(self) {
        let stop = self.stop.clone();
        let watching = async {
            loop {
                // A wait that nothing ends but its time.
                let _ = runtime::at_most(INTERVAL, std::future::pending::<()>()).await;
                let removed = self.is_removed().await;
                self.publish(removed);
            }
        };
        let _ = stop.run_until_cancelled(watching).await;
    }

    fn publish(&self, removed: bool) {
        let changed = self.removed.send_if_modified(|known| {
            let changed = *known != removed;
            *known = removed;
            changed
        });
        if !changed {
            return;
        }
        // Nobody would elect it.
        self.raft.runtime_config().elect(!removed);
        if removed {
            tracing::warn!(
                identity = %self.identity,
                "this node was removed from the cluster: stop it, and remove its data folder"
            );
        } else {
            tracing::info!(identity = %self.identity, "this node is in the cluster");
        }
    }

    async fn is_removed(&self) -> bool {
        let own = membership_of(&self.raft);
        let id = self.identity.node.0;
        // The leader that a follower knows may be one that it has not heard for long.
        let leads = self.raft.metrics().borrow_watched().current_leader == Some(id);
        if own.log_id().is_none() || (leads && own.voter_ids().any(|voter| voter == id)) {
            return false;
        }
        let mut latest: Option<StoredMembership> = None;
        for (peer, addresses) in own.nodes().filter(|(peer, _)| **peer != id) {
            let told = self.ask(NodeId(*peer), &addresses.raft).await;
            if told.as_ref().map(|told| told.log_id()) > latest.as_ref().map(|it| it.log_id()) {
                latest = told;
            }
        }
        latest.is_some_and(|latest| removes(id, &own, &latest))
    }

    async fn ask(&self, peer: NodeId, address: &str) -> Option<StoredMembership> {
        let mut client = self.links.client(address, Lane::Control).ok()?;
        let request = addressed(self.identity, peer, pb::StandingRequest {});
        let told = answer(ANSWER_MAX, client.standing(request)).await.ok()?;
        codec::stored_membership_from_proto(Some(told.membership?)).ok()
    }
}

/// Whether a committed membership says that a node was removed, which knows another one itself.
fn removes(id: u64, own: &StoredMembership, latest: &StoredMembership) -> bool {
    let named = |membership: &StoredMembership| membership.get_node(&id).is_some();
    let index = |membership: &StoredMembership| membership.log_id().map(|log_id| log_id.index());
    if named(latest) || index(latest) < index(own) {
        return false;
    }
    // A node that is being added is named later than its id, which is an index as well.
    index(latest) > Some(id) || (named(own) && index(latest) > index(own))
}

/// The last membership that this node knows to be committed.
pub(super) fn committed_membership(raft: &Raft) -> Option<StoredMembership> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.as_ref();
    let is_committed = *membership.log_id() <= metrics.last_applied;
    (is_committed && membership.log_id().is_some()).then(|| membership.clone())
}

impl Consensus {
    /// Follows whether this node was removed from its cluster, as far as it has found out.
    pub fn removed(&self) -> watch::Receiver<bool> {
        self.inner.removed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::consensus::NodeAddresses;
    use crate::consensus::types::{LogId, Membership};

    fn membership(index: u64, nodes: &[u64]) -> StoredMembership {
        let voters: BTreeSet<u64> = nodes.iter().copied().collect();
        let nodes: BTreeMap<u64, NodeAddresses> = nodes
            .iter()
            .map(|id| (*id, NodeAddresses::default()))
            .collect();
        let membership = Membership::new(vec![voters], nodes).unwrap();
        StoredMembership::new(Some(LogId::new_term_index(1, index)), membership)
    }

    #[test]
    fn a_later_membership_without_the_node_removes_it() {
        let own = membership(20, &[1, 2, 12]);
        assert!(removes(12, &own, &membership(30, &[1, 2])));
        assert!(!removes(12, &own, &membership(30, &[1, 2, 12])));
    }

    #[test]
    fn an_earlier_membership_says_nothing_of_a_node_that_was_added_since() {
        let own = membership(20, &[1, 2, 12]);
        assert!(!removes(12, &own, &membership(11, &[1, 2])));
        // While it catches up it knows of memberships before its own.
        let own = membership(5, &[1, 2]);
        assert!(!removes(12, &own, &membership(11, &[1, 2])));
    }

    #[test]
    fn a_node_that_learned_of_its_own_removal_is_removed() {
        let own = membership(30, &[1, 2]);
        assert!(removes(12, &own, &membership(30, &[1, 2])));
    }
}
