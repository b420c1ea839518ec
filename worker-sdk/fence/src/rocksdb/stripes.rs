//! The locks that make reading, deciding and writing one step, and what is remembered under them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

use crate::record::Record;
use crate::resource::Resource;

/// How many locks there are, of some 64 bytes each. Resources that share one wait for each other's
/// syncs: among 64 writers one pair in thirty runs does. With a thousand locks two pairs did in every
/// run, and the slowest writers took twice as long.
const STRIPES: usize = 1 << 16;

/// How many records are remembered under one lock. Half a million in all: some 120 MB if a worker ever
/// has that many shards.
const REMEMBERED_MAX: usize = 8;

/// The locks: each resource belongs to one.
#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Vec<Mutex<Stripe>>,
    hasher: RandomState,
}

/// What is remembered of the resources of one lock: their records without the data, each equal to
/// what the database holds for as long as the lock is held.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    records: HashMap<Resource, Record>,
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the place of a resource's lock.
    pub(super) fn place(&self, resource: &Resource) -> usize {
        let hash = self.hasher.hash_one(resource) % STRIPES as u64;
        usize::try_from(hash).unwrap_or_default()
    }

    /// Takes the lock at a place. Whoever takes several takes them in rising order.
    pub(super) fn lock(&self, place: usize) -> MutexGuard<'_, Stripe> {
        let stripe = &self.stripes[place % STRIPES];
        stripe.lock().unwrap_or_else(|poisoned| {
            // A thread died with the lock in its hands. What the database holds is whole, what was
            // remembered may be ahead of it.
            stripe.clear_poison();
            let mut stripe = poisoned.into_inner();
            stripe.records.clear();
            stripe
        })
    }
}

impl Stripe {
    pub(super) fn record(&self, resource: &Resource) -> Option<&Record> {
        self.records.get(resource)
    }

    /// Remembers a record, given without its data.
    pub(super) fn remember(&mut self, resource: &Resource, record: Record) {
        if let Some(known) = self.records.get_mut(resource) {
            *known = record;
            return;
        }
        if self.records.len() >= REMEMBERED_MAX {
            // Rare, and no more than a read for each of them: not worth an order of use.
            self.records.clear();
        }
        self.records.insert(resource.clone(), record);
    }

    /// Forgets a record: what the database holds is no longer known.
    pub(super) fn forget(&mut self, resource: &Resource) {
        self.records.remove(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::FencingToken;

    fn token(index: usize) -> FencingToken {
        format!("shard/orders/{index}@7:00000000000000000000000000c0ffee/1")
            .parse()
            .unwrap()
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut stripe = Stripe::default();
        for index in 0..3 * REMEMBERED_MAX {
            let token = token(index);
            let record = Record::seal(None, &token).unwrap().unwrap();
            stripe.remember(&token.resource, record.clone());
            assert_eq!(stripe.record(&token.resource), Some(&record));
            assert!(stripe.records.len() <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn a_thread_that_dies_with_a_lock_leaves_nothing_remembered() {
        let stripes = Stripes::new();
        let token = token(1);
        let place = stripes.place(&token.resource);
        let record = Record::seal(None, &token).unwrap().unwrap();
        stripes.lock(place).remember(&token.resource, record);
        let died = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _held = stripes.lock(place);
                panic!("on purpose");
            });
            thread.join().is_err()
        });
        assert!(died);
        assert_eq!(stripes.lock(place).record(&token.resource), None);
    }
}
