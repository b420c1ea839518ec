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
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    stored: HashMap<Resource, Stored>,
    bytes: usize,
}

/// More than a worker owns.
const ENTRIES_MAX: usize = 10_000;

/// How much the values in them may take, in bytes: a small part of a worker's memory. The manifests
/// of 8,000 shards fit in with the largest inline values of the default options; what does not is read
/// again.
const BYTES_MAX: usize = 128 << 20;

impl Cache {
    pub(super) fn get(&self, resource: &Resource) -> Option<Stored> {
        self.entries().stored.get(resource).cloned()
    }

    pub(super) fn put(&self, resource: &Resource, stored: Stored) {
        let bytes = value_bytes(&stored);
        let mut entries = self.entries();
        entries.remove(resource);
        if bytes > BYTES_MAX {
            return;
        }
        while entries.stored.len() >= ENTRIES_MAX || entries.bytes + bytes > BYTES_MAX {
            // Any one: which is needed next is not known, and to be wrong costs one read.
            let Some(evicted) = entries.stored.keys().next().cloned() else {
                break;
            };
            entries.remove(&evicted);
        }
        entries.bytes += bytes;
        entries.stored.insert(resource.clone(), stored);
    }

    pub(super) fn forget(&self, resource: &Resource) {
        self.entries().remove(resource);
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn remove(&mut self, resource: &Resource) {
        if let Some(removed) = self.stored.remove(resource) {
            self.bytes -= value_bytes(&removed);
        }
    }
}

/// Returns how much memory the value in a manifest takes, and its version where that is made of it.
fn value_bytes(stored: &Stored) -> usize {
    let checkpoint = stored.manifest.record.checkpoint.as_ref();
    checkpoint.map_or(0, |checkpoint| checkpoint.data.len()) + stored.version.0.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Write;
    use crate::object_store::backend::Version;
    use crate::object_store::manifest::Manifest;
    use crate::record::Record;
    use crate::sequence::{Sequence, WriteId};
    use crate::token::FencingToken;

    fn stored(token: &FencingToken, length_bytes: usize) -> Stored {
        let sealed = Record::seal(None, token).unwrap();
        let write = Write {
            sequence: Sequence::FIRST,
            write_id: WriteId::new(1),
            data: vec![0; length_bytes].into(),
        };
        let record = Record::write(sealed.as_ref(), token, write)
            .unwrap()
            .unwrap();
        Stored {
            manifest: Manifest::after(None, record),
            version: Version::text("an ETag".to_owned()),
        }
    }

    #[test]
    fn large_values_take_no_more_memory_than_is_allowed() {
        let cache = Cache::default();
        for index in 0..100 {
            let token: FencingToken = format!("shard/orders/{index}@1:{:032x}/1", 1)
                .parse()
                .unwrap();
            for length_bytes in [10, 4 << 20] {
                cache.put(&token.resource, stored(&token, length_bytes));
                assert!(cache.get(&token.resource).is_some());
            }
            let entries = cache.entries();
            let bytes: usize = entries.stored.values().map(value_bytes).sum();
            assert_eq!(entries.bytes, bytes);
            assert!(bytes <= BYTES_MAX);
        }
        let token: FencingToken = format!("shard/orders/0@1:{:032x}/1", 1).parse().unwrap();
        cache.put(&token.resource, stored(&token, BYTES_MAX));
        assert!(cache.get(&token.resource).is_none());
        let kept: Vec<Resource> = cache.entries().stored.keys().cloned().collect();
        for resource in kept {
            cache.forget(&resource);
        }
        assert_eq!(cache.entries().bytes, 0);
    }
}
