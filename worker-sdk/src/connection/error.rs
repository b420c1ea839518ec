//! Why a call failed, and what that says about where the leader is and whether it happened.

use std::error::Error;

use bytes::Bytes;
use prost::Message as _;
use tenure_proto::reason;
use tonic::{Code, Status};
use tonic_types::{ErrorInfo, StatusExt};

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct CallError {
    status: Status,
    info: Option<ErrorInfo>,
    pub(super) may_have_happened: bool,
}

impl CallError {
    /// Reads a status that a coordinator, or the way to it, answered with.
    #[must_use]
    pub fn from_status(status: Status) -> Self {
        let info = status
            .get_details_error_info()
            .filter(|info| info.domain == reason::DOMAIN);
        let may_have_happened = match &info {
            Some(info) => info.reason == reason::OUTCOME_UNKNOWN,
            // One with a source is what became of a connection that broke, and no answer at all, whatever
            // its code: one that has given up many calls ends in "resource exhausted", for example.
            None => {
                let is_answer = status.source().is_none() && !is_transport(status.code());
                !is_answer && !is_connect_error(&status)
            }
        };
        Self {
            status,
            info,
            may_have_happened,
        }
    }

    /// Reads a `google.rpc.Status` that a coordinator encoded into an answer.
    pub(crate) fn from_encoded(encoded: Bytes) -> Self {
        Self::from_status(match tonic_types::pb::Status::decode(encoded.clone()) {
            Ok(status) => Status::with_details(status.code.into(), status.message, encoded),
            Err(error) => {
                Status::unknown(format!("the coordinator sent a malformed status: {error}"))
            }
        })
    }

    pub(crate) fn local(code: Code, message: String) -> Self {
        Self {
            status: Status::new(code, message),
            info: None,
            may_have_happened: false,
        }
    }

    /// The error of a try after others, of which one may have happened.
    pub(crate) fn after(mut self, may_have_happened: bool) -> Self {
        self.may_have_happened |= may_have_happened;
        self
    }

    /// Returns the reason, one of [`tenure_proto::reason`]; empty if no coordinator gave one.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.info.as_ref().map_or("", |info| info.reason.as_str())
    }

    /// Returns a field of the error's metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.info.as_ref()?.metadata.get(key).map(String::as_str)
    }

    /// Returns the gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.status.code()
    }

    /// Returns what was said, for people.
    #[must_use]
    pub fn message(&self) -> &str {
        self.status.message()
    }

    /// Returns the whole status, with all its details.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Returns whether the call, or an earlier repetition of it, may have happened nevertheless.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        self.may_have_happened
    }

    /// Returns the leader's address, if a node that does not lead named it.
    #[must_use]
    pub fn leader_hint(&self) -> Option<&str> {
        self.metadata(reason::LEADER_ADDRESS)
            .filter(|address| !address.is_empty())
    }

    /// Returns whether another try, perhaps at another node, may be answered differently.
    pub(crate) fn is_passing(&self) -> bool {
        match self.reason() {
            reason::NOT_LEADER | reason::UNAVAILABLE | reason::OUTCOME_UNKNOWN => true,
            "" => is_transport(self.code()),
            _ => false,
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status.message() {
            "" => write!(formatter, "{}", self.status.code()),
            message => formatter.write_str(message),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.status.source()
    }
}

/// Codes with which the way to a node fails, as well as the node.
fn is_transport(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
    )
}

/// Returns whether no connection came about, so that nothing was sent.
fn is_connect_error(status: &Status) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = status.source();
    while let Some(source) = next {
        if source.is::<tonic::ConnectError>() {
            return true;
        }
        next = source.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_connection_that_broke_is_no_answer_whatever_its_code() {
        let mut status = Status::new(Code::ResourceExhausted, "too many calls given up");
        assert!(!CallError::from_status(status.clone()).may_have_happened());
        let broken = io::Error::from(ErrorKind::ConnectionReset);
        status.set_source(Arc::new(broken));
        assert!(CallError::from_status(status).may_have_happened());
    }
}
