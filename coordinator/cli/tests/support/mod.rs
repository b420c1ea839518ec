//! A coordinator whose answers are written down here, and a way to run a command against it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use clap::{Parser, Subcommand};
use tenure_cli::{Console, Environment, OperatorCommand};
use tenure_proto::reason;
use tenure_proto::v1::admin_service_server::{AdminService, AdminServiceServer};
use tenure_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use tenure_proto::v1::ownership_service_server::{OwnershipService, OwnershipServiceServer};
use tenure_proto::v1::{self, event::Event as Fact, watch_response::Message};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The largest number on the wire: it does not survive a reader that takes it for a double.
pub(crate) const LARGEST: u64 = i64::MAX as u64;
pub(crate) const CLUSTER: [u8; 16] = [0x5e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0xde];

/// How a fake node answers changes.
#[derive(Clone, Default)]
pub(crate) enum Role {
    #[default]
    Leader,
    /// Names this address as the leader's; with none, it knows no leader.
    Follower(Option<String>),
}

/// What is seen of a fake node from outside.
#[derive(Default)]
pub(crate) struct Seen {
    /// Names of the changes that reached it.
    pub(crate) changes: Vec<String>,
    /// The cursor that each watch asked for.
    pub(crate) watches: Vec<Option<v1::Cursor>>,
    pub(crate) policy: Option<v1::SetPolicyRequest>,
}

#[derive(Clone, Default)]
struct Fake {
    role: Role,
    seen: Arc<Mutex<Seen>>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(role: Role) -> Self {
        Self::start_with(role, None).await
    }

    pub(crate) async fn start_with(role: Role, tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fake = Fake {
            role,
            seen: Arc::default(),
        };
        let seen = fake.seen.clone();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let router = server
            .add_service(AdminServiceServer::new(fake.clone()))
            .add_service(OwnershipServiceServer::new(fake.clone()))
            .add_service(ClusterServiceServer::new(fake));
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            tokio::select! {
                served = router.serve_with_incoming(TcpListenerStream::new(listener)) => served.unwrap(),
                _ = stopped => {}
            }
        });
        Self {
            address,
            seen,
            stop: Some(stop),
            server,
        }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap();
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            addresses: Some(self.address.clone()),
            config: None,
        }
    }
}

/// The operator commands as a binary embeds them.
#[derive(Parser)]
#[command(name = "tenure")]
pub(crate) struct Program {
    #[command(subcommand)]
    command: Embedding,
}

#[derive(Subcommand)]
enum Embedding {
    /// A command of the binary, with a `--config` that means something else
    Serve {
        #[arg(long)]
        config: String,
    },
    #[command(flatten)]
    Operator(Box<OperatorCommand>),
}

/// How a command ended and what it wrote.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: u8,
}

pub(crate) async fn tenure(environment: &Environment, arguments: &[&str]) -> Ran {
    tenure_until(environment, arguments, std::future::pending()).await
}

/// Runs a command; `interrupted` stands for Ctrl-C.
pub(crate) async fn tenure_until(
    environment: &Environment,
    arguments: &[&str],
    interrupted: impl Future<Output = ()>,
) -> Ran {
    let program = match Program::try_parse_from(["tenure"].iter().chain(arguments)) {
        Ok(program) => program,
        Err(error) => {
            return Ran {
                out: String::new(),
                err: error.to_string(),
                exit: 2,
            };
        }
    };
    let command = match program.command {
        Embedding::Operator(command) => command,
        Embedding::Serve { config } => {
            return Ran {
                out: config,
                err: String::new(),
                exit: 0,
            };
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console::new(&mut out, &mut err, None);
    let outcome = tenure_cli::run(&command, environment, &mut console, interrupted).await;
    let mut exit = 0;
    if let Err(error) = outcome {
        tenure_cli::report(&error, &mut err);
        exit = error.exit() as u8;
    }
    Ran {
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        exit,
    }
}

fn refused(code: Code, reason: &str, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, reason::DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

impl Fake {
    /// What every change goes through.
    fn change(&self, name: &str) -> Result<(), Status> {
        let Role::Follower(leader) = &self.role else {
            self.seen.lock().unwrap().changes.push(name.to_owned());
            return Ok(());
        };
        let mut metadata = HashMap::new();
        if let Some(address) = leader {
            metadata.insert(reason::LEADER_ADDRESS.to_owned(), address.clone());
        }
        let details = ErrorDetails::with_error_info(reason::NOT_LEADER, reason::DOMAIN, metadata);
        Err(Status::with_error_details(
            Code::Unavailable,
            "this node does not lead",
            details,
        ))
    }
}

fn no_group(name: &str) -> Status {
    refused(
        Code::NotFound,
        reason::GROUP_NOT_FOUND,
        &format!("no group is named {name}"),
    )
}

pub(crate) fn policy() -> v1::Policy {
    v1::Policy {
        ttl_ms: 10_000,
        disconnect_grace_ms: 750,
        restart_grace_ms: 0,
        lock_delay_ms: 0,
        drain_timeout_ms: 30_000,
        opening_deadline_ms: 60_000,
        handoffs_in_flight_max: 0,
        load_factor_permille: 1_100,
        checkpoint_bytes_max: 1_048_576,
        checkpoint_total_bytes_max: 16 << 30,
    }
}

fn group(name: &str) -> v1::Group {
    v1::Group {
        name: name.to_owned(),
        shard_count: 64,
        deleting: name == "retired",
        policy: Some(policy()),
        policy_revision: 12,
        unowned: 1,
        opening: 2,
        serving: 60,
        revoking: 1,
        workers: 4,
        checkpoint_bytes: 2_097_152,
    }
}

fn session(number: u64) -> v1::Session {
    v1::Session {
        cluster_id: CLUSTER.to_vec().into(),
        number,
    }
}

fn shard(index: u32) -> v1::Shard {
    let at = v1::ShardRef {
        group: "orders".to_owned(),
        index,
    };
    let phase = [
        v1::ShardPhase::Serving,
        v1::ShardPhase::Revoking,
        v1::ShardPhase::Opening,
        v1::ShardPhase::Unowned,
    ][index as usize % 4];
    let mut shard = v1::Shard {
        shard: Some(at),
        phase: phase.into(),
        epoch: LARGEST - u64::from(index),
        owner: Some(session(917)),
        worker: "counter-1".to_owned(),
        address: "10.0.0.11:9000".to_owned(),
        checkpoint_bytes: 32_768,
        ..Default::default()
    };
    match phase {
        v1::ShardPhase::Revoking => {
            shard.revoke_reason = v1::RevokeReason::Rebalance.into();
            shard.next_worker = "counter-2".to_owned();
        }
        v1::ShardPhase::Unowned => {
            shard.epoch = 0;
            shard.owner = None;
            shard.worker.clear();
            shard.address.clear();
            shard.open_failure = Some(v1::OpenFailure {
                count: 3,
                worker: "counter-3".to_owned(),
                reason: "seal failed".to_owned(),
            });
        }
        _ => {}
    }
    shard
}

#[tonic::async_trait]
impl AdminService for Fake {
    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::CreateGroupResponse>, Status> {
        let request = request.into_inner();
        self.change("create")?;
        if request.name == "orders" {
            return Err(refused(
                Code::AlreadyExists,
                reason::GROUP_EXISTS,
                "group orders exists already",
            ));
        }
        let made = v1::Group {
            name: request.name,
            shard_count: request.shard_count,
            unowned: request.shard_count,
            policy: Some(policy()),
            policy_revision: LARGEST,
            ..Default::default()
        };
        Ok(Response::new(v1::CreateGroupResponse {
            group: Some(made),
            revision: LARGEST,
        }))
    }

    async fn get_group(
        &self,
        request: Request<v1::GetGroupRequest>,
    ) -> Result<Response<v1::GetGroupResponse>, Status> {
        let name = request.into_inner().name;
        if name != "orders" {
            return Err(no_group(&name));
        }
        Ok(Response::new(v1::GetGroupResponse {
            group: Some(group(&name)),
            revision: LARGEST,
        }))
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsResponse>, Status> {
        // One group a page, so that a client that does not go on is noticed.
        let (name, next, revision) = match request.into_inner().after.as_str() {
            "" => ("orders", "orders", 41),
            _ => ("retired", "", 40),
        };
        let answer = v1::ListGroupsResponse {
            groups: vec![group(name)],
            next: next.to_owned(),
            revision,
        };
        Ok(Response::new(answer))
    }

    async fn set_policy(
        &self,
        request: Request<v1::SetPolicyRequest>,
    ) -> Result<Response<v1::SetPolicyResponse>, Status> {
        let request = request.into_inner();
        self.change("set")?;
        let new = request.policy.unwrap_or_default();
        if new.ttl_ms > 600_000 {
            let mut details = ErrorDetails::with_error_info(
                reason::INVALID_ARGUMENT,
                reason::DOMAIN,
                HashMap::new(),
            );
            details.add_bad_request_violation(
                "policy.ttl_ms",
                "policy.ttl is 660s, allowed is 1s to 600s",
            );
            let message = "the request is not acceptable";
            return Err(Status::with_error_details(
                Code::InvalidArgument,
                message,
                details,
            ));
        }
        if request.seen_revision == 11 {
            let message = "the policy was changed at revision 12, the edit started from 11";
            return Err(refused(Code::Aborted, reason::STALE_EPOCH, message));
        }
        self.seen.lock().unwrap().policy = Some(request);
        let set = v1::Policy {
            ttl_ms: new.ttl_ms,
            ..policy()
        };
        Ok(Response::new(v1::SetPolicyResponse {
            policy: Some(set),
            revision: 43,
        }))
    }

    async fn delete_group(
        &self,
        request: Request<v1::DeleteGroupRequest>,
    ) -> Result<Response<v1::DeleteGroupResponse>, Status> {
        let name = request.into_inner().name;
        self.change("delete")?;
        match name.as_str() {
            "orders" => Ok(Response::new(v1::DeleteGroupResponse { revision: 44 })),
            "hangs" => std::future::pending().await,
            "retired" => Err(refused(
                Code::FailedPrecondition,
                reason::GROUP_NOT_FOUND,
                "group retired is being deleted",
            )),
            _ => Err(no_group(&name)),
        }
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let name = request.into_inner().group;
        if name != "orders" {
            return Err(no_group(&name));
        }
        let labels = [("zone", "b"), ("disk", "fast")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let live = v1::Worker {
            name: "counter-1".to_owned(),
            session: Some(session(LARGEST)),
            mode: v1::WorkerMode::Active.into(),
            weight: 2,
            labels: labels.into(),
            address: "10.0.0.11:9000".to_owned(),
            shards: 16,
            ttl_ms: 10_000,
            window_ms: 750,
        };
        let gone = v1::Worker {
            name: "counter-2".to_owned(),
            mode: v1::WorkerMode::Draining.into(),
            ..Default::default()
        };
        Ok(Response::new(v1::ListWorkersResponse {
            workers: vec![live, gone],
            revision: 45,
        }))
    }

    async fn set_worker_mode(
        &self,
        _: Request<v1::SetWorkerModeRequest>,
    ) -> Result<Response<v1::SetWorkerModeResponse>, Status> {
        Err(Status::unimplemented("not part of these tests"))
    }
}

type Watched = tokio_stream::Iter<std::vec::IntoIter<Result<v1::WatchResponse, Status>>>;

#[tonic::async_trait]
impl OwnershipService for Fake {
    type WatchStream = Watched;

    async fn get_shard(
        &self,
        request: Request<v1::GetShardRequest>,
    ) -> Result<Response<v1::GetShardResponse>, Status> {
        let at = request.into_inner().shard.unwrap_or_default();
        if at.group != "orders" {
            return Err(no_group(&at.group));
        }
        if at.index >= 64 {
            let mut details = ErrorDetails::with_error_info(
                reason::INVALID_ARGUMENT,
                reason::DOMAIN,
                HashMap::new(),
            );
            let problem = format!("the group has no shard {}", at.index);
            details.add_bad_request_violation("shard", &problem);
            return Err(Status::with_error_details(
                Code::InvalidArgument,
                problem,
                details,
            ));
        }
        let answer = v1::GetShardResponse {
            shard: Some(shard(at.index)),
            revision: 46,
        };
        Ok(Response::new(answer))
    }

    async fn list_shards(
        &self,
        request: Request<v1::ListShardsRequest>,
    ) -> Result<Response<v1::ListShardsResponse>, Status> {
        let request = request.into_inner();
        if request.group != "orders" {
            return Err(no_group(&request.group));
        }
        let from = request.from_index;
        let wanted = |shard: &v1::Shard| {
            let phase = request.phase();
            phase == v1::ShardPhase::Unspecified || phase == shard.phase()
        };
        // Two shards a page, so that a client that does not go on is noticed.
        let shards = (from..from + 2).map(shard).filter(wanted).collect();
        let next_index = if from == 0 { 2 } else { 0 };
        let answer = v1::ListShardsResponse {
            shards,
            next_index,
            revision: LARGEST,
        };
        Ok(Response::new(answer))
    }

    async fn lookup_key(
        &self,
        request: Request<v1::LookupKeyRequest>,
    ) -> Result<Response<v1::LookupKeyResponse>, Status> {
        let index = u32::try_from(request.into_inner().key.len()).unwrap();
        let answer = v1::LookupKeyResponse {
            shard: Some(shard(index)),
            revision: 47,
        };
        Ok(Response::new(answer))
    }

    /// The first stream breaks, the second is too late to go on, the third sees the group removed.
    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Watched>, Status> {
        let request = request.into_inner();
        if request.group != "orders" {
            return Err(no_group(&request.group));
        }
        let mut seen = self.seen.lock().unwrap();
        seen.watches.push(request.after);
        let messages = match seen.watches.len() {
            1 => first_stream(),
            2 => vec![
                Ok(Message::Progress(at(103, 0))),
                Ok(Message::Resync(v1::Resync {
                    oldest: Some(at(200, 0)),
                })),
            ],
            _ => last_stream(),
        };
        let responses: Vec<_> = messages
            .into_iter()
            .map(|message| {
                message.map(|message| v1::WatchResponse {
                    message: Some(message),
                })
            })
            .collect();
        Ok(Response::new(tokio_stream::iter(responses)))
    }

    async fn check_token(
        &self,
        request: Request<v1::CheckTokenRequest>,
    ) -> Result<Response<v1::CheckTokenResponse>, Status> {
        let token = request.into_inner().token.unwrap_or_default();
        let current = token.epoch == LARGEST && token.owner == Some(session(917));
        let reason = if current {
            ""
        } else {
            "the shard is at a newer epoch"
        };
        Ok(Response::new(v1::CheckTokenResponse {
            current,
            current_epoch: LARGEST,
            revision: 48,
            reason: reason.to_owned(),
        }))
    }
}

pub(crate) fn at(revision: u64, ordinal: u32) -> v1::Cursor {
    v1::Cursor { revision, ordinal }
}

fn events(facts: Vec<(v1::Cursor, Fact)>) -> Message {
    let last = facts.last().map(|(cursor, _)| *cursor);
    let events = facts
        .into_iter()
        .map(|(cursor, fact)| v1::Event {
            cursor: Some(cursor),
            event: Some(fact),
        })
        .collect();
    Message::Events(v1::WatchEvents { at: last, events })
}

fn state(shards: Vec<v1::WatchShard>, workers: Vec<v1::WatchWorker>, last: bool) -> Message {
    Message::State(v1::WatchState {
        // As a coordinator says that everything up to revision 100 is in it.
        at: Some(at(100, u32::MAX)),
        shard_count: 64,
        shards,
        workers,
        last,
    })
}

fn counter_1() -> v1::WatchWorker {
    v1::WatchWorker {
        session: 917,
        worker: "counter-1".to_owned(),
        address: "10.0.0.11:9000".to_owned(),
    }
}

fn first_stream() -> Vec<Result<Message, Status>> {
    let serving = v1::WatchShard {
        index: 0,
        phase: v1::ShardPhase::Serving.into(),
        epoch: LARGEST,
        owner: 917,
    };
    let unowned = v1::WatchShard {
        index: 1,
        phase: v1::ShardPhase::Unowned.into(),
        epoch: 0,
        owner: 0,
    };
    let registered = v1::WorkerRegistered {
        session: LARGEST,
        worker: "counter-2".to_owned(),
        address: "10.0.0.12:9000".to_owned(),
    };
    let granted = v1::ShardGranted {
        shard: 1,
        epoch: 1,
        owner: LARGEST,
    };
    let ready = v1::ShardServing {
        shard: 1,
        epoch: 1,
        owner: LARGEST,
    };
    let revoking = v1::ShardRevoking {
        shard: 0,
        epoch: LARGEST,
        owner: 917,
        next: LARGEST,
        reason: v1::RevokeReason::Rebalance.into(),
    };
    vec![
        Ok(state(vec![serving], vec![counter_1()], false)),
        Ok(state(vec![unowned], vec![], true)),
        Ok(events(vec![(at(101, 0), Fact::Registered(registered))])),
        Ok(events(vec![
            (at(102, 0), Fact::Granted(granted)),
            (at(102, 1), Fact::Serving(ready)),
            (at(102, 2), Fact::Revoking(revoking)),
        ])),
        Err(Status::unavailable("connection reset")),
    ]
}

fn last_stream() -> Vec<Result<Message, Status>> {
    let failed = v1::TenureEnded {
        shard: 1,
        epoch: 1,
        owner: 917,
        cause: v1::EndCause::SessionEnded.into(),
        detail: String::new(),
    };
    let ended = v1::SessionEnded {
        session: 917,
        worker: "counter-1".to_owned(),
        end: v1::SessionEnd::Expired.into(),
    };
    let mode = v1::WorkerModeSet {
        worker: "counter-3".to_owned(),
        mode: v1::WorkerMode::Draining.into(),
    };
    let removed = v1::GroupChanged {
        change: v1::GroupChange::Removed.into(),
    };
    vec![
        Ok(state(vec![], vec![counter_1()], true)),
        Ok(events(vec![
            (at(300, 0), Fact::SessionEnded(ended)),
            (at(300, 1), Fact::TenureEnded(failed)),
        ])),
        Ok(events(vec![(
            at(301, 0),
            Fact::FloorRaised(v1::FloorRaised {
                shard: 1,
                floor: LARGEST,
            }),
        )])),
        Ok(events(vec![(at(302, 0), Fact::WorkerModeSet(mode))])),
        Ok(events(vec![(at(303, 0), Fact::GroupChanged(removed))])),
    ]
}

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
