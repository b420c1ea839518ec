//! Cached connections to peers, and what every call over them carries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_ownership::ids::ClusterId;
use tenure_proto::raft::v1::peer_client::PeerClient;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::connector::{Connector, InvalidAddress, Lane};
use super::identity::{Identity, NodeId};
use super::options::ConsensusLimits;
use super::runtime;

const CLUSTER: &str = "tenure-cluster";
const SOURCE: &str = "tenure-source";
const TARGET: &str = "tenure-target";

/// Why a peer did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// It cannot be reached, or is not the node it was taken for: trying again at once is useless.
    #[error("peer cannot be reached: {0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("peer did not answer within {0:?}")]
    Silent(Duration),
    /// It answered with an error, or with what no peer says.
    #[error("peer failed: {0}")]
    Failed(String),
}

impl From<Status> for PeerError {
    fn from(status: Status) -> Self {
        let text = format!("{:?}: {}", status.code(), status.message());
        match status.code() {
            // Also what tonic says when a connection cannot be made.
            Code::Unavailable | Code::FailedPrecondition | Code::Unauthenticated => {
                Self::Unreachable(text)
            }
            _ => Self::Failed(text),
        }
    }
}

impl From<InvalidAddress> for PeerError {
    fn from(error: InvalidAddress) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Connections to peers by address and lane.
pub(super) struct Links {
    connector: Arc<dyn Connector>,
    limits: ConsensusLimits,
    channels: Mutex<HashMap<(String, Lane), Channel>>,
}

impl Links {
    /// Returns no connections yet; each is made when it is first used.
    pub(super) fn new(connector: Arc<dyn Connector>, limits: ConsensusLimits) -> Self {
        Self {
            connector,
            limits,
            channels: Mutex::default(),
        }
    }

    pub(super) fn limits(&self) -> &ConsensusLimits {
        &self.limits
    }

    /// Returns a client of the peer at an address.
    pub(super) fn client(
        &self,
        address: &str,
        lane: Lane,
    ) -> Result<PeerClient<Channel>, InvalidAddress> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (address.to_owned(), lane);
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.connector.connect(address, lane)?;
                channels.insert(key, channel.clone());
                channel
            }
        };
        let bytes_max = self.limits.message_bytes_max();
        Ok(PeerClient::new(channel)
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max))
    }
}

/// Waits for a peer's answer to one call, at most for `within`.
pub(super) async fn answer<T>(
    within: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, PeerError> {
    match runtime::at_most(within, call).await {
        None => Err(PeerError::Silent(within)),
        Some(Ok(response)) => Ok(response.into_inner()),
        Some(Err(status)) => Err(status.into()),
    }
}

/// Says on a request which node of which cluster it is from and for.
pub(super) fn addressed<T>(from: Identity, to: NodeId, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let entries = [
        (CLUSTER, from.cluster.to_string()),
        (SOURCE, from.node.to_string()),
        (TARGET, to.to_string()),
    ];
    for (key, value) in entries {
        // Digits are always valid metadata.
        if let Ok(value) = value.parse() {
            request.metadata_mut().insert(key, value);
        }
    }
    request
}

/// Checks that a call is for this node, from another node of its cluster.
///
/// A node that took part in another cluster's decisions, or under an id that was somebody else's,
/// would break both; an address that was given to another machine is how that happens.
pub(super) fn check_addressed(metadata: &MetadataMap, own: Identity) -> Result<(), Status> {
    let field = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
    let cluster = field(CLUSTER).and_then(|text| u128::from_str_radix(text, 16).ok());
    let target = field(TARGET).and_then(|text| text.parse().ok()).map(NodeId);
    if cluster.map(ClusterId) != Some(own.cluster) || target != Some(own.node) {
        return Err(Status::failed_precondition(format!(
            "this is {own}, the call is for node {} of cluster {}",
            field(TARGET).unwrap_or("?"),
            field(CLUSTER).unwrap_or("?"),
        )));
    }
    if field(SOURCE).and_then(|text| text.parse().ok()).map(NodeId) == Some(own.node) {
        return Err(Status::failed_precondition(format!("{own} called itself")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: u128, node: u64) -> Identity {
        Identity {
            cluster: ClusterId(cluster),
            node: NodeId(node),
        }
    }

    #[test]
    fn call_for_this_node_is_answered() {
        let call = addressed(identity(7, 1), NodeId(2), ());
        check_addressed(call.metadata(), identity(7, 2)).unwrap();
    }

    #[test]
    fn call_for_another_cluster_or_node_or_from_itself_is_refused() {
        let calls = [
            addressed(identity(8, 1), NodeId(2), ()),
            addressed(identity(7, 1), NodeId(3), ()),
            addressed(identity(7, 2), NodeId(2), ()),
            Request::new(()),
        ];
        for call in calls {
            let refused = check_addressed(call.metadata(), identity(7, 2)).unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition);
            assert!(matches!(
                PeerError::from(refused),
                PeerError::Unreachable(_)
            ));
        }
    }
}
