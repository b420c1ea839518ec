//! Acknowledgement of heartbeats: only after a quorum has confirmed, later, that this node leads.
//!
//! A heartbeat may be acknowledged once a Raft round *begun after its arrival* was answered by a quorum
//! and the read index it gave is applied. That compares order, not durations: a leader that was
//! replaced, cut off, or has not yet applied an entry of its own term acknowledges nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_ownership::ids::SessionId;

use super::message::StreamId;
use crate::clock::Moment;

/// Rounds in a belief window. A heartbeat comes every third of the window and waits up to a sixth
/// for its round, so that a worker has half a window left for the way there and back.
const PER_WINDOW: u32 = 6;

/// Window counted with while no session is known.
const WINDOW_DEFAULT: Duration = Duration::from_millis(750);

/// A heartbeat that waits for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) stream: StreamId,
    pub(super) sequence: u64,
}

/// Heartbeats that wait for a round, and the round that is under way.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Arrived since the round under way began.
    waiting: BTreeMap<SessionId, Waiting>,
    /// Arrived before the round under way began.
    in_round: BTreeMap<SessionId, Waiting>,
    under_way: Option<u64>,
    begun: u64,
    last_begun_at: Option<Moment>,
    /// A new stream waits: its worker believes nothing until it is acknowledged.
    urgent: bool,
}

impl Rounds {
    /// Notes a heartbeat that is to be acknowledged. Only the latest of a session counts.
    pub(super) fn add(&mut self, session: SessionId, waiting: Waiting) {
        self.urgent |= waiting.sequence == 0;
        self.waiting.insert(session, waiting);
    }

    /// When the next round is due; none while one is under way or nothing waits.
    pub(super) fn due_at(&self, window_min: Option<Duration>, now: Moment) -> Option<Moment> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        match self.last_begun_at {
            Some(last) if !self.urgent => {
                Some(last + window_min.unwrap_or(WINDOW_DEFAULT) / PER_WINDOW)
            }
            _ => Some(now),
        }
    }

    /// Begins a round for everything that waits. Returns its number.
    pub(super) fn begin(&mut self, now: Moment) -> u64 {
        self.begun += 1;
        self.under_way = Some(self.begun);
        self.last_begun_at = Some(now);
        self.urgent = false;
        self.in_round = std::mem::take(&mut self.waiting);
        self.begun
    }

    /// Ends a round. Returns what may be acknowledged; after a failed round that is nothing, and its
    /// heartbeats wait for the next.
    pub(super) fn finish(&mut self, number: u64, confirmed: bool) -> BTreeMap<SessionId, Waiting> {
        if self.under_way != Some(number) {
            return BTreeMap::new();
        }
        self.under_way = None;
        let in_round = std::mem::take(&mut self.in_round);
        if confirmed {
            return in_round;
        }
        for (session, waiting) in in_round {
            self.waiting.entry(session).or_insert(waiting);
        }
        BTreeMap::new()
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.waiting.remove(&session);
        self.in_round.remove(&session);
    }
}
