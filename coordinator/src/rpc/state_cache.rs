//! States that were encoded for watchers, for as long as one of them is still being sent it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tenure_ownership::ids::{GroupId, Revision};

/// An encoded state and its revision; gone once no watcher is sent it any more.
type CachedState = (Revision, Weak<[Bytes]>);

/// Encoded states, shared by watchers that start while nothing changes: after a restart of a node
/// thousands come at once.
#[derive(Default)]
pub(super) struct StateCache {
    states: Mutex<BTreeMap<GroupId, CachedState>>,
}

impl StateCache {
    pub(super) fn get(&self, group: GroupId, revision: Revision) -> Option<Arc<[Bytes]>> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, parts) = states.get(&group)?;
        if *at == revision {
            parts.upgrade()
        } else {
            None
        }
    }

    pub(super) fn put(&self, group: GroupId, revision: Revision, parts: &Arc<[Bytes]>) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, (_, parts)| parts.strong_count() > 0);
        states.insert(group, (revision, Arc::downgrade(parts)));
    }
}
