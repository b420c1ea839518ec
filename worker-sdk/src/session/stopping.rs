//! The end of a worker that was asked to stop.
//!
//! At first it goes on serving: the coordinator takes its shards one after the other, each as soon as its next
//! owner can have it. What nobody takes in time, or nobody will take, is given back: each shard as soon as its
//! handler has returned, so that no other worker waits for the slowest of them. The session ends when nothing
//! is left.

use std::time::Duration;

use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;

use super::stream::Link;
use super::tenure::{Closing, TenureId};
use super::{Session, receive};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::status::LinkState;

/// How long the last message of a worker that stops may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Part of the time of a worker that stops in which it waits for others to take its shards. The rest is for
/// handlers to finish the shards that nobody has taken.
const WAITING_PART: (u32, u32) = (2, 3);

/// A worker that was asked to stop.
pub(super) struct Stopping {
    /// Until when it waits for others to take its shards; `None` once it gives them back by itself.
    waits_until: Option<Moment>,
    /// Until when handlers may take in all.
    ends_at: Moment,
    /// Once all handlers have ended: until when the last message may take.
    pub(super) leave_until: Option<Moment>,
    /// Whether it was sent.
    left: bool,
}

impl Session {
    pub(super) fn on_stop(&mut self) {
        let now = self.clock.now();
        let (part, whole) = WAITING_PART;
        let timeout = self.options.drain_timeout;
        self.stopping = Some(Stopping {
            waits_until: Some(now + timeout * part / whole),
            ends_at: now + timeout,
            leave_until: None,
            left: false,
        });
        self.tally.changed();
        // Before anything is given back: the coordinator would grant it to this worker again.
        if !self.tenures.is_set() || !self.send(Up::Stopping(v1::Stopping {})) {
            // Nobody there to take anything.
            self.give_back_all();
        }
    }

    /// The coordinator says that nobody takes the shards of this worker while it serves them.
    pub(super) fn on_dismissed(&mut self) {
        if self.stopping.is_some() {
            self.give_back_all();
        }
    }

    /// Asks for everything back that this worker still has, once.
    fn give_back_all(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if stopping.waits_until.take().is_none() {
            return;
        }
        let until = stopping.ends_at;
        let tenures: Vec<TenureId> = self.tenures.holding().collect();
        for tenure in tenures {
            if !self.work.is_running(tenure) {
                self.close(tenure, Closing::Finished);
                continue;
            }
            if let Some(shard) = self.work.shard(tenure) {
                shard.revoke(until);
            }
            self.drains.insert((until, tenure));
        }
        self.tally.changed();
    }

    /// Lets a worker that stops leave once its handlers have ended. What each had goes back when it ends.
    pub(super) fn stop_due(&mut self, now: Moment) {
        let waits_until = self
            .stopping
            .as_ref()
            .and_then(|stopping| stopping.waits_until);
        if waits_until.is_some_and(|until| until <= now) {
            tracing::warn!(
                worker = self.options.name,
                shards = self.tenures.holding().count(),
                "not all shards were taken by others in time, giving them back"
            );
            self.give_back_all();
        }
        let ended = self.work.is_empty();
        let set = self.tenures.is_set();
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if !ended {
            return;
        }
        stopping.leave_until.get_or_insert(now + LEAVE_TIMEOUT);
        if set && !stopping.left {
            self.flush_releases();
            let left = self.send(Up::Leaving(v1::Leaving {}));
            if let Some(stopping) = &mut self.stopping {
                stopping.left = left;
            }
        }
    }

    /// When the next step of the end is due.
    pub(super) fn next_stop(&self) -> Option<Moment> {
        let stopping = self.stopping.as_ref()?;
        stopping.leave_until.or(stopping.waits_until)
    }

    pub(super) fn is_finished(&self) -> bool {
        let Some(stopping) = &self.stopping else {
            return false;
        };
        let Some(leave_until) = stopping.leave_until else {
            return false;
        };
        // The coordinator closes the stream once the session has ended.
        let answered = stopping.left && self.link.stream().is_none();
        answered || self.session.is_none() || self.clock.now() >= leave_until
    }

    /// Ends everything that still runs, and waits for it.
    pub(super) async fn finish(mut self, reason: LostReason) {
        self.end_session(&reason);
        self.link = Link::Waiting {
            until: Moment::NEVER,
        };
        while !self.work.is_empty() {
            let abort = self.work.next_abort().unwrap_or(Moment::NEVER);
            tokio::select! {
                _ended = self.work.next() => {}
                // Handles may have more to say than there is room for, and handlers wait for that.
                _reports = receive(&mut self.reports) => {}
                () = self.clock.sleep_until(abort) => self.work.abort_due(self.clock.now()),
            }
        }
        self.tally.set_link(LinkState::Stopped);
        self.tally.changed();
    }
}
