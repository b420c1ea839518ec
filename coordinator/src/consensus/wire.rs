//! Translates openraft's requests and answers to the peer protocol and back.

use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tenure_proto::raft::v1 as pb;

use super::codec::{
    CodecError, entry_from_proto, entry_to_proto, log_id_from_proto, log_id_to_proto,
    required_vote, vote_from_proto, vote_to_proto,
};
use super::types::{LogId, TypeConfig};

pub(super) fn append_to_proto(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(vote_to_proto(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id_to_proto),
        entries: request.entries.into_iter().map(entry_to_proto).collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_to_proto),
    }
}

pub(super) fn append_from_proto(
    request: pb::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, CodecError> {
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        entries.push(entry_from_proto(entry)?);
    }
    Ok(AppendEntriesRequest {
        vote: required_vote("append request", request.vote)?,
        prev_log_id: request.previous.map(log_id_from_proto),
        entries,
        leader_commit: request.leader_commit.map(log_id_from_proto),
    })
}

/// Returns the last entry of a request, or the one before it if it carries none.
pub(super) fn last_of(request: &AppendEntriesRequest<TypeConfig>) -> Option<LogId> {
    request
        .entries
        .last()
        .map(|entry| entry.log_id)
        .or(request.prev_log_id)
}

pub(super) fn appended_to_proto(result: StreamAppendResult<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::{Accepted, Result};
    let result = match result {
        Ok(matching) => Result::Accepted(Accepted {
            matching: matching.as_ref().map(log_id_to_proto),
        }),
        Err(StreamAppendError::Conflict(log_id)) => Result::Conflict(log_id_to_proto(&log_id)),
        Err(StreamAppendError::HigherVote(vote)) => Result::HigherVote(vote_to_proto(&vote)),
    };
    pb::AppendResponse {
        result: Some(result),
    }
}

pub(super) fn appended_from_proto(
    response: pb::AppendResponse,
) -> Result<StreamAppendResult<TypeConfig>, CodecError> {
    use pb::append_response::Result as Appended;
    let missing = CodecError::Missing {
        what: "append response",
        field: "result",
    };
    Ok(match response.result.ok_or(missing)? {
        Appended::Accepted(accepted) => Ok(accepted.matching.map(log_id_from_proto)),
        Appended::Conflict(log_id) => Err(StreamAppendError::Conflict(log_id_from_proto(log_id))),
        Appended::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_from_proto(vote))),
    })
}

pub(super) fn vote_request_to_proto(request: &VoteRequest<TypeConfig>) -> pb::VoteRequest {
    pb::VoteRequest {
        vote: Some(vote_to_proto(&request.vote)),
        last_log_id: request.last_log_id.as_ref().map(log_id_to_proto),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(super) fn vote_request_from_proto(
    request: pb::VoteRequest,
) -> Result<VoteRequest<TypeConfig>, CodecError> {
    let vote = required_vote("vote request", request.vote)?;
    let mut translated = VoteRequest::new(vote, request.last_log_id.map(log_id_from_proto));
    translated.leadership_transfer = request.leadership_transfer;
    Ok(translated)
}

pub(super) fn vote_response_to_proto(response: &VoteResponse<TypeConfig>) -> pb::VoteResponse {
    pb::VoteResponse {
        vote: Some(vote_to_proto(&response.vote)),
        granted: response.vote_granted,
        last_log_id: response.last_log_id.as_ref().map(log_id_to_proto),
    }
}

pub(super) fn vote_response_from_proto(
    response: pb::VoteResponse,
) -> Result<VoteResponse<TypeConfig>, CodecError> {
    Ok(VoteResponse {
        vote: required_vote("vote response", response.vote)?,
        vote_granted: response.granted,
        last_log_id: response.last_log_id.map(log_id_from_proto),
    })
}

pub(super) fn transfer_to_proto(
    request: &TransferLeaderRequest<TypeConfig>,
) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        from_leader: Some(vote_to_proto(request.from_leader())),
        to_node_id: *request.to_node_id(),
        last_log_id: request.last_log_id().map(log_id_to_proto),
    }
}

pub(super) fn transfer_from_proto(
    request: pb::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, CodecError> {
    Ok(TransferLeaderRequest::new(
        required_vote("transfer request", request.from_leader)?,
        request.to_node_id,
        request.last_log_id.map(log_id_from_proto),
    ))
}

pub(super) fn transferred_to_proto(
    response: TransferLeaderResponse<TypeConfig>,
) -> pb::TransferLeaderResponse {
    use pb::transfer_leader_response::{LogNotFlushed, Refused, VoteChanged};
    let refused = response.err().map(|error| match error {
        TransferLeaderError::VoteChanged { expected, actual } => {
            Refused::VoteChanged(VoteChanged {
                expected: Some(vote_to_proto(&expected)),
                actual: Some(vote_to_proto(&actual)),
            })
        }
        TransferLeaderError::LogNotFlushed { expected, actual } => {
            Refused::LogNotFlushed(LogNotFlushed {
                expected: expected.as_ref().map(log_id_to_proto),
                actual: actual.as_ref().map(log_id_to_proto),
            })
        }
    });
    pb::TransferLeaderResponse { refused }
}

pub(super) fn transferred_from_proto(
    response: pb::TransferLeaderResponse,
) -> Result<TransferLeaderResponse<TypeConfig>, CodecError> {
    use pb::transfer_leader_response::Refused;
    let Some(refused) = response.refused else {
        return Ok(Ok(()));
    };
    Ok(Err(match refused {
        Refused::VoteChanged(changed) => TransferLeaderError::VoteChanged {
            expected: required_vote("transfer response", changed.expected)?,
            actual: required_vote("transfer response", changed.actual)?,
        },
        Refused::LogNotFlushed(behind) => TransferLeaderError::LogNotFlushed {
            expected: behind.expected.map(log_id_from_proto),
            actual: behind.actual.map(log_id_from_proto),
        },
    }))
}
