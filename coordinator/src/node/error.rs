//! Why a node does not run.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::tls::TlsError;
use crate::config::ConfigError;
use crate::consensus::{Identity, MembershipError, OptionsError, StartError};
use crate::storage::StorageError;

/// Why a node does not start, or does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Certificates or keys cannot be used.
    #[error("{port} port: TLS is not possible")]
    Tls {
        /// Which port.
        port: &'static str,
        /// Why.
        #[source]
        source: TlsError,
    },
    /// A port cannot be listened on, for example because another process does.
    #[error("{port} port {address} cannot be listened on")]
    Listen {
        /// Which port.
        port: &'static str,
        /// Its address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The data folder cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The settings of the cluster do not fit together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// What is stored cannot be gone on with.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The data folder belongs to a node that is reached elsewhere: it was moved or mixed up.
    #[error(
        "data folder {} belongs to {identity}, whose peer address is {known}, not {configured}",
        data_dir.display()
    )]
    OtherNode {
        /// The folder.
        data_dir: PathBuf,
        /// Whom it belongs to.
        identity: Identity,
        /// The address the cluster knows.
        known: String,
        /// The address this node would have.
        configured: String,
    },
    /// The cluster of one node could not be made.
    #[error("the cluster cannot be initialised")]
    Initialize(#[source] MembershipError),
    /// The node did not begin to serve in time.
    #[error("the node is not ready: {0}")]
    NotReady(&'static str),
    /// The node has failed for good, for example because its log could not be synced.
    #[error("the node has failed: {reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
    /// A listener ended by itself, or a task of the node panicked.
    #[error("the node cannot go on: {reason}")]
    Ended {
        /// What happened.
        reason: String,
    },
    /// The process cannot do what every process should be able to.
    #[error("cannot {operation}")]
    Process {
        /// What was tried, as a verb.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Marks the end of what Raft's library puts before the text of a storage error.
const LIBRARY_PREFIX: &str = "std::io::error::Error: ";

/// Marks the begin of what it puts behind: the same text once more.
const LIBRARY_SUFFIX: &str = "; source: ";

/// Returns what storage said, without what Raft's library wraps around it.
pub(super) fn concise(reason: &str) -> String {
    let reason = reason
        .split_once(LIBRARY_PREFIX)
        .map_or(reason, |(_, rest)| rest);
    let reason = reason
        .split_once(LIBRARY_SUFFIX)
        .map_or(reason, |(first, _)| first);
    reason.to_owned()
}

impl NodeError {
    /// Returns the error and its causes as one line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat the cause in their own text.
            if !line.ends_with(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            cause = error.source();
        }
        line.replace('\n', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_disk_is_told_once_and_in_the_words_of_the_storage() {
        let reason = "when Write Apply(LogId { index: 18 }): std::io::error::Error: storage cannot \
                      write a batch: no space left; source: storage cannot write a batch; source: \
                      no space left";
        assert_eq!(
            concise(reason),
            "storage cannot write a batch: no space left"
        );
        assert_eq!(concise("raft has ended"), "raft has ended");
    }

    #[test]
    fn causes_are_told_in_one_line_and_none_twice() {
        let source = io::Error::other("address in use\nreally");
        let address = "127.0.0.1:7400".parse().unwrap();
        let error = NodeError::Listen {
            port: "client",
            address,
            source,
        };
        assert_eq!(
            error.line(),
            "client port 127.0.0.1:7400 cannot be listened on: address in use really"
        );
    }
}
