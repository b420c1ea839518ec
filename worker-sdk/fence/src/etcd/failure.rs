//! What an error of etcd or of the network says about what has happened.

use std::error::Error;
use std::time::Duration;

use tonic::{Code, ConnectError, Status};

use crate::error::CheckpointError;

/// Texts by which etcd says that it did nothing, whatever the code beside them.
const DID_NOTHING: [&str; 5] = [
    "database space exceeded",
    "too many requests",
    "no leader",
    "raft proposal dropped",
    "corrupt cluster",
];

/// Texts by which etcd says that it no longer knows the token.
const STALE_TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];

/// Texts by which etcd or its gRPC server says that a request is larger than it takes.
const TOO_LARGE: [&str; 2] = ["request is too large", "larger than max"];

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It did not happen, and may on another endpoint.
    NotReached(Reason),
    /// It did not happen, and would not anywhere.
    Refused(Reason),
    /// It did not happen, and may after the user has been let in again.
    StaleToken(Reason),
    /// It did not happen, and never will: it is too large.
    TooLarge(Reason),
    /// It may have happened.
    Unknown(Reason),
    /// This is not one etcd cluster.
    Unsupported(Reason),
}

/// What etcd, the network or the clock said.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Reason {
    /// etcd or the network, in the words of the client library.
    #[error("{endpoint} did not answer as it should")]
    Status {
        /// Who was asked.
        endpoint: String,
        /// What came back.
        #[source]
        status: Box<Status>,
    },
    /// Nobody said anything.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The endpoints are not of one cluster.
    #[error("{endpoint} belongs to another cluster than the endpoints before it")]
    OtherCluster {
        /// The first that does.
        endpoint: String,
    },
    /// No endpoint has been tried.
    #[error("no endpoint was tried")]
    Untried,
    /// Others changed what was compared, each time.
    #[error("other owners or writers of the resource were faster each time")]
    Beaten,
}

impl Failure {
    /// Judges a status that came instead of an answer.
    pub(super) fn of(endpoint: &str, status: Status) -> Self {
        let says = |texts: &[&str]| texts.iter().any(|text| status.message().contains(text));
        let judge: fn(Reason) -> Self = if never_connected(&status) {
            Self::NotReached
        } else if says(&STALE_TOKEN) {
            Self::StaleToken
        } else if says(&TOO_LARGE) {
            Self::TooLarge
        } else if says(&["no leader", "raft proposal dropped"]) {
            // Another member may have one.
            Self::NotReached
        } else if says(&DID_NOTHING) {
            Self::Refused
        } else {
            match status.code() {
                Code::Unauthenticated
                | Code::PermissionDenied
                | Code::InvalidArgument
                | Code::FailedPrecondition
                | Code::ResourceExhausted => Self::Refused,
                Code::Unimplemented => Self::Unsupported,
                // "Unavailable" is also what is said of a proposal that was on its way.
                _ => Self::Unknown,
            }
        };
        judge(Reason::Status {
            endpoint: endpoint.to_owned(),
            status: Box::new(status),
        })
    }

    pub(super) fn into_reason(self) -> Reason {
        match self {
            Self::NotReached(reason)
            | Self::Refused(reason)
            | Self::StaleToken(reason)
            | Self::TooLarge(reason)
            | Self::Unknown(reason)
            | Self::Unsupported(reason) => reason,
        }
    }

    /// The outcome of something that changes nothing, whatever became of it.
    pub(super) fn into_unavailable(self) -> CheckpointError {
        if let Self::Unsupported(reason) = self {
            return CheckpointError::Unsupported {
                source: reason.into(),
            };
        }
        CheckpointError::Unavailable {
            source: self.into_reason().into(),
        }
    }

    /// The outcome of something that puts a value of `length_bytes`.
    pub(super) fn into_outcome(self, length_bytes: usize) -> CheckpointError {
        match self {
            // The server takes less than it is said to; how much less it does not tell.
            Self::TooLarge(_) => CheckpointError::TooLarge {
                length_bytes,
                max_bytes: length_bytes.saturating_sub(1),
            },
            Self::Unknown(reason) => CheckpointError::OutcomeUnknown {
                source: reason.into(),
            },
            other => other.into_unavailable(),
        }
    }
}

/// Returns whether the connection could not be made, so that nothing was sent.
fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code, message: &str) -> Failure {
        Failure::of("http://etcd:2379", Status::new(code, message))
    }

    #[test]
    fn only_what_etcd_says_it_refused_did_not_happen() {
        let space = said(
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        );
        assert!(matches!(space, Failure::Refused(_)));
        let denied = said(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(matches!(denied, Failure::Refused(_)));
        let leaderless = said(Code::Unavailable, "etcdserver: no leader");
        assert!(matches!(leaderless, Failure::NotReached(_)));
        for message in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "error reading a body from connection",
        ] {
            let failure = said(Code::Unavailable, message);
            assert!(matches!(failure, Failure::Unknown(_)), "{message}");
        }
        for code in [
            Code::Unknown,
            Code::DeadlineExceeded,
            Code::Cancelled,
            Code::Internal,
        ] {
            assert!(matches!(said(code, "text"), Failure::Unknown(_)), "{code}");
        }
    }

    #[test]
    fn a_token_that_is_no_longer_known_and_a_request_that_is_too_large_are_told_apart() {
        let stale = said(Code::Unauthenticated, "etcdserver: invalid auth token");
        assert!(matches!(stale, Failure::StaleToken(_)));
        let large = said(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(matches!(
            large.into_outcome(2_000_000),
            CheckpointError::TooLarge {
                length_bytes: 2_000_000,
                ..
            }
        ));
    }

    #[test]
    fn a_connection_that_was_not_made_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(refused.into())));
        let failure = Failure::of("http://etcd:2379", status);
        assert!(matches!(failure, Failure::NotReached(_)));
    }
}
