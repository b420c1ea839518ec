//! Behaviours that are switched on for all nodes at one log index.
//!
//! A node that does not know a behaviour stops at the entry that switches it on, because it could not do
//! what the others do from there. So each node is asked first, and one that does not answer cannot.

use std::time::Duration;

use tenure_ownership::Command;
use tenure_ownership::feature::Feature;
use tenure_proto::v1 as pb;
use tonic::Status;

use super::context::RpcContext;
use super::convert::Invalid;
use super::status;
use crate::consensus::{Consensus, PeerAnswer};

/// How long a node may take to say what it knows.
const PEER_MAX: Duration = Duration::from_secs(2);

/// The behaviours that this version knows.
pub(super) fn readings(consensus: &Consensus) -> Vec<pb::FeatureReading> {
    consensus.read(|state| {
        let reading = |feature: Feature| pb::FeatureReading {
            name: feature.name().to_owned(),
            description: feature.description().to_owned(),
            enabled: state.enabled(feature),
        };
        Feature::ALL.map(reading).into()
    })
}

/// Switches a behaviour on, if every node knows it.
pub(super) async fn enable(
    context: &RpcContext,
    name: &str,
    within: Duration,
) -> Result<u64, Status> {
    let feature = Feature::named(name).ok_or_else(|| {
        let known = Feature::ALL.map(Feature::name).join(", ");
        status::invalid(Invalid::new(
            "name",
            format!("{name:?} is none that the leader knows, which are {known}"),
        ))
    })?;
    let leadership = context.consensus.leadership().borrow().clone();
    if !leadership.is_leader {
        return Err(status::not_leader(leadership.leader.as_ref()));
    }
    let peers = context.consensus.ask_peers(PEER_MAX.min(within)).await;
    if let Some(problem) = unable(name, &peers) {
        return Err(status::cluster_change_refused(problem));
    }
    let (revision, _) = context
        .propose(Command::EnableFeature(feature), within)
        .await?;
    Ok(revision.0)
}

/// Which node cannot, and why.
fn unable(name: &str, peers: &[PeerAnswer]) -> Option<String> {
    peers.iter().find_map(|peer| {
        let node = peer.member.id;
        match &peer.answered {
            None => Some(format!(
                "node {node} does not answer, so nobody knows whether it can: start it, or remove it"
            )),
            Some((_, known)) if !known.iter().any(|known| known == name) => Some(format!(
                "node {node} does not know {name}: update it first"
            )),
            Some(_) => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::{Member, NodeAddresses, NodeId};

    fn peer(id: u64, known: Option<&[&str]>) -> PeerAnswer {
        let member = Member {
            id: NodeId(id),
            addresses: NodeAddresses::default(),
        };
        let known = known.map(|known| known.iter().map(|&name| name.to_owned()).collect());
        PeerAnswer {
            member,
            answered: known.map(|known| (Duration::from_millis(1), known)),
        }
    }

    /// A behaviour of a later version, which exists in this test alone.
    #[test]
    fn a_behaviour_is_enabled_only_when_every_node_knows_it() {
        let able = peer(2, Some(&["baseline", "later"]));
        assert_eq!(unable("later", &[]), None, "a node alone");
        assert_eq!(unable("later", std::slice::from_ref(&able)), None);
        let older = [able.clone(), peer(3, Some(&["baseline"]))];
        let problem = unable("later", &older).unwrap();
        assert_eq!(problem, "node 3 does not know later: update it first");
        let silent = unable("later", &[able, peer(3, None)]).unwrap();
        assert!(silent.starts_with("node 3 does not answer"), "{silent}");
    }
}
