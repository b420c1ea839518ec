//! Stories of a router and the nodes it watches.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

#[path = "router/dispatched.rs"]
mod dispatched;
mod script;

use std::num::NonZeroU32;
use std::time::Duration;

use script::{Serving, error, within};
use tenure::connection::ConnectionOptions;
use tenure::{Router, RouterError};
use tenure_proto::keys::shard_of_key;
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::event::Event as Fact;
use tenure_proto::v1::ownership_service_server::{OwnershipService, OwnershipServiceServer};
use tenure_proto::v1::watch_response::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

type Answers = mpsc::Sender<Result<v1::WatchResponse, Status>>;

struct Service {
    watches: mpsc::Sender<(v1::WatchRequest, Answers)>,
}

#[tonic::async_trait]
impl OwnershipService for Service {
    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, messages) = mpsc::channel(64);
        let watch = (request.into_inner(), answers);
        self.watches
            .send(watch)
            .await
            .map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn get_shard(
        &self,
        _: Request<v1::GetShardRequest>,
    ) -> Result<Response<v1::GetShardResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn list_shards(
        &self,
        _: Request<v1::ListShardsRequest>,
    ) -> Result<Response<v1::ListShardsResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn lookup_key(
        &self,
        _: Request<v1::LookupKeyRequest>,
    ) -> Result<Response<v1::LookupKeyResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn check_token(
        &self,
        _: Request<v1::CheckTokenRequest>,
    ) -> Result<Response<v1::CheckTokenResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }
}

struct Node {
    address: String,
    watches: mpsc::Receiver<(v1::WatchRequest, Answers)>,
    serving: Serving,
}

impl Node {
    async fn start() -> Self {
        let (sender, watches) = mpsc::channel(16);
        let service = OwnershipServiceServer::new(Service { watches: sender });
        let serving = Serving::start(Server::builder().add_service(service)).await;
        Self {
            address: serving.address.clone(),
            watches,
            serving,
        }
    }

    async fn watch(&mut self) -> (v1::WatchRequest, Answers) {
        within("a watch", self.watches.recv()).await.unwrap()
    }

    async fn stop(self) {
        self.serving.stop().await;
    }
}

fn cursor(revision: u64, ordinal: u32) -> v1::Cursor {
    v1::Cursor { revision, ordinal }
}

/// A state in which worker "a", session 1, serves all of 4 shards at `epoch`.
fn state(revision: u64, epoch: u64) -> Message {
    let shard = |index| v1::WatchShard {
        index,
        phase: v1::ShardPhase::Serving.into(),
        epoch,
        owner: 1,
    };
    let worker = |session, name: &str| v1::WatchWorker {
        session,
        worker: name.into(),
        address: format!("{name}:9000"),
    };
    Message::State(v1::WatchState {
        at: Some(cursor(revision, 0)),
        shard_count: 4,
        shards: (0..4).map(shard).collect(),
        workers: vec![worker(1, "a"), worker(2, "b")],
        last: true,
    })
}

fn serving(at: v1::Cursor, shard: u32, epoch: u64, owner: u64) -> Message {
    let event = Some(Fact::Serving(v1::ShardServing {
        shard,
        epoch,
        owner,
    }));
    Message::Events(v1::WatchEvents {
        at: Some(at),
        events: vec![v1::Event {
            cursor: Some(at),
            event,
        }],
        ..Default::default()
    })
}

async fn send(answers: &Answers, message: Message) {
    answers
        .send(Ok(v1::WatchResponse {
            message: Some(message),
        }))
        .await
        .unwrap();
}

fn options(addresses: &[&str]) -> ConnectionOptions {
    ConnectionOptions::new(addresses.iter().copied()).call_timeout(script::PATIENCE)
}

async fn connect(node: &mut Node, addresses: &[&str]) -> (Router, Answers) {
    let first = async {
        let (request, answers) = node.watch().await;
        assert_eq!((request.group.as_str(), request.after), ("orders", None));
        send(&answers, state(10, 7)).await;
        answers
    };
    let (router, answers) = tokio::join!(Router::connect(options(addresses), "orders"), first);
    (router.unwrap(), answers)
}

async fn until_epoch(router: &Router, shard: u32, epoch: u64) {
    let reached = |router: &Router| {
        router
            .route_shard(shard)
            .is_some_and(|route| route.epoch.get() == epoch)
    };
    within("the route", router.wait_until(reached)).await;
}

#[tokio::test]
async fn a_key_is_routed_to_the_serving_owner_of_its_range() {
    let mut node = Node::start().await;
    let address = node.address.clone();
    let (router, answers) = connect(&mut node, &[&address]).await;
    let key = b"customer-4711";
    let shard = shard_of_key(key, NonZeroU32::new(4).unwrap());
    assert_eq!(
        (
            router.shard_count(),
            router.shard_of(key),
            router.revision()
        ),
        (4, shard, 10)
    );
    let route = router.route(key).unwrap();
    assert_eq!((route.shard.index, route.epoch.get()), (shard, 7));
    assert_eq!(
        (route.worker.as_str(), route.address.as_str()),
        ("a", "a:9000")
    );
    assert_eq!(router.route_shard(4), None);

    send(&answers, serving(cursor(11, 0), shard, 8, 2)).await;
    until_epoch(&router, shard, 8).await;
    assert_eq!(router.route(key).unwrap().worker, "b");
    router.close().await;
    node.stop().await;
}

// Scenario 44, the watcher's half.
#[tokio::test]
async fn a_broken_watch_goes_on_at_the_cursor_it_had_come_to() {
    let mut node = Node::start().await;
    let address = node.address.clone();
    let (router, answers) = connect(&mut node, &[&address]).await;
    send(&answers, serving(cursor(11, 0), 1, 8, 2)).await;
    until_epoch(&router, 1, 8).await;
    // Cut off in the middle of revision 11.
    drop(answers);
    let (request, answers) = node.watch().await;
    assert_eq!(request.after, Some(cursor(11, 0)));
    send(&answers, serving(cursor(11, 1), 2, 8, 2)).await;
    until_epoch(&router, 2, 8).await;
    router.close().await;
    node.stop().await;
}

// Scenario 43.
#[tokio::test]
async fn a_node_that_is_behind_is_left_and_what_it_says_does_not_count() {
    let (mut ahead, mut behind) = (Node::start().await, Node::start().await);
    let addresses = [ahead.address.clone(), behind.address.clone()];
    let addresses = [addresses[0].as_str(), addresses[1].as_str()];
    let (router, answers) = connect(&mut ahead, &addresses).await;
    send(&answers, serving(cursor(20, 0), 1, 9, 2)).await;
    until_epoch(&router, 1, 9).await;
    drop(answers);
    let (request, answers) = behind.watch().await;
    assert_eq!(request.after, Some(cursor(20, 0)));
    send(&answers, state(15, 8)).await;
    // The next try goes to the other node, from where the router really is.
    let (request, answers) = ahead.watch().await;
    assert_eq!(request.after, Some(cursor(20, 0)));
    assert_eq!(router.route_shard(1).unwrap().epoch.get(), 9);
    assert_eq!(router.route_shard(2).unwrap().epoch.get(), 7);
    send(&answers, serving(cursor(21, 0), 2, 8, 2)).await;
    until_epoch(&router, 2, 8).await;
    router.close().await;
    ahead.stop().await;
    behind.stop().await;
}

#[tokio::test]
async fn a_watcher_that_fell_behind_begins_with_the_state_again() {
    let mut node = Node::start().await;
    let address = node.address.clone();
    let (router, answers) = connect(&mut node, &[&address]).await;
    send(
        &answers,
        Message::Resync(v1::Resync {
            oldest: Some(cursor(50, 0)),
        }),
    )
    .await;
    let (request, answers) = node.watch().await;
    assert_eq!(request.after, None);
    send(&answers, state(60, 12)).await;
    until_epoch(&router, 3, 12).await;
    router.close().await;
    node.stop().await;
}

#[tokio::test]
async fn a_group_that_does_not_exist_is_said_at_once() {
    let mut node = Node::start().await;
    let address = node.address.clone();
    let refuse = async {
        let (_, answers) = node.watch().await;
        let status = error(Code::NotFound, reason::GROUP_NOT_FOUND, &[]);
        answers.send(Err(status)).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(Router::connect(options(&[&address]), "orders"), refuse);
    assert!(matches!(outcome, Err(RouterError::Refused(_))));
    node.stop().await;
}

#[tokio::test]
async fn without_any_coordinator_there_is_no_router() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let options = ConnectionOptions::new([address]).call_timeout(Duration::from_millis(100));
    let outcome = Router::connect(options, "orders").await;
    assert!(matches!(outcome, Err(RouterError::Unavailable { .. })));
}
