//! The adapter of the replicated store, against a service that keeps its contract with the store in
//! memory, and misbehaves in transport.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

mod script;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use script::{Serving, error};
use tenure::connection::{Connection, ConnectionOptions};
use tenure::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, MemoryStore,
    Owner, ReplicatedStore, Resource, Sequence, ShardRef, Write, WriteId,
};
use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options};
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::SealStatus;
use tenure_proto::v1::checkpoint_service_server::{CheckpointService, CheckpointServiceServer};
use tenure_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

/// What happens to the next write or deletion.
enum Fault {
    /// It is answered with this instead of being done.
    Refuse(Status),
    /// It is done, and answered with this.
    DoneBut(Status),
}

/// What the service and the test share.
#[derive(Default)]
struct Backing {
    store: MemoryStore,
    faults: Mutex<VecDeque<Fault>>,
    /// How many tenures each seal asked for.
    seals: Mutex<Vec<usize>>,
    /// Outcomes in one answer; the rest is put off.
    outcomes_max: Mutex<Option<usize>>,
    writes: Mutex<Vec<v1::WriteRequest>>,
    deletions: Mutex<Vec<v1::DeleteRequest>>,
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
        let request = request.into_inner();
        self.0.writes.lock().unwrap().push(request.clone());
        let fault = self.0.faults.lock().unwrap().pop_front();
        if let Some(Fault::Refuse(status)) = fault {
            return Err(status);
        }
        let write = Write {
            sequence: Sequence::new(request.sequence).unwrap(),
            write_id: write_id(&request.write_id),
            data: request.data,
        };
        let written = self.0.store.write(&token(request.token), write).await;
        if let Some(Fault::DoneBut(status)) = fault {
            return Err(status);
        }
        written.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(v1::WriteResponse::default()))
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
}

/// A node with the service.
struct Node {
    address: String,
    backing: Arc<Backing>,
    serving: Serving,
}

impl Node {
    async fn start() -> Self {
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

    fn store(&self) -> ReplicatedStore {
        store_at(&[&self.address], Duration::from_secs(10))
    }

    fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.backing.faults.lock().unwrap().extend(faults);
    }

    async fn stop(self) {
        self.serving.stop().await;
    }
}

fn store_at(addresses: &[&str], timeout: Duration) -> ReplicatedStore {
    let options = ConnectionOptions::new(addresses.iter().copied()).call_timeout(timeout);
    ReplicatedStore::new(Connection::new(options).unwrap())
}

fn shard_token(shard: u32, epoch: u64) -> FencingToken {
    format!("shard/orders/{shard}@{epoch}:{}/5", "0".repeat(32))
        .parse()
        .unwrap()
}

fn write(sequence: u64, data: &'static str) -> Write {
    Write {
        sequence: Sequence::new(sequence).unwrap(),
        write_id: WriteId::new(u128::from(sequence)),
        data: data.into(),
    }
}

struct Replicated {
    store: Arc<ReplicatedStore>,
    grants: LocalGrants,
}

#[async_trait]
impl Harness for Replicated {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.store.clone()
    }

    async fn fresh_resource(&mut self) -> Resource {
        // The replicated store keeps shards only.
        loop {
            let resource = self.grants.fresh_resource();
            if matches!(resource, Resource::Shard(_)) {
                return resource;
            }
        }
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        self.grants.next_tenure(resource, holder)
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }
}

#[tokio::test]
async fn the_adapter_passes_the_conformance_kit() {
    let node = Node::start().await;
    let mut harness = Replicated {
        store: Arc::new(node.store()),
        grants: LocalGrants::new(),
    };
    let options = Options {
        race_rounds: 100,
        ..Options::default()
    };
    let report = kit::run(&mut harness, options).await;
    assert_eq!(report.race.rounds, 100);
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    node.stop().await;
}

#[tokio::test]
async fn seals_that_are_put_off_are_asked_for_again_and_keep_their_order() {
    let node = Node::start().await;
    let store = node.store();
    for shard in 0..10 {
        node.backing
            .store
            .seal(&shard_token(shard, 1))
            .await
            .unwrap();
        let data = write(u64::from(shard) + 1, "x");
        node.backing
            .store
            .write(&shard_token(shard, 1), data)
            .await
            .unwrap();
    }
    node.backing.store.seal(&shard_token(4, 9)).await.unwrap();
    *node.backing.outcomes_max.lock().unwrap() = Some(3);
    let tokens: Vec<FencingToken> = (0..10).map(|shard| shard_token(shard, 2)).collect();
    let answers = store.seal_many(&tokens).await;
    for (shard, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Some(found)) => {
                assert_eq!(found.sequence.get(), u64::try_from(shard).unwrap() + 1);
            }
            Err(CheckpointError::Fenced { current, .. }) => {
                assert_eq!((shard, current.get()), (4, 9));
            }
            other => panic!("{shard}: {other:?}"),
        }
    }
    assert_eq!(*node.backing.seals.lock().unwrap(), [10, 7, 4, 1]);
    node.stop().await;
}

#[tokio::test]
async fn an_answer_without_any_outcome_does_not_repeat_for_ever() {
    let node = Node::start().await;
    *node.backing.outcomes_max.lock().unwrap() = Some(0);
    let sealed = node.store().seal(&shard_token(1, 1)).await;
    assert!(matches!(
        sealed,
        Err(CheckpointError::OutcomeUnknown { .. })
    ));
    node.stop().await;
}

#[tokio::test]
async fn more_shards_than_fit_go_in_several_requests() {
    let node = Node::start().await;
    let tokens: Vec<FencingToken> = (0..2_500).map(|shard| shard_token(shard, 1)).collect();
    let answers = node.store().seal_many(&tokens).await;
    assert!(answers.len() == 2_500 && answers.iter().all(Result::is_ok));
    assert_eq!(*node.backing.seals.lock().unwrap(), [1_000, 1_000, 500]);
    node.stop().await;
}

// Scenario 6, in transport: the retry presents the very same write.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_repeated_and_lands_once() {
    let node = Node::start().await;
    let store = node.store();
    store.seal(&shard_token(1, 1)).await.unwrap();
    node.fail([
        Fault::DoneBut(error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[])),
        Fault::DoneBut(Status::unavailable("the connection broke")),
        Fault::Refuse(error(Code::Unavailable, reason::UNAVAILABLE, &[])),
    ]);
    store
        .write(&shard_token(1, 1), write(1, "x"))
        .await
        .unwrap();
    let writes = node.backing.writes.lock().unwrap().clone();
    assert_eq!(writes.len(), 4);
    assert!(writes.iter().all(|write| *write == writes[0]));
    node.stop().await;
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_repeated_as_it_was() {
    let node = Node::start().await;
    let (store, token) = (node.store(), shard_token(1, 1));
    store.seal(&token).await.unwrap();
    store.write(&token, write(1, "x")).await.unwrap();
    let deletion = Deletion {
        sequence: Sequence::new(2).unwrap(),
        write_id: WriteId::new(0xdead),
    };
    node.fail([
        Fault::DoneBut(Status::unavailable("the connection broke")),
        Fault::Refuse(error(Code::Unavailable, reason::UNAVAILABLE, &[])),
    ]);
    store.delete(&token, deletion).await.unwrap();
    assert_eq!(store.read(&token.resource).await.unwrap(), None);
    let deletions = node.backing.deletions.lock().unwrap().clone();
    assert_eq!(deletions.len(), 3);
    assert!(deletions.iter().all(|repeated| *repeated == deletions[0]));

    // Once more, too late: the refusal names both sequences.
    store.write(&token, write(3, "y")).await.unwrap();
    let late = store.delete(&token, deletion).await;
    assert!(
        matches!(
            late,
            Err(CheckpointError::SequenceReused { presented, latest, .. })
                if presented.get() == 2 && latest.get() == 3
        ),
        "{late:?}"
    );
    node.stop().await;
}

// Scenario 7.
#[tokio::test]
async fn a_write_that_may_have_happened_once_is_never_reported_as_not_happened() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_millis(600));
    store.seal(&shard_token(1, 1)).await.unwrap();
    let unknown = error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[]);
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    node.fail([Fault::Refuse(unknown)]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::OutcomeUnknown { .. })),
        "{written:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_landed_before_the_fence_rose_is_not_reported_as_refused() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_secs(10));
    let old = shard_token(1, 1);
    store.seal(&old).await.unwrap();
    let unknown = || error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[]);
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    // It lands, and nobody hears of it; the next owner seals before it is repeated.
    node.fail([Fault::DoneBut(unknown())]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let writing = store.write(&old, write(1, "x"));
    let sealing = async {
        while node.backing.writes.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let found = node.backing.store.seal(&shard_token(1, 2)).await.unwrap();
        node.backing.faults.lock().unwrap().clear();
        found
    };
    let (written, found) = tokio::join!(writing, sealing);
    assert_eq!(found.unwrap().data, "x");
    assert!(
        matches!(written, Err(CheckpointError::OutcomeUnknown { .. })),
        "{written:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_surely_did_not_happen_is_reported_so() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_millis(600));
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::Unavailable { .. })),
        "{written:?}"
    );
    node.stop().await;

    // Nobody listens there: nothing was ever sent.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let store = store_at(&[&address], Duration::from_millis(300));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::Unavailable { .. })),
        "{written:?}"
    );
}

#[tokio::test]
async fn a_write_to_a_node_that_does_not_lead_goes_to_the_leader() {
    let (follower, leader) = (Node::start().await, Node::start().await);
    let hint = [(reason::LEADER_ADDRESS, leader.address.as_str())];
    follower.fail([Fault::Refuse(error(
        Code::FailedPrecondition,
        reason::NOT_LEADER,
        &hint,
    ))]);
    leader.backing.store.seal(&shard_token(1, 1)).await.unwrap();
    let store = follower.store();
    store
        .write(&shard_token(1, 1), write(1, "x"))
        .await
        .unwrap();
    // From now on it asks the leader first.
    store
        .write(&shard_token(1, 1), write(2, "y"))
        .await
        .unwrap();
    assert_eq!(follower.backing.writes.lock().unwrap().len(), 1);
    assert_eq!(leader.backing.writes.lock().unwrap().len(), 2);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_node_that_takes_calls_and_never_answers_leaves_time_for_another() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let node = Node::start().await;
    let store = store_at(&[&address, &node.address], Duration::from_secs(2));
    store.seal(&shard_token(1, 1)).await.unwrap();
    assert_eq!(node.backing.seals.lock().unwrap().len(), 1);
    node.stop().await;

    // With nobody else to ask the outcome is unknown: the call was taken.
    let store = store_at(&[&address], Duration::from_millis(300));
    let sealed = store.seal(&shard_token(1, 2)).await;
    assert!(
        matches!(sealed, Err(CheckpointError::OutcomeUnknown { .. })),
        "{sealed:?}"
    );
}

#[tokio::test]
async fn an_epoch_that_was_never_granted_is_final() {
    let node = Node::start().await;
    let never = || Fault::Refuse(error(Code::FailedPrecondition, reason::NEVER_GRANTED, &[]));
    node.fail([never()]);
    let written = node.store().write(&shard_token(1, 5), write(1, "x")).await;
    assert!(written.unwrap_err().is_final());
    node.stop().await;
}

#[tokio::test]
async fn leases_and_large_values_are_refused_before_anything_is_sent() {
    let node = Node::start().await;
    let store = node.store();
    let lease = format!("lease/nightly@1:{}/5", "0".repeat(32))
        .parse()
        .unwrap();
    let refused = store.write(&lease, write(1, "x")).await;
    assert!(matches!(refused, Err(CheckpointError::Unsupported { .. })));
    let data = vec![0; ReplicatedStore::MAX_VALUE_BYTES + 1].into();
    let large = store
        .write(
            &shard_token(1, 1),
            Write {
                data,
                ..write(1, "")
            },
        )
        .await;
    assert!(matches!(large, Err(CheckpointError::TooLarge { .. })));
    assert!(node.backing.writes.lock().unwrap().is_empty());
    store.probe().await.unwrap();
    node.stop().await;
}
