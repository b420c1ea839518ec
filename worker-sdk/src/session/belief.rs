//! What a session may believe about itself: the worker's half of the rules of leases.
//!
//! ```text
//!   sent_at(last acknowledged)            + W − 5 %            + ttl − 5 %
//!   ──────────┬───────────────────────────────┬────────────────────┬──────▶ this worker's clock
//!             │   held: exclusive reads       │ at risk: only      │ lost: every handle is dead
//!             │   and writes                  │ fenced writes      │
//! ```
//!
//! Everything is counted from when a message was *sent*. The coordinator counts from when it
//! *arrived*, which is later, so the owner always gives up first; nothing compares two clocks. The
//! 5 % are what two clocks may differ in rate.
//!
//! [`Belief`] decides, and has no clock; [`BeliefView`] shows the two deadlines to the handles, which
//! compare them with the clock themselves: a worker that was suspended stops believing the moment it
//! wakes, before any task of its session has run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// The part of every measured interval that is given up for clocks that differ in rate: a twentieth.
const RATE_MARGIN: u32 = 20;

/// The shortest silence of a leader that is taken for its end, unless the session is shorter.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// The shortest and the longest time one node may take to answer a `Resume`. A leader needs no
/// agreement for it, so it answers at once.
const RESUME_TIMEOUT_MIN: Duration = Duration::from_millis(100);
const RESUME_TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// The shortest limit of a pause between two nodes while there is a session to lose.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The sequence that acknowledges the message that opened the stream.
const OPENING: u64 = 0;

/// How long the session of a worker lives, and how long its belief lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long the session lives without a heartbeat.
    pub(crate) ttl: Duration,
    /// How long after an acknowledged heartbeat was sent the worker may believe: `W`.
    pub(crate) window: Duration,
}

impl Terms {
    /// How often a heartbeat is sent: every third of the window.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.window / 3
    }

    /// How long a leader may acknowledge nothing before it is left.
    ///
    /// Early enough to find another before the session ends; but a heartbeat goes every `W/3`, and its
    /// acknowledgement may be held back for `W/6`, so what is silent for `W/2` only may be well.
    pub(crate) fn silence_max(&self) -> Duration {
        let wanted = (self.window * 2).max(SILENCE_MIN).min(self.ttl / 2);
        wanted.max(self.window * 3 / 4)
    }

    /// How long one node may take to be connected to and to answer a `Resume`, after as many
    /// `fruitless` rounds of all nodes.
    ///
    /// A session without a stream may be ended after `W`, so nodes that do not answer must not use
    /// it up. Twice as long each round: nodes that are merely slow are found as well.
    pub(crate) fn resume_timeout(&self, fruitless: u32) -> Duration {
        let timeout = (self.window / 4).max(RESUME_TIMEOUT_MIN);
        let timeout = timeout.saturating_mul(1 << fruitless.min(8));
        timeout.min(RESUME_TIMEOUT_MAX)
    }

    /// How long to wait at most between two nodes that are asked to resume, for the same reason.
    pub(crate) fn pause_max(&self) -> Duration {
        (self.window / 8).max(PAUSE_MIN)
    }
}

/// The belief of one session.
#[derive(Debug)]
pub(crate) struct Belief {
    terms: Terms,
    /// When the message that opened the present stream was sent.
    opened_at: Moment,
    /// What was sent on the present stream and is not acknowledged, oldest first.
    sent: VecDeque<(u64, Moment)>,
    /// When the latest acknowledged message of the present stream was sent.
    acknowledged_on_stream: Option<Moment>,
    /// Where the present lease counts from.
    lease_from: Moment,
}

impl Belief {
    /// Returns the terms of the session.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Begins a session that `Registered` has just announced.
    ///
    /// The coordinator may hold a `Register` back for a whole window before it proposes it, so the
    /// lease counts from the answer until a first heartbeat is acknowledged: by the time of sending it
    /// could be over before it began. That is no danger: exclusive belief counts from the sending.
    pub(crate) fn register(terms: Terms, sent_at: Moment, answered_at: Moment) -> Self {
        let mut belief = Self {
            terms,
            opened_at: sent_at,
            sent: VecDeque::new(),
            acknowledged_on_stream: None,
            lease_from: answered_at,
        };
        belief.resume(sent_at);
        belief
    }

    /// Goes on with the session on a new stream, on which nothing is acknowledged yet.
    pub(crate) fn resume(&mut self, sent_at: Moment) {
        self.opened_at = sent_at;
        self.sent.clear();
        self.sent.push_back((OPENING, sent_at));
        self.acknowledged_on_stream = None;
    }

    /// Notes a heartbeat. `sent_at` is read before it is handed over.
    pub(crate) fn sent(&mut self, sequence: u64, sent_at: Moment) {
        self.sent.push_back((sequence, sent_at));
    }

    /// Takes an acknowledgement of the highest heartbeat, or of the opening message as zero.
    ///
    /// Returns whether it was news. One for a heartbeat of another stream counts for nothing.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> bool {
        let Some(at) = self.sent.iter().position(|&(sent, _)| sent == sequence) else {
            return false;
        };
        let Some((_, sent_at)) = self.sent.drain(..=at).next_back() else {
            return false;
        };
        self.acknowledged_on_stream = Some(sent_at);
        self.lease_from = self.lease_from.max(sent_at);
        true
    }

    /// Returns until when the session may believe that it owns alone; `None` before the first
    /// acknowledgement of the stream.
    pub(crate) fn current_until(&self) -> Option<Moment> {
        let sent_at = self.acknowledged_on_stream?;
        Some(sent_at + shortened(self.terms.window))
    }

    /// Returns when the lease ends, unless another heartbeat is acknowledged.
    pub(crate) fn lease_until(&self) -> Moment {
        self.lease_from + shortened(self.terms.ttl)
    }

    /// Returns when a shard must be given up that `Revoke` or `Set`, arriving now, gives `drain` for.
    ///
    /// It counts from the last message acknowledged on this stream before, because how long the
    /// `Revoke` itself was under way cannot be known.
    pub(crate) fn drain_deadline(&self, drain: Duration) -> Moment {
        self.acknowledged_on_stream.unwrap_or(self.opened_at) + shortened(drain)
    }
}

/// Takes the margin for clock rates off an interval.
fn shortened(interval: Duration) -> Duration {
    interval - interval / RATE_MARGIN
}

/// The deadlines of a session's belief, shared with its handles.
#[derive(Debug, Default)]
pub(crate) struct BeliefView {
    /// Nanoseconds of the moment until which the session is current; zero while it is not.
    current_until: AtomicU64,
    /// Nanoseconds of the moment at which the lease ends; zero without a session.
    lease_until: AtomicU64,
}

impl BeliefView {
    /// Shows what a session believes; `None` ends it.
    pub(crate) fn publish(&self, belief: Option<&Belief>) {
        let current = belief.and_then(Belief::current_until).unwrap_or_default();
        let lease = belief.map(Belief::lease_until).unwrap_or_default();
        self.current_until
            .store(current.as_nanos(), Ordering::Release);
        self.lease_until.store(lease.as_nanos(), Ordering::Release);
    }

    /// Returns whether the session may believe at `now` that it owns alone.
    pub(crate) fn is_current(&self, now: Moment) -> bool {
        now.as_nanos() < self.current_until.load(Ordering::Acquire)
    }

    /// Returns whether the lease is still running at `now`.
    pub(crate) fn is_leased(&self, now: Moment) -> bool {
        now.as_nanos() < self.lease_until.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        ttl: Duration::from_secs(10),
        window: Duration::from_millis(750),
    };

    fn at(ms: u64) -> Moment {
        Moment::START + Duration::from_millis(ms)
    }

    fn view(belief: &Belief) -> BeliefView {
        let view = BeliefView::default();
        view.publish(Some(belief));
        view
    }

    #[test]
    fn nothing_is_believed_before_the_first_acknowledgement() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        assert!(!view(&belief).is_current(at(1_010)));
        assert!(view(&belief).is_leased(at(1_010)));
        assert!(belief.acknowledge(0));
        assert!(view(&belief).is_current(at(1_010)));
    }

    #[test]
    fn belief_counts_from_when_the_acknowledged_heartbeat_was_sent_less_five_percent() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.sent(1, at(1_020));
        belief.sent(2, at(1_270));
        // However late the acknowledgement comes.
        assert!(belief.acknowledge(1));
        let until = at(1_020) + Duration::from_micros(712_500);
        assert_eq!(belief.current_until(), Some(until));
        assert!(view(&belief).is_current(at(1_732)));
        assert!(!view(&belief).is_current(at(1_733)));
        assert_eq!(belief.lease_until(), at(1_020 + 9_500));
        assert!(view(&belief).is_leased(at(10_519)));
        assert!(!view(&belief).is_leased(at(10_520)));
    }

    #[test]
    fn a_new_stream_believes_nothing_until_it_is_acknowledged_but_the_lease_goes_on() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.sent(1, at(1_020));
        belief.acknowledge(1);
        belief.sent(2, at(1_270));
        belief.resume(at(1_400));
        assert_eq!(belief.current_until(), None);
        assert_eq!(belief.lease_until(), at(1_020 + 9_500));
        // The heartbeat belongs to the stream before, whoever acknowledges it.
        assert!(!belief.acknowledge(2));
        assert_eq!(belief.current_until(), None);
        belief.sent(3, at(1_500));
        assert!(belief.acknowledge(3));
        assert_eq!(
            belief.current_until(),
            Some(at(1_500) + Duration::from_micros(712_500))
        );
    }

    #[test]
    fn an_acknowledgement_that_arrives_twice_or_was_never_earned_changes_nothing() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.sent(1, at(1_020));
        belief.sent(2, at(1_270));
        assert!(belief.acknowledge(2));
        let before = belief.current_until();
        assert!(!belief.acknowledge(2));
        assert!(!belief.acknowledge(1));
        assert!(!belief.acknowledge(0));
        assert!(!belief.acknowledge(99));
        assert_eq!(belief.current_until(), before);
    }

    #[test]
    fn a_late_answer_to_a_registration_does_not_end_the_lease_before_it_began() {
        // The coordinator waited out another process's belief, longer than this session's ttl.
        let mut belief = Belief::register(TERMS, at(1_000), at(20_000));
        assert!(belief.acknowledge(0));
        assert!(!view(&belief).is_current(at(20_000)));
        assert!(view(&belief).is_leased(at(20_000)));
        assert_eq!(belief.lease_until(), at(29_500));
    }

    // Scenario 40.
    #[test]
    fn a_worker_that_was_suspended_stops_believing_at_once() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.acknowledge(0);
        let view = view(&belief);
        assert!(view.is_current(at(1_100)));
        // Nothing of the session has run since; only the clock went on.
        assert!(!view.is_current(at(1_100 + 30_000)));
        assert!(!view.is_leased(at(1_100 + 30_000)));
    }

    // Scenario 27.
    #[test]
    fn the_drain_time_of_a_late_revoke_counts_from_before_it_was_sent() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.sent(1, at(2_000));
        belief.acknowledge(1);
        belief.sent(2, at(2_250));
        // The Revoke arrives two seconds late, with heartbeat 2 still unanswered.
        assert_eq!(belief.drain_deadline(Duration::from_secs(1)), at(2_950));
    }

    // Scenario 35.
    #[test]
    fn without_an_acknowledgement_the_drain_time_counts_from_the_resume() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.sent(1, at(2_000));
        belief.acknowledge(1);
        belief.resume(at(3_000));
        assert_eq!(belief.drain_deadline(Duration::from_secs(1)), at(3_950));
        // A drain shorter than the window ends before it.
        assert_eq!(belief.drain_deadline(Duration::ZERO), at(3_000));
    }

    #[test]
    fn heartbeats_go_three_to_a_window() {
        assert_eq!(TERMS.heartbeat_interval(), Duration::from_millis(250));
    }

    #[test]
    fn an_acknowledgement_that_comes_as_late_as_it_may_is_no_silence() {
        for (ttl, window) in [
            (10_000, 750),
            (1_000, 1_000),
            (10_000, 10_000),
            (600_000, 400_000),
        ] {
            let terms = Terms {
                ttl: Duration::from_millis(ttl),
                window: Duration::from_millis(window),
            };
            let latest = terms.heartbeat_interval() + terms.window / 6;
            let silence = terms.silence_max();
            assert!(silence >= latest + terms.window / 5, "{terms:?}");
            // And the session is not over by then.
            assert!(silence < shortened(terms.ttl), "{terms:?}");
        }
        assert_eq!(TERMS.silence_max(), Duration::from_millis(1_500));
    }

    #[test]
    fn three_nodes_can_be_asked_to_resume_within_the_window() {
        // A pause before each. Two that do not answer, and the third does.
        let spent = TERMS.pause_max() * 3 + TERMS.resume_timeout(0) * 2;
        assert!(spent < TERMS.window, "{spent:?}");
    }

    #[test]
    fn nodes_that_are_slow_are_given_more_time_in_each_round_up_to_a_bound() {
        assert_eq!(TERMS.resume_timeout(0), Duration::from_micros(187_500));
        assert_eq!(TERMS.resume_timeout(1), Duration::from_millis(375));
        assert_eq!(TERMS.resume_timeout(40), RESUME_TIMEOUT_MAX);
    }

    #[test]
    fn an_ended_session_believes_nothing() {
        let mut belief = Belief::register(TERMS, at(1_000), at(1_010));
        belief.acknowledge(0);
        let view = view(&belief);
        view.publish(None);
        assert!(!view.is_current(at(1_011)) && !view.is_leased(at(1_011)));
    }
}
