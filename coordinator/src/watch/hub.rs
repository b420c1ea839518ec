//! The history of what was applied, and those who follow it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tenure_ownership::Event;
use tenure_ownership::ids::Revision;
use tokio::sync::watch;

use super::batch::{Batch, Cursor};
use super::journal;
use crate::consensus::{Envelope, Observer, Outcome};

/// Keeps the latest batches and hands them to subscribers.
pub struct Hub {
    history: RwLock<History>,
    /// Changes with every publication of events.
    published: watch::Sender<()>,
    /// The last revision that was published, with or without events. Apart from `published`, so that
    /// commands without events wake none of the subscribers.
    reached: watch::Sender<Revision>,
    history_events_max: usize,
}

/// The latest batches. Each has a position, which counts up from zero without gaps, except that a
/// replaced state leaves one out, so that nobody who waits at the end takes what comes next for the
/// continuation of what it has.
#[derive(Debug)]
struct History {
    batches: VecDeque<Arc<Batch>>,
    /// Position of the first batch kept, or of the next one to come.
    first: u64,
    /// Events in all batches.
    events: usize,
    /// Everything after this is kept; `None` until that is known.
    floor: Option<Cursor>,
    /// The last revision that was published, with or without events.
    latest: Revision,
}

impl History {
    fn end(&self) -> u64 {
        self.first + count(self.batches.len())
    }

    fn push(&mut self, batch: Arc<Batch>, events_max: usize) {
        self.events += batch.events.len();
        self.batches.push_back(batch);
        // The newest stays whatever its size: whoever keeps up must be able to get it.
        while self.events > events_max
            && self.batches.len() > 1
            && let Some(oldest) = self.batches.pop_front()
        {
            self.events -= oldest.events.len();
            self.first += 1;
            self.floor = Some(oldest.last());
        }
    }

    /// Returns the position of the first batch with an event after a cursor.
    fn position_after(&self, after: Cursor) -> u64 {
        self.first + count(self.batches.partition_point(|batch| batch.last() <= after))
    }

    fn get(&self, position: u64) -> Option<&Arc<Batch>> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.batches.get(index)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A cursor from which events are not kept any more: start again from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events are kept from {oldest} on")]
pub struct TooOld {
    /// The oldest cursor one can resume from.
    pub oldest: Cursor,
}

/// The subscription is over: what follows is not kept any more, or the state was replaced by a
/// snapshot. Start again from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subscription fell behind, events are kept from {oldest} on")]
pub struct Lagged {
    /// The oldest cursor one can resume from.
    pub oldest: Cursor,
}

impl Hub {
    /// Creates a hub that keeps the batches of the latest `history_events_max` events.
    #[must_use]
    pub fn new(history_events_max: usize) -> Self {
        let history = History {
            batches: VecDeque::new(),
            first: 0,
            events: 0,
            floor: None,
            latest: Revision(0),
        };
        Self {
            history: RwLock::new(history),
            published: watch::Sender::new(()),
            reached: watch::Sender::default(),
            history_events_max,
        }
    }

    /// Notes the revision of the state that was found at start: nothing up to it is kept, so a
    /// cursor before it is too old. To be called before anybody resumes from an earlier run.
    pub fn loaded(&self, revision: Revision) {
        let mut history = self.write();
        history.floor.get_or_insert(Cursor::end_of(revision));
        history.latest = history.latest.max(revision);
        let latest = history.latest;
        drop(history);
        self.reached.send_replace(latest);
    }

    /// Waits until what was applied up to a revision is published, and with it on disk: the state in
    /// memory is a moment ahead of both.
    pub async fn reached(&self, revision: Revision) {
        let mut reached = self.reached.subscribe();
        // The sender is in `self`, so the channel is open.
        let _ = reached.wait_for(|latest| *latest >= revision).await;
    }

    /// Publishes the events of an applied command; there may be none. Waits for no subscriber.
    ///
    /// To be called in ascending order of revisions.
    pub fn publish(&self, revision: Revision, envelope: &Envelope, events: &[Event]) {
        if events.is_empty() {
            let mut history = self.write();
            Self::advance(&mut history, revision);
            drop(history);
            self.reached.send_replace(revision);
            return;
        }
        let batch = Arc::new(Batch::new(revision, envelope.clone(), events.to_vec()));
        journal::record(&batch);
        {
            let mut history = self.write();
            Self::advance(&mut history, revision);
            history.push(batch, self.history_events_max);
        }
        self.reached.send_replace(revision);
        self.published.send_replace(());
    }

    /// Notes that the whole state was replaced by one of `revision`: what happened in between is not
    /// known, so every subscription ends.
    pub fn replace(&self, revision: Revision) {
        {
            let mut history = self.write();
            history.first = history.end() + 1;
            history.batches.clear();
            history.events = 0;
            history.floor = Some(Cursor::end_of(revision));
            history.latest = revision;
        }
        self.reached.send_replace(revision);
        self.published.send_replace(());
    }

    /// Follows what is published: after a cursor, or from now on.
    ///
    /// A cursor that lies ahead of everything published is right after a state was read: events up to
    /// it are left out.
    ///
    /// # Errors
    ///
    /// [`TooOld`] if events after the cursor are not kept any more.
    pub fn subscribe(self: &Arc<Self>, after: Option<Cursor>) -> Result<Subscription, TooOld> {
        // Before the history is read: a publication in between then wakes the subscription for nothing,
        // instead of not at all.
        let published = self.published.subscribe();
        let history = self.read();
        let next = match (after, history.floor) {
            (None, _) => history.end(),
            (Some(after), Some(oldest)) if after < oldest => return Err(TooOld { oldest }),
            (Some(after), _) => history.position_after(after),
        };
        let after = after.unwrap_or(Cursor::end_of(history.latest));
        drop(history);
        Ok(Subscription {
            hub: Arc::clone(self),
            published,
            next,
            after,
        })
    }

    fn advance(history: &mut History, revision: Revision) {
        debug_assert!(revision > history.latest || history.latest == Revision(0));
        if history.floor.is_none() {
            history.floor = Some(Cursor::end_of(Revision(revision.0.saturating_sub(1))));
        }
        history.latest = history.latest.max(revision);
    }

    // A panic while the lock is held would be one of the standard library's collections: they stay
    // usable.
    fn read(&self) -> RwLockReadGuard<'_, History> {
        self.history.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, History> {
        self.history.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Hub {
    fn applied(&self, revision: Revision, envelope: &Envelope, outcome: &Outcome) {
        match outcome {
            Ok(effect) => self.publish(revision, envelope, &effect.events),
            // A refused command changed nothing.
            Err(_) => self.publish(revision, envelope, &[]),
        }
    }

    fn replaced(&self, revision: Revision) {
        self.replace(revision);
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = self.read();
        f.debug_struct("Hub")
            .field("latest", &history.latest)
            .field("events", &history.events)
            .finish_non_exhaustive()
    }
}

/// One reader of the history.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    published: watch::Receiver<()>,
    /// Position of the batch to yield next.
    next: u64,
    /// What was yielded, or was known before.
    after: Cursor,
}

impl Subscription {
    /// Waits for the next batch with events after those seen. The first one may begin with events
    /// that the cursor given to [`Hub::subscribe`] has seen already: its ordinals tell.
    ///
    /// Nothing is lost if the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// [`Lagged`] if that batch is not kept any more; from then on always.
    pub async fn next(&mut self) -> Result<Arc<Batch>, Lagged> {
        loop {
            self.published.mark_unchanged();
            if let Some(batch) = self.take()? {
                return Ok(batch);
            }
            // The hub is held by this subscription, so the channel is never closed.
            let _ = self.published.changed().await;
        }
    }

    /// Returns how many batches are published and not yielded yet.
    pub fn backlog(&self) -> u64 {
        let history = self.hub.read();
        history.end().saturating_sub(self.next)
    }

    /// Returns the position up to which everything applied on this node was yielded; `None` while
    /// there is more to yield.
    pub fn caught_up(&self) -> Option<Cursor> {
        let history = self.hub.read();
        (self.next == history.end()).then(|| self.after.max(Cursor::end_of(history.latest)))
    }

    fn take(&mut self) -> Result<Option<Arc<Batch>>, Lagged> {
        let history = self.hub.read();
        if self.next < history.first {
            return Err(Lagged {
                oldest: history.floor.unwrap_or_default(),
            });
        }
        while let Some(batch) = history.get(self.next) {
            self.next += 1;
            // Published after a state that contains it was read.
            if batch.last() <= self.after {
                continue;
            }
            self.after = batch.last();
            return Ok(Some(Arc::clone(batch)));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tenure_fence::Epoch;
    use tenure_ownership::ids::{GroupId, SessionId, ShardIndex};

    use super::*;

    fn granted(group: u64, shard: u32) -> Event {
        Event::Granted {
            group: GroupId(group),
            shard: ShardIndex(shard),
            epoch: Epoch::FIRST,
            owner: SessionId(1),
        }
    }

    fn events(count: u32) -> Vec<Event> {
        (0..count).map(|shard| granted(1, shard)).collect()
    }

    fn hub(history_events_max: usize) -> Arc<Hub> {
        Arc::new(Hub::new(history_events_max))
    }

    fn next_now(subscription: &mut Subscription) -> Option<Result<Arc<Batch>, Lagged>> {
        subscription.next().now_or_never()
    }

    fn revision_of(result: Option<Result<Arc<Batch>, Lagged>>) -> Option<u64> {
        Some(result?.unwrap().revision.0)
    }

    #[test]
    fn a_subscriber_sees_what_is_published_after_it_subscribed() {
        let hub = hub(10);
        hub.publish(Revision(1), &Envelope::default(), &events(1));
        let mut subscription = hub.subscribe(None).unwrap();
        assert!(next_now(&mut subscription).is_none());
        hub.publish(Revision(2), &Envelope::default(), &[]);
        hub.publish(Revision(3), &Envelope::default(), &events(2));
        assert_eq!(revision_of(next_now(&mut subscription)), Some(3));
        assert!(next_now(&mut subscription).is_none());
    }

    #[test]
    fn a_watcher_resumed_inside_a_revision_gets_that_revision_again_and_all_after_it() {
        let hub = hub(100);
        hub.loaded(Revision(0));
        hub.publish(Revision(5), &Envelope::default(), &events(4));
        hub.publish(Revision(6), &Envelope::default(), &events(1));
        let middle = Cursor {
            revision: Revision(5),
            ordinal: 1,
        };
        let mut subscription = hub.subscribe(Some(middle)).unwrap();
        assert_eq!(revision_of(next_now(&mut subscription)), Some(5));
        assert_eq!(revision_of(next_now(&mut subscription)), Some(6));

        let end = Cursor {
            revision: Revision(5),
            ordinal: 3,
        };
        let mut subscription = hub.subscribe(Some(end)).unwrap();
        assert_eq!(revision_of(next_now(&mut subscription)), Some(6));
    }

    #[test]
    fn a_cursor_older_than_the_history_is_refused_and_the_oldest_one_is_not() {
        let hub = hub(3);
        hub.loaded(Revision(0));
        hub.publish(Revision(1), &Envelope::default(), &events(2));
        hub.publish(Revision(2), &Envelope::default(), &events(2));
        let oldest = Cursor {
            revision: Revision(1),
            ordinal: 1,
        };
        let middle = Cursor {
            revision: Revision(1),
            ordinal: 0,
        };
        assert_eq!(hub.subscribe(Some(middle)).unwrap_err(), TooOld { oldest });
        let mut subscription = hub.subscribe(Some(oldest)).unwrap();
        assert_eq!(revision_of(next_now(&mut subscription)), Some(2));
    }

    #[test]
    fn after_a_restart_a_cursor_from_before_it_is_refused() {
        let hub = hub(10);
        hub.loaded(Revision(7));
        let old = Cursor {
            revision: Revision(6),
            ordinal: 0,
        };
        assert!(hub.subscribe(Some(old)).is_err());
        assert!(hub.subscribe(Some(Cursor::end_of(Revision(7)))).is_ok());
        // Known before the state was asked for its revision: not lowered, not raised.
        hub.loaded(Revision(9));
        assert!(hub.subscribe(Some(Cursor::end_of(Revision(7)))).is_ok());
    }

    #[test]
    fn a_subscriber_slower_than_the_history_is_told_and_never_skipped() {
        let hub = hub(3);
        let mut subscription = hub.subscribe(None).unwrap();
        for revision in 1..=3 {
            hub.publish(Revision(revision), &Envelope::default(), &events(2));
        }
        let oldest = Cursor {
            revision: Revision(2),
            ordinal: 1,
        };
        for _ in 0..2 {
            assert_eq!(
                next_now(&mut subscription).unwrap().unwrap_err(),
                Lagged { oldest }
            );
        }
    }

    #[test]
    fn one_revision_larger_than_the_history_still_reaches_those_who_keep_up() {
        let hub = hub(3);
        let mut subscription = hub.subscribe(None).unwrap();
        hub.publish(Revision(1), &Envelope::default(), &events(1000));
        assert_eq!(
            next_now(&mut subscription).unwrap().unwrap().events.len(),
            1000
        );
    }

    #[test]
    fn a_replaced_state_ends_every_subscription_also_one_that_had_seen_everything() {
        let hub = hub(10);
        let mut idle = hub.subscribe(None).unwrap();
        hub.publish(Revision(1), &Envelope::default(), &events(1));
        assert_eq!(revision_of(next_now(&mut idle)), Some(1));
        hub.replace(Revision(50));
        let oldest = Cursor::end_of(Revision(50));
        assert_eq!(next_now(&mut idle).unwrap().unwrap_err(), Lagged { oldest });
        hub.publish(Revision(51), &Envelope::default(), &events(1));
        assert_eq!(next_now(&mut idle).unwrap().unwrap_err(), Lagged { oldest });
        let mut fresh = hub.subscribe(Some(oldest)).unwrap();
        assert_eq!(revision_of(next_now(&mut fresh)), Some(51));
    }

    #[test]
    fn events_that_the_state_contained_already_are_left_out() {
        let hub = hub(10);
        hub.publish(Revision(1), &Envelope::default(), &events(1));
        // The state was read at revision 3, whose events are not published yet.
        let mut subscription = hub.subscribe(Some(Cursor::end_of(Revision(3)))).unwrap();
        hub.publish(Revision(2), &Envelope::default(), &events(1));
        hub.publish(Revision(3), &Envelope::default(), &events(1));
        assert!(next_now(&mut subscription).is_none());
        assert_eq!(subscription.caught_up(), Some(Cursor::end_of(Revision(3))));
        hub.publish(Revision(4), &Envelope::default(), &events(1));
        assert_eq!(subscription.caught_up(), None);
        assert_eq!(revision_of(next_now(&mut subscription)), Some(4));
        hub.publish(Revision(9), &Envelope::default(), &[]);
        assert_eq!(subscription.caught_up(), Some(Cursor::end_of(Revision(9))));
    }

    #[test]
    fn a_reader_of_the_disk_waits_until_what_it_saw_in_memory_is_published() {
        let hub = hub(10);
        let mut written = Box::pin(hub.reached(Revision(2)));
        hub.publish(Revision(1), &Envelope::default(), &events(1));
        assert!(written.as_mut().now_or_never().is_none());
        // A command without events counts, and wakes no subscriber.
        let mut subscription = hub.subscribe(None).unwrap();
        hub.publish(Revision(2), &Envelope::default(), &[]);
        assert!(written.now_or_never().is_some());
        assert!(next_now(&mut subscription).is_none());
        hub.loaded(Revision(5));
        assert!(hub.reached(Revision(5)).now_or_never().is_some());
    }

    #[test]
    fn the_events_of_a_group_are_encoded_once() {
        let batch = Batch::new(
            Revision(1),
            Envelope::default(),
            vec![granted(1, 0), granted(2, 0), granted(1, 1)],
        );
        assert!(batch.concerns(GroupId(2)) && !batch.concerns(GroupId(3)));
        let ordinals: Vec<u32> = batch
            .events_of(GroupId(1))
            .map(|(ordinal, _)| ordinal)
            .collect();
        assert_eq!(ordinals, [0, 2]);
        let mut encodings = 0;
        for _ in 0..3 {
            let parts = batch.encoded(GroupId(1), |_| {
                encodings += 1;
                Vec::new()
            });
            assert!(parts.is_empty());
        }
        assert_eq!(encodings, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_subscribers_see_every_event_once_in_order() {
        const REVISIONS: u64 = 2000;
        let hub = hub(1_000_000);
        hub.loaded(Revision(0));
        let mut readers = tokio::task::JoinSet::new();
        for reader in 0..8_u64 {
            let hub = Arc::clone(&hub);
            readers.spawn(async move {
                // Each begins somewhere else, before or after what is published by then.
                let after = Cursor::end_of(Revision(reader * 200));
                let mut subscription = hub.subscribe(Some(after)).unwrap();
                for expected in reader * 200 + 1..=REVISIONS {
                    assert_eq!(
                        subscription.next().await.unwrap().revision,
                        Revision(expected)
                    );
                }
            });
        }
        for revision in 1..=REVISIONS {
            hub.publish(Revision(revision), &Envelope::default(), &events(1));
            if revision % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        while let Some(joined) = readers.join_next().await {
            joined.unwrap();
        }
    }
}
