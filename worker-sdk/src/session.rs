//! The worker's side of a session: one task that holds the stream, and decides.
//!
//! ```text
//!        coordinator                 handles                 handlers
//!          │    ▲                      │ claimed, dead          │ returned
//!   stream ▼    │                      ▼                        ▼
//!        ┌────────────────────────────────────────────────────────┐
//!        │ Session: never waits for a store or a handler          │
//!        └────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing that happens to one shard can hold up a heartbeat: the task awaits events only, and hands
//! messages to the stream without waiting.
//!
//! Here is the task itself: what wakes it, and what is due when. What it knows, each a file that can
//! be read alone:
//!
//! * `belief`: until when may we believe? Pure.
//! * `converge`: which tenures do we hold, and what does a message change about it? Pure.
//! * `tenure`: a tenure and how it ends, in the words of the protocol.
//! * `stream`: the stream, and why one ends.
//! * `finder`: which node to ask next for the leader. Pure.
//! * `work`: the handlers that run.
//!
//! What it does with that, methods of [`Session`] by subject:
//!
//! * `attachment`: opens streams, registers, resumes, and takes messages and acknowledgements.
//! * `holdings`: carries out what `converge` says, and takes what handles and handlers report.
//! * `reports`: tells the coordinator what is ready, given back and held.
//! * `stopping`: the end.

pub(crate) mod belief;
pub(crate) mod tenure;
pub(crate) mod work;

mod attachment;
mod converge;
mod finder;
mod holdings;
mod reports;
mod stopping;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::{GroupName, Owner};
use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;
use tokio::sync::mpsc;

use crate::clock::{Clock, Moment};
use crate::connection::ConnectionOptions;
use crate::error::{LostReason, RunError};
use crate::handler::AnyHandler;
use crate::held_shard::{HandleContext, Report};
use crate::load::LOADS_EVERY;
use crate::status::Tally;
use belief::Belief;
use converge::Tenures;
use finder::Finder;
use stopping::Stopping;
use stream::{Link, LinkEvent, StreamEnd};
use tenure::TenureId;
use work::{Ended, Work};

/// Most reports of handles taken at once.
const REPORTS_MAX: usize = 1_024;

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
    /// The first session there was in this cluster: says how old the process is.
    first: Option<Owner>,
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
    /// When loads go along with a heartbeat again.
    loads_at: Moment,
    tenures: Tenures,
    work: Work,
    /// When handles die that were asked back.
    drains: BTreeSet<(Moment, TenureId)>,
    ready: Vec<TenureId>,
    releases: Vec<v1::Release>,
    stopping: Option<Stopping>,
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
            first: None,
            belief: None,
            silence_max: attachment::REGISTER_TIMEOUT,
            register_timeout: attachment::REGISTER_TIMEOUT,
            unanswered: 0,
            group_missed: false,
            link: Link::Waiting { until: now },
            registered: false,
            heard_at: now,
            heartbeat_at: Moment::NEVER,
            loads_at: now,
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
        if let Some(moment) = self.next_stop() {
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
        let mut heartbeat = v1::Heartbeat {
            sequence: self.sequence,
            loads: Vec::new(),
        };
        if now >= self.loads_at {
            let tenures = &self.tenures;
            heartbeat.loads = self.context.loads.of_held(|tenure| tenures.holds(tenure));
            self.loads_at = now + LOADS_EVERY;
        }
        self.heartbeat_at = now + belief.terms().heartbeat_interval();
        self.send(Up::Heartbeat(heartbeat));
    }
}

async fn receive(reports: &mut mpsc::Receiver<Report>) -> Vec<Report> {
    let mut received = Vec::new();
    // The session holds a sender itself, so the channel is never closed.
    reports.recv_many(&mut received, REPORTS_MAX).await;
    received
}
