//! The worker stream. Translates; what it means is decided in `control`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, future, stream};
use tenure_proto::v1 as pb;
use tenure_proto::v1::attach_request::Message as Upward;
use tenure_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};

use super::context::RpcContext;
use super::convert::Invalid;
use super::{convert, present, status};
use crate::consensus::Consensus;
use crate::control::message::{Open, Up};
use crate::control::{Control, Downs};

/// Largest message of a worker, in bytes: a report on a million tenures at 16 bytes each.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How long a worker may take to say who it is, once it has opened a stream.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// Returns the worker stream's service.
pub(super) fn service(context: RpcContext, control: Arc<Control>) -> WorkerServiceServer<Workers> {
    WorkerServiceServer::new(Workers { context, control })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// Serves worker streams.
pub(super) struct Workers {
    context: RpcContext,
    control: Arc<Control>,
}

#[tonic::async_trait]
impl WorkerService for Workers {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<pb::AttachResponse, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<pb::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        // Before anything is read: most streams that come to the wrong node are sent on from here.
        let leadership = self.context.consensus.leadership().borrow().clone();
        if !leadership.is_leader {
            return Err(status::not_leader(leadership.leader.as_ref()));
        }
        let mut messages = request.into_inner();
        let first = tokio::time::timeout(OPEN_MAX, messages.message()).await;
        // Not the worker's fault as far as is known here: a slow link looks the same.
        let first = first.map_err(|_| status::unavailable("no first message came in time"))??;
        let open = self.open(first).map_err(status::invalid)?;
        // Whatever ends the worker's half ends the stream: it comes back and resumes.
        let (refuse, refused) = oneshot::channel();
        let told = self
            .control
            .attach(open, ups(messages, refuse))
            .await
            .map_err(|_| status::stopping())?;
        let consensus = self.context.consensus.clone();
        let answers = Answers {
            told,
            refused: Some(refused),
            consensus,
        };
        Ok(Response::new(Box::pin(answers.into_stream())))
    }
}

impl Workers {
    fn open(&self, first: Option<pb::AttachRequest>) -> Result<Open, Invalid> {
        match first.and_then(|first| first.message) {
            Some(Upward::Register(message)) => {
                let attempt = attempt(message.attempt)?;
                let (register, first) = convert::register(message, &self.context.limits.ttl)?;
                Ok(Open::Register {
                    register: Box::new(register),
                    first,
                    attempt,
                })
            }
            Some(Upward::Resume(message)) => {
                let attempt = attempt(message.attempt)?;
                let (session, nonce) = convert::resume(&message)?;
                Ok(Open::Resume {
                    session,
                    nonce,
                    attempt,
                })
            }
            _ => Err(Invalid::new(
                "message",
                "a stream begins with register or resume",
            )),
        }
    }
}

/// What a worker is told, and in the end why its stream is over.
struct Answers {
    told: Downs,
    /// A worker that breaks the rules of the stream learns which one before the stream ends.
    refused: Option<oneshot::Receiver<Status>>,
    consensus: Consensus,
}

impl Answers {
    fn into_stream(self) -> impl Stream<Item = Result<pb::AttachResponse, Status>> + Send {
        stream::unfold(Some(self), |answers| async {
            let mut answers = answers?;
            match answers.next().await {
                Ok(down) => Some((Ok(down), Some(answers))),
                Err(over) => over.map(|status| (Err(status), None)),
            }
        })
    }

    /// The next message, or the end of the stream: `None` if the worker wanted it.
    async fn next(&mut self) -> Result<pb::AttachResponse, Option<Status>> {
        let told = loop {
            let Some(refused) = &mut self.refused else {
                break self.told.next().await;
            };
            tokio::select! {
                biased;
                refused = refused => match refused {
                    Ok(status) => return Err(Some(status)),
                    // The worker's half ended without breaking a rule.
                    Err(_) => self.refused = None,
                },
                told = self.told.next() => break told,
            }
        };
        match told {
            Some(Ok(down)) => Ok(present::down(down)),
            Some(Err(close)) => {
                let leader = self.consensus.leadership().borrow().leader.clone();
                Err(status::closed(close, leader.as_ref()))
            }
            None => Err(Some(status::unavailable(
                "the worker fell behind its stream",
            ))),
        }
    }
}

fn attempt(attempt: u64) -> Result<u64, Invalid> {
    if attempt == 0 {
        return Err(Invalid::new("attempt", "must be at least 1"));
    }
    Ok(attempt)
}

/// A worker's messages after the first; ends with the first one that is not valid.
fn ups(
    messages: Streaming<pb::AttachRequest>,
    refuse: oneshot::Sender<Status>,
) -> BoxStream<'static, Up> {
    let ups = messages.scan(Some(refuse), |refuse, message| {
        let up = match message.map(up) {
            Ok(Ok(up)) => Some(up),
            Ok(Err(invalid)) => {
                if let Some(refuse) = refuse.take() {
                    // A worker that is gone needs no answer.
                    let _ = refuse.send(status::invalid(invalid));
                }
                None
            }
            Err(_) => None,
        };
        future::ready(up)
    });
    ups.filter_map(future::ready).boxed()
}

/// Translates a message; `None` for one of a later version, which this node cannot know.
pub(super) fn up(message: pb::AttachRequest) -> Result<Option<Up>, Invalid> {
    let Some(message) = message.message else {
        return Ok(None);
    };
    let up = match message {
        Upward::Heartbeat(message) => Up::Heartbeat {
            loads: convert::loads(&message)?,
            sequence: message.sequence,
        },
        Upward::Holding(message) => {
            let (set, tenures) = convert::holding(&message)?;
            Up::Holding { set, tenures }
        }
        Upward::Ready(message) => {
            let (tenures, stores) = convert::ready(&message)?;
            Up::Ready { tenures, stores }
        }
        Upward::Released(message) => Up::Released(convert::releases(message)?),
        Upward::Stopping(_) => Up::Stopping,
        Upward::Leaving(_) => Up::Leaving,
        Upward::Register(_) | Upward::Resume(_) => {
            return Err(Invalid::new("message", "the stream has begun already"));
        }
    };
    Ok(Some(up))
}
