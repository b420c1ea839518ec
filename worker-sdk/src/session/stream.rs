//! The worker stream: opening one to a node, and why one ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, Either};
use tenure_proto::reason;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tenure_proto::v1::{AttachRequest, AttachResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::clock::{Clock, Moment};
use crate::connection::{CallError, ConnectionOptions};

/// Messages that may wait for the network. A stream that takes none of so many is broken.
const OUTBOUND_MAX: usize = 256;

/// Largest message that is read: a `Set` has some 30 bytes for each shard of the session.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why there is no stream, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The node does not lead; the leader's address if it knows it.
    NotLeader { hint: Option<String> },
    /// The session has ended, or is not this process's.
    SessionEnded,
    /// A newer process has the worker's name.
    Replaced,
    /// The leader knows no such group, yet or any more.
    NoGroup,
    /// The node that leads cannot decide it now, or it is stopping.
    Unavailable { message: String },
    /// The coordinator refuses for good.
    Refused { reason: String, message: String },
    /// The node does not answer, or acknowledges nothing.
    Silent,
    /// Anything else that may pass: the network, a node that died, a newer stream.
    Broken { message: String },
}

impl StreamEnd {
    fn of(status: Status) -> Self {
        let error = CallError::from_status(status);
        match error.reason() {
            reason::NOT_LEADER => Self::NotLeader {
                hint: error.leader_hint().map(str::to_owned),
            },
            // A session that another process registered is none of this one's.
            reason::SESSION_ENDED | reason::WRONG_NONCE => Self::SessionEnded,
            reason::REPLACED => Self::Replaced,
            reason::GROUP_NOT_FOUND => Self::NoGroup,
            reason::UNAVAILABLE => Self::Unavailable {
                message: error.to_string(),
            },
            reason::INVALID_ARGUMENT => Self::refused(&error),
            _ => match error.code() {
                Code::InvalidArgument
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented => Self::refused(&error),
                _ => Self::broken(error.to_string()),
            },
        }
    }

    fn refused(error: &CallError) -> Self {
        Self::Refused {
            reason: error.reason().to_owned(),
            message: error.to_string(),
        }
    }

    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::Broken {
            message: message.into(),
        }
    }
}

/// A stream to the leader, on a connection of its own.
pub(crate) struct Stream {
    inbound: Streaming<AttachResponse>,
    outbound: mpsc::Sender<AttachRequest>,
    /// The node's address.
    pub(crate) address: String,
    /// When the opening message was handed over.
    pub(crate) sent_at: Moment,
}

impl Stream {
    /// Connects to a node and opens a stream with `first`.
    async fn open(
        options: ConnectionOptions,
        clock: Arc<dyn Clock>,
        address: String,
        first: AttachRequest,
    ) -> Result<Self, StreamEnd> {
        let unreachable =
            |error: &dyn std::error::Error| StreamEnd::broken(format!("{address}: {error}"));
        let endpoint = options
            .endpoint(&address)
            .map_err(|error| unreachable(&error))?;
        let channel = options
            .dialer
            .dial(endpoint)
            .await
            .map_err(|error| unreachable(&error))?;
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        // Read before the message is handed over, and after the connection stands: belief counts
        // from here, so earlier is safe and later is not.
        let sent_at = clock.now();
        outbound
            .try_send(first)
            .map_err(|error| unreachable(&error))?;
        let mut client =
            WorkerServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let attached = client.attach(ReceiverStream::new(messages)).await;
        let inbound = attached.map_err(StreamEnd::of)?.into_inner();
        Ok(Self {
            inbound,
            outbound,
            address,
            sent_at,
        })
    }

    /// Hands a message over. `false` when the stream takes no more.
    pub(crate) fn send(&self, message: AttachRequest) -> bool {
        self.outbound.try_send(message).is_ok()
    }

    /// Returns the next message.
    async fn next(&mut self) -> Result<AttachResponse, StreamEnd> {
        match self.inbound.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(StreamEnd::broken("the coordinator closed the stream")),
            Err(status) => Err(StreamEnd::of(status)),
        }
    }
}

/// The way to the leader, as far as it has come.
pub(crate) enum Link {
    /// There is none until then.
    Waiting { until: Moment },
    /// A stream is being opened at that address.
    Opening { address: String, opening: Opening },
    /// There is a stream.
    Open(Box<Stream>),
}

/// A stream that is being opened.
type Opening = Pin<Box<dyn Future<Output = Result<Box<Stream>, StreamEnd>> + Send>>;

/// What happens on a link.
pub(crate) enum LinkEvent {
    /// The opening ended, either way.
    Opened(Result<Box<Stream>, StreamEnd>),
    /// A message arrived, or the stream ended.
    Message(Result<AttachResponse, StreamEnd>),
}

impl Link {
    /// Begins to open a stream, for at most `timeout`.
    pub(crate) fn open(
        options: &ConnectionOptions,
        clock: &Arc<dyn Clock>,
        address: String,
        first: AttachRequest,
        timeout: Duration,
    ) -> Self {
        let stream = Stream::open(options.clone(), Arc::clone(clock), address.clone(), first);
        let clock = Arc::clone(clock);
        let until = clock.now() + timeout;
        let opening = async move {
            let stream = std::pin::pin!(stream);
            match future::select(stream, clock.sleep_until(until)).await {
                Either::Left((opened, _)) => opened.map(Box::new),
                Either::Right(_) => Err(StreamEnd::Silent),
            }
        };
        Self::Opening {
            address,
            opening: Box::pin(opening),
        }
    }

    /// Returns what happens next. Nothing is lost when it is dropped before it returns.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        match self {
            Self::Waiting { .. } => future::pending().await,
            Self::Opening { opening, .. } => LinkEvent::Opened(opening.await),
            Self::Open(stream) => LinkEvent::Message(stream.next().await),
        }
    }

    /// Returns the stream.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Open(stream) => Some(stream),
            Self::Waiting { .. } | Self::Opening { .. } => None,
        }
    }

    /// Returns the address of the node it leads to.
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Self::Waiting { .. } => None,
            Self::Opening { address, .. } => Some(address),
            Self::Open(stream) => Some(&stream.address),
        }
    }
}
