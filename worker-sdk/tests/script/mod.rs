//! A coordinator that does what a test tells it, message by message.

// Every test file compiles this module for itself and uses a part of it.
#![allow(dead_code, reason = "each test file uses a part")]

mod server;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::ManualClock;
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tenure_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use self::server::Serving;

/// Longer than anything here takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits something that must happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen: {what}"),
    }
}

/// An error as a coordinator sends it.
pub(crate) fn error(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
    let metadata: HashMap<String, String> = metadata
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let details = ErrorDetails::with_error_info(reason, reason::DOMAIN, metadata);
    Status::with_error_details(code, reason.to_lowercase(), details)
}

/// A session of the cluster these tests talk about.
pub(crate) fn session(number: u64) -> v1::Session {
    v1::Session {
        cluster_id: vec![7; 16].into(),
        number,
    }
}

/// A tenure.
pub(crate) fn tenure(shard: u32, epoch: u64) -> v1::Tenure {
    v1::Tenure { shard, epoch }
}

/// A stream as the coordinator sees it.
pub(crate) struct ServerStream {
    inbound: Streaming<v1::AttachRequest>,
    outbound: mpsc::Sender<Result<v1::AttachResponse, Status>>,
    /// The latest heartbeat that was received.
    pub(crate) heartbeat: u64,
}

impl ServerStream {
    /// Returns the worker's next message.
    pub(crate) async fn next(&mut self) -> Up {
        let message = within("a message of the worker", self.inbound.message()).await;
        let message = message.unwrap().expect("the worker closed the stream");
        let message = message.message.unwrap();
        if let Up::Heartbeat(heartbeat) = &message {
            self.heartbeat = heartbeat.sequence;
        }
        message
    }

    /// Returns the worker's next message that is no heartbeat.
    pub(crate) async fn next_report(&mut self) -> Up {
        loop {
            match self.next().await {
                Up::Heartbeat(_) => {}
                report => return report,
            }
        }
    }

    /// Waits until the worker has closed the stream.
    pub(crate) async fn closed(mut self) {
        within("the end of the stream", async {
            while let Ok(Some(_)) = self.inbound.message().await {}
        })
        .await;
    }

    pub(crate) async fn register(&mut self) -> v1::Register {
        match self.next().await {
            Up::Register(register) => register,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn resume(&mut self) -> v1::Resume {
        match self.next().await {
            Up::Resume(resume) => resume,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the next heartbeat, and for nothing else.
    pub(crate) async fn next_heartbeat(&mut self) -> u64 {
        match self.next().await {
            Up::Heartbeat(heartbeat) => heartbeat.sequence,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn holding(&mut self) -> v1::Holding {
        match self.next_report().await {
            Up::Holding(holding) => holding,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn ready(&mut self) -> v1::Ready {
        match self.next_report().await {
            Up::Ready(ready) => ready,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn released(&mut self) -> Vec<v1::Release> {
        match self.next_report().await {
            Up::Released(released) => released.releases,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the news that the worker begins to stop.
    pub(crate) async fn stopping(&mut self) {
        match self.next_report().await {
            Up::Stopping(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Tells a worker that stops that nobody takes its shards.
    pub(crate) async fn dismiss(&self) {
        self.send(Down::Dismissed(v1::Dismissed {})).await;
    }

    /// Waits for the last message of a worker that stops, and ends its session.
    pub(crate) async fn let_go(mut self) {
        match self.next_report().await {
            Up::Leaving(_) => {}
            other => panic!("{other:?}"),
        }
        let ended = error(Code::FailedPrecondition, reason::SESSION_ENDED, &[]);
        self.fail(ended).await;
    }

    pub(crate) async fn send(&self, message: Down) {
        let message = v1::AttachResponse {
            message: Some(message),
        };
        self.outbound
            .send(Ok(message))
            .await
            .expect("the worker has gone");
    }

    /// Sends as fast as the worker takes it, and reads nothing. Does not return while there is a stream.
    pub(crate) async fn flood(&self, mut message: impl FnMut(u64) -> Down) {
        for number in 0.. {
            let message = v1::AttachResponse {
                message: Some(message(number)),
            };
            if self.outbound.send(Ok(message)).await.is_err() {
                return;
            }
        }
    }

    /// Ends the stream with an error.
    pub(crate) async fn fail(self, status: Status) {
        self.outbound
            .send(Err(status))
            .await
            .expect("the worker has gone");
    }

    pub(crate) async fn registered(&self, number: u64) {
        self.send(Down::Registered(v1::Registered {
            session: Some(session(number)),
            ttl_ms: 10_000,
            window_ms: 750,
            shard_count: 64,
        }))
        .await;
    }

    /// Sends a `Set` of shards that are being opened.
    pub(crate) async fn set(&self, revision: u64, tenures: &[(u32, u64)]) {
        let shards = tenures
            .iter()
            .map(|&(shard, epoch)| v1::SetShard {
                tenure: Some(tenure(shard, epoch)),
                phase: v1::ShardPhase::Opening.into(),
                ..v1::SetShard::default()
            })
            .collect();
        self.send(Down::Set(v1::Set { revision, shards })).await;
    }

    pub(crate) async fn acknowledge(&self, sequence: u64) {
        self.send(Down::HeartbeatAck(v1::HeartbeatAck { sequence }))
            .await;
    }

    pub(crate) async fn grant(&self, revision: u64, shard: u32, epoch: u64) {
        let grants = vec![v1::Grant {
            tenure: Some(tenure(shard, epoch)),
            ..v1::Grant::default()
        }];
        self.send(Down::Granted(v1::Granted { revision, grants }))
            .await;
    }

    pub(crate) async fn revoke(&self, revision: u64, shard: u32, epoch: u64, drain: Duration) {
        let drain_ms = u64::try_from(drain.as_millis()).unwrap();
        let tenures = vec![tenure(shard, epoch)];
        self.send(Down::Revoke(v1::Revoke {
            revision,
            tenures,
            drain_ms,
            reason: 1,
        }))
        .await;
    }

    /// Answers the opening message and everything up to the worker's answer to the `Set`.
    pub(crate) async fn welcome(&mut self, number: u64, revision: u64, tenures: &[(u32, u64)]) {
        self.registered(number).await;
        self.set(revision, tenures).await;
        self.acknowledge(0).await;
        assert_eq!(self.holding().await.set_revision, revision);
    }
}

/// What the service does with the streams that come.
struct Service {
    streams: mpsc::Sender<ServerStream>,
    refusals: Arc<Mutex<VecDeque<Status>>>,
}

#[tonic::async_trait]
impl WorkerService for Service {
    type AttachStream = ReceiverStream<Result<v1::AttachResponse, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let refusal = self.refusals.lock().unwrap().pop_front();
        if let Some(status) = refusal {
            return Err(status);
        }
        let (outbound, messages) = mpsc::channel(64);
        let stream = ServerStream {
            inbound: request.into_inner(),
            outbound,
            heartbeat: 0,
        };
        self.streams
            .send(stream)
            .await
            .map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// A coordinator on a port of its own.
pub(crate) struct Coordinator {
    pub(crate) address: String,
    streams: mpsc::Receiver<ServerStream>,
    refusals: Arc<Mutex<VecDeque<Status>>>,
    serving: Serving,
}

impl Coordinator {
    pub(crate) async fn start() -> Self {
        Self::start_with(Server::builder()).await
    }

    /// Starts one that speaks as `server` is set up to, such as TLS.
    pub(crate) async fn start_with(mut server: Server) -> Self {
        let (sender, streams) = mpsc::channel(16);
        let refusals: Arc<Mutex<VecDeque<Status>>> = Arc::default();
        let service = Service {
            streams: sender,
            refusals: Arc::clone(&refusals),
        };
        let routes = server.add_service(WorkerServiceServer::new(service));
        let serving = Serving::start(routes).await;
        Self {
            address: serving.address.clone(),
            streams,
            refusals,
            serving,
        }
    }

    /// Answers the next stream with an error.
    pub(crate) fn refuse_next(&self, status: Status) {
        self.refusals.lock().unwrap().push_back(status);
    }

    /// Returns the next stream. Time goes on until it comes, for the pauses between tries.
    pub(crate) async fn accept(&mut self, clock: &ManualClock) -> ServerStream {
        within("a stream of the worker", async {
            loop {
                // Slower than real time, so that a busy machine can answer within the limits of a try.
                match tokio::time::timeout(Duration::from_millis(20), self.streams.recv()).await {
                    Ok(stream) => return stream.unwrap(),
                    Err(_) => clock.advance(Duration::from_millis(10)),
                }
            }
        })
        .await
    }

    /// Requires that no stream has come.
    pub(crate) fn assert_no_stream(&mut self) {
        assert!(self.streams.try_recv().is_err(), "the worker came back");
    }

    pub(crate) async fn stop(self) {
        self.serving.stop().await;
    }
}

/// Shows two things that must be equal, with what they are.
pub(crate) fn assert_same<T: PartialEq + Debug>(what: &str, left: &T, right: &T) {
    assert!(left == right, "{what}: {left:?}, {right:?}");
}
