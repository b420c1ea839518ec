//! Deadlines by what they are for.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;

/// Moments by key, with the keys in order of moment.
#[derive(Debug)]
pub(super) struct Timers<K> {
    by_key: BTreeMap<K, Moment>,
    queue: BTreeSet<(Moment, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            queue: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Sets a timer, instead of the one it has.
    pub(super) fn set(&mut self, key: K, at: Moment) {
        if let Some(before) = self.by_key.insert(key, at) {
            self.queue.remove(&(before, key));
        }
        self.queue.insert((at, key));
    }

    /// Returns whether there was a timer.
    pub(super) fn clear(&mut self, key: K) -> bool {
        let Some(at) = self.by_key.remove(&key) else {
            return false;
        };
        self.queue.remove(&(at, key))
    }

    /// When a timer is due.
    pub(super) fn get(&self, key: K) -> Option<Moment> {
        self.by_key.get(&key).copied()
    }

    /// Takes the timers that are due, the earliest first.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.queue.first().copied()
            && at <= now
        {
            self.queue.pop_first();
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// When the first timer is due.
    pub(super) fn next(&self) -> Option<Moment> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Moves all timers by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for at in self.by_key.values_mut() {
            *at = *at + gap;
        }
        self.queue = self.by_key.iter().map(|(key, at)| (*at, *key)).collect();
    }

    /// Drops the timers whose keys are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.by_key.retain(|key, _| keep(key));
        self.queue.retain(|(_, key)| keep(key));
    }

    /// The keys that have a timer, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_key.keys()
    }
}
