//! `tenure cluster restore`: the data folder of the first node of a new cluster, made without a node.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_cli::{CliError, RestoreArguments, Restored};
use tenure_ownership::ids::ClusterId;

use crate::consensus::{
    NodeAddresses, RestoreError, RestoreOptions, RestoredCluster, restore as restore_backup,
};
use crate::storage::{RocksOptions, RocksStorage, StorageError};
use crate::wall_clock::{SystemWallClock, WallClock as _};

/// 2020-01-01, in seconds since 1970.
const FLOOR_ZERO_SECONDS: u64 = 1_577_836_800;

/// 2026-01-01. A clock before it was never set: this program is not that old.
const CLOCK_SET_SECONDS: u64 = 1_767_225_600;

/// Why there is no new cluster.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(
        "the clock of this machine was never set: a restore takes it as a number that no other one has"
    )]
    Clock,
    #[error("{} cannot be read", path.display())]
    Backup {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} cannot be looked into", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not empty; a restore begins in a folder of its own", path.display())]
    NotEmpty { path: PathBuf },
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Makes the folder.
///
/// # Errors
///
/// What the command is to say, and its exit status with it.
pub fn restore(arguments: &RestoreArguments) -> Result<Restored, CliError> {
    let restored = restore_into(arguments).map_err(explained)?;
    Ok(Restored {
        from: restored.from.0,
        cluster: restored.identity.cluster.0,
        node: restored.identity.node.0,
        backup_revision: restored.backup_revision.0,
        revision: restored.revision.0,
        groups: restored.groups as u64,
        shards: restored.shards,
        sessions_ended: restored.sessions_ended as u64,
        wait_ms: u64::try_from(restored.quiet.as_millis()).unwrap_or(u64::MAX),
    })
}

fn restore_into(arguments: &RestoreArguments) -> Result<RestoredCluster, Problem> {
    let since_1970 = Duration::from_millis(SystemWallClock.now_ms());
    let floor_min = floor_at(since_1970).ok_or(Problem::Clock)?;
    let index_min = index_at(since_1970);
    let (path, folder) = (&arguments.from, &arguments.data_dir);
    let backup = fs::File::open(path).map_err(|source| Problem::Backup {
        path: path.clone(),
        source,
    })?;
    require_empty(folder)?;
    let node = &arguments.node.0;
    let options = RestoreOptions {
        cluster: ClusterId(rand::random()),
        addresses: NodeAddresses {
            raft: node.peer_address.clone(),
            client: node.client_address.clone(),
            http: node.http_address.clone(),
        },
        floor_min,
        index_min,
        quiet_min: arguments.wait.unwrap_or_default(),
    };
    let storage = RocksStorage::open(folder.clone(), RocksOptions::default())?;
    Ok(restore_backup(&storage, Box::new(backup), &options)?)
}

/// The number below which the new cluster grants no epoch: it takes the clock as a number that no other
/// restore has, not as a time. Seconds alone would do but for two restores within one.
fn floor_at(since_1970: Duration) -> Option<u64> {
    if since_1970.as_secs() < CLOCK_SET_SECONDS {
        return None;
    }
    let seconds = since_1970.as_secs() - FLOOR_ZERO_SECONDS;
    let floor = seconds.checked_mul(1 << 32)?;
    floor.checked_add(u64::from(since_1970.subsec_nanos()))
}

/// Where the log of the new cluster begins: above what any cluster can have reached that began earlier,
/// because none commits a million entries a second all its life.
fn index_at(since_1970: Duration) -> u64 {
    since_1970.as_secs().saturating_sub(FLOOR_ZERO_SECONDS) << 20
}

fn require_empty(folder: &Path) -> Result<(), Problem> {
    let failed = |source| Problem::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match entries.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(Problem::NotEmpty {
            path: folder.to_owned(),
        }),
        Some(Err(error)) => Err(failed(error)),
    }
}

fn explained(problem: Problem) -> CliError {
    let message = line(&problem);
    match problem {
        Problem::Clock | Problem::Backup { .. } | Problem::Folder { .. } => {
            CliError::Usage { message }
        }
        Problem::Restore(RestoreError::Addresses(_)) => CliError::Usage { message },
        Problem::NotEmpty { .. }
        | Problem::Restore(RestoreError::Used { .. } | RestoreError::Refused(_)) => {
            CliError::Refused { message }
        }
        Problem::Restore(_) | Problem::Storage(_) => CliError::Failed { message },
    }
}

fn line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_restore_has_a_higher_floor_also_within_one_second() {
        let at = |nanos| floor_at(Duration::new(CLOCK_SET_SECONDS, nanos)).unwrap();
        assert_eq!(at(0), (CLOCK_SET_SECONDS - FLOOR_ZERO_SECONDS) << 32);
        assert!(at(0) < at(1));
        let next = floor_at(Duration::new(CLOCK_SET_SECONDS + 1, 0)).unwrap();
        assert!(at(999_999_999) < next);
        let largest = i64::MAX.unsigned_abs();
        let far = floor_at(Duration::from_secs(FLOOR_ZERO_SECONDS + 2_000_000_000));
        assert!(far.unwrap() < largest, "in the sixties of this century");
    }

    #[test]
    fn a_later_restore_begins_at_a_higher_index_which_a_double_still_holds() {
        let at = |seconds| index_at(Duration::from_secs(seconds));
        assert!(at(CLOCK_SET_SECONDS) < at(CLOCK_SET_SECONDS + 1));
        assert!(at(FLOOR_ZERO_SECONDS + 2_000_000_000) < 1 << 53);
    }

    #[test]
    fn a_clock_that_was_never_set_restores_nothing() {
        assert_eq!(floor_at(Duration::ZERO), None);
        assert_eq!(floor_at(Duration::from_secs(CLOCK_SET_SECONDS - 1)), None);
    }

    #[test]
    fn a_folder_with_anything_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        require_empty(&folder.path().join("not-there")).unwrap();
        require_empty(folder.path()).unwrap();
        fs::write(folder.path().join("x"), "x").unwrap();
        let refused = require_empty(folder.path()).unwrap_err();
        assert!(matches!(refused, Problem::NotEmpty { .. }));
    }
}
