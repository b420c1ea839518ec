//! The session on its stream: opens one after the other, registers or resumes, and takes what the
//! coordinator says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_fence::Owner;
use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;

use super::Session;
use super::belief::{Belief, Terms};
use super::reports::up;
use super::stream::{Link, Stream, StreamEnd};
use crate::clock::Moment;
use crate::convert;
use crate::error::{LostReason, RunError};
use crate::status::LinkState;

/// How long a `Register` may remain unanswered. It waits for the belief of a process it replaces,
/// whose length this worker does not know; so each further try is given twice the time.
pub(super) const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
const REGISTER_TIMEOUT_MAX: Duration = Duration::from_secs(60);

impl Session {
    pub(super) fn open_link(&mut self) {
        self.attempt += 1;
        let first = match self.session {
            Some(session) => self.resume_message(&session),
            None => self.register_message(),
        };
        let timeout = match &self.belief {
            Some(belief) => {
                let fruitless = self.unanswered / self.finder.round();
                belief.terms().resume_timeout(fruitless)
            }
            None => self.register_timeout,
        };
        self.registered = false;
        self.tenures.begin_stream();
        // From here until the answer: an open stream alone is no answer.
        self.heard_at = self.clock.now();
        // A leader that is new knows no loads.
        self.loads_at = self.heard_at;
        self.silence_max = timeout;
        let address = self.finder.pick();
        let connection = &self.options.connection;
        self.link = Link::open(connection, &self.clock, address, up(first), timeout);
    }

    fn register_message(&self) -> Up {
        Up::Register(v1::Register {
            group: self.options.group.to_string(),
            worker: self.options.name.clone(),
            nonce: self.nonce.to_be_bytes().to_vec().into(),
            first: self.first.as_ref().map(convert::session),
            ttl_ms: self.options.ttl.map_or(0, convert::as_milliseconds),
            weight: self.options.weight,
            labels: self.options.labels.clone().into_iter().collect(),
            address: self.options.address.clone(),
            attempt: self.attempt,
        })
    }

    fn resume_message(&self, session: &Owner) -> Up {
        Up::Resume(v1::Resume {
            session: Some(convert::session(session)),
            nonce: self.nonce.to_be_bytes().to_vec().into(),
            attempt: self.attempt,
        })
    }

    pub(super) fn on_opened(&mut self, stream: Box<Stream>) {
        self.link = Link::Open(stream);
    }

    pub(super) fn close_link(&mut self, until: Moment) {
        self.link = Link::Waiting { until };
        self.registered = false;
        self.tenures.begin_stream();
        self.tally.set_link(LinkState::Connecting);
        self.tally.changed();
    }

    pub(super) fn on_link_end(&mut self, end: StreamEnd) -> Result<(), RunError> {
        if let StreamEnd::Refused { reason, message } = end {
            return Err(RunError::Refused { reason, message });
        }
        if end == StreamEnd::Replaced {
            return Err(RunError::Replaced {
                worker: self.options.name.clone(),
            });
        }
        if end == StreamEnd::SessionEnded {
            self.end_session(&LostReason::SessionEnded);
        }
        if end == StreamEnd::NoGroup && !self.group_missed {
            self.group_missed = true;
            tracing::warn!(
                worker = self.options.name,
                group = %self.options.group,
                "the group does not exist, waiting for it"
            );
        }
        if end == StreamEnd::Silent && !self.registered {
            if self.session.is_some() {
                self.unanswered = self.unanswered.saturating_add(1);
            } else {
                self.register_timeout = (self.register_timeout * 2).min(REGISTER_TIMEOUT_MAX);
            }
        }
        self.leave_link(&end);
        Ok(())
    }

    /// Closes the link for something that may pass, and goes on to the next after a pause.
    pub(super) fn leave_link(&mut self, end: &StreamEnd) {
        tracing::debug!(worker = self.options.name, ?end, "stream ended");
        let pause_max = self
            .belief
            .as_ref()
            .map_or(Duration::MAX, |belief| belief.terms().pause_max());
        let pause = self.finder.ended(self.link.address(), end, pause_max);
        self.close_link(self.clock.now() + pause);
    }

    pub(super) fn on_message(&mut self, message: v1::AttachResponse) -> Result<(), RunError> {
        let Some(message) = message.message else {
            // A message of a later version of the protocol.
            return Ok(());
        };
        if let Down::Registered(registered) = &message {
            return self.on_registered(registered);
        }
        if !self.registered {
            return self.on_link_end(StreamEnd::broken("the coordinator sent no Registered"));
        }
        match message {
            Down::Registered(_) => {}
            Down::Set(set) => {
                let steps = self.tenures.on_set(&set);
                if self.stopping.is_some() {
                    // Before anything is given back, or it would come back.
                    self.send(Up::Stopping(v1::Stopping {}));
                }
                self.carry_out(steps);
            }
            Down::HeartbeatAck(ack) => self.on_acknowledged(ack.sequence),
            Down::Granted(granted) => {
                let steps = self.tenures.on_granted(&granted);
                self.carry_out(steps);
            }
            Down::Revoke(revoke) => {
                let steps = self.tenures.on_revoke(&revoke);
                self.carry_out(steps);
            }
            Down::Dismissed(_) => self.on_dismissed(),
            Down::Lost(lost) => {
                let steps = self.tenures.on_lost(&lost);
                self.carry_out(steps);
            }
        }
        Ok(())
    }

    fn on_registered(&mut self, registered: &v1::Registered) -> Result<(), RunError> {
        let owner = registered.session.as_ref().and_then(convert::owner);
        let terms = Terms {
            ttl: convert::milliseconds(registered.ttl_ms),
            window: convert::milliseconds(registered.window_ms),
        };
        let (Some(owner), Some(stream)) = (owner, self.link.stream()) else {
            return self.on_link_end(StreamEnd::broken("the coordinator sent no session"));
        };
        let (now, sent_at, leader) = (self.clock.now(), stream.sent_at, stream.address.clone());
        match &mut self.belief {
            Some(belief) if self.session == Some(owner) => belief.resume(sent_at),
            _ => {
                // Answered to a Register; whatever was held belonged to an earlier session.
                self.end_session(&LostReason::SessionEnded);
                self.belief = Some(Belief::register(terms, sent_at, now));
                self.session = Some(owner);
                let first = self.first.filter(|first| first.cluster == owner.cluster);
                self.first = first.or(Some(owner));
                self.tally.sessions.fetch_add(1, Ordering::Relaxed);
                tracing::info!(worker = self.options.name, session = %owner, "registered");
            }
        }
        self.context.belief.publish(self.belief.as_ref());
        self.registered = true;
        self.register_timeout = REGISTER_TIMEOUT;
        self.unanswered = 0;
        self.group_missed = false;
        self.heard_at = now;
        self.heartbeat_at = now;
        self.silence_max = terms.silence_max();
        self.tally.set_session(self.session);
        self.tally.set_link(LinkState::Attached { leader });
        self.tally.streams.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
        Ok(())
    }

    fn on_acknowledged(&mut self, sequence: u64) {
        // The Set of the stream may take shards away: nothing is believed before it has been heard.
        if !self.tenures.is_set() {
            return;
        }
        let Some(belief) = &mut self.belief else {
            return;
        };
        if belief.acknowledge(sequence) {
            self.context.belief.publish(Some(belief));
            self.heard_at = self.clock.now();
            if let Some(address) = self.link.address() {
                self.finder.found(address);
            }
        }
    }

    /// Gives everything up that belongs to the session.
    pub(super) fn end_session(&mut self, reason: &LostReason) {
        // First of all, and for all handles at once.
        self.belief = None;
        self.context.belief.publish(None);
        let steps = self.tenures.lose_all(reason);
        self.carry_out(steps);
        self.drains.clear();
        self.session = None;
        self.tally.set_session(None);
        self.tally.changed();
    }
}
