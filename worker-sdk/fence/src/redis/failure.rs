//! What an error of the server or of the network says about what has happened.

use std::time::Duration;

use ::redis::{ErrorKind, RedisError};

use crate::error::CheckpointError;
use crate::resource::Resource;

use super::server::ServerError;

/// Codes of errors by which the server says that it did nothing. The script's first command that
/// changes anything is the first that can be refused, so a refusal leaves everything as it was.
const DID_NOTHING: [&str; 16] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "NOTREADY",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It did not happen.
    Nothing(Reason),
    /// It may have happened.
    Unknown(Reason),
    /// What is stored is of another type.
    WrongType(Reason),
    /// The server cannot fence.
    Unsupported(Reason),
}

/// What the server, the network or the clock said.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Reason {
    /// The server or the network, in the words of the client library.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Nobody said anything.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// Fewer replicas than asked for.
    #[error("{acknowledged} of {needed} replicas have acknowledged it")]
    Replicas {
        /// How many have.
        acknowledged: u64,
        /// How many were asked for.
        needed: u32,
    },
    /// The server is not one that can keep a fence.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server answered fewer commands than it was sent.
    #[error("an answer is missing")]
    Missing,
}

impl Failure {
    /// Judges an error that came instead of the answer to a request.
    pub(super) fn of_request(error: RedisError) -> Self {
        let nothing = match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
                let code = error.code().unwrap_or_default();
                if code == "WRONGTYPE" {
                    return Self::WrongType(error.into());
                }
                DID_NOTHING.contains(&code)
            }
            // Whatever the library calls it: the request may have been sent.
            _ => false,
        };
        if nothing {
            return Self::Nothing(error.into());
        }
        Self::Unknown(error.into())
    }

    /// Returns whether the connection broke, so that the call is worth one more try on another.
    pub(super) fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Unknown(Reason::Redis(error)) if error.is_connection_dropped())
    }

    /// Judges what a server says of itself. One that is loading will say something else soon.
    pub(super) fn of_server(error: ServerError) -> Self {
        match error {
            ServerError::Loading => Self::Nothing(error.into()),
            error => Self::Unsupported(error.into()),
        }
    }

    /// Judges why there is no connection, for a call of a store that is open. In the middle of a
    /// failover the server may be a replica for a while.
    pub(super) fn for_a_call(self) -> Self {
        match self {
            Self::Unsupported(Reason::Server(ServerError::Replica)) => {
                Self::Nothing(ServerError::Replica.into())
            }
            failure => failure,
        }
    }

    pub(super) fn into_reason(self) -> Reason {
        match self {
            Self::Nothing(reason)
            | Self::Unknown(reason)
            | Self::WrongType(reason)
            | Self::Unsupported(reason) => reason,
        }
    }

    pub(super) fn into_outcome(self, resource: &Resource) -> CheckpointError {
        match self {
            Self::Nothing(reason) => CheckpointError::Unavailable {
                source: reason.into(),
            },
            Self::Unknown(reason) => CheckpointError::OutcomeUnknown {
                source: reason.into(),
            },
            Self::WrongType(reason) => CheckpointError::Corrupt {
                resource: resource.clone(),
                source: reason.into(),
            },
            Self::Unsupported(reason) => CheckpointError::Unsupported {
                source: reason.into(),
            },
        }
    }

    /// The outcome of reading what belongs to a resource.
    pub(super) fn into_read_outcome(self, resource: &Resource) -> CheckpointError {
        match self {
            Self::WrongType(_) => self.into_outcome(resource),
            failure => failure.into_unavailable(),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str) -> Failure {
        let code = code.to_owned();
        Failure::of_request(::redis::make_extension_error(code, Some("text".into())))
    }

    #[test]
    fn only_what_the_server_says_it_refused_did_not_happen() {
        for code in ["OOM", "MISCONF", "NOREPLICAS", "BUSY"] {
            assert!(matches!(said(code), Failure::Nothing(_)), "{code}");
        }
        for code in ["NOPERM", "UNKNOWN", "EXECABORT"] {
            assert!(matches!(said(code), Failure::Unknown(_)), "{code}");
        }
        assert!(matches!(said("WRONGTYPE"), Failure::WrongType(_)));
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_unknown() {
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let failure = Failure::of_request(broken.into());
        assert!(matches!(failure, Failure::Unknown(_)));
        assert!(failure.is_broken_connection());
        assert!(!Failure::Unknown(Reason::Missing).is_broken_connection());
    }
}
