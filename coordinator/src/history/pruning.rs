//! What is too old or too much goes: the oldest segment, one at a time.

use super::{HistoryOptions, keys, segment};
use crate::storage::{Batch, Storage, StorageError, Table};

/// Removes the oldest segment if it is too old or there is too much. Returns whether it did: then there
/// may be more. Blocks.
///
/// The newest segment stays: the task that applies adds to it. So of a cluster in which nothing happens the
/// last events are kept for longer, until there are new ones.
pub(crate) fn prune_step(
    storage: &dyn Storage,
    options: &HistoryOptions,
    now_ms: u64,
) -> Result<bool, StorageError> {
    let segments = segment::all(storage)?;
    let [oldest, next, ..] = segments.as_slice() else {
        return Ok(false);
    };
    let events = segments
        .iter()
        .fold(0_u64, |sum, segment| sum.saturating_add(segment.events));
    let keep_ms = u64::try_from(options.keep.as_millis()).unwrap_or(u64::MAX);
    let is_old = oldest.last_ms.saturating_add(keep_ms) < now_ms;
    if !is_old && events <= options.events_max {
        return Ok(false);
    }
    let mut batch = Batch::new();
    for (from, to) in [
        (keys::parts().0, keys::revision(next.first)),
        keys::index_of_segments(oldest.first, next.first),
        keys::gaps_until(next.first),
    ] {
        batch.delete_range(Table::History, from, to);
    }
    batch.delete(Table::History, keys::segment(oldest.first));
    storage.write(batch)?;
    tracing::debug!(
        events = oldest.events,
        since = next.first.0,
        "oldest history is pruned"
    );
    Ok(true)
}

/// Removes all history. Blocks.
pub(crate) fn forget(storage: &dyn Storage) -> Result<(), StorageError> {
    let (from, to) = keys::everything();
    let is_empty = storage.scan(Table::History, &from, &to).next().is_none();
    if is_empty {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.delete_range(Table::History, from, to);
    storage.write(batch)
}
