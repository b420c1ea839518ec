//! The worker's side of a session: one task that holds the stream, and decides.
//!
//! ```text
//!        coordinator                 handles                 handlers
//!          │    ▲                      │ claimed, dead          │ returned
//!   stream ▼    │                      ▼                        ▼
//!        ┌────────────────────────────────────────────────────────┐
//!        │ Session: never waits for a store or a handler          │
//!        │   belief    until when may we believe?     (pure)      │
//!        │   converge  which tenures do we hold?      (pure)      │
//!        │   stream    where is the leader?                       │
//!        │   work      which handlers run?                        │
//!        └────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing that happens to one shard can hold up a heartbeat: the task awaits events only, and hands
//! messages to the stream without waiting.

pub(crate) mod belief;
pub(crate) mod converge;
pub(crate) mod stream;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_fence::{Epoch, FencingToken, GroupName, Owner, Resource, ShardRef};
use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tokio::sync::mpsc;

use crate::clock::{Clock, Moment};
use crate::connection::ConnectionOptions;
use crate::convert;
use crate::error::{LostReason, RunError};
use crate::handler::AnyHandler;
use crate::held_shard::{HandleContext, HandleState, HeldShard, Report, ReportKind};
use crate::status::{LinkState, Tally};
use belief::{Belief, Terms};
use converge::{Closing, Step, TenureId, Tenures};
use stream::{Finder, Link, LinkEvent, Stream, StreamEnd};
use work::{Ended, Outcome, Work};

/// How long a `Register` may remain unanswered. It waits for the belief of a process it replaces,
/// whose length this worker does not know; so each further try is given twice the time.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
const REGISTER_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// How long the last message of a worker that stops may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Most tenures in one `Ready` or `Released`: with their details well below 4 MiB.
const TENURES_MAX: usize = 10_000;

/// Most reports of handles taken at once.
const REPORTS_MAX: usize = 1_024;

/// What is said of a shard that is granted to a worker that stops.
const STOPPING: &str = "the worker is stopping";

/// What a session needs to know about its worker.
pub(crate) struct SessionOptions {
    pub(crate) connection: ConnectionOptions,
    pub(crate) group: GroupName,
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) address: String,
    pub(crate) ttl: Option<Duration>,
    pub(crate) drain_timeout: Duration,
    pub(crate) handler_grace: Duration,
}

/// The task. See the module.
pub(crate) struct Session {
    options: SessionOptions,
    clock: Arc<dyn Clock>,
    context: Arc<HandleContext>,
    tally: Arc<Tally>,
    reports: mpsc::Receiver<Report>,
    /// One for each process: tells a registration that is retried from another process.
    nonce: u128,
    /// Number of the last stream that was opened. Rises always.
    attempt: u64,
    /// Number of the last heartbeat. Never used twice, so neither within a session.
    sequence: u64,
    /// The session, while it is believed to live.
    session: Option<Owner>,
    /// The latest session there was.
    previous: Option<Owner>,
    belief: Option<Belief>,
    /// How long the present stream may be silent; before `Registered`, until it must have arrived.
    silence_max: Duration,
    register_timeout: Duration,
    /// How many tries to resume in a row were not answered.
    unanswered: u32,
    /// Whether it was said that the group does not exist.
    group_missed: bool,
    finder: Finder,
    link: Link,
    /// Whether `Registered` has arrived on the present stream.
    registered: bool,
    /// When the leader last showed that it leads.
    heard_at: Moment,
    heartbeat_at: Moment,
    tenures: Tenures,
    work: Work,
    /// When handles die that were asked back.
    drains: BTreeSet<(Moment, TenureId)>,
    ready: Vec<TenureId>,
    releases: Vec<v1::Release>,
    stopping: Option<Stopping>,
}

/// A worker that was asked to stop.
struct Stopping {
    /// Shards whose handlers have returned. They are reported all at once at the end: the coordinator
    /// would only grant them to this worker again.
    held_back: Vec<v1::Release>,
    /// Once all handlers have ended: until when the last message may take.
    leave_until: Option<Moment>,
    /// Whether it was sent.
    left: bool,
}

enum Event {
    Stop,
    Link(LinkEvent),
    Reports(Vec<Report>),
    Ended(Box<Ended>),
    Tick,
}

impl Session {
    pub(crate) fn new(
        options: SessionOptions,
        handler: Arc<dyn AnyHandler>,
        context: Arc<HandleContext>,
        reports: mpsc::Receiver<Report>,
    ) -> Self {
        let clock = Arc::clone(&context.clock);
        let now = clock.now();
        let begin = usize::from(rand::random::<u16>());
        Self {
            finder: Finder::new(options.connection.addresses.clone(), begin),
            work: Work::new(handler, options.handler_grace),
            tally: Arc::clone(&context.tally),
            options,
            clock,
            context,
            reports,
            nonce: rand::random(),
            attempt: 0,
            sequence: 0,
            session: None,
            previous: None,
            belief: None,
            silence_max: REGISTER_TIMEOUT,
            register_timeout: REGISTER_TIMEOUT,
            unanswered: 0,
            group_missed: false,
            link: Link::Waiting { until: now },
            registered: false,
            heard_at: now,
            heartbeat_at: Moment::NEVER,
            tenures: Tenures::default(),
            drains: BTreeSet::new(),
            ready: Vec::new(),
            releases: Vec::new(),
            stopping: None,
        }
    }

    /// Runs until `stop` resolves and everything is given back, or the session cannot go on.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut stop = std::pin::pin!(stop);
        let outcome = loop {
            if let Err(error) = self.tick() {
                break Err(error);
            }
            self.flush();
            if self.is_finished() {
                break Ok(());
            }
            let stopping = self.stopping.is_some();
            let wake = self.next_wake();
            let event = tokio::select! {
                () = &mut stop, if !stopping => Event::Stop,
                event = self.link.next() => Event::Link(event),
                ended = self.work.next() => Event::Ended(Box::new(ended)),
                reports = receive(&mut self.reports) => Event::Reports(reports),
                () = self.clock.sleep_until(wake) => Event::Tick,
            };
            if let Err(error) = self.on_event(event) {
                break Err(error);
            }
        };
        let reason = match &outcome {
            Err(RunError::Replaced { .. }) => LostReason::Replaced,
            _ => LostReason::Stopped,
        };
        self.finish(reason).await;
        outcome
    }

    fn on_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Stop => self.on_stop(),
            Event::Link(LinkEvent::Opened(Ok(stream))) => self.on_opened(stream),
            Event::Link(LinkEvent::Message(Ok(message))) => return self.on_message(message),
            Event::Link(LinkEvent::Opened(Err(end)) | LinkEvent::Message(Err(end))) => {
                return self.on_link_end(end);
            }
            Event::Reports(reports) => {
                for report in reports {
                    self.on_report(report);
                }
            }
            Event::Ended(ended) => self.on_ended(*ended),
            Event::Tick => {}
        }
        Ok(())
    }

    // ---- Time ------------------------------------------------------------------------------------

    /// Does what is due.
    fn tick(&mut self) -> Result<(), RunError> {
        let now = self.clock.now();
        if self
            .belief
            .as_ref()
            .is_some_and(|belief| now >= belief.lease_until())
        {
            tracing::warn!(
                worker = self.options.name,
                "lease ended without an acknowledgement"
            );
            self.end_session(&LostReason::LeaseEnded);
            self.close_link(now);
        }
        self.drain_due(now);
        self.work.abort_due(now);
        self.stop_due(now);
        if self.link.stream().is_some() && now >= self.heard_at + self.silence_max {
            self.on_link_end(StreamEnd::Silent)?;
        }
        if matches!(self.link, Link::Waiting { until } if until <= now) && !self.is_finished() {
            self.open_link();
        }
        if self.tenures.is_set() && now >= self.heartbeat_at {
            self.send_heartbeat(now);
        }
        Ok(())
    }

    fn next_wake(&self) -> Moment {
        let mut wake = self
            .belief
            .as_ref()
            .map_or(Moment::NEVER, Belief::lease_until);
        if let Some(&(moment, _)) = self.drains.first() {
            wake = wake.min(moment);
        }
        if let Some(moment) = self.work.next_abort() {
            wake = wake.min(moment);
        }
        if let Some(moment) = self
            .stopping
            .as_ref()
            .and_then(|stopping| stopping.leave_until)
        {
            wake = wake.min(moment);
        }
        match &self.link {
            Link::Waiting { until } => wake = wake.min(*until),
            Link::Opening { .. } => {}
            Link::Open(_) => {
                wake = wake.min(self.heard_at + self.silence_max);
                if self.tenures.is_set() {
                    wake = wake.min(self.heartbeat_at);
                }
            }
        }
        wake
    }

    /// Kills the handles whose time to drain is over.
    fn drain_due(&mut self, now: Moment) {
        while let Some(&(moment, tenure)) = self.drains.first() {
            if moment > now {
                return;
            }
            self.drains.pop_first();
            if self.tenures.holds(tenure) {
                self.give_up(tenure, LostReason::DrainDeadline);
            }
        }
    }

    fn send_heartbeat(&mut self, now: Moment) {
        let Some(belief) = &mut self.belief else {
            return;
        };
        self.sequence += 1;
        belief.sent(self.sequence, now);
        let heartbeat = v1::Heartbeat {
            sequence: self.sequence,
            loads: Vec::new(),
        };
        self.heartbeat_at = now + belief.terms().heartbeat_interval();
        self.send(Up::Heartbeat(heartbeat));
    }

    // ---- The stream ------------------------------------------------------------------------------

    fn open_link(&mut self) {
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
            previous: self.previous.as_ref().map(convert::session),
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

    fn on_opened(&mut self, stream: Box<Stream>) {
        self.link = Link::Open(stream);
    }

    fn close_link(&mut self, until: Moment) {
        self.link = Link::Waiting { until };
        self.registered = false;
        self.tenures.begin_stream();
        self.tally.set_link(LinkState::Connecting);
        self.tally.changed();
    }

    fn on_link_end(&mut self, end: StreamEnd) -> Result<(), RunError> {
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
    fn leave_link(&mut self, end: &StreamEnd) {
        tracing::debug!(worker = self.options.name, ?end, "stream ended");
        let pause_max = self
            .belief
            .as_ref()
            .map_or(Duration::MAX, |belief| belief.terms().pause_max());
        let pause = self.finder.ended(self.link.address(), end, pause_max);
        self.close_link(self.clock.now() + pause);
    }

    fn on_message(&mut self, message: v1::AttachResponse) -> Result<(), RunError> {
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
                self.previous = Some(owner);
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
    fn end_session(&mut self, reason: &LostReason) {
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

    // ---- Tenures ---------------------------------------------------------------------------------

    fn carry_out(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Open { tenure, recorded } => self.open(tenure, recorded),
                Step::Revoke { tenure, drain } => self.revoke(tenure, drain),
                Step::Lose { tenure, reason } => self.lose(tenure, reason),
                Step::Ready { tenure } => self.ready.push(tenure),
                Step::Release { tenure, closing } => self.releases.push(closing.wire(tenure)),
                Step::Answer { set_revision } => self.answer(set_revision),
            }
        }
    }

    fn open(&mut self, tenure: TenureId, recorded: BTreeMap<String, Epoch>) {
        let Some(owner) = self.session else {
            return;
        };
        if self.stopping.is_some() {
            // At once, and as a failure: the coordinator then grants it to another worker if it can,
            // while anything that is merely finished may come back here until this worker has left.
            let closing = Closing::Failed(STOPPING.to_owned());
            self.releases.push(closing.wire(tenure));
            self.tenures.close(tenure, closing);
            return;
        }
        let shard = ShardRef {
            group: self.options.group.clone(),
            index: tenure.shard,
        };
        let resource = Resource::Shard(shard.clone());
        let token = FencingToken {
            resource,
            epoch: tenure.epoch,
            owner,
        };
        let shard = HeldShard::new(token, shard, recorded, Arc::clone(&self.context));
        self.tally.add_shard(&shard);
        self.tally.opened.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
        tracing::debug!(shard = %shard.id(), epoch = %tenure.epoch, "shard granted");
        self.work.open(tenure, shard);
    }

    fn revoke(&mut self, tenure: TenureId, drain: Duration) {
        let Some(belief) = &self.belief else {
            return;
        };
        let until = belief.drain_deadline(drain);
        if !self.work.is_running(tenure) {
            // Its handler was not started yet, so there is nothing to finish.
            self.close(tenure, Closing::Finished);
            return;
        }
        if let Some(shard) = self.work.shard(tenure) {
            shard.revoke(until);
        }
        self.drains.insert((until, tenure));
        self.tally.changed();
    }

    /// Ends a tenure that the coordinator, or the end of the session, has taken.
    fn lose(&mut self, tenure: TenureId, reason: LostReason) {
        let now = self.clock.now();
        tracing::info!(shard = tenure.shard, epoch = %tenure.epoch, %reason, "shard lost");
        self.work.kill(tenure, reason, now);
        self.tally.remove_shard(tenure.shard);
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
    }

    /// Ends a tenure by this side's own decision, and says so.
    fn give_up(&mut self, tenure: TenureId, reason: LostReason) {
        let closing = closing_of(&reason);
        if self.tenures.close(tenure, closing.clone()) {
            self.releases.push(closing.wire(tenure));
        }
        self.lose(tenure, reason);
    }

    /// Ends a tenure whose handler has ended, or was never started, and says so.
    fn close(&mut self, tenure: TenureId, closing: Closing) {
        let revoked = self.tenures.is_revoked(tenure);
        if let Some(shard) = self.work.shard(tenure) {
            shard.kill(LostReason::Released);
        }
        self.work
            .kill(tenure, LostReason::Released, self.clock.now());
        if !self.tenures.close(tenure, closing.clone()) {
            return;
        }
        self.tally.remove_shard(tenure.shard);
        self.tally.released.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
        let release = closing.wire(tenure);
        match &mut self.stopping {
            // What the coordinator asked for goes back at once, whoever else stops.
            Some(stopping) if !revoked => stopping.held_back.push(release),
            _ => self.releases.push(release),
        }
    }

    fn on_report(&mut self, report: Report) {
        let tenure = TenureId {
            shard: report.shard,
            epoch: report.epoch,
        };
        match report.kind {
            ReportKind::Claimed => {
                if self.tenures.ready(tenure) {
                    self.ready.push(tenure);
                    self.tally.set_ready(tenure.shard);
                    self.tally.ready.fetch_add(1, Ordering::Relaxed);
                    self.tally.changed();
                }
            }
            ReportKind::Dead(reason) => {
                if self.tenures.holds(tenure) {
                    self.give_up(tenure, reason);
                }
            }
        }
    }

    fn on_ended(&mut self, ended: Ended) {
        let Ended {
            tenure,
            shard,
            outcome,
        } = ended;
        if !self.tenures.holds(tenure) {
            return;
        }
        // Before anything is said: whoever still has a clone has stopped working by then.
        let state = shard.state();
        shard.kill(LostReason::Released);
        if let HandleState::Lost(reason) = state {
            self.give_up(tenure, reason);
            return;
        }
        let closing = match outcome {
            Outcome::Returned(Ok(())) => Closing::Finished,
            Outcome::Returned(Err(error)) => Closing::Failed(error.chain()),
            Outcome::Panicked => Closing::Failed("the handler panicked".to_owned()),
            Outcome::Aborted => Closing::Lost,
        };
        if let Closing::Failed(detail) = &closing {
            tracing::warn!(shard = %shard.id(), epoch = %tenure.epoch, detail, "handler failed");
        }
        self.close(tenure, closing);
    }

    // ---- Reports ---------------------------------------------------------------------------------

    /// Answers a `Set`. Releases go first: they say more than absence does.
    fn answer(&mut self, set_revision: u64) {
        self.flush_releases();
        let tenures = self.tenures.holding().map(TenureId::wire).collect();
        self.send(Up::Holding(v1::Holding {
            set_revision,
            tenures,
        }));
    }

    fn flush(&mut self) {
        self.flush_releases();
        let ready = std::mem::take(&mut self.ready);
        if ready.is_empty() || !self.tenures.is_set() {
            return;
        }
        let stores = self.context.stores.names();
        for chunk in ready.chunks(TENURES_MAX) {
            // One may have been lost since it was claimed.
            let held = chunk
                .iter()
                .copied()
                .filter(|&tenure| self.tenures.holds(tenure));
            let tenures = held.map(TenureId::wire).collect();
            self.send(Up::Ready(v1::Ready {
                tenures,
                stores: stores.clone(),
            }));
        }
    }

    fn flush_releases(&mut self) {
        let releases = std::mem::take(&mut self.releases);
        // Without a stream they are dropped: the next Set says which of them were not heard.
        if releases.is_empty() || !self.tenures.is_set() {
            return;
        }
        for chunk in releases.chunks(TENURES_MAX) {
            self.send(Up::Released(v1::Released {
                releases: chunk.to_vec(),
            }));
        }
    }

    /// Hands a message to the stream, if there is one. Returns whether it took it.
    ///
    /// A stream that takes nothing more is left at once: it might drain again, and nobody would ever
    /// repeat what it did not take. The `Set` of the next one makes up for that.
    fn send(&mut self, message: Up) -> bool {
        let Some(stream) = self.link.stream() else {
            return false;
        };
        let sent = stream.send(up(message));
        if !sent {
            self.leave_link(&StreamEnd::broken("the stream takes no more messages"));
        }
        sent
    }

    // ---- The end ---------------------------------------------------------------------------------

    fn on_stop(&mut self) {
        let until = self.clock.now() + self.options.drain_timeout;
        self.stopping = Some(Stopping {
            held_back: Vec::new(),
            leave_until: None,
            left: false,
        });
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

    /// Moves a worker that stops on: once its handlers have ended, everything goes back at once.
    fn stop_due(&mut self, now: Moment) {
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
            self.releases.append(&mut stopping.held_back);
            self.flush_releases();
            let left = self.send(Up::Leaving(v1::Leaving {}));
            if let Some(stopping) = &mut self.stopping {
                stopping.left = left;
            }
        }
    }

    fn is_finished(&self) -> bool {
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
    async fn finish(mut self, reason: LostReason) {
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

/// Says what the death of a handle means to the coordinator.
fn closing_of(reason: &LostReason) -> Closing {
    match reason {
        LostReason::StoreAhead { fence, .. } => Closing::StoreAhead(*fence),
        LostReason::StoreRegressed { .. } => Closing::Failed(reason.to_string()),
        _ => Closing::Lost,
    }
}

fn up(message: Up) -> v1::AttachRequest {
    v1::AttachRequest {
        message: Some(message),
    }
}

async fn receive(reports: &mut mpsc::Receiver<Report>) -> Vec<Report> {
    let mut received = Vec::new();
    // The session holds a sender itself, so the channel is never closed.
    reports.recv_many(&mut received, REPORTS_MAX).await;
    received
}
