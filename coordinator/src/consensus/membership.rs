//! Making a cluster and changing who is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError};
use openraft::{ChangeMembers, Instant as _, Precondition};
use tenure_ownership::ids::ClusterId;
use tenure_proto::raft::v1 as pb;

use super::codec;
use super::connector::Lane;
use super::error::MembershipError;
use super::handle::{Consensus, Running};
use super::identity::{Identity, Member, NodeAddresses, NodeId};
use super::leadership::member_of;
use super::links::answer;
use super::options::check_addresses;
use super::runtime::{self, Moment};
use super::status::Role;
use super::types::{Raft, StoredMembership, TypeConfig, leader_in};

/// Nodes a cluster may be made of. They get the ids from 1 on.
const INITIAL_NODES_MAX: usize = 9;

/// The smallest id of a node that is added later, which is the index of a log entry: no two nodes
/// can get the same, and none that of an initial node.
pub(super) const ADDED_ID_MIN: u64 = 10;

/// Time that is left for an operation.
struct Budget {
    begun: Moment,
    within: Duration,
}

impl Budget {
    fn new(within: Duration) -> Self {
        Self {
            begun: runtime::now(),
            within,
        }
    }

    fn left(&self) -> Duration {
        self.within.saturating_sub(self.begun.elapsed())
    }

    async fn wait<T>(
        &self,
        waiting_for: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, MembershipError> {
        runtime::at_most(self.left(), future)
            .await
            .ok_or(MembershipError::TimedOut { waiting_for })
    }
}

fn refused(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(to)) => MembershipError::NotLeader {
            leader: leader_in(to),
        },
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => MembershipError::TimedOut {
            waiting_for: "the change, whose leader was replaced",
        },
        RaftError::APIError(ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::LearnerNotFound(missing),
        )) => MembershipError::UnknownNode {
            node: NodeId(missing.node_id),
        },
        RaftError::APIError(ClientWriteError::ChangeMembershipError(_))
        | RaftError::APIError(ClientWriteError::PreconditionFailed(_)) => {
            MembershipError::InProgress
        }
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}

/// Returns the membership that is in effect, committed or not.
pub(super) fn membership_of(raft: &Raft) -> StoredMembership {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.membership_config.as_ref().clone()
}

impl Consensus {
    fn member_node(&self) -> Result<&Running, MembershipError> {
        self.running()
            .ok_or(MembershipError::NotLeader { leader: None })
    }

    /// Makes a cluster of this node and `others`, all of them unused. `cluster` is drawn at random
    /// by the caller. Repeating a call that failed, in the same order of nodes, goes on where it
    /// stopped; `cluster` is then ignored.
    ///
    /// # Errors
    ///
    /// [`MembershipError`]; the cluster exists only after `Ok`.
    pub async fn initialize(
        &self,
        cluster: ClusterId,
        others: Vec<NodeAddresses>,
        within: Duration,
    ) -> Result<Identity, MembershipError> {
        let budget = Budget::new(within);
        let own = self.inner.options.addresses.clone();
        check_distinct(std::iter::once(&own).chain(&others))?;
        if others.len() >= INITIAL_NODES_MAX {
            return Err(MembershipError::Address {
                reason: format!("a cluster begins with at most {INITIAL_NODES_MAX} nodes"),
            });
        }
        let running = self
            .assign(Identity {
                cluster,
                node: NodeId(1),
            })
            .await?;
        let identity = running.identity;
        if running
            .raft
            .is_initialized()
            .await
            .map_err(|_| MembershipError::Stopped)?
        {
            return Err(MembershipError::Initialized);
        }
        let mut nodes = BTreeMap::from([(identity.node.0, own)]);
        for (addresses, wanted) in others.into_iter().zip(2..) {
            let wanted = Identity {
                cluster: identity.cluster,
                node: NodeId(wanted),
            };
            let joined = self.ask_to_join(&addresses, wanted, &budget).await?;
            if joined.used {
                return Err(MembershipError::UsedNode {
                    address: addresses.raft,
                    node: NodeId(joined.node_id),
                });
            }
            let address = addresses.raft.clone();
            if nodes.insert(joined.node_id, addresses).is_some() {
                return Err(MembershipError::Peer {
                    address,
                    reason: format!("it has the id {} of another node", joined.node_id),
                });
            }
        }
        budget
            .wait("the first entry", running.raft.initialize(nodes))
            .await?
            .map_err(|error| match error {
                RaftError::APIError(InitializeError::NotAllowed(_)) => MembershipError::Initialized,
                RaftError::APIError(InitializeError::NotInMembers(_)) => {
                    MembershipError::UnknownNode {
                        node: identity.node,
                    }
                }
                RaftError::Fatal(_) => MembershipError::Stopped,
            })?;
        tracing::info!(cluster = %identity.cluster, "cluster initialised");
        Ok(identity)
    }

    /// Adds an unused node: first as a learner, and once it has caught up as a voter. Repeating a
    /// call that failed goes on where it stopped.
    ///
    /// # Errors
    ///
    /// [`MembershipError`]; the node is a voter only after `Ok`.
    pub async fn add_node(
        &self,
        addresses: NodeAddresses,
        within: Duration,
    ) -> Result<NodeId, MembershipError> {
        let budget = Budget::new(within);
        let running = self.member_node()?;
        let known = membership_of(&running.raft);
        let existing = known
            .nodes()
            .find(|(_, node)| node.raft == addresses.raft)
            .map(|(id, _)| *id);
        let id = match existing {
            Some(id) => id,
            None => {
                let members = known.nodes().map(|(_, node)| node);
                check_distinct(members.chain(std::iter::once(&addresses)))?;
                let id = self
                    .join_as_learner(running, addresses.clone(), &budget)
                    .await?;
                tracing::info!(node = id, %addresses, "node added as a learner");
                id
            }
        };
        self.caught_up(running, id, &budget).await?;
        let promoted = change(running, ChangeMembers::AddVoterIds(BTreeSet::from([id])));
        budget
            .wait("the node to become a voter", promoted)
            .await??;
        tracing::info!(node = id, "node votes");
        Ok(NodeId(id))
    }

    /// Removes a node, which never comes back under its id. A leader that is asked to remove itself hands
    /// leadership over first, and says who leads: that one removes it.
    ///
    /// # Errors
    ///
    /// [`MembershipError`]; the node is certainly removed only after `Ok`.
    pub async fn remove_node(&self, node: NodeId, within: Duration) -> Result<(), MembershipError> {
        let budget = Budget::new(within);
        let running = self.member_node()?;
        let known = membership_of(&running.raft);
        if known.get_node(&node.0).is_none() {
            return Err(MembershipError::UnknownNode { node });
        }
        let voters: BTreeSet<u64> = known.voter_ids().collect();
        let leaving = BTreeSet::from([node.0]);
        if voters == leaving {
            return Err(MembershipError::LastVoter { node });
        }
        if node == running.identity.node && voters.contains(&node.0) {
            return Err(self.hand_over_to_be_removed(&budget).await);
        }
        // A voter without vote is a learner, which is then removed: openraft refuses to do both at
        // once for a node that is still a voter.
        if voters.contains(&node.0) {
            let retired =
                change_and_retain(running, ChangeMembers::RemoveVoters(leaving.clone()), false);
            budget.wait("the node to lose its vote", retired).await??;
        }
        if membership_of(&running.raft).get_node(&node.0).is_some() {
            let removed = change(running, ChangeMembers::RemoveNodes(leaving));
            budget.wait("the node to be removed", removed).await??;
        }
        tracing::info!(%node, "node removed");
        Ok(())
    }

    /// Makes another voter the leader and waits until it is.
    ///
    /// # Errors
    ///
    /// [`MembershipError`]; after [`MembershipError::TimedOut`] this node may still lead.
    pub async fn transfer_leader(
        &self,
        to: NodeId,
        within: Duration,
    ) -> Result<(), MembershipError> {
        let budget = Budget::new(within);
        let running = self.member_node()?;
        let known = membership_of(&running.raft);
        if known.get_node(&to.0).is_none() {
            return Err(MembershipError::UnknownNode { node: to });
        }
        if !known.voter_ids().any(|voter| voter == to.0) {
            return Err(MembershipError::NotVoter { node: to });
        }
        let mut leadership = self.leadership();
        let leader = leadership.borrow().leader.clone();
        if leader.as_ref().map(|leader| leader.id) == Some(to) {
            return Ok(());
        }
        if leader.as_ref().map(|leader| leader.id) != Some(running.identity.node) {
            return Err(MembershipError::NotLeader { leader });
        }
        let trigger = running.raft.trigger();
        budget
            .wait("the transfer to begin", trigger.transfer_leader(to.0))
            .await?
            .map_err(|_| MembershipError::Stopped)?;
        let leads = |now: &super::Leadership| now.leader.as_ref().is_some_and(|l| l.id == to);
        budget
            .wait("the other node to lead", leadership.wait_for(leads))
            .await?
            .map_err(|_| MembershipError::Stopped)?;
        Ok(())
    }

    /// Makes the voter that has most of the log lead, so that the workers find a leader at once. Returns
    /// what the caller is told: nothing was changed, and who leads.
    async fn hand_over_to_be_removed(&self, budget: &Budget) -> MembershipError {
        let leadership = self.leadership();
        let leader = leadership.borrow().leader.clone();
        if !leadership.borrow().is_leader {
            return MembershipError::NotLeader { leader };
        }
        let nodes = self.status().nodes;
        let followers = nodes.iter().filter(|node| node.role == Role::Follower);
        let Some(best) = followers.max_by_key(|node| node.matched) else {
            return MembershipError::NotLeader { leader: None };
        };
        match self.transfer_leader(best.member.id, budget.left()).await {
            Ok(()) => MembershipError::NotLeader {
                leader: Some(best.member.clone()),
            },
            Err(error) => error,
        }
    }

    /// Gives an unused node an id and adds it as a learner.
    async fn join_as_learner(
        &self,
        running: &Running,
        addresses: NodeAddresses,
        budget: &Budget,
    ) -> Result<u64, MembershipError> {
        check_addresses(&addresses).map_err(|error| MembershipError::Address {
            reason: error.to_string(),
        })?;
        let allocated = budget.wait("an entry to be committed", allocate_id(&running.raft));
        let wanted = Identity {
            cluster: running.identity.cluster,
            node: NodeId(allocated.await??),
        };
        let joined = self.ask_to_join(&addresses, wanted, budget).await?;
        let id = joined.node_id;
        // An id that it had before is fine if nothing ever came of it: a call that was cut short.
        // After it took part in anything, a quorum may still count on what it forgot.
        if joined.used || membership_of(&running.raft).get_node(&id).is_some() {
            return Err(MembershipError::UsedNode {
                address: addresses.raft,
                node: NodeId(id),
            });
        }
        let added = running.raft.add_learner(id, addresses, false);
        budget
            .wait("the node to become a learner", added)
            .await?
            .map_err(refused)?;
        Ok(id)
    }

    async fn ask_to_join(
        &self,
        addresses: &NodeAddresses,
        wanted: Identity,
        budget: &Budget,
    ) -> Result<pb::AssignResponse, MembershipError> {
        let refused = |reason: String| MembershipError::Peer {
            address: addresses.raft.clone(),
            reason,
        };
        let mut client = self
            .inner
            .links
            .client(&addresses.raft, Lane::Control)
            .map_err(|error| refused(error.to_string()))?;
        let request = tonic::Request::new(pb::AssignRequest {
            cluster_id: codec::cluster_to_proto(wanted.cluster),
            node_id: wanted.node.0,
        });
        answer(budget.left(), client.assign(request))
            .await
            .map_err(|error| refused(error.to_string()))
    }

    /// Waits until a learner has nearly all of the log: a voter that has not would hold up every
    /// commit that needs it.
    async fn caught_up(
        &self,
        running: &Running,
        id: u64,
        budget: &Budget,
    ) -> Result<(), MembershipError> {
        const LAG_MAX: u64 = 100;
        let mut metrics = running.raft.metrics();
        loop {
            let (lag, leads) = {
                let metrics = metrics.borrow_and_update();
                let matched = metrics
                    .replication
                    .as_ref()
                    .and_then(|peers| peers.get(&id).copied().flatten())
                    .map(|log_id| log_id.index());
                let last = metrics.last_log_index.unwrap_or(0);
                let leads = metrics.replication.is_some();
                (matched.map(|matched| last.saturating_sub(matched)), leads)
            };
            if lag.is_some_and(|lag| lag <= LAG_MAX) || id == running.identity.node.0 {
                return Ok(());
            }
            if !leads {
                let leader = self.leadership().borrow().leader.clone();
                return Err(MembershipError::NotLeader { leader });
            }
            budget
                .wait("the node to catch up", metrics.changed())
                .await?
                .map_err(|_| MembershipError::Stopped)?;
        }
    }

    /// Returns the node with an id.
    pub fn member(&self, id: NodeId) -> Option<Member> {
        self.running()
            .and_then(|running| member_of(&membership_of(&running.raft), id))
    }
}

/// Returns the index of an entry that was committed for nothing else.
async fn allocate_id(raft: &Raft) -> Result<u64, MembershipError> {
    loop {
        let written = raft.write_blank().await.map_err(refused)?;
        if written.log_id.index() >= ADDED_ID_MIN {
            return Ok(written.log_id.index());
        }
    }
}

async fn change(
    running: &Running,
    changes: ChangeMembers<u64, NodeAddresses>,
) -> Result<(), MembershipError> {
    change_and_retain(running, changes, true).await
}

/// Changes the membership that is in effect now, and no other. With `retain` a voter that loses its
/// vote stays as a learner.
async fn change_and_retain(
    running: &Running,
    changes: ChangeMembers<u64, NodeAddresses>,
    retain: bool,
) -> Result<(), MembershipError> {
    let effective = membership_of(&running.raft);
    let unchanged = Precondition::LastMembershipLogId {
        last_membership_log_id: *effective.log_id(),
    };
    running
        .raft
        .change_membership_if(changes, retain, [unchanged])
        .await
        .map_err(refused)?;
    Ok(())
}

/// Checks addresses, and that no two are the same: a node that is reached at its own address as
/// another would vote twice.
fn check_distinct<'a>(
    nodes: impl Iterator<Item = &'a NodeAddresses>,
) -> Result<(), MembershipError> {
    let mut seen = BTreeSet::new();
    for node in nodes {
        check_addresses(node).map_err(|error| MembershipError::Address {
            reason: error.to_string(),
        })?;
        for address in [&node.raft, &node.client, &node.http] {
            if !address.is_empty() && !seen.insert(address) {
                return Err(MembershipError::Address {
                    reason: format!("{address} is used twice"),
                });
            }
        }
    }
    Ok(())
}
