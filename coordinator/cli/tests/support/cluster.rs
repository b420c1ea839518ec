//! Answers about the cluster.

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::backup_response::Part;
use tenure_proto::v1::cluster_service_server::ClusterService;
use tonic::{Code, Request, Response, Status};

use super::node::{Fake, refused};
use super::{CLUSTER, LARGEST};

#[tonic::async_trait]
impl ClusterService for Fake {
    type BackupStream = BoxStream<'static, Result<v1::BackupResponse, Status>>;

    /// A backup of twelve bytes; a local one breaks off or is damaged.
    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let whole = b"twelve bytes";
        let header = v1::BackupHeader {
            cluster_id: CLUSTER.to_vec().into(),
            revision: LARGEST,
            size_bytes: whole.len() as u64,
            crc32c: crc32c::crc32c(whole),
            groups: 2,
            shards: 64,
            node_id: 2,
        };
        let piece = |bytes: &'static [u8]| {
            Part::Piece(v1::BackupPiece {
                bytes: bytes.into(),
            })
        };
        let mut parts = vec![Ok(Part::Header(header)), Ok(piece(b"twelve "))];
        match request.into_inner().local {
            false => parts.push(Ok(piece(b"bytes"))),
            true => parts.push(Err(Status::unavailable("this node is stopping"))),
        }
        let parts = parts
            .into_iter()
            .map(|part| part.map(|part| v1::BackupResponse { part: Some(part) }));
        Ok(Response::new(
            stream::iter(parts.collect::<Vec<_>>()).boxed(),
        ))
    }

    async fn diagnose(
        &self,
        _: Request<v1::DiagnoseRequest>,
    ) -> Result<Response<v1::DiagnoseResponse>, Status> {
        let feature = |name: &str, enabled| v1::FeatureReading {
            name: name.to_owned(),
            description: format!("what {name} does"),
            enabled,
        };
        let peer = |node_id, features: &[&str]| v1::PeerReading {
            node_id,
            round_trip_us: Some(400),
            features: features.iter().map(|&name| name.to_owned()).collect(),
        };
        Ok(Response::new(v1::DiagnoseResponse {
            node_id: 2,
            features: vec![feature("baseline", true), feature("later", false)],
            peers: vec![peer(1, &["baseline", "later"]), peer(3, &["baseline"])],
            ..v1::DiagnoseResponse::default()
        }))
    }

    async fn enable_feature(
        &self,
        request: Request<v1::EnableFeatureRequest>,
    ) -> Result<Response<v1::EnableFeatureResponse>, Status> {
        self.change("enable")?;
        if request.into_inner().name == "later" {
            return Err(refused(
                Code::FailedPrecondition,
                reason::CLUSTER_CHANGE_REFUSED,
                "node 3 does not know later: update it first",
            ));
        }
        Ok(Response::new(v1::EnableFeatureResponse {
            revision: LARGEST,
        }))
    }

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
            ..v1::StatusResponse::default()
        }))
    }
}
