//! Answers the calls of peers.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use openraft::raft::VoteResponse;
use tenure_ownership::feature::Feature;
use tenure_proto::raft::v1 as pb;
use tenure_proto::raft::v1::install_snapshot_request::{Header, Part};
use tenure_proto::raft::v1::peer_server::{Peer, PeerServer};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::codec::{self, CodecError};
use super::handle::{Consensus, Running};
use super::identity::{Identity, NodeId};
use super::links::check_addressed;
use super::runtime::{self, blocking};
use super::snapshot::{CHUNK_BYTES_MAX, SnapshotFile};
use super::standing::committed_membership;
use super::types::{Snapshot, SnapshotMeta, TypeConfig};
use super::wire;
use crate::storage::FileWriter;

/// The peer protocol's server, to be mounted on the listener for peers.
///
/// The listener should set HTTP/2 keep-alive, so that streams of a peer that vanished end.
pub type PeerService = PeerServer<PeerHandler>;

/// Answers peers. Made by [`Consensus::start`].
pub struct PeerHandler {
    consensus: Consensus,
}

impl PeerHandler {
    pub(super) fn service(consensus: Consensus, message_bytes_max: usize) -> PeerService {
        PeerServer::new(Self { consensus })
            .max_decoding_message_size(message_bytes_max)
            .max_encoding_message_size(message_bytes_max)
    }

    /// Returns what runs if the call is for this node.
    fn running(&self, metadata: &MetadataMap) -> Result<&Running, Status> {
        let running = self
            .consensus
            .running()
            .ok_or_else(|| Status::unavailable("this node is not part of a cluster yet"))?;
        check_addressed(metadata, running.identity)?;
        Ok(running)
    }

    async fn ask_vote(
        &self,
        request: Request<pb::VoteRequest>,
        pre_vote: bool,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        let raft = &self.running(request.metadata())?.raft;
        let request = wire::vote_request_from_proto(request.into_inner()).map_err(invalid)?;
        let response: VoteResponse<TypeConfig> = if pre_vote {
            raft.pre_vote(request).await.map_err(stopped)?
        } else {
            raft.vote(request).await.map_err(stopped)?
        };
        Ok(Response::new(wire::vote_response_to_proto(&response)))
    }
}

fn invalid(error: CodecError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this node has stopped: {error}"))
}

fn io_failed(error: io::Error) -> Status {
    Status::internal(format!("snapshot cannot be received: {error}"))
}

type AppendResponses = Pin<Box<dyn Stream<Item = Result<pb::AppendResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Peer for PeerHandler {
    type AppendStreamStream = AppendResponses;

    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let raft = &self.running(request.metadata())?.raft;
        let request = wire::append_from_proto(request.into_inner()).map_err(invalid)?;
        let (previous, last) = (request.prev_log_id, wire::last_of(&request));
        let response = raft.append_entries(request).await.map_err(stopped)?;
        let result = response.into_stream_result(previous, last);
        Ok(Response::new(wire::appended_to_proto(result)))
    }

    async fn append_stream(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<AppendResponses>, Status> {
        let raft = &self.running(request.metadata())?.raft;
        // A request that cannot be read ends the stream: what follows it has lost its place. The
        // sender sees the end and starts anew.
        let stop = &self.consensus.inner.stop;
        let requests = request
            .into_inner()
            .take_until(stop.clone().cancelled_owned());
        let requests = requests.scan((), |(), request| {
            let translated = request
                .map_err(|status| status.message().to_owned())
                .and_then(|request| wire::append_from_proto(request).map_err(|e| e.to_string()))
                .inspect_err(|error| tracing::debug!(%error, "append stream ends"));
            std::future::ready(translated.ok())
        });
        // Both directions end with the node: an idle stream would keep the listener from stopping.
        let responses = raft
            .stream_append(requests)
            .map(|result| result.map(wire::appended_to_proto).map_err(stopped))
            .take_until(stop.clone().cancelled_owned());
        Ok(Response::new(Box::pin(responses)))
    }

    async fn vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        self.ask_vote(request, false).await
    }

    async fn pre_vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        self.ask_vote(request, true).await
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let raft = &self.running(request.metadata())?.raft;
        let request = wire::transfer_from_proto(request.into_inner()).map_err(invalid)?;
        let response = raft
            .handle_transfer_leader(request)
            .await
            .map_err(stopped)?;
        Ok(Response::new(wire::transferred_to_proto(response)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::InstallSnapshotRequest>>,
    ) -> Result<Response<pb::InstallSnapshotResponse>, Status> {
        let running = self.running(request.metadata())?;
        // One at a time: a second would only compete for the disk. Its sender tries again.
        let _receiving = running
            .receiving
            .try_lock()
            .map_err(|_| Status::aborted("another snapshot is being received"))?;
        let mut parts = request.into_inner();
        let header = match self.next_part(&mut parts).await? {
            Some(Part::Header(header)) => header,
            _ => {
                return Err(Status::invalid_argument(
                    "a snapshot begins with its header",
                ));
            }
        };
        let vote =
            codec::required_vote("install snapshot request", header.vote).map_err(invalid)?;
        let snapshot = self.receive(running, header, &mut parts).await?;
        let name = snapshot.snapshot.name.clone();
        let response = running
            .raft
            .install_full_snapshot(vote, snapshot)
            .await
            .map_err(stopped)?;
        // Refused as old, it is still there under its unfinished name.
        let storage = Arc::clone(&running.shared.storage);
        let removed = blocking(move || storage.files().remove(&name))
            .await
            .map_err(io_failed)?;
        if let Err(error) = removed {
            tracing::warn!(%error, "refused snapshot is left behind");
        }
        let vote = Some(codec::vote_to_proto(&response.vote));
        Ok(Response::new(pb::InstallSnapshotResponse { vote }))
    }

    async fn read_index(
        &self,
        request: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexResponse>, Status> {
        self.running(request.metadata())?;
        let index = self
            .consensus
            .read_index_as_leader()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(Response::new(pb::ReadIndexResponse { index }))
    }

    async fn assign(
        &self,
        request: Request<pb::AssignRequest>,
    ) -> Result<Response<pb::AssignResponse>, Status> {
        let request = request.into_inner();
        let identity = Identity {
            cluster: codec::cluster_from_proto(&request.cluster_id).map_err(invalid)?,
            node: NodeId(request.node_id),
        };
        let running = self
            .consensus
            .assign(identity)
            .await
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let used = running.raft.is_initialized().await.map_err(stopped)?;
        Ok(Response::new(pb::AssignResponse {
            node_id: running.identity.node.0,
            used,
        }))
    }

    async fn standing(
        &self,
        request: Request<pb::StandingRequest>,
    ) -> Result<Response<pb::StandingResponse>, Status> {
        let running = self.running(request.metadata())?;
        let membership = committed_membership(&running.raft);
        let membership = membership.as_ref().map(codec::stored_membership_to_proto);
        Ok(Response::new(pb::StandingResponse {
            membership,
            features: Feature::ALL.map(|feature| feature.name().to_owned()).into(),
        }))
    }
}

impl PeerHandler {
    async fn next_part(
        &self,
        parts: &mut Streaming<pb::InstallSnapshotRequest>,
    ) -> Result<Option<Part>, Status> {
        let silence_max = self.consensus.limits().snapshot_silence_max;
        let next = runtime::at_most(silence_max, parts.message());
        let message = self
            .consensus
            .inner
            .stop
            .run_until_cancelled(next)
            .await
            .ok_or_else(|| Status::unavailable("this node is stopping"))?
            .ok_or_else(|| Status::deadline_exceeded("the sender of the snapshot is silent"))??;
        Ok(message.and_then(|message| message.part))
    }

    /// Writes the chunks to a file and checks it.
    async fn receive(
        &self,
        running: &Running,
        header: Header,
        parts: &mut Streaming<pb::InstallSnapshotRequest>,
    ) -> Result<Snapshot, Status> {
        let meta = SnapshotMeta {
            last_log_id: header.last_log_id.map(codec::log_id_from_proto),
            last_membership: codec::stored_membership_from_proto(header.membership)
                .map_err(invalid)?,
        };
        let mut incoming = Incoming::create(running).await.map_err(io_failed)?;
        while let Some(part) = self.next_part(parts).await? {
            let Part::Chunk(chunk) = part else {
                return Err(Status::invalid_argument("a snapshot has one header"));
            };
            let too_long = incoming.size_bytes + chunk.bytes.len() as u64 > header.size_bytes;
            if too_long || chunk.bytes.len() > CHUNK_BYTES_MAX {
                return Err(Status::invalid_argument("a chunk is too long"));
            }
            if crc32c::crc32c(&chunk.bytes) != chunk.crc32c {
                return Err(Status::data_loss("the checksum of a chunk is wrong"));
            }
            incoming = incoming.append(chunk.bytes).await.map_err(io_failed)?;
        }
        if incoming.size_bytes != header.size_bytes || incoming.crc32c != header.crc32c {
            tracing::warn!("received snapshot is corrupt or cut short, it is refused");
            return Err(Status::data_loss(
                "the snapshot is corrupt or was cut short",
            ));
        }
        let file = incoming.finish().await.map_err(io_failed)?;
        Ok(Snapshot {
            meta,
            snapshot: file,
        })
    }
}

/// A snapshot file being received. Its file is removed when the node starts if it is never
/// finished.
struct Incoming {
    name: String,
    file: Box<dyn FileWriter>,
    size_bytes: u64,
    crc32c: u32,
}

impl Incoming {
    async fn create(running: &Running) -> io::Result<Self> {
        let name = running.shared.unfinished_file_name();
        let (storage, created) = (Arc::clone(&running.shared.storage), name.clone());
        let file = blocking(move || storage.files().create(&created)).await??;
        Ok(Self {
            name,
            file,
            size_bytes: 0,
            crc32c: 0,
        })
    }

    async fn append(mut self, bytes: bytes::Bytes) -> io::Result<Self> {
        blocking(move || {
            self.file.write_all(&bytes)?;
            self.size_bytes += bytes.len() as u64;
            self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes);
            Ok(self)
        })
        .await?
    }

    async fn finish(mut self) -> io::Result<SnapshotFile> {
        blocking(move || {
            self.file.flush()?;
            self.file.sync()?;
            Ok(SnapshotFile {
                name: self.name,
                size_bytes: self.size_bytes,
                crc32c: self.crc32c,
            })
        })
        .await?
    }
}
