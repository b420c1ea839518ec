//! openraft's calls to peers.
//!
//! # Invariants
//!
//! * Every call ends: a call with one answer at openraft's soft deadline, a stream when a peer that
//!   was sent something stays silent. A connection that is only half there would otherwise stop
//!   replication for ever.
//! * Answers of a stream come in the order of its requests.
//! * A peer that cannot be reached is [`Unreachable`], so that openraft waits before it tries again.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{
    ErrorSubject, ErrorVerb, Instant as _, OptionalSend, RPCTypes, RaftNetworkFactory, StorageError,
};
use tenure_proto::raft::v1 as pb;
use tenure_proto::raft::v1::peer_client::PeerClient;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

use super::acknowledged::Acknowledged;
use super::codec::{self, CodecError};
use super::connector::Lane;
use super::identity::{Identity, NodeAddresses, NodeId};
use super::links::{Links, PeerError, addressed, answer};
use super::runtime::{self, Moment, blocking};
use super::snapshot::{CHUNK_BYTES_MAX, SnapshotFile};
use super::state_machine::{Shared, SnapshotPieces};
use super::types::{Snapshot, TypeConfig, Vote};
use super::unanswered::Unanswered;
use super::wire;

impl From<CodecError> for PeerError {
    fn from(error: CodecError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Makes the clients that openraft asks for.
pub(super) struct Network {
    pub(super) links: Arc<Links>,
    pub(super) shared: Arc<Shared>,
    pub(super) identity: Identity,
    pub(super) acknowledged: Arc<Acknowledged>,
}

/// One peer, for one purpose.
pub(super) struct Peer {
    links: Arc<Links>,
    shared: Arc<Shared>,
    identity: Identity,
    target: u64,
    address: String,
    lane: Lane,
    acknowledged: Arc<Acknowledged>,
}

impl Network {
    fn peer(&self, target: u64, node: &NodeAddresses, lane: Lane) -> Peer {
        Peer {
            links: Arc::clone(&self.links),
            shared: Arc::clone(&self.shared),
            identity: self.identity,
            target,
            address: node.raft.clone(),
            lane,
            acknowledged: Arc::clone(&self.acknowledged),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &NodeAddresses) -> Peer {
        self.peer(target, node, Lane::Append)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &NodeAddresses) -> Peer {
        self.peer(target, node, Lane::Control)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &NodeAddresses) -> Peer {
        self.peer(target, node, Lane::Snapshot)
    }
}

type AppendAnswers<'a> =
    BoxStream<'a, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

impl Peer {
    fn client(&self, lane: Lane) -> Result<PeerClient<Channel>, PeerError> {
        Ok(self.links.client(&self.address, lane)?)
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        addressed(self.identity, NodeId(self.target), message)
    }

    fn append_error(&self, error: PeerError) -> RPCError<TypeConfig> {
        self.rpc_error(RPCTypes::AppendEntries, error)
    }

    /// Keeps from openraft that the peer lacks what it has acknowledged: see
    /// [`acknowledged`](super::acknowledged).
    fn require_kept(
        &self,
        leader: Vote,
        answer: StreamAppendResult<TypeConfig>,
    ) -> Result<StreamAppendResult<TypeConfig>, PeerError> {
        if let Err(StreamAppendError::Conflict(missing)) = &answer
            && let Err(lost) = self.acknowledged.require_kept(self.target, leader, missing)
        {
            tracing::error!(
                node = self.target,
                %lost,
                "a node has lost entries that it had acknowledged: remove it from the cluster, and add it as a new one"
            );
            return Err(PeerError::Unreachable(lost.to_string()));
        }
        Ok(answer)
    }

    fn rpc_error(&self, action: RPCTypes, error: PeerError) -> RPCError<TypeConfig> {
        match error {
            PeerError::Unreachable(_) => RPCError::Unreachable(Unreachable::new(&error)),
            PeerError::Failed(_) => RPCError::Network(NetworkError::new(&error)),
            PeerError::Silent(timeout) => RPCError::Timeout(Timeout {
                action,
                id: self.identity.node.0,
                target: self.target,
                timeout,
            }),
        }
    }

    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        within: Duration,
    ) -> Result<StreamAppendResult<TypeConfig>, PeerError> {
        let leader = request.vote;
        let request = self.request(wire::append_to_proto(request));
        let mut client = self.client(Lane::Control)?;
        let response = answer(within, client.append(request)).await?;
        self.require_kept(leader, wire::appended_from_proto(response)?)
    }

    async fn append_stream(
        &self,
        input: impl futures::Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    ) -> Result<Answers<'_>, PeerError> {
        let unanswered = Arc::new(Unanswered::new());
        let (sent, before) = (Arc::clone(&unanswered), Arc::clone(&unanswered));
        // A stream belongs to one leadership.
        let leader = Arc::new(OnceLock::new());
        let leading = Arc::clone(&leader);
        // The transport polls the requests in a task of its own. They must end with the answers, or
        // they would take entries away from the stream that follows.
        let ended = CancellationToken::new();
        let requests = stream::unfold((input, before), |(mut input, before)| async {
            before.is_answered().await;
            let next = input.next().await?;
            Some((next, (input, before)))
        });
        let requests = requests
            .take_until(ended.clone().cancelled_owned())
            .map(move |request| {
                sent.sent();
                let _first = leading.set(request.vote);
                wire::append_to_proto(request)
            });
        let end = ended.drop_guard();
        let silence_max = self.links.limits().append_silence_max;
        let mut client = self.client(Lane::Append)?;
        let call = client.append_stream(self.request(requests));
        let inbound = answer(silence_max, call).await?;
        Ok(Answers {
            peer: self,
            inbound,
            unanswered,
            leader,
            silence_max,
            _end: end,
        })
    }

    async fn ask_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        pre_vote: bool,
        within: Duration,
    ) -> Result<VoteResponse<TypeConfig>, PeerError> {
        let request = self.request(wire::vote_request_to_proto(&request));
        let mut client = self.client(Lane::Control)?;
        let response = if pre_vote {
            answer(within, client.pre_vote(request)).await?
        } else {
            answer(within, client.vote(request)).await?
        };
        Ok(wire::vote_response_from_proto(response)?)
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<TypeConfig>, SendError> {
        let header = header(vote, &snapshot);
        let sending = self.open_snapshot(snapshot.snapshot).await?;
        let progress = Arc::new(Progress::new());
        let parts = snapshot_parts(header, sending, Arc::clone(&progress));
        let mut client = self.client(Lane::Snapshot)?;
        let silence_max = self.links.limits().snapshot_silence_max;
        let answered = tokio::select! {
            answered = client.install_snapshot(self.request(parts)) => answered,
            () = progress.stalled(silence_max) => {
                return Err(PeerError::Silent(silence_max).into());
            }
        };
        // A file that could not be read ends the stream early, which the peer refuses: the cause is
        // here.
        if let Some(error) = progress.take_failure() {
            return Err(SendError::File(error));
        }
        let response = answered.map_err(PeerError::from)?.into_inner();
        let vote = codec::required_vote("install snapshot response", response.vote)
            .map_err(PeerError::from)?;
        Ok(SnapshotResponse { vote })
    }
}

impl Peer {
    async fn open_snapshot(&self, file: SnapshotFile) -> Result<Sending, SendError> {
        let (shared, name) = (Arc::clone(&self.shared), file.name.clone());
        let opened = blocking(move || SnapshotPieces::open(&shared, &name)).await;
        match opened.map_err(SendError::File)? {
            Ok(pieces) => Ok(Sending {
                pieces,
                expected_crc32c: file.crc32c,
                crc32c: 0,
            }),
            // A newer snapshot has replaced it since openraft asked for it, which then asks again.
            Err(_) if !self.shared.is_current_snapshot(&file) => {
                Err(PeerError::Failed(format!("snapshot {} was replaced", file.name)).into())
            }
            Err(error) => Err(SendError::File(error.into())),
        }
    }
}

/// Why a snapshot was not sent.
enum SendError {
    Peer(PeerError),
    File(io::Error),
}

impl From<PeerError> for SendError {
    fn from(error: PeerError) -> Self {
        Self::Peer(error)
    }
}

/// The answers to a stream of requests.
struct Answers<'a> {
    peer: &'a Peer,
    inbound: tonic::Streaming<pb::AppendResponse>,
    unanswered: Arc<Unanswered>,
    /// The leadership of the requests, once there was one.
    leader: Arc<OnceLock<Vote>>,
    silence_max: Duration,
    _end: DropGuard,
}

impl Answers<'_> {
    /// Returns the next answer, or `None` when the peer has ended the stream.
    async fn next(&mut self) -> Result<Option<StreamAppendResult<TypeConfig>>, PeerError> {
        let Some(response) = self.next_response().await? else {
            return Ok(None);
        };
        self.unanswered.answered();
        let answer = wire::appended_from_proto(response)?;
        let Some(&leader) = self.leader.get() else {
            return Ok(Some(answer));
        };
        if let Ok(matching) = &answer {
            let (peer, matching) = (self.peer, matching.as_ref());
            peer.acknowledged.note(peer.target, leader, matching);
        }
        self.peer.require_kept(leader, answer).map(Some)
    }

    async fn next_response(&mut self) -> Result<Option<pb::AppendResponse>, PeerError> {
        loop {
            // The peer owes nothing while nothing was sent, however long that lasts.
            let Some(since) = self.unanswered.since() else {
                tokio::select! {
                    response = self.inbound.message() => return Ok(response?),
                    () = self.unanswered.is_sent() => continue,
                }
            };
            let left = self.silence_max.saturating_sub(since.elapsed());
            return match runtime::at_most(left, self.inbound.message()).await {
                Some(response) => Ok(response?),
                None => Err(PeerError::Silent(self.silence_max)),
            };
        }
    }
}

impl NetStreamAppend<TypeConfig> for Peer {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendAnswers<'s>, RPCError<TypeConfig>>>
    where
        S: futures::Stream<Item = AppendEntriesRequest<TypeConfig>>
            + OptionalSend
            + Unpin
            + 'static,
    {
        let peer: &'s Self = self;
        if peer.lane == Lane::Control {
            let within = option.soft_ttl();
            let answers = input.then(move |request| async move {
                peer.heartbeat(request, within)
                    .await
                    .map_err(|error| peer.append_error(error))
            });
            return Box::pin(async move { Ok(Box::pin(answers) as AppendAnswers<'s>) });
        }
        Box::pin(async move {
            let answers = peer
                .append_stream(input)
                .await
                .map_err(|error| peer.append_error(error))?;
            let answers = stream::unfold(Some(answers), |answers| async {
                let mut answers = answers?;
                match answers.next().await {
                    Ok(None) => None,
                    Ok(Some(Ok(matching))) => Some((Ok(Ok(matching)), Some(answers))),
                    // Nothing follows a refusal.
                    Ok(Some(Err(refused))) => Some((Ok(Err(refused)), None)),
                    Err(error) => Some((Err(answers.peer.append_error(error)), None)),
                }
            });
            Ok(Box::pin(answers) as AppendAnswers<'s>)
        })
    }
}

impl NetVote<TypeConfig> for Peer {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(request, false, option.soft_ttl())
            .await
            .map_err(|error| self.rpc_error(RPCTypes::Vote, error))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(request, true, option.soft_ttl())
            .await
            .map_err(|error| self.rpc_error(RPCTypes::Vote, error))
    }
}

impl NetTransferLeader<TypeConfig> for Peer {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let transferred = async {
            let mut client = self.client(Lane::Control)?;
            let request = self.request(wire::transfer_to_proto(&request));
            let response = answer(option.soft_ttl(), client.transfer_leader(request)).await?;
            Ok(wire::transferred_from_proto(response)?)
        };
        transferred
            .await
            .map_err(|error| self.rpc_error(RPCTypes::TransferLeader, error))
    }
}

impl NetBackoff<TypeConfig> for Peer {
    fn backoff(&self) -> Option<Backoff> {
        // As the configuration says.
        None
    }
}

impl NetSnapshot<TypeConfig> for Peer {
    type SnapshotData = SnapshotFile;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let sent = tokio::select! {
            sent = self.send_snapshot(vote, snapshot) => sent,
            closed = cancel => return Err(closed.into()),
        };
        sent.map_err(|error| match error {
            SendError::Peer(error) => self.rpc_error(RPCTypes::InstallSnapshot, error).into(),
            SendError::File(error) => {
                StorageError::from_io_error(ErrorSubject::Snapshot(None), ErrorVerb::Read, error)
                    .into()
            }
        })
    }
}

/// How far a snapshot has been sent.
struct Progress {
    last: Mutex<Moment>,
    failure: Mutex<Option<io::Error>>,
}

impl Progress {
    fn new() -> Self {
        Self {
            last: Mutex::new(runtime::now()),
            failure: Mutex::default(),
        }
    }

    fn advance(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = runtime::now();
    }

    fn fail(&self, error: io::Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take_failure(&self) -> Option<io::Error> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Returns when nothing has been sent for `silence_max`.
    async fn stalled(&self, silence_max: Duration) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let left = silence_max.saturating_sub(last.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

fn header(vote: Vote, snapshot: &Snapshot) -> pb::install_snapshot_request::Header {
    pb::install_snapshot_request::Header {
        vote: Some(codec::vote_to_proto(&vote)),
        last_log_id: snapshot
            .meta
            .last_log_id
            .as_ref()
            .map(codec::log_id_to_proto),
        membership: Some(codec::stored_membership_to_proto(
            &snapshot.meta.last_membership,
        )),
        size_bytes: snapshot.snapshot.size_bytes,
        crc32c: snapshot.snapshot.crc32c,
    }
}

/// A snapshot file on its way.
struct Sending {
    pieces: SnapshotPieces,
    expected_crc32c: u32,
    crc32c: u32,
}

impl Sending {
    /// Returns the next chunk, or `None` at the end. Blocks.
    ///
    /// # Errors
    ///
    /// An error if the file cannot be read, or has changed since it was written.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.pieces.next(CHUNK_BYTES_MAX)?;
        match &piece {
            Some(bytes) => self.crc32c = crc32c::crc32c_append(self.crc32c, bytes),
            None if self.crc32c != self.expected_crc32c => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the snapshot file is corrupt: its checksum is wrong",
                ));
            }
            None => {}
        }
        Ok(piece)
    }
}

/// Reads a snapshot in parts, as fast as they are taken.
fn snapshot_parts(
    header: pb::install_snapshot_request::Header,
    sending: Sending,
    progress: Arc<Progress>,
) -> impl futures::Stream<Item = pb::InstallSnapshotRequest> + Send + 'static {
    use pb::install_snapshot_request::{Chunk, Part};
    let first = stream::iter([pb::InstallSnapshotRequest {
        part: Some(Part::Header(header)),
    }]);
    let chunks = stream::unfold((sending, progress), |(mut sending, progress)| async move {
        let read = blocking(move || (sending.next(), sending)).await;
        progress.advance();
        match read {
            Ok((Ok(None), _)) => None,
            Ok((Ok(Some(bytes)), sending)) => {
                let crc32c = crc32c::crc32c(&bytes);
                let part = Some(Part::Chunk(Chunk { bytes, crc32c }));
                Some((pb::InstallSnapshotRequest { part }, (sending, progress)))
            }
            Ok((Err(error), _)) | Err(error) => {
                progress.fail(error);
                None
            }
        }
    });
    first.chain(chunks)
}
