//! How a command can fail, one variant for each exit status.

use std::io;
use std::process::ExitCode;

use tenure_proto::reason;
use tonic::{Code, Status};
use tonic_types::{FieldViolation, StatusExt};

/// Exit statuses. They are documented in `docs/cli.md` and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Something else went wrong.
    Error = 1,
    /// The arguments, the settings or a value in them are wrong. The same number that clap uses.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// The coordinator refused the command; nothing changed.
    Refused = 4,
    /// No coordinator, no leader or no majority answered in time; nothing changed.
    Unavailable = 5,
    /// The token that was checked is stale.
    Stale = 6,
    /// The change was sent and its outcome is not known.
    OutcomeUnknown = 7,
    /// The change was made; what it leads to was waited for and was not reached.
    NotReached = 8,
    /// `doctor` has found a problem.
    Unhealthy = 9,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed. The text is one line that says what to do where that is not plain.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The output could not be written, or the program could not start its runtime.
    #[error("{0}")]
    Output(#[source] io::Error),
    /// A coordinator answered with something that this command does not expect.
    #[error("{message}")]
    Failed {
        /// What it answered.
        message: String,
    },
    /// The arguments, the settings or a value in them are wrong.
    #[error("{message}")]
    Usage {
        /// What is wrong, with the name of the field and what is allowed.
        message: String,
    },
    /// What was named does not exist.
    #[error("{message}")]
    NotFound {
        /// What is missing.
        message: String,
    },
    /// The coordinator refused the command; nothing changed.
    #[error("{message}")]
    Refused {
        /// Why, and what to do.
        message: String,
    },
    /// Nobody who could answer did so in time; nothing changed.
    #[error("{message}")]
    Unavailable {
        /// Who was asked and what went wrong last.
        message: String,
    },
    /// The token is not current.
    #[error("the token is stale: {reason}")]
    Stale {
        /// Why, in the coordinator's words.
        reason: String,
    },
    /// `doctor` has found problems, and has shown them.
    #[error("{problems} {} found", if *.problems == 1 { "problem was" } else { "problems were" })]
    Unhealthy {
        /// How many.
        problems: usize,
    },
    /// The change was sent and no answer came: it may have happened, or may still happen.
    #[error("{message}; it may have happened or may still happen: look before you repeat it")]
    OutcomeUnknown {
        /// What went wrong.
        message: String,
    },
    /// The change was made, and the waiting for what it leads to ended before it was reached. It goes on.
    #[error("{message}")]
    NotReached {
        /// How far it is, and how to take it back.
        message: String,
    },
}

impl CliError {
    /// The exit status that goes with the error.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Output(_) | Self::Failed { .. } => Exit::Error,
            Self::Usage { .. } => Exit::Usage,
            Self::NotFound { .. } => Exit::NotFound,
            Self::Refused { .. } => Exit::Refused,
            Self::Unavailable { .. } => Exit::Unavailable,
            Self::Stale { .. } => Exit::Stale,
            Self::OutcomeUnknown { .. } => Exit::OutcomeUnknown,
            Self::NotReached { .. } => Exit::NotReached,
            Self::Unhealthy { .. } => Exit::Unhealthy,
        }
    }

    /// Reads the final answer of a coordinator.
    pub(crate) fn from_status(status: &Status) -> Self {
        let message = one_line(status);
        match status.code() {
            Code::InvalidArgument | Code::OutOfRange => Self::Usage { message },
            Code::NotFound => Self::NotFound { message },
            Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated => Self::Refused { message },
            Code::Unavailable => Self::Unavailable { message },
            Code::DeadlineExceeded => Self::OutcomeUnknown { message },
            Code::Unimplemented => Self::Failed {
                message:
                    "what answers there does not know this command: it is another port than that for \
                     clients, or a coordinator that is older than this program"
                        .to_owned(),
            },
            _ => Self::Failed { message },
        }
    }

    pub(crate) fn incomplete(what: &str) -> Self {
        Self::Failed {
            message: format!("the coordinator's answer lacks {what}"),
        }
    }
}

/// The reason that an error of a coordinator carries; empty for other errors.
pub(crate) fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .filter(|info| info.domain == reason::DOMAIN)
        .map_or_else(String::new, |info| info.reason)
}

/// An error of a coordinator as one line: what it says, and what to do about it.
fn one_line(status: &Status) -> String {
    let violations = status
        .get_details_bad_request()
        .map_or_else(Vec::new, |bad_request| {
            bad_request.field_violations.iter().map(violation).collect()
        });
    let mut text = if violations.is_empty() {
        status.message().replace('\n', " ")
    } else {
        violations.join("; ").replace('\n', " ")
    };
    if text.is_empty() {
        text = format!("{:?} without a message", status.code());
    }
    match advice(&reason(status)) {
        Some(advice) => format!("{text}: {advice}"),
        None => text,
    }
}

/// What is wrong with a field, with its name once.
fn violation(violation: &FieldViolation) -> String {
    // On the wire the unit is part of the name; people write it with the value.
    let name = violation.field.trim_end_matches("_ms");
    if violation.description.contains(name) {
        return violation.description.clone();
    }
    format!("{}: {}", violation.field, violation.description)
}

/// What to do about a refusal, where its message does not say it already.
fn advice(reason: &str) -> Option<&'static str> {
    let advice = match reason {
        reason::GROUP_NOT_FOUND => "`tenure group list` shows the groups there are",
        reason::GROUP_EXISTS => {
            "`tenure group show` shows it, `tenure group set` changes its policy"
        }
        reason::STALE_EPOCH => "look at it again and decide again",
        reason::LIMIT_REACHED => "remove what is not needed, or raise the limit",
        reason::CLUSTER_EXISTS => {
            "`tenure cluster status` shows it, `tenure cluster add` adds a node"
        }
        reason::CLUSTER_CHANGE_REFUSED => "`tenure cluster status` shows the nodes there are",
        _ => return None,
    };
    Some(advice)
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn an_error_is_one_line_that_names_the_field_once() {
        for (field, description, expected) in [
            ("name", "is empty", "name: is empty"),
            (
                "policy.ttl_ms",
                "policy.ttl is 11m, allowed is 1s to 10m",
                "policy.ttl is 11m, allowed is 1s to 10m",
            ),
        ] {
            let details = ErrorDetails::with_bad_request_violation(field, description);
            let message = "the request\nis not acceptable";
            let status = Status::with_error_details(Code::InvalidArgument, message, details);
            assert_eq!(CliError::from_status(&status).to_string(), expected);
        }
        let bare = Status::new(Code::Internal, "two\nlines");
        assert_eq!(CliError::from_status(&bare).to_string(), "two lines");
    }

    #[test]
    fn every_code_has_its_exit_status() {
        for (code, exit) in [
            (Code::InvalidArgument, Exit::Usage),
            (Code::NotFound, Exit::NotFound),
            (Code::AlreadyExists, Exit::Refused),
            (Code::FailedPrecondition, Exit::Refused),
            (Code::Aborted, Exit::Refused),
            (Code::ResourceExhausted, Exit::Refused),
            (Code::PermissionDenied, Exit::Refused),
            (Code::Unavailable, Exit::Unavailable),
            (Code::DeadlineExceeded, Exit::OutcomeUnknown),
            (Code::Unimplemented, Exit::Error),
            (Code::DataLoss, Exit::Error),
        ] {
            assert_eq!(
                CliError::from_status(&Status::new(code, "")).exit(),
                exit,
                "{code:?}"
            );
        }
    }
}
