//! Who leads, whether this node is able to, and what a new leader does first.

use std::sync::Arc;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::vote::RaftLeaderId as _;
use openraft::{ChangeMembers, Precondition, ServerState};
use tenure_ownership::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::envelope::Envelope;
use super::identity::{Member, NodeId};
use super::state_machine::Shared;
use super::types::{EncodedCommand, LogId, Raft, StoredMembership};
use crate::wall_clock::WallClock;

/// Who leads, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The latest term this node knows of. Each term has at most one leader.
    pub term: u64,
    /// The leader of that term, if this node knows one.
    pub leader: Option<Member>,
    /// Whether this node leads *and* has applied an entry of its own term, so that its state
    /// contains everything any leader before it committed. It may have been replaced since: only a
    /// [`read_barrier`](super::Consensus::read_barrier) tells.
    pub is_leader: bool,
}

/// Whether a node is able to serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Nothing is wrong.
    #[default]
    Well,
    /// The node has stopped for good, for example because its disk failed. It has to be restarted
    /// once the cause is gone.
    Failed {
        /// What happened.
        reason: String,
    },
}

/// Publishes leadership and health whenever they change.
pub(super) struct Follower {
    pub(super) raft: Raft,
    pub(super) applied: watch::Receiver<Option<LogId>>,
    pub(super) leadership: Arc<watch::Sender<Leadership>>,
    pub(super) health: Arc<watch::Sender<Health>>,
    pub(super) stop: CancellationToken,
}

impl Follower {
    pub(super) async fn run(mut self) {
        let mut metrics = self.raft.metrics();
        loop {
            // Taken out at once: a borrowed value keeps Raft from going on.
            let (failure, leads, leadership) = {
                let metrics = metrics.borrow_and_update();
                let failure = metrics
                    .running_state
                    .as_ref()
                    .err()
                    .map(ToString::to_string);
                let leader = metrics
                    .current_leader
                    .and_then(|id| member_of(&metrics.membership_config, NodeId(id)));
                let leads = metrics.state == ServerState::Leader;
                let term = metrics.vote.leader_id.term();
                (
                    failure,
                    leads,
                    Leadership {
                        term,
                        leader,
                        is_leader: false,
                    },
                )
            };
            let failed = failure.is_some();
            // First, so that whoever learns of the failure does not find the node leading.
            self.publish(leads && !failed, leadership);
            if let Some(reason) = failure
                && !self.stop.is_cancelled()
            {
                tracing::error!(%reason, "node has failed");
                self.health.send_replace(Health::Failed { reason });
            }
            let changed = tokio::select! {
                changed = metrics.changed() => changed.is_ok(),
                changed = self.applied.changed() => changed.is_ok(),
                () = self.stop.cancelled() => false,
            };
            if failed || !changed {
                break;
            }
        }
        self.end();
    }

    fn publish(&mut self, leads: bool, mut now: Leadership) {
        let applied = *self.applied.borrow_and_update();
        let applied_term = applied.map(|log_id| log_id.committed_leader_id().term);
        now.is_leader = leads && applied_term == Some(now.term);
        metrics::gauge!(crate::metrics::RAFT_TERM).set(now.term as f64);
        metrics::gauge!(crate::metrics::RAFT_IS_LEADER).set(if now.is_leader { 1.0 } else { 0.0 });
        self.leadership.send_if_modified(|known| {
            if *known == now {
                return false;
            }
            let leader = now.leader.as_ref().map(|leader| leader.id.0);
            tracing::info!(
                term = now.term,
                leader,
                is_leader = now.is_leader,
                "leadership changed"
            );
            *known = now;
            true
        });
    }

    /// Nobody leads on a node that has ended.
    fn end(&self) {
        self.leadership.send_modify(|known| {
            known.leader = None;
            known.is_leader = false;
        });
        if !self.stop.is_cancelled() {
            self.health.send_if_modified(|health| {
                let ended = *health == Health::Well;
                if ended {
                    *health = Health::Failed {
                        reason: "raft has ended".to_owned(),
                    };
                }
                ended
            });
        }
    }
}

/// Looks up a node.
pub(super) fn member_of(membership: &StoredMembership, id: NodeId) -> Option<Member> {
    membership
        .membership()
        .get_node(&id.0)
        .map(|addresses| Member {
            id,
            addresses: addresses.clone(),
        })
}

/// What every leader sees to when it begins.
pub(super) struct Duties {
    pub(super) raft: Raft,
    pub(super) shared: Arc<Shared>,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) wall_clock: Arc<dyn WallClock>,
    pub(super) stop: CancellationToken,
}

impl Duties {
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let _ = stop.run_until_cancelled(self.serve()).await;
    }

    async fn serve(&mut self) {
        loop {
            let Ok(begun) = self
                .leadership
                .wait_for(|now| now.is_leader)
                .await
                .map(|n| n.term)
            else {
                return;
            };
            self.name_cluster().await;
            self.finish_membership().await;
            let ended = self
                .leadership
                .wait_for(|now| !now.is_leader || now.term != begun)
                .await;
            if ended.is_err() {
                return;
            }
        }
    }

    /// Gives the state its cluster id, which no leader before may have lived long enough to do.
    async fn name_cluster(&self) {
        if self.shared.read(|state| state.cluster().is_some()) {
            return;
        }
        let command = EncodedCommand {
            bytes: Bytes::from(Command::InitCluster(self.shared.cluster).encode()),
            envelope: Envelope {
                at_ms: self.wall_clock.now_ms(),
                ..Envelope::default()
            },
        };
        // Refused if another did it meanwhile; lost if this node no longer leads, and then the next
        // leader does it.
        if let Err(error) = self.raft.client_write(command).await {
            tracing::debug!(%error, "cluster is not named yet");
        }
    }

    /// Ends a change of the membership whose leader did not: until then both the old and the new
    /// voters have to agree to everything.
    async fn finish_membership(&self) {
        let effective = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.as_ref().clone()
        };
        if effective.get_joint_config().len() < 2 {
            return;
        }
        let unchanged = Precondition::LastMembershipLogId {
            last_membership_log_id: *effective.log_id(),
        };
        let nothing = ChangeMembers::AddVoterIds(std::collections::BTreeSet::new());
        match self
            .raft
            .change_membership_if(nothing, true, [unchanged])
            .await
        {
            Ok(_) => tracing::info!("unfinished change of the membership was finished"),
            Err(error) => tracing::warn!(%error, "unfinished change of the membership remains"),
        }
    }
}
