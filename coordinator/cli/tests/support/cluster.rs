//! Answers about the cluster.

use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::cluster_service_server::ClusterService;
use tonic::{Code, Request, Response, Status};

use super::node::{Fake, refused};
use super::{CLUSTER, LARGEST};

#[tonic::async_trait]
impl ClusterService for Fake {
    async fn init(
        &self,
        _: Request<v1::InitRequest>,
    ) -> Result<Response<v1::InitResponse>, Status> {
        self.change("init")?;
        Ok(Response::new(v1::InitResponse {
            cluster_id: CLUSTER.to_vec().into(),
        }))
    }

    async fn add_node(
        &self,
        request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        self.change("add")?;
        let node = request.into_inner().node.unwrap_or_default();
        assert_eq!(node.id, 0, "ids are given by the cluster");
        if node.peer_address == "10.0.0.1:7401" {
            let message = "node 1 is a member already";
            return Err(refused(
                Code::FailedPrecondition,
                reason::CLUSTER_CHANGE_REFUSED,
                message,
            ));
        }
        Ok(Response::new(v1::AddNodeResponse {
            revision: 49,
            id: 41,
        }))
    }

    async fn remove_node(
        &self,
        _: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        self.change("remove")?;
        Ok(Response::new(v1::RemoveNodeResponse { revision: LARGEST }))
    }

    async fn transfer_leader(
        &self,
        _: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        self.change("transfer")?;
        Ok(Response::new(v1::TransferLeaderResponse { term: LARGEST }))
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let member = |id: u64, voter, matched_index| v1::Member {
            node: Some(v1::Node {
                id,
                peer_address: format!("10.0.0.{id}:7401"),
                client_address: format!("10.0.0.{id}:7400"),
                http_address: if id == 3 {
                    String::new()
                } else {
                    format!("10.0.0.{id}:7402")
                },
            }),
            voter,
            matched_index,
        };
        Ok(Response::new(v1::StatusResponse {
            cluster_id: CLUSTER.to_vec().into(),
            node_id: 2,
            term: 7,
            leader_id: 2,
            last_log_index: LARGEST,
            applied_index: LARGEST - 1,
            snapshot_index: 0,
            members: vec![
                member(1, true, 1_000),
                member(2, true, LARGEST),
                member(3, false, 0),
            ],
            version: "0.1.0".to_owned(),
        }))
    }
}
