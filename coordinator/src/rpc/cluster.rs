//! The coordinator cluster itself.

use tenure_ownership::ids::ClusterId;
use tenure_proto::v1 as pb;
use tenure_proto::v1::cluster_service_server::ClusterService;
use tonic::{Request, Response, Status};

use super::backup::{self, BackupStream};
use super::context::RpcContext;
use super::{convert, diagnosis, features, present, status};
use crate::consensus::{Member, NodeId, NodeStatus, Role};

/// The cluster service.
pub(super) struct Cluster {
    context: RpcContext,
}

impl Cluster {
    pub(super) fn new(context: RpcContext) -> Self {
        Self { context }
    }

    fn settling_ms(&self) -> u64 {
        let restored = self.context.consensus.read(|state| state.restored());
        restored.map_or(0, |restored| {
            u64::try_from(restored.quiet.as_millis()).unwrap_or(u64::MAX)
        })
    }

    fn applied(&self) -> u64 {
        self.context.consensus.applied().0
    }
}

fn node(member: Member) -> pb::Node {
    pb::Node {
        id: member.id.0,
        peer_address: member.addresses.raft,
        client_address: member.addresses.client,
        http_address: member.addresses.http,
    }
}

fn member(status: NodeStatus) -> pb::Member {
    pb::Member {
        voter: status.role != Role::Learner,
        matched_index: status.matched.map_or(0, |revision| revision.0),
        node: Some(node(status.member)),
    }
}

#[tonic::async_trait]
impl ClusterService for Cluster {
    type BackupStream = BackupStream;

    async fn backup(
        &self,
        request: Request<pb::BackupRequest>,
    ) -> Result<Response<BackupStream>, Status> {
        // A backup of what is old would be taken for one of the cluster.
        if *self.context.removed().borrow() {
            return Err(status::removed());
        }
        let within = self.context.long_deadline(request.metadata());
        let stream = backup::start(&self.context, request.get_ref().local, within).await?;
        Ok(Response::new(stream))
    }

    async fn diagnose(
        &self,
        _request: Request<pb::DiagnoseRequest>,
    ) -> Result<Response<pb::DiagnoseResponse>, Status> {
        Ok(Response::new(diagnosis::diagnose(&self.context).await))
    }

    async fn enable_feature(
        &self,
        request: Request<pb::EnableFeatureRequest>,
    ) -> Result<Response<pb::EnableFeatureResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let name = request.into_inner().name;
        let revision = features::enable(&self.context, &name, within).await?;
        Ok(Response::new(pb::EnableFeatureResponse { revision }))
    }

    async fn init(
        &self,
        request: Request<pb::InitRequest>,
    ) -> Result<Response<pb::InitResponse>, Status> {
        let within = self.context.long_deadline(request.metadata());
        let others = convert::init(request.into_inner(), &self.context.peer_address)
            .map_err(status::invalid)?;
        let cluster = ClusterId(rand::random());
        let identity = self
            .context
            .consensus
            .initialize(cluster, others, within)
            .await
            .map_err(|error| status::from_membership(&error))?;
        Ok(Response::new(pb::InitResponse {
            cluster_id: present::cluster_id(identity.cluster),
        }))
    }

    async fn add_node(
        &self,
        request: Request<pb::AddNodeRequest>,
    ) -> Result<Response<pb::AddNodeResponse>, Status> {
        let within = self.context.long_deadline(request.metadata());
        let addresses = convert::node(request.into_inner().node).map_err(status::invalid)?;
        let operation = format!(
            "add node peer={} client={}",
            addresses.raft, addresses.client
        );
        self.context.announce(&operation, within).await?;
        let id = self
            .context
            .consensus
            .add_node(addresses, within)
            .await
            .map_err(|error| status::from_membership(&error))?;
        Ok(Response::new(pb::AddNodeResponse {
            revision: self.applied(),
            id: id.0,
        }))
    }

    async fn remove_node(
        &self,
        request: Request<pb::RemoveNodeRequest>,
    ) -> Result<Response<pb::RemoveNodeResponse>, Status> {
        let within = self.context.long_deadline(request.metadata());
        let node = NodeId(request.into_inner().id);
        self.context
            .announce(&format!("remove node {node}"), within)
            .await?;
        self.context
            .consensus
            .remove_node(node, within)
            .await
            .map_err(|error| status::from_membership(&error))?;
        Ok(Response::new(pb::RemoveNodeResponse {
            revision: self.applied(),
        }))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let to = NodeId(request.into_inner().to);
        self.context
            .announce(&format!("transfer leadership to node {to}"), within)
            .await?;
        self.context
            .consensus
            .transfer_leader(to, within)
            .await
            .map_err(|error| status::from_membership(&error))?;
        let term = self.context.consensus.leadership().borrow().term;
        Ok(Response::new(pb::TransferLeaderResponse { term }))
    }

    async fn status(
        &self,
        _request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let status = self.context.consensus.status();
        let index = |revision: Option<tenure_ownership::ids::Revision>| {
            revision.map_or(0, |revision| revision.0)
        };
        Ok(Response::new(pb::StatusResponse {
            cluster_id: status
                .identity
                .map(|identity| present::cluster_id(identity.cluster))
                .unwrap_or_default(),
            node_id: status.identity.map_or(0, |identity| identity.node.0),
            term: status.term,
            leader_id: status.leader.map_or(0, |leader| leader.0),
            last_log_index: index(status.last_log),
            applied_index: index(status.applied),
            snapshot_index: index(status.snapshot),
            members: status.nodes.into_iter().map(member).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settling_ms: self.settling_ms(),
            removed: *self.context.removed().borrow(),
        }))
    }
}
