//! A service that keeps its contract with the store in memory, and misbehaves in transport.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::connection::{Connection, ConnectionOptions};
use tenure::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, MemoryStore,
    Owner, ReplicatedStore, Resource, Sequence, ShardRef, Write, WriteId,
};
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::SealStatus;
use tenure_proto::v1::checkpoint_service_server::{CheckpointService, CheckpointServiceServer};
use tenure_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use crate::script::{Serving, error};

/// What happens to the next write or deletion.
pub(crate) enum Fault {
    /// It is answered with this instead of being done.
    Refuse(Status),
    /// It is done, and answered with this.
    DoneBut(Status),
}

/// What the service and the test share.
#[derive(Default)]
pub(crate) struct Backing {
    pub(crate) store: MemoryStore,
    pub(crate) faults: Mutex<VecDeque<Fault>>,
    /// How many tenures each seal asked for.
    pub(crate) seals: Mutex<Vec<usize>>,
    /// Outcomes in one answer; the rest is put off.
    pub(crate) outcomes_max: Mutex<Option<usize>>,
    pub(crate) writes: Mutex<Vec<v1::WriteRequest>>,
    pub(crate) deletions: Mutex<Vec<v1::DeleteRequest>>,
    /// Writes to these shards are each refused once with this.
    pub(crate) refused_once: Mutex<HashMap<Resource, Status>>,
    /// While it is true requests with writes arrive and wait.
    pub(crate) shut: watch::Sender<bool>,
    /// How many writes each request with several carried, and what happens to the next such request.
    pub(crate) shared: Mutex<Vec<usize>>,
    pub(crate) shared_faults: Mutex<VecDeque<Fault>>,
}

impl Backing {
    /// Waits while the door is shut.
    async fn opened(&self) {
        let mut shut = self.shut.subscribe();
        shut.wait_for(|shut| !shut).await.unwrap();
    }

    async fn write(&self, request: v1::WriteRequest) -> Result<(), Status> {
        self.writes.lock().unwrap().push(request.clone());
        let fault = self.faults.lock().unwrap().pop_front();
        if let Some(Fault::Refuse(status)) = fault {
            return Err(status);
        }
        let token = token(request.token);
        let refused = self.refused_once.lock().unwrap().remove(&token.resource);
        if let Some(status) = refused {
            return Err(status);
        }
        let write = Write {
            sequence: Sequence::new(request.sequence).unwrap(),
            write_id: write_id(&request.write_id),
            data: request.data,
        };
        let written = self.store.write(&token, write).await;
        if let Some(Fault::DoneBut(status)) = fault {
            return Err(status);
        }
        written.map_err(|refusal| status(&refusal))
    }
}

#[derive(Clone)]
struct Service(Arc<Backing>);

fn owner(session: Option<v1::Session>) -> Owner {
    let session = session.unwrap();
    let cluster: [u8; 16] = session.cluster_id.as_ref().try_into().unwrap();
    Owner {
        cluster: u128::from_be_bytes(cluster),
        session: session.number,
    }
}

fn token(token: Option<v1::FencingToken>) -> FencingToken {
    let token = token.unwrap();
    FencingToken {
        resource: token.resource.parse().unwrap(),
        epoch: Epoch::new(token.epoch).unwrap(),
        owner: owner(token.owner),
    }
}

fn write_id(bytes: &[u8]) -> WriteId {
    WriteId::new(u128::from_be_bytes(bytes.try_into().unwrap()))
}

fn wire(checkpoint: Checkpoint) -> v1::Checkpoint {
    v1::Checkpoint {
        epoch: checkpoint.epoch.get(),
        owner: Some(v1::Session {
            cluster_id: checkpoint.owner.cluster.to_be_bytes().to_vec().into(),
            number: checkpoint.owner.session,
        }),
        sequence: checkpoint.sequence.get(),
        write_id: checkpoint.write_id.get().to_be_bytes().to_vec().into(),
        data: checkpoint.data,
    }
}

/// Answers a refusal as a coordinator does.
fn status(refusal: &CheckpointError) -> Status {
    match refusal {
        CheckpointError::Fenced {
            presented, current, ..
        } => error(
            Code::FailedPrecondition,
            reason::FENCED,
            &[
                (reason::PRESENTED, &presented.to_string()),
                (reason::CURRENT, &current.to_string()),
            ],
        ),
        CheckpointError::NotSealed { .. } => {
            error(Code::FailedPrecondition, reason::NOT_SEALED, &[])
        }
        CheckpointError::EpochConflict { .. } => {
            error(Code::FailedPrecondition, reason::EPOCH_CONFLICT, &[])
        }
        CheckpointError::SequenceReused {
            presented, latest, ..
        } => error(
            Code::FailedPrecondition,
            reason::SEQUENCE_REUSED,
            &[
                (reason::PRESENTED, &presented.to_string()),
                (reason::LATEST, &latest.to_string()),
            ],
        ),
        CheckpointError::TooLarge {
            length_bytes,
            max_bytes,
        } => error(
            Code::InvalidArgument,
            reason::TOO_LARGE,
            &[
                (reason::LENGTH_BYTES, &length_bytes.to_string()),
                (reason::MAX_BYTES, &max_bytes.to_string()),
            ],
        ),
        other => panic!("{other:?}"),
    }
}

#[tonic::async_trait]
impl CheckpointService for Service {
    async fn seal(
        &self,
        request: Request<v1::SealRequest>,
    ) -> Result<Response<v1::SealResponse>, Status> {
        let request = request.into_inner();
        self.0.seals.lock().unwrap().push(request.tenures.len());
        let outcomes_max = *self.0.outcomes_max.lock().unwrap();
        let mut outcomes = Vec::new();
        for tenure in &request.tenures {
            if outcomes_max.is_some_and(|max| outcomes.len() >= max) {
                outcomes.push(v1::SealOutcome {
                    status: SealStatus::Deferred.into(),
                    ..v1::SealOutcome::default()
                });
                continue;
            }
            let token = FencingToken {
                resource: Resource::Shard(ShardRef {
                    group: request.group.parse().unwrap(),
                    index: tenure.shard,
                }),
                epoch: Epoch::new(tenure.epoch).unwrap(),
                owner: owner(request.owner.clone()),
            };
            let mut outcome = v1::SealOutcome::default();
            match self.0.store.seal(&token).await {
                Ok(found) => {
                    outcome.set_status(SealStatus::Sealed);
                    outcome.checkpoint = found.map(wire);
                }
                Err(CheckpointError::Fenced { current, .. }) => {
                    outcome.set_status(SealStatus::Fenced);
                    outcome.current_epoch = current.get();
                }
                Err(_) => outcome.set_status(SealStatus::EpochConflict),
            }
            outcomes.push(outcome);
        }
        Ok(Response::new(v1::SealResponse { outcomes }))
    }

    async fn write(
        &self,
        request: Request<v1::WriteRequest>,
    ) -> Result<Response<v1::WriteResponse>, Status> {
        self.0.opened().await;
        self.0.write(request.into_inner()).await?;
        Ok(Response::new(v1::WriteResponse::default()))
    }

    async fn write_many(
        &self,
        request: Request<v1::WriteManyRequest>,
    ) -> Result<Response<v1::WriteManyResponse>, Status> {
        let writes = request.into_inner().writes;
        self.0.shared.lock().unwrap().push(writes.len());
        self.0.opened().await;
        let fault = self.0.shared_faults.lock().unwrap().pop_front();
        if let Some(Fault::Refuse(status)) = fault {
            return Err(status);
        }
        let mut outcomes = Vec::new();
        for write in writes {
            let mut outcome = v1::WriteOutcome::default();
            if let Err(status) = self.0.write(write).await {
                outcome.error = status.details().to_vec().into();
            }
            outcomes.push(outcome);
        }
        if let Some(Fault::DoneBut(status)) = fault {
            return Err(status);
        }
        Ok(Response::new(v1::WriteManyResponse { outcomes }))
    }

    async fn read(
        &self,
        request: Request<v1::ReadRequest>,
    ) -> Result<Response<v1::ReadResponse>, Status> {
        let request = request.into_inner();
        // Without it a node that is behind answers an owner with less than the owner itself has written.
        assert!(request.linearizable);
        let shard = request.shard.unwrap();
        let shard = ShardRef {
            group: shard.group.parse().unwrap(),
            index: shard.index,
        };
        let found = self.0.store.read(&Resource::Shard(shard)).await.unwrap();
        Ok(Response::new(v1::ReadResponse {
            checkpoint: found.map(wire),
            revision: 1,
        }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let request = request.into_inner();
        self.0.deletions.lock().unwrap().push(request.clone());
        let fault = self.0.faults.lock().unwrap().pop_front();
        if let Some(Fault::Refuse(status)) = fault {
            return Err(status);
        }
        let deletion = Deletion {
            sequence: Sequence::new(request.sequence).unwrap(),
            write_id: write_id(&request.write_id),
        };
        let deleted = self.0.store.delete(&token(request.token), deletion).await;
        if let Some(Fault::DoneBut(status)) = fault {
            return Err(status);
        }
        deleted.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(v1::DeleteResponse::default()))
    }
}

#[tonic::async_trait]
impl ClusterService for Service {
    async fn init(
        &self,
        _: Request<v1::InitRequest>,
    ) -> Result<Response<v1::InitResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn add_node(
        &self,
        _: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn remove_node(
        &self,
        _: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn transfer_leader(
        &self,
        _: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(v1::StatusResponse::default()))
    }

    async fn diagnose(
        &self,
        _: Request<v1::DiagnoseRequest>,
    ) -> Result<Response<v1::DiagnoseResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    type BackupStream = tokio_stream::Empty<Result<v1::BackupResponse, Status>>;

    async fn backup(
        &self,
        _: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn enable_feature(
        &self,
        _: Request<v1::EnableFeatureRequest>,
    ) -> Result<Response<v1::EnableFeatureResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }
}

/// A node with the service.
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) backing: Arc<Backing>,
    serving: Serving,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let backing = Arc::new(Backing::default());
        let service = Service(Arc::clone(&backing));
        let routes = Server::builder()
            .add_service(CheckpointServiceServer::new(service.clone()))
            .add_service(ClusterServiceServer::new(service));
        let serving = Serving::start(routes).await;
        Self {
            address: serving.address.clone(),
            backing,
            serving,
        }
    }

    pub(crate) fn store(&self) -> ReplicatedStore {
        store_at(&[&self.address], Duration::from_secs(10))
    }

    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.backing.faults.lock().unwrap().extend(faults);
    }

    pub(crate) async fn stop(self) {
        self.serving.stop().await;
    }
}

pub(crate) fn store_at(addresses: &[&str], timeout: Duration) -> ReplicatedStore {
    let options = ConnectionOptions::new(addresses.iter().copied()).call_timeout(timeout);
    ReplicatedStore::new(Connection::new(options).unwrap())
}

pub(crate) fn shard_token(shard: u32, epoch: u64) -> FencingToken {
    format!("shard/orders/{shard}@{epoch}:{}/5", "0".repeat(32))
        .parse()
        .unwrap()
}

pub(crate) fn write(sequence: u64, data: &'static str) -> Write {
    Write {
        sequence: Sequence::new(sequence).unwrap(),
        write_id: WriteId::new(u128::from(sequence)),
        data: data.into(),
    }
}
