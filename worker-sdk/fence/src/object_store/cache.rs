//! The manifests last seen, so that a write needs no read before it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::resource::Resource;

use super::manifest::Stored;

/// The manifests last seen. Each is a guess: only the condition of the next put says whether it was
/// right, so a wrong one costs a request and nothing else.
#[derive(Debug, Default)]
pub(super) struct Cache {
    // Never held across an await.
    entries: Mutex<HashMap<Resource, Stored>>,
}

/// More than a worker owns; with the largest inline values these take some 160 MB.
const ENTRIES_MAX: usize = 10_000;

impl Cache {
    pub(super) fn get(&self, resource: &Resource) -> Option<Stored> {
        self.entries().get(resource).cloned()
    }

    pub(super) fn put(&self, resource: &Resource, stored: Stored) {
        let mut entries = self.entries();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(resource) {
            // Any one: which is needed next is not known, and to be wrong costs one read.
            let evicted = entries.keys().next().cloned();
            if let Some(evicted) = evicted {
                entries.remove(&evicted);
            }
        }
        entries.insert(resource.clone(), stored);
    }

    pub(super) fn forget(&self, resource: &Resource) {
        self.entries().remove(resource);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Resource, Stored>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
