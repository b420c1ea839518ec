//! The one table from errors and rejections to gRPC codes and `google.rpc` details.
//!
//! Every error carries an `ErrorInfo` with domain [`reason::DOMAIN`] and one of the reasons of
//! [`tenure_proto::reason`], whose documentation says what a client does next. The code says how to
//! treat a reason one does not know.

use std::collections::HashMap;
use std::time::Duration;

use tenure_fence::{Epoch, Refusal};
use tenure_ownership::Rejection;
use tenure_ownership::policy::PolicyError;
use tenure_proto::reason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::convert::Invalid;
use crate::consensus::{AssignError, Member, MembershipError, ProposeError, ReadError};
use crate::control::message::Close;
use crate::storage::StorageError;

/// When to repeat a request that failed because no leader was there: most elections are over by then.
const RETRY_UNAVAILABLE: Duration = Duration::from_millis(250);

/// When to repeat a request that lost a race or met a full queue.
const RETRY_SOON: Duration = Duration::from_millis(50);

/// One line of the table.
struct Line {
    code: Code,
    reason: &'static str,
    metadata: Vec<(&'static str, String)>,
    /// Set where repeating the same request is right.
    retry: Option<Duration>,
    /// Name and problem of the field to blame, as clients write it.
    field: Option<(String, String)>,
}

impl Line {
    fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            metadata: Vec::new(),
            retry: None,
            field: None,
        }
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    fn field(mut self, name: impl Into<String>, problem: impl ToString) -> Self {
        self.field = Some((name.into(), problem.to_string()));
        self
    }

    fn status(self, message: impl Into<String>) -> Status {
        let metadata: HashMap<String, String> = self
            .metadata
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        let mut details = ErrorDetails::new();
        details.set_error_info(self.reason, reason::DOMAIN, metadata);
        if let Some(after) = self.retry {
            details.set_retry_info(Some(after));
        }
        if let Some((field, problem)) = self.field {
            details.add_bad_request_violation(field, problem);
        }
        Status::with_error_details(self.code, message, details)
    }
}

/// Answers a request that breaks a rule of its own message.
pub(crate) fn invalid(invalid: Invalid) -> Status {
    let message = invalid.to_string();
    Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT)
        .field(invalid.field, invalid.problem)
        .status(message)
}

/// Answers a value that is larger than any policy allows.
pub(crate) fn too_large(bytes: usize, bytes_max: usize) -> Status {
    Line::new(Code::ResourceExhausted, reason::TOO_LARGE)
        .with(reason::LENGTH_BYTES, bytes)
        .with(reason::MAX_BYTES, bytes_max)
        .status(format!("{bytes} bytes were sent, {bytes_max} are allowed"))
}

/// Answers a request that only the leader serves.
pub(crate) fn not_leader(leader: Option<&Member>) -> Status {
    let line = Line::new(Code::Unavailable, reason::NOT_LEADER);
    match leader {
        Some(leader) => line
            .with(reason::LEADER_ID, leader.id)
            .with(reason::LEADER_ADDRESS, &leader.addresses.client)
            .status(format!("this node does not lead, node {} does", leader.id)),
        None => line.retry(RETRY_UNAVAILABLE).status("no leader is known"),
    }
}

/// Answers a request that cannot be served now; nothing happened.
pub(crate) fn unavailable(why: impl Into<String>) -> Status {
    Line::new(Code::Unavailable, reason::UNAVAILABLE)
        .retry(RETRY_UNAVAILABLE)
        .status(why)
}

/// Ends a stream whose node is stopping.
pub(crate) fn stopping() -> Status {
    Line::new(Code::Unavailable, reason::UNAVAILABLE).status("this node is stopping")
}

/// Answers a request to a node that was removed from its cluster.
pub(crate) fn removed() -> Status {
    Line::new(Code::Unavailable, reason::UNAVAILABLE)
        .status("this node was removed from the cluster: ask another")
}

/// Answers a request beyond a limit of this node.
pub(crate) fn limit_reached(what: &str, limit: usize) -> Status {
    Line::new(Code::ResourceExhausted, reason::LIMIT_REACHED)
        .status(format!("{what} are limited to {limit}"))
}

/// Answers a change of the cluster that is not possible as it is now.
pub(crate) fn cluster_change_refused(why: impl Into<String>) -> Status {
    Line::new(Code::FailedPrecondition, reason::CLUSTER_CHANGE_REFUSED).status(why)
}

/// Answers for a group that is not there.
pub(crate) fn no_such_group(name: &tenure_fence::GroupName) -> Status {
    rejection(&Rejection::UnknownGroup { name: name.clone() })
}

/// Ends a worker stream after a newer one of its session was opened.
pub(crate) fn stream_superseded() -> Status {
    Line::new(Code::Aborted, reason::STREAM_SUPERSEDED)
        .status("a newer stream of the session was opened")
}

/// Says why a worker stream is over; `None` if the worker wanted it so.
pub(crate) fn closed(close: Close, leader: Option<&Member>) -> Option<Status> {
    let failed =
        |reason, message: &str| Line::new(Code::FailedPrecondition, reason).status(message);
    Some(match close {
        Close::Left => return None,
        Close::NotLeader => not_leader(leader),
        Close::SessionEnded => failed(
            reason::SESSION_ENDED,
            "the session has ended, register again",
        ),
        Close::Replaced => failed(
            reason::REPLACED,
            "a newer process holds the worker's name, stop",
        ),
        Close::Superseded => stream_superseded(),
        Close::WrongNonce => Line::new(Code::PermissionDenied, reason::WRONG_NONCE)
            .status("the session was registered by another process"),
        Close::Refused(refused) => rejection(&refused),
        Close::Retry => unavailable("the outcome of an earlier step is not known yet"),
    })
}

/// Answers for stored bytes that are not what was written.
pub(crate) fn corrupt(what: impl Into<String>) -> Status {
    Line::new(Code::DataLoss, reason::CORRUPT).status(what)
}

/// Answers a command that was not applied, or is not known to be.
pub(crate) fn from_propose(error: &ProposeError) -> Status {
    let message = error.to_string();
    match error {
        ProposeError::NotLeader { leader } => not_leader(leader.as_ref()),
        ProposeError::Unavailable { .. } => unavailable(message),
        // No RetryInfo: whether a repetition is safe depends on the request.
        ProposeError::OutcomeUnknown => {
            Line::new(Code::Unknown, reason::OUTCOME_UNKNOWN).status(message)
        }
        ProposeError::TooLarge { bytes, bytes_max } => too_large(*bytes, *bytes_max),
        ProposeError::Stopped => stopping(),
    }
}

/// Whether a status says that another node leads.
pub(crate) fn is_not_leader(status: &Status) -> bool {
    let info = status.get_details_error_info();
    info.is_some_and(|info| info.reason == reason::NOT_LEADER)
}

/// Answers a read for which no quorum was found.
pub(crate) fn from_read(error: &ReadError) -> Status {
    match error {
        ReadError::Unavailable { .. } | ReadError::Behind { .. } => unavailable(error.to_string()),
        ReadError::Stopped => stopping(),
    }
}

/// Answers for a record that cannot be read.
pub(crate) fn from_storage(error: &StorageError) -> Status {
    match error {
        StorageError::Corrupt { .. } => corrupt(error.to_string()),
        _ => unavailable(error.to_string()),
    }
}

/// Answers a change of the cluster that was not made, or is not known to be.
pub(crate) fn from_membership(error: &MembershipError) -> Status {
    let message = error.to_string();
    let refused = || Line::new(Code::FailedPrecondition, reason::CLUSTER_CHANGE_REFUSED);
    match error {
        MembershipError::NotLeader { leader } => return not_leader(leader.as_ref()),
        // A node of the cluster, asked to begin another.
        MembershipError::Initialized
        | MembershipError::Assign(AssignError::OtherCluster { .. }) => {
            Line::new(Code::FailedPrecondition, reason::CLUSTER_EXISTS)
        }
        MembershipError::UnknownNode { .. } => {
            Line::new(Code::NotFound, reason::CLUSTER_CHANGE_REFUSED)
        }
        MembershipError::Address { reason } => {
            Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT).field("nodes", reason)
        }
        MembershipError::Peer { .. } => {
            Line::new(Code::Unavailable, reason::CLUSTER_CHANGE_REFUSED).retry(RETRY_UNAVAILABLE)
        }
        MembershipError::InProgress => {
            Line::new(Code::Aborted, reason::CLUSTER_CHANGE_REFUSED).retry(RETRY_UNAVAILABLE)
        }
        MembershipError::TimedOut { .. } => {
            Line::new(Code::DeadlineExceeded, reason::OUTCOME_UNKNOWN)
        }
        MembershipError::Stopped => return stopping(),
        MembershipError::NotVoter { .. }
        | MembershipError::UsedNode { .. }
        | MembershipError::LastVoter { .. }
        | MembershipError::Assign(_) => refused(),
    }
    .status(message)
}

/// Answers a command that was committed and refused.
pub(crate) fn rejection(rejection: &Rejection) -> Status {
    line_of(rejection).status(rejection.to_string())
}

/// Names a rejection in metrics.
pub(crate) fn reason_of(rejection: &Rejection) -> &'static str {
    line_of(rejection).reason
}

fn line_of(rejection: &Rejection) -> Line {
    let failed = |reason| Line::new(Code::FailedPrecondition, reason);
    match rejection {
        Rejection::NotInitialized => {
            Line::new(Code::Unavailable, reason::UNAVAILABLE).retry(RETRY_UNAVAILABLE)
        }
        Rejection::AlreadyInitialized { .. } | Rejection::OtherCluster { .. } => {
            failed(reason::CLUSTER_EXISTS)
        }
        Rejection::Unsettled => {
            Line::new(Code::Unavailable, reason::UNAVAILABLE).retry(RETRY_UNAVAILABLE)
        }
        Rejection::UnknownGroup { .. } | Rejection::GroupGone { .. } => {
            Line::new(Code::NotFound, reason::GROUP_NOT_FOUND)
        }
        Rejection::GroupDeleting { .. } => failed(reason::GROUP_NOT_FOUND),
        Rejection::GroupExists { .. } => Line::new(Code::AlreadyExists, reason::GROUP_EXISTS),
        Rejection::TooMany { .. } => Line::new(Code::ResourceExhausted, reason::LIMIT_REACHED),
        Rejection::OutOfBounds { field, allowed } => {
            Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT)
                .field(*field, format!("allowed is {allowed}"))
        }
        Rejection::Policy(error) => Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT)
            .field(policy_field(error), error),
        Rejection::WrongGroup { .. } => {
            Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT).field("session", rejection)
        }
        Rejection::UnknownShard { .. } => {
            Line::new(Code::InvalidArgument, reason::INVALID_ARGUMENT).field("shard", rejection)
        }
        Rejection::Replaced { .. } => failed(reason::REPLACED),
        Rejection::SessionEnded { .. } => failed(reason::SESSION_ENDED),
        Rejection::EpochExhausted { .. } => failed(reason::EPOCH_EXHAUSTED),
        // What the command was decided on has changed: read again, decide again.
        Rejection::PolicyChanged { .. }
        | Rejection::GroupActive { .. }
        | Rejection::GroupInUse { .. }
        | Rejection::WorkerTakesNone { .. }
        | Rejection::NotPaused { .. }
        | Rejection::AlreadyRegistered { .. }
        | Rejection::HolderChanged { .. }
        | Rejection::StaleEpoch { .. }
        | Rejection::Owned { .. }
        | Rejection::NotOwner { .. }
        | Rejection::BeingRevoked { .. }
        | Rejection::Unowned { .. }
        | Rejection::Quarantined { .. }
        | Rejection::AlreadyServing { .. }
        | Rejection::NotRevoking { .. } => {
            Line::new(Code::Aborted, reason::STALE_EPOCH).retry(RETRY_SOON)
        }
        Rejection::Fence(refusal) => refused(refusal),
        Rejection::NeverGranted { presented, .. } => {
            failed(reason::NEVER_GRANTED).with(reason::PRESENTED, presented)
        }
        Rejection::CheckpointTooLarge { bytes, limit, .. } => {
            Line::new(Code::ResourceExhausted, reason::TOO_LARGE)
                .with(reason::LENGTH_BYTES, bytes)
                .with(reason::MAX_BYTES, limit)
        }
    }
}

fn refused(refusal: &Refusal) -> Line {
    let failed = |reason| Line::new(Code::FailedPrecondition, reason);
    match refusal {
        Refusal::Fenced { presented, current } => fenced_line(*presented, current.get()),
        Refusal::NotSealed => failed(reason::NOT_SEALED),
        Refusal::EpochConflict => failed(reason::EPOCH_CONFLICT),
        Refusal::SequenceReused { sequence, .. } => failed(reason::SEQUENCE_REUSED)
            .with(reason::PRESENTED, sequence)
            .with(reason::LATEST, sequence),
        Refusal::SequenceTooLow { presented, latest } => failed(reason::SEQUENCE_REUSED)
            .with(reason::PRESENTED, presented)
            .with(reason::LATEST, latest),
    }
}

fn fenced_line(presented: Epoch, current: u64) -> Line {
    Line::new(Code::FailedPrecondition, reason::FENCED)
        .with(reason::PRESENTED, presented)
        .with(reason::CURRENT, current)
}

/// The name a policy field has on the wire, where durations are milliseconds.
fn policy_field(error: &PolicyError) -> String {
    super::convert::policy_field_on_wire(error.field)
}

#[cfg(test)]
mod tests {
    use tenure_fence::GroupName;
    use tenure_ownership::ids::{SessionId, ShardIndex};

    use super::*;
    use crate::consensus::{NodeAddresses, NodeId};

    fn reason_in(status: &Status) -> String {
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.domain, reason::DOMAIN);
        info.reason
    }

    fn metadata(status: &Status, key: &str) -> String {
        status
            .get_details_error_info()
            .unwrap()
            .metadata
            .get(key)
            .cloned()
            .unwrap_or_default()
    }

    fn name() -> GroupName {
        GroupName::try_from("orders").unwrap()
    }

    #[test]
    fn a_fenced_write_says_both_epochs_and_never_asks_for_a_retry() {
        let (presented, current) = (Epoch::new(7).unwrap(), Epoch::new(8).unwrap());
        let status = rejection(&Rejection::Fence(Refusal::Fenced { presented, current }));
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(reason_in(&status), reason::FENCED);
        assert_eq!(metadata(&status, reason::PRESENTED), "7");
        assert_eq!(metadata(&status, reason::CURRENT), "8");
        assert!(status.get_details_retry_info().is_none());
    }

    #[test]
    fn a_follower_names_the_leader_and_its_address() {
        let leader = Member {
            id: NodeId(3),
            addresses: NodeAddresses {
                raft: "c:7401".to_owned(),
                client: "c:7400".to_owned(),
                http: String::new(),
            },
        };
        let error = ProposeError::NotLeader {
            leader: Some(leader),
        };
        let status = from_propose(&error);
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(reason_in(&status), reason::NOT_LEADER);
        assert_eq!(metadata(&status, reason::LEADER_ID), "3");
        assert_eq!(metadata(&status, reason::LEADER_ADDRESS), "c:7400");

        let status = from_propose(&ProposeError::NotLeader { leader: None });
        assert_eq!(reason_in(&status), reason::NOT_LEADER);
        assert_eq!(metadata(&status, reason::LEADER_ADDRESS), "");
        assert!(status.get_details_retry_info().is_some());
    }

    #[test]
    fn an_unknown_outcome_is_neither_success_nor_a_call_to_repeat() {
        let status = from_propose(&ProposeError::OutcomeUnknown);
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(reason_in(&status), reason::OUTCOME_UNKNOWN);
        assert!(status.get_details_retry_info().is_none());
    }

    #[test]
    fn a_policy_out_of_bounds_names_the_field_as_clients_write_it() {
        let error = PolicyError {
            field: "disconnect_grace",
            value: "1ms".to_owned(),
            allowed: "100ms to 10s".to_owned(),
        };
        let status = rejection(&Rejection::Policy(error));
        assert_eq!(status.code(), Code::InvalidArgument);
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "policy.disconnect_grace_ms");
    }

    #[test]
    fn rejections_have_the_codes_clients_act_upon() {
        let shard = ShardIndex(1);
        let session = SessionId(5);
        for (rejected, code, expected) in [
            (
                Rejection::NotInitialized,
                Code::Unavailable,
                reason::UNAVAILABLE,
            ),
            (
                Rejection::UnknownGroup { name: name() },
                Code::NotFound,
                reason::GROUP_NOT_FOUND,
            ),
            (
                Rejection::GroupExists { name: name() },
                Code::AlreadyExists,
                reason::GROUP_EXISTS,
            ),
            (
                Rejection::GroupDeleting { name: name() },
                Code::FailedPrecondition,
                reason::GROUP_NOT_FOUND,
            ),
            (
                Rejection::TooMany {
                    what: "groups",
                    limit: 3,
                },
                Code::ResourceExhausted,
                reason::LIMIT_REACHED,
            ),
            (
                Rejection::UnknownShard { shard },
                Code::InvalidArgument,
                reason::INVALID_ARGUMENT,
            ),
            (
                Rejection::SessionEnded { session },
                Code::FailedPrecondition,
                reason::SESSION_ENDED,
            ),
            (
                Rejection::Replaced { by: session },
                Code::FailedPrecondition,
                reason::REPLACED,
            ),
            (
                Rejection::BeingRevoked { shard },
                Code::Aborted,
                reason::STALE_EPOCH,
            ),
            (
                Rejection::EpochExhausted { shard },
                Code::FailedPrecondition,
                reason::EPOCH_EXHAUSTED,
            ),
            (
                Rejection::NeverGranted {
                    shard,
                    presented: Epoch::FIRST,
                },
                Code::FailedPrecondition,
                reason::NEVER_GRANTED,
            ),
            (
                Rejection::CheckpointTooLarge {
                    bytes: 9,
                    limit: 8,
                    field: "checkpoint_bytes_max",
                },
                Code::ResourceExhausted,
                reason::TOO_LARGE,
            ),
        ] {
            let status = rejection(&rejected);
            assert_eq!(status.code(), code, "{rejected:?}");
            assert_eq!(reason_in(&status), expected, "{rejected:?}");
            assert_eq!(reason_of(&rejected), expected);
            assert_eq!(status.message(), rejected.to_string());
        }
    }

    #[test]
    fn a_read_without_a_quorum_is_unavailable_and_may_be_repeated() {
        let status = from_read(&ReadError::Unavailable {
            reason: "no leader is known".to_owned(),
        });
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(reason_in(&status), reason::UNAVAILABLE);
        assert!(status.get_details_retry_info().is_some());
    }
}
