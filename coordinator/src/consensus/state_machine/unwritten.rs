//! What was applied and has not reached the disk yet.
//!
//! Under load the same records change again and again: the progress of a shard's checkpoints, and the
//! checkpoint itself. So changes are gathered here for a moment, each overwriting the one before, and are
//! written together. With the power goes what was gathered, which is in the log and is applied again.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use openraft::Instant as _;

use super::super::meta;
use super::super::runtime::{self, Moment};
use super::super::types::{LogId, StoredMembership};
use crate::history::Written;
use crate::storage::{Batch, Table};

/// Changes wait until the last ones were written so long ago. It is what a node that crashed has to
/// apply again.
const GATHERED_WITHIN: Duration = Duration::from_millis(100);

/// Bytes of keys and values that wait, at most.
const BYTES_MAX: usize = 1 << 20;

/// Changes of records that wait to be written, as of one log index.
#[derive(Default)]
pub(super) struct Unwritten {
    /// `None` removes the record.
    records: BTreeMap<Vec<u8>, Option<Bytes>>,
    bytes: usize,
    applied: Option<LogId>,
    membership: Option<StoredMembership>,
    history: Written,
    written_at: Option<Moment>,
}

impl Unwritten {
    /// Sets or removes a record, under its key in storage.
    pub(super) fn set(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        let length = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        self.bytes += key.len() + length(&value);
        let key_bytes = key.len();
        if let Some(replaced) = self.records.insert(key, value) {
            self.bytes -= key_bytes + length(&replaced);
        }
    }

    /// Notes the entry that was applied last.
    pub(super) fn set_applied(&mut self, log_id: LogId) {
        self.applied = Some(log_id);
    }

    /// Replaces the membership.
    pub(super) fn set_membership(&mut self, membership: StoredMembership) {
        self.membership = Some(membership);
    }

    /// Adds history, which comes in order.
    pub(super) fn add_history(&mut self, history: Written) {
        self.history.extend(history);
    }

    /// Returns the history that waits.
    pub(super) fn history(&self) -> &Written {
        &self.history
    }

    /// Returns the value that waits for a key in storage: `Some(None)` if its removal waits.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.records.get(key).cloned()
    }

    /// Returns the bytes of keys and values that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.history.bytes()
    }

    /// Tells whether it is time to write.
    pub(super) fn is_due(&self) -> bool {
        self.bytes() >= BYTES_MAX
            || self.membership.is_some()
            || self
                .written_at
                .is_none_or(|written| written.elapsed() >= GATHERED_WITHIN)
    }

    /// Returns everything that waits as one batch; empty if nothing does.
    pub(super) fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in &self.records {
            match value {
                Some(value) => batch.put(Table::State, key.clone(), value.clone()),
                None => batch.delete(Table::State, key.clone()),
            }
        }
        self.history.put(&mut batch);
        if let Some(membership) = &self.membership {
            meta::put_membership(&mut batch, membership);
        }
        if let Some(applied) = &self.applied {
            meta::put_applied(&mut batch, applied);
        }
        batch
    }

    /// Forgets what was written.
    pub(super) fn clear(&mut self) {
        *self = Self {
            written_at: Some(runtime::now()),
            ..Self::default()
        };
    }
}
