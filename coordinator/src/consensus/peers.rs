//! What the other nodes answer when they are asked how they are.

use std::time::Duration;

use futures::future::join_all;
use openraft::Instant as _;
use tenure_proto::raft::v1 as pb;

use super::connector::Lane;
use super::handle::{Consensus, Running};
use super::identity::{Member, NodeId};
use super::links::{addressed, answer};
use super::membership::membership_of;
use super::runtime;
use super::sync_times::LogSyncs;

/// What another node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAnswer {
    /// The node.
    pub member: Member,
    /// How long its answer took, and the behaviours that its version knows; `None` if it did not answer.
    pub answered: Option<(Duration, Vec<String>)>,
}

impl Consensus {
    /// Asks every other node, all at the same time.
    pub async fn ask_peers(&self, within: Duration) -> Vec<PeerAnswer> {
        let Some(running) = self.running() else {
            return Vec::new();
        };
        let own = running.identity.node.0;
        let known = membership_of(&running.raft);
        let others = known.nodes().filter(|(id, _)| **id != own);
        let asking = others.map(|(id, addresses)| {
            let member = Member {
                id: NodeId(*id),
                addresses: addresses.clone(),
            };
            async move {
                let answered = self.ask_peer(running, &member, within).await;
                PeerAnswer { member, answered }
            }
        });
        join_all(asking).await
    }

    async fn ask_peer(
        &self,
        running: &Running,
        peer: &Member,
        within: Duration,
    ) -> Option<(Duration, Vec<String>)> {
        let links = &self.inner.links;
        let mut client = links.client(&peer.addresses.raft, Lane::Control).ok()?;
        let request = addressed(running.identity, peer.id, pb::StandingRequest {});
        let asked = runtime::now();
        let told = answer(within, client.standing(request)).await.ok()?;
        Some((asked.elapsed(), told.features))
    }

    /// Returns how long the latest syncs of this node's log took.
    pub fn log_syncs(&self) -> LogSyncs {
        self.running()
            .map(|running| running.sync_times.summary())
            .unwrap_or_default()
    }
}
