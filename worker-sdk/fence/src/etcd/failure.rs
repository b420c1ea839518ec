//! What an error of etcd or of the network says about what has happened.

use std::error::Error;
use std::time::Duration;

use tonic::{Code, ConnectError, Status};

use crate::error::CheckpointError;

/// What the text of an error begins with that etcd itself has made.
const ETCD: &str = "etcdserver: ";

/// Texts by which etcd says that it did nothing, whatever the code beside them.
const DID_NOTHING: [&str; 3] = [
    "database space exceeded",
    "too many requests",
    "corrupt cluster",
];

/// Texts by which a member says that it has nobody to hand a request to. Another may have.
const NO_LEADER: [&str; 2] = ["no leader", "raft proposal dropped"];

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
    #[error("{endpoint} belongs to another cluster than the one the store was opened in")]
    OtherCluster {
        /// One that does not belong to it.
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
        let message = status.message();
        // The client library makes statuses of its own from what breaks on the way, some with the same
        // codes as etcd's, after the request was sent. What has broken is their source.
        let is_answer = status.source().is_none();
        let says = |texts: &[&str]| is_answer && texts.iter().any(|text| message.contains(text));
        let judge: fn(Reason) -> Self = if never_connected(&status) {
            Self::NotReached
        } else if says(&STALE_TOKEN) {
            Self::StaleToken
        } else if says(&TOO_LARGE) {
            Self::TooLarge
        } else if says(&NO_LEADER) {
            Self::NotReached
        } else if says(&DID_NOTHING) {
            Self::Refused
        } else {
            match status.code() {
                Code::Unauthenticated
                | Code::PermissionDenied
                | Code::InvalidArgument
                | Code::FailedPrecondition
                | Code::ResourceExhausted
                    if is_answer && message.starts_with(ETCD) =>
                {
                    Self::Refused
                }
                Code::Unimplemented if is_answer => Self::Unsupported,
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
    use std::sync::Arc;

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
    fn what_broke_on_the_way_is_no_refusal_whatever_code_it_is_given() {
        let codes = [
            // What tonic makes of HTTP/2's ENHANCE_YOUR_CALM and INADEQUATE_SECURITY.
            Code::ResourceExhausted,
            Code::PermissionDenied,
            Code::Unauthenticated,
            Code::Unimplemented,
        ];
        for code in codes {
            let text = "h2 protocol error: not a result of an error";
            let mut status = Status::new(code, text);
            status.set_source(Arc::new(std::io::Error::other(text)));
            let failure = Failure::of("http://etcd:2379", status);
            assert!(
                matches!(failure, Failure::Unknown(_)),
                "{code}: {failure:?}"
            );
        }
        // Nor is what something between here and etcd says.
        let between = said(Code::PermissionDenied, "RBAC: access denied");
        assert!(matches!(between, Failure::Unknown(_)), "{between:?}");
        let mut text_of_etcd = Status::resource_exhausted("etcdserver: too many requests");
        text_of_etcd.set_source(Arc::new(std::io::Error::other("a broken connection")));
        let failure = Failure::of("http://etcd:2379", text_of_etcd);
        assert!(matches!(failure, Failure::Unknown(_)), "{failure:?}");
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
