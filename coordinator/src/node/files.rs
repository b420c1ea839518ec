//! How many files the process may have open, and what they are for.

use rustix::process::{Resource, getrlimit};
#[cfg(feature = "rocksdb")]
use rustix::process::{Rlimit, setrlimit};

/// Files that no connection gets: those of the storage (512 tables, logs, snapshots), the connections
/// to peers, and what the runtime needs.
const RESERVED: u64 = 640;

/// Below this a warning is due: it is room for some thousand workers.
const MODEST: u64 = 4_096;

/// More connections than any port will have.
const CONNECTIONS_MAX: u64 = 1 << 20;

/// Connections that each port may have at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    pub(super) client: usize,
    pub(super) peer: usize,
    pub(super) http: usize,
}

/// Raises the limit of this process as far as it may by itself: the usual 1,024 is for programs that
/// use `select`.
#[cfg(feature = "rocksdb")]
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // What is refused leaves the limit as it was.
    if current != maximum && setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
}

/// Divides what the process may open at this moment.
pub(super) fn connection_limits() -> ConnectionLimits {
    let files = getrlimit(Resource::Nofile).current;
    let limits = divide(files.unwrap_or(u64::MAX));
    if let Some(files) = files.filter(|files| *files < MODEST) {
        tracing::warn!(
            files,
            clients = limits.client,
            "few files may be open: raise the hard limit (ulimit -Hn, LimitNOFILE)"
        );
    }
    limits
}

fn divide(files: u64) -> ConnectionLimits {
    let spare = files.saturating_sub(RESERVED).min(CONNECTIONS_MAX);
    let few = (spare / 8).clamp(16, 256);
    let many = spare.saturating_sub(2 * few).max(32);
    let places = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    ConnectionLimits {
        client: places(many),
        peer: places(few),
        http: places(few),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_storage_has_files_left_whatever_connects() {
        for files in [1_024, 4_096, 65_536, 1 << 19] {
            let ConnectionLimits { client, peer, http } = divide(files);
            let connections = u64::try_from(client + peer + http).unwrap();
            assert!(connections + RESERVED <= files, "{files}");
        }
        assert_eq!(divide(1_024).client, 288);
        assert!(divide(u64::MAX).client > 1_000_000);
    }
}
