//! The worker stream: finding the leader, opening a stream to it, and why one ends.

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

use crate::backoff::Backoff;
use crate::clock::{Clock, Moment};
use crate::connection::{CallError, ConnectionOptions};

/// Messages that may wait for the network. A stream that takes none of so many is broken.
const OUTBOUND_MAX: usize = 256;

/// Largest message that is read: a `Set` has some 30 bytes for each shard of the session.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many hints in a row are followed without waiting; as for other calls, see `connection`.
const HINTS_MAX: u32 = 3;

/// How long to wait, besides the usual pause, for a group that does not exist: whoever creates it is
/// perhaps not there yet, and a crowd may be waiting.
const NO_GROUP_PAUSE: Duration = Duration::from_secs(1);

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
        let channel = endpoint
            .connect()
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

/// Finds the leader: asks the known nodes in turn and follows what they say.
///
/// A node that led is asked once more before the others: streams break more often than leaders do,
/// and a node that does not answer costs a good part of the time there is.
#[derive(Debug)]
pub(crate) struct Finder {
    addresses: Vec<String>,
    next: usize,
    /// Who is asked before whose turn it is: the one a hint names, or the last leader.
    first: Option<String>,
    hints_followed: u32,
    /// The node that leads, until its stream ends.
    leader: Option<String>,
    /// Whether the node that is asked now was asked just before.
    asked_again: bool,
    backoff: Backoff,
}

impl Finder {
    /// Creates one that begins anywhere, so that a crowd of workers does not ask one node.
    pub(crate) fn new(addresses: Vec<String>, begin: usize) -> Self {
        let next = begin % addresses.len().max(1);
        Self {
            addresses,
            next,
            first: None,
            hints_followed: 0,
            leader: None,
            asked_again: false,
            backoff: Backoff::new(),
        }
    }

    /// Returns the node to ask now.
    pub(crate) fn pick(&mut self) -> String {
        if let Some(first) = self.first.take() {
            return first;
        }
        let address = self.addresses.get(self.next).cloned().unwrap_or_default();
        self.next = (self.next + 1) % self.addresses.len().max(1);
        address
    }

    /// Returns how many picks make a round: each node once, and the last leader twice.
    pub(crate) fn round(&self) -> u32 {
        u32::try_from(self.addresses.len() + 1).unwrap_or(u32::MAX)
    }

    /// Notes that asking a node, or the stream to it, ended so. Returns how long to wait: usually at
    /// most `pause_max`.
    pub(crate) fn ended(
        &mut self,
        address: Option<&str>,
        end: &StreamEnd,
        pause_max: Duration,
    ) -> Duration {
        let led = self.leader.take().as_deref() == address && address.is_some();
        let asked_again = std::mem::take(&mut self.asked_again);
        if let StreamEnd::NotLeader { hint: Some(hint) } = end
            && Some(hint.as_str()) != address
            && self.hints_followed < HINTS_MAX
        {
            self.hints_followed += 1;
            self.first = Some(hint.clone());
            return Duration::ZERO;
        }
        self.hints_followed = 0;
        // Not the same node again before the others were asked.
        let position = self
            .addresses
            .iter()
            .position(|known| Some(known.as_str()) == address);
        if let Some(position) = position {
            self.next = (position + 1) % self.addresses.len();
        }
        let pause = self.backoff.next_within(pause_max);
        match end {
            StreamEnd::NotLeader { .. } => {}
            StreamEnd::NoGroup => {
                // It leads, or it would not say so.
                self.first = address.map(str::to_owned);
                return NO_GROUP_PAUSE + pause;
            }
            // A node that does not lead says that first of all.
            StreamEnd::Unavailable { .. } if !asked_again => self.ask_again(address),
            _ if led => self.ask_again(address),
            _ => {}
        }
        pause
    }

    fn ask_again(&mut self, address: Option<&str>) {
        self.first = address.map(str::to_owned);
        self.asked_again = true;
    }

    /// Notes that the node at that address leads.
    pub(crate) fn found(&mut self, address: &str) {
        if self.leader.as_deref() != Some(address) {
            self.leader = Some(address.to_owned());
        }
        self.hints_followed = 0;
        self.asked_again = false;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finder() -> Finder {
        Finder::new(["a:1", "b:1", "c:1"].map(str::to_owned).to_vec(), 0)
    }

    const PAUSE_MAX: Duration = Duration::from_secs(1);

    fn not_leader(hint: Option<&str>) -> StreamEnd {
        StreamEnd::NotLeader {
            hint: hint.map(str::to_owned),
        }
    }

    #[test]
    fn nodes_are_asked_in_turn_with_pauses() {
        let mut finder = finder();
        for address in ["a:1", "b:1", "c:1", "a:1"] {
            assert_eq!(finder.pick(), address);
            assert!(finder.ended(Some(address), &not_leader(None), PAUSE_MAX) > Duration::ZERO);
        }
    }

    #[test]
    fn a_hint_is_followed_at_once_also_to_an_address_that_was_not_known() {
        let mut finder = finder();
        finder.pick();
        assert_eq!(
            finder.ended(Some("a:1"), &not_leader(Some("d:1")), PAUSE_MAX),
            Duration::ZERO
        );
        assert_eq!(finder.pick(), "d:1");
        // The hint was of no use: on with the known ones.
        finder.ended(Some("d:1"), &StreamEnd::broken("refused"), PAUSE_MAX);
        assert_eq!(finder.pick(), "b:1");
    }

    #[test]
    fn nodes_that_name_each_other_are_not_asked_without_a_pause_for_ever() {
        let mut finder = finder();
        let mut address = finder.pick();
        let mut without_pause = 0;
        loop {
            let other = if address == "a:1" { "b:1" } else { "a:1" };
            let pause = finder.ended(Some(&address), &not_leader(Some(other)), PAUSE_MAX);
            if pause > Duration::ZERO {
                break;
            }
            without_pause += 1;
            address = finder.pick();
        }
        assert_eq!(without_pause, HINTS_MAX);
    }

    #[test]
    fn a_node_that_never_led_is_asked_again_only_after_the_others() {
        let mut finder = finder();
        finder.ended(Some("b:1"), &StreamEnd::broken("reset"), PAUSE_MAX);
        for address in ["c:1", "a:1", "b:1"] {
            assert_eq!(finder.pick(), address);
            finder.ended(Some(address), &StreamEnd::Silent, PAUSE_MAX);
        }
    }

    #[test]
    fn after_its_stream_broke_the_last_leader_is_asked_once_more_before_the_others() {
        for end in [StreamEnd::broken("reset"), StreamEnd::Silent] {
            let mut finder = finder();
            finder.found("b:1");
            finder.ended(Some("b:1"), &end, PAUSE_MAX);
            for address in ["b:1", "c:1", "a:1", "b:1"] {
                assert_eq!(finder.pick(), address);
                finder.ended(Some(address), &end, PAUSE_MAX);
            }
        }
    }

    #[test]
    fn a_leader_that_stops_leading_is_not_asked_again_first() {
        let mut finder = finder();
        finder.found("b:1");
        finder.ended(Some("b:1"), &not_leader(None), PAUSE_MAX);
        assert_eq!(finder.pick(), "c:1");
    }

    #[test]
    fn a_node_that_cannot_decide_now_is_asked_once_more_before_the_others() {
        let end = StreamEnd::Unavailable {
            message: "not known yet".to_owned(),
        };
        let mut finder = finder();
        assert_eq!(finder.pick(), "a:1");
        finder.ended(Some("a:1"), &end, PAUSE_MAX);
        assert_eq!(finder.pick(), "a:1");
        finder.ended(Some("a:1"), &end, PAUSE_MAX);
        assert_eq!(finder.pick(), "b:1");
    }

    #[test]
    fn pauses_are_as_short_as_they_have_to_be() {
        let mut finder = finder();
        let hurry = Duration::from_millis(30);
        for _ in 0..10 {
            let address = finder.pick();
            assert!(finder.ended(Some(&address), &StreamEnd::Silent, hurry) <= hurry);
        }
    }
}
