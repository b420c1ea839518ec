//! A backup: the snapshot of this node, as a file on its way to somebody who keeps it.
//!
//! It is taken while the node works. What it contains is the state at one log index, with the bytes of
//! the checkpoints, and it is read back by [`restore`](super::restore()).

use std::time::Duration;

use bytes::Bytes;
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver as _;
use tenure_ownership::ids::{ClusterId, Revision};

use super::error::ReadError;
use super::handle::{Consensus, Running};
use super::rounds::unavailable;
use super::runtime::{self, blocking};
use super::state_machine::SnapshotPieces;
use super::types::Snapshot;
use crate::storage::StorageError;

/// Bytes of one piece.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// How long a snapshot that is being built is waited for before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A backup to be read.
pub struct Backup {
    /// The cluster it is of.
    pub cluster: ClusterId,
    /// The last entry that it contains.
    pub revision: Revision,
    /// Its length.
    pub size_bytes: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
    /// Groups in it.
    pub groups: u64,
    /// Their shards.
    pub shards: u64,
    pieces: SnapshotPieces,
}

impl Backup {
    /// Returns the next bytes, at most 256 KiB of them, and the rest of the backup; `None` at
    /// its end.
    ///
    /// # Errors
    ///
    /// [`StorageError`] if the file cannot be read.
    pub async fn next(mut self) -> Result<Option<(Bytes, Self)>, StorageError> {
        let reading = blocking(move || {
            let piece = self.pieces.next(PIECE_BYTES_MAX);
            piece.map(|piece| piece.map(|piece| (piece, self)))
        });
        let read = reading.await.and_then(|read| read);
        read.map_err(|source| StorageError::Io {
            operation: "read a snapshot",
            source,
        })
    }
}

impl Consensus {
    /// Takes a backup of what this node has applied by now: call
    /// [`read_barrier`](Consensus::read_barrier) first for one that contains everything acknowledged.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it was not taken within `within`.
    pub async fn backup(&self, within: Duration) -> Result<Backup, ReadError> {
        let running = self
            .running()
            .ok_or_else(|| unavailable("this node is not part of a cluster yet"))?;
        let taking = async {
            let wanted = running.shared.last_applied();
            let mut metrics = running.raft.metrics();
            loop {
                let current = running.shared.current_snapshot();
                if let Some(snapshot) = current.filter(|it| it.meta.last_log_id >= wanted)
                    && let Some(backup) = open(running, snapshot).await?
                {
                    return Ok(backup);
                }
                let trigger = running.raft.trigger();
                // Dropped if one is being built, which may have begun before the last entries.
                let triggered = trigger.snapshot().await;
                triggered.map_err(|_| ReadError::Stopped)?;
                let looked = runtime::now();
                while looked.elapsed() < LOOK_AGAIN {
                    let left = LOOK_AGAIN.saturating_sub(looked.elapsed());
                    let changed = runtime::at_most(left, metrics.changed()).await;
                    if changed.is_some_and(|changed| changed.is_err()) {
                        return Err(ReadError::Stopped);
                    }
                }
            }
        };
        runtime::at_most(within, taking)
            .await
            .unwrap_or_else(|| Err(unavailable("no snapshot was built in time")))
    }
}

/// Opens the file of a snapshot; `None` if a newer one has replaced it meanwhile.
async fn open(running: &Running, snapshot: Snapshot) -> Result<Option<Backup>, ReadError> {
    let (shared, name) = (running.shared.clone(), snapshot.snapshot.name.clone());
    let opened = blocking(move || SnapshotPieces::open(&shared, &name)).await;
    let opened = opened.map_err(|_| ReadError::Stopped)?;
    let pieces = match opened {
        Ok(pieces) => pieces,
        Err(_) if !running.shared.is_current_snapshot(&snapshot.snapshot) => return Ok(None),
        Err(error) => return Err(unavailable(error.to_string())),
    };
    let revision = snapshot.meta.last_log_id.map_or(0, |last| last.index());
    let state = running.shared.state();
    // The id of a group is the index at which it was created: later ones are not in the snapshot.
    let groups = state.groups().filter(|group| group.header.id.0 <= revision);
    let (mut count, mut shards) = (0, 0);
    for group in groups {
        count += 1;
        shards += u64::from(group.header.shard_count);
    }
    Ok(Some(Backup {
        cluster: running.shared.cluster,
        revision: Revision(revision),
        size_bytes: snapshot.snapshot.size_bytes,
        crc32c: snapshot.snapshot.crc32c,
        groups: count,
        shards,
        pieces,
    }))
}
