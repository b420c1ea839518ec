//! A worker whose every message is sent by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness that cannot do what it is told panics"
)]

use std::time::Duration;

use tenure_proto::v1 as pb;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;
use tonic::transport::Channel;

/// How often an owner says that it is there: well within the shortest ttl.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// An owner that does nothing but hold: every message is sent by hand.
pub(crate) struct BareOwner {
    pub(crate) ups: mpsc::Sender<pb::AttachRequest>,
    pub(crate) downs: Streaming<pb::AttachResponse>,
    pub(crate) session: pb::Session,
    pub(crate) tenure: pb::Tenure,
    heart: Option<AbortOnDropHandle<()>>,
}

impl BareOwner {
    /// Registers and waits for a grant.
    pub(crate) async fn register(leader: Channel, group: &str, worker: String) -> Self {
        let (ups, queue) = mpsc::channel(8);
        let register = pb::Register {
            group: group.to_owned(),
            nonce: rand::random::<u128>().to_be_bytes().to_vec().into(),
            worker,
            attempt: 1,
            ..pb::Register::default()
        };
        send(&ups, Up::Register(register)).await;
        let mut client = WorkerServiceClient::new(leader);
        let mut downs = client
            .attach(ReceiverStream::new(queue))
            .await
            .unwrap()
            .into_inner();
        let Down::Registered(registered) = next(&mut downs).await else {
            panic!("not registered")
        };
        let mut owner = Self {
            heart: None,
            ups,
            downs,
            session: registered.session.unwrap(),
            tenure: pb::Tenure::default(),
        };
        owner.granted().await;
        owner
    }

    /// Keeps its session alive for longer than a ttl. For minutes at most: nobody reads the answers.
    pub(crate) fn live(mut self) -> Self {
        let beating = tokio::spawn(beat(self.ups.clone()));
        self.heart = Some(AbortOnDropHandle::new(beating));
        self
    }

    /// Waits for a grant above the tenure held last.
    pub(crate) async fn granted(&mut self) {
        loop {
            if let Down::Granted(granted) = next(&mut self.downs).await {
                self.tenure = granted.grants[0].tenure.unwrap();
                return;
            }
        }
    }

    /// Gives its shard back.
    pub(crate) async fn release(&self) {
        let release = pb::Release {
            tenure: Some(self.tenure),
            cause: pb::ReleaseCause::Finished.into(),
            ..pb::Release::default()
        };
        send(
            &self.ups,
            Up::Released(pb::Released {
                releases: vec![release],
            }),
        )
        .await;
    }

    /// Gives its shard back and ends its session.
    pub(crate) async fn leave(mut self) {
        // First, or the shard might be granted to this owner once more before it has left, and the
        // next tenure would not be the next epoch.
        send(&self.ups, Up::Stopping(pb::Stopping {})).await;
        self.release().await;
        send(&self.ups, Up::Leaving(pb::Leaving {})).await;
        while self.downs.message().await.unwrap().is_some() {}
    }
}

/// Sends heartbeats until the stream ends.
async fn beat(ups: mpsc::Sender<pb::AttachRequest>) {
    let mut pace = tokio::time::interval(HEARTBEAT);
    for sequence in 1.. {
        pace.tick().await;
        let heartbeat = pb::Heartbeat {
            sequence,
            ..pb::Heartbeat::default()
        };
        let message = Some(Up::Heartbeat(heartbeat));
        if ups.send(pb::AttachRequest { message }).await.is_err() {
            return;
        }
    }
}

/// Sends a message on a worker stream.
pub(crate) async fn send(ups: &mpsc::Sender<pb::AttachRequest>, message: Up) {
    ups.send(pb::AttachRequest {
        message: Some(message),
    })
    .await
    .unwrap();
}

/// Returns the next message of a worker stream.
pub(crate) async fn next(downs: &mut Streaming<pb::AttachResponse>) -> Down {
    downs
        .message()
        .await
        .unwrap()
        .expect("the stream ended")
        .message
        .unwrap()
}
