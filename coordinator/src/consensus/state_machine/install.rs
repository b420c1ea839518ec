//! Installing a snapshot that another node sent.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tenure_ownership::ids::Revision;

use super::super::meta;
use super::super::snapshot::{SnapshotContent, SnapshotError, SnapshotFile, SnapshotReader};
use super::APPLY_BYTES_MAX;
use super::current::{UNFINISHED, make_current, name_finally, pointer_to, snapshot_of};
use super::shared::{Shared, load_state};
use crate::history;
use crate::storage::{Batch, Storage, StorageError, Table};

/// Replaces the state by a snapshot's, when nothing of it waits to be written. Blocks.
pub(super) fn install_snapshot(
    shared: &Shared,
    expected: &SnapshotContent,
    file: SnapshotFile,
) -> Result<(), SnapshotError> {
    let storage = shared.storage.as_ref();
    let mut reader = SnapshotReader::open(storage.files(), &file.name, shared.cluster)?;
    if reader.content() != expected {
        return Err(SnapshotError::Corrupt {
            name: file.name,
            reason: "it does not contain what its sender said".to_owned(),
        });
    }
    let old = shared.generation();
    let new = old.next();
    // An installation that failed may have left records.
    let mut batch = Batch::new();
    batch.delete_range(Table::State, new.start(), new.next().start());
    while let Some((key, value)) = reader.next_record()? {
        batch.put(Table::State, new.key(&key), value);
        if batch.size_bytes() >= APPLY_BYTES_MAX {
            storage.write(std::mem::take(&mut batch))?;
        }
    }
    storage.write(batch)?;
    let state = load_state(storage, new)?;

    // The file has been checked to its end, and its records make a state: from here on it counts.
    let _switching = shared
        .switching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let file = if file.name.ends_with(UNFINISHED) {
        name_finally(shared, expected, file)?
    } else {
        file
    };
    let mut batch = Batch::new();
    note_gap(storage, expected, &mut batch)?;
    meta::put_generation(&mut batch, new);
    if let Some(last) = &expected.last_log_id {
        meta::put_applied(&mut batch, last);
    }
    meta::put_membership(&mut batch, &expected.membership);
    meta::put_snapshot(&mut batch, &pointer_to(expected, &file));
    make_current(shared, batch, snapshot_of(expected, file))?;

    shared.change(|current| {
        *current = state;
        shared.generation.store(new.0, Ordering::Release);
    });
    let mut batch = Batch::new();
    batch.delete_range(Table::State, old.start(), new.start());
    storage.write(batch)?;
    Ok(())
}

/// What happened between the last entry applied here and the snapshot is in no log any more: a history
/// that goes on after it says so.
fn note_gap(
    storage: &dyn Storage,
    expected: &SnapshotContent,
    batch: &mut Batch,
) -> Result<(), StorageError> {
    let (from, to) = history::segments_range();
    let is_kept = storage.scan(Table::History, &from, &to).next().is_some();
    let after = meta::applied(storage)?.map(|log_id| Revision(log_id.index()));
    let until = expected.last_log_id.map(|log_id| Revision(log_id.index()));
    if let (true, Some(after), Some(until)) = (is_kept, after, until)
        && after < until
    {
        let (key, value) = history::gap_record(after, until);
        batch.put(Table::History, key, value);
    }
    Ok(())
}
