//! Who waits for which shard: one line for each, in the order of tickets.
//!
//! Invariant: what waits is counted as long as its [`Place`] lives, and no longer, also when its call is
//! dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The lines of all shards, bounded together.
#[derive(Debug)]
pub(super) struct Lines {
    requests_max: usize,
    bytes_max: usize,
    // Never held across an await.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next_ticket: u64,
    requests: usize,
    bytes: usize,
    by_shard: HashMap<u32, BTreeMap<u64, Arc<Notify>>>,
}

/// No more may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A place in the line of a shard.
#[derive(Debug)]
pub(super) struct Place {
    lines: Arc<Lines>,
    shard: u32,
    ticket: u64,
    bytes: usize,
    moved_up: Arc<Notify>,
}

impl Lines {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self {
            requests_max,
            bytes_max,
            waiting: Mutex::default(),
        }
    }

    /// Returns the next ticket: whoever has a lower one goes first.
    pub(super) fn ticket(&self) -> u64 {
        let mut waiting = self.waiting();
        waiting.next_ticket += 1;
        waiting.next_ticket
    }

    /// Tells whether nobody waits for a shard.
    pub(super) fn is_empty(&self, shard: u32) -> bool {
        !self.waiting().by_shard.contains_key(&shard)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic with the lock held would be one of the collections': they stay usable.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn show(&self) {
        metrics::gauge!("tenure_router_held_requests").set(self.requests as f64);
        metrics::gauge!("tenure_router_held_bytes").set(self.bytes as f64);
    }
}

impl Place {
    /// Takes a place.
    pub(super) fn take(
        lines: &Arc<Lines>,
        shard: u32,
        ticket: u64,
        bytes: usize,
    ) -> Result<Self, Full> {
        let mut waiting = lines.waiting();
        let total = waiting.bytes.saturating_add(bytes);
        if waiting.requests >= lines.requests_max || total > lines.bytes_max {
            return Err(Full);
        }
        waiting.requests += 1;
        waiting.bytes = total;
        let moved_up = Arc::new(Notify::new());
        let line = waiting.by_shard.entry(shard).or_default();
        line.insert(ticket, Arc::clone(&moved_up));
        waiting.show();
        drop(waiting);
        Ok(Self {
            lines: Arc::clone(lines),
            shard,
            ticket,
            bytes,
            moved_up,
        })
    }

    /// Tells whether nobody is before it.
    pub(super) fn is_first(&self) -> bool {
        let waiting = self.lines.waiting();
        let line = waiting.by_shard.get(&self.shard);
        let first = line.and_then(|line| line.first_key_value());
        first.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }

    /// Waits until it may be the first; not at all if it became so since the last look.
    pub(super) async fn moved_up(&self) {
        self.moved_up.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.lines.waiting();
        waiting.requests -= 1;
        waiting.bytes -= self.bytes;
        if let Some(line) = waiting.by_shard.get_mut(&self.shard) {
            line.remove(&self.ticket);
            match line.first_key_value() {
                // The permit is kept for one that does not look yet.
                Some((_, first)) => first.notify_one(),
                None => {
                    waiting.by_shard.remove(&self.shard);
                }
            }
        }
        waiting.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_ticket_is_first_and_what_leaves_counts_no_more() {
        let lines = Arc::new(Lines::new(2, 10));
        let (early, late, other) = (lines.ticket(), lines.ticket(), lines.ticket());
        let second = Place::take(&lines, 0, late, 4).unwrap();
        assert!(second.is_first());
        let first = Place::take(&lines, 0, early, 6).unwrap();
        assert!(first.is_first() && !second.is_first());
        assert_eq!(Place::take(&lines, 1, other, 0).unwrap_err(), Full);
        drop(first);
        assert!(second.is_first());
        assert_eq!(Place::take(&lines, 1, other, 7).unwrap_err(), Full);
        let other = Place::take(&lines, 1, other, 6).unwrap();
        drop((second, other));
        assert!(lines.is_empty(0) && lines.is_empty(1));
        assert_eq!(lines.waiting().bytes, 0);
    }
}
