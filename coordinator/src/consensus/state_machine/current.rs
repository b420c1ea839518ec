//! The current snapshot: the one that is sent to nodes that are far behind, and its file.

use std::sync::PoisonError;

use tenure_proto::raft::v1 as pb;

use super::super::codec;
use super::super::snapshot::{SnapshotContent, SnapshotFile};
use super::super::types::{Snapshot, SnapshotMeta};
use super::shared::Shared;
use crate::storage::{Batch, StorageError};

/// Names of snapshot files that are not finished end in this; they are removed at start.
pub(super) const UNFINISHED: &str = ".unfinished";

pub(super) fn snapshot_of(content: &SnapshotContent, file: SnapshotFile) -> Snapshot {
    Snapshot {
        meta: SnapshotMeta {
            last_log_id: content.last_log_id,
            last_membership: content.membership.clone(),
        },
        snapshot: file,
    }
}

pub(in super::super) fn pointer_to(
    content: &SnapshotContent,
    file: &SnapshotFile,
) -> pb::SnapshotPointer {
    pb::SnapshotPointer {
        file_name: file.name.clone(),
        size_bytes: file.size_bytes,
        crc32c: file.crc32c,
        last_log_id: content.last_log_id.as_ref().map(codec::log_id_to_proto),
        membership: Some(codec::stored_membership_to_proto(&content.membership)),
    }
}

/// Gives a finished file its final name.
pub(super) fn name_finally(
    shared: &Shared,
    content: &SnapshotContent,
    mut file: SnapshotFile,
) -> Result<SnapshotFile, StorageError> {
    let index = content.last_log_id.map_or(0, |log_id| log_id.index());
    // Numbered by the index for people, and by the generation and a count so that a snapshot never
    // replaces the file of another one, which the pointer on disk may still name.
    let mut count = 0_u64;
    let existing = shared.storage.files().list()?;
    let name = loop {
        let name = format!("snapshot-{index:020}-{count}");
        if !existing.contains(&name) {
            break name;
        }
        count += 1;
    };
    shared.storage.files().rename(&file.name, &name)?;
    file.name = name;
    Ok(file)
}

/// Switches to another snapshot in one synced batch, then removes the file of the one before.
/// The caller holds the `switching` lock.
pub(super) fn make_current(
    shared: &Shared,
    batch: Batch,
    snapshot: Snapshot,
) -> Result<(), StorageError> {
    shared.storage.write(batch)?;
    shared.storage.sync()?;
    let replaced = shared
        .snapshot
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(snapshot);
    match replaced {
        Some(replaced) => shared.storage.files().remove(&replaced.snapshot.name),
        None => Ok(()),
    }
}
