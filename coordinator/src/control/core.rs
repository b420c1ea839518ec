//! The leader's decisions about sessions and handoffs, without I/O.
//!
//! Everything that happens is an [`Input`] with the moment it is handled; everything to do about it is
//! an [`Output`]. No clock, no task and no channel is in here, so that tests drive every deadline by
//! hand. One `Core` lives as long as one leadership of this node.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_ownership::Command;
use tenure_ownership::Rejection;
use tenure_ownership::State;
use tenure_ownership::apply::Effect;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;
use tenure_ownership::planner::Observed;
use tenure_ownership::planner::Plan;

use super::asks::AskId;
use super::asks::Asks;
use super::asks::PlanAsk;
use super::churn::Churn;
use super::crashes::Crashes;
use super::handoffs::Handoffs;
use super::homes::Homes;
use super::leases::Leases;
use super::loads::Loads;
use super::message::Close;
use super::message::Down;
use super::message::Open;
use super::message::StreamId;
use super::message::Up;
use super::pauses::PauseId;
use super::pauses::Pauses;
use super::planning::Planning;
use super::registrations::Name;
use super::registrations::Registrations;
use super::rounds::Rounds;
use super::streams::Streams;
use crate::clock::Moment;
use crate::watch::Batch;

mod asked;
mod committed;
mod decided;
mod measured;
mod opening;
mod reports;
mod settling;
mod ticking;

use self::settling::Settling;

/// Something that happened.
#[derive(Debug)]
pub(super) enum Input {
    /// A stream was opened.
    Opened(StreamId, Open),
    /// A message arrived on a stream.
    Message(StreamId, Up),
    /// A stream broke, or the worker closed it.
    Broken(StreamId),
    /// A proposal was decided.
    Decided(Ticket, Decision),
    /// A Raft round ended: `true` if a quorum answered and its read index is applied.
    RoundEnded(u64, bool),
    /// A command was committed and applied.
    Committed(Arc<Batch>),
    /// A plan that was asked for.
    Planned(Plan),
    /// A plan that was asked for could not be made.
    Unplanned(GroupId),
    /// An operator asks for a plan.
    Asked(AskId, PlanAsk),
    /// Time went on.
    Tick,
}

/// Something to do.
#[derive(Debug)]
pub(super) enum Output {
    /// Send a message on a stream.
    Send(StreamId, Down),
    /// End a stream.
    Close(StreamId, Close),
    /// Propose a command, and report its decision under the ticket.
    Propose(Ticket, Command),
    /// Begin a Raft round, and report its end under the number.
    Round(u64),
    /// Plan a group.
    Plan(GroupId, Observed),
    /// Plan a group for an operator, and change nothing.
    Preview(AskId, GroupId, Observed),
    /// Answer an operator: the plan whose moves are proposed, or that there is none.
    Answer(AskId, Option<Plan>),
}

/// Names a proposal whose decision is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// What became of a proposal.
#[derive(Debug)]
pub(super) enum Decision {
    /// It was applied, at this revision, or refused.
    Applied(Revision, Result<Effect, Rejection>),
    /// It was not proposed at all, and never will be.
    NotProposed,
    /// It may or may not be applied, now or later.
    Unknown,
}

/// Why a decision is awaited.
#[derive(Debug)]
enum Awaited {
    Registration {
        stream: StreamId,
        attempt: u64,
        replaces: Option<SessionId>,
        name: Name,
    },
    Expiry {
        sessions: Vec<SessionId>,
    },
    Force {
        group: GroupId,
        tenures: Vec<Tenure>,
        owners: Vec<SessionId>,
    },
    Assignment {
        group: GroupId,
    },
    /// A report of a worker: ready, released or leaving.
    Report {
        stream: StreamId,
        report: Command,
    },
    Removal {
        group: GroupId,
    },
    EndOfPause {
        pause: PauseId,
    },
    /// The end of the wait after a restore.
    Settlement,
    /// A shard is put into quarantine.
    Quarantine {
        group: GroupId,
    },
}

/// All decisions of one leadership.
#[derive(Debug)]
pub(super) struct Core {
    leases: Leases,
    rounds: Rounds,
    registrations: Registrations,
    handoffs: Handoffs,
    pauses: Pauses,
    homes: Homes,
    streams: Streams,
    planning: Planning,
    asks: Asks,
    loads: Loads,
    churn: Churn,
    crashes: Crashes,
    awaited: BTreeMap<Ticket, Awaited>,
    /// Reports that could not be proposed, in order, until they can.
    reports: VecDeque<(StreamId, Command)>,
    reports_due_at: Moment,
    next_ticket: u64,
    /// Commands up to this revision are known to the above.
    seen: Revision,
    /// When this leadership began to accept streams.
    accepted_at: Moment,
    /// Of a cluster that was restored from a backup: when shards may be granted.
    settling: Option<Settling>,
    /// When the next tick is expected; a much later one means that this process was stopped.
    tick_expected_at: Moment,
    /// The moment of the input at hand.
    now: Moment,
    outputs: Vec<Output>,
}

/// A tick later than this part of the shortest deadline means that this process was stopped.
///
/// A stopped leader did not hear the heartbeats that waited in its sockets, so on waking it moves
/// every deadline by the gap instead of expiring healthy workers. A quarter: a busy scheduler stays
/// well below it, and a worker that really died is found at most that much later.
const STOPPED_FRACTION: u32 = 4;

/// Longest time between two ticks. Short against the shortest window, so that a stop is noticed.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Window counted with while no session is known.
const WINDOW_DEFAULT: Duration = Duration::from_millis(750);

/// Pause before a group is planned again whose plan could not be made.
const PLAN_RETRY: Duration = Duration::from_secs(1);

impl Core {
    /// Begins a leadership: every session gets a full fresh ttl, every drain and lock delay starts
    /// again in full. Nothing that an earlier leader measured is known here.
    pub(super) fn new(state: &State, now: Moment) -> Self {
        let mut core = Self {
            leases: Leases::default(),
            rounds: Rounds::default(),
            registrations: Registrations::default(),
            handoffs: Handoffs::default(),
            pauses: Pauses::default(),
            homes: Homes::default(),
            streams: Streams::default(),
            planning: Planning::default(),
            asks: Asks::default(),
            loads: Loads::default(),
            churn: Churn::default(),
            crashes: Crashes::default(),
            awaited: BTreeMap::new(),
            reports: VecDeque::new(),
            reports_due_at: now,
            next_ticket: 0,
            seen: state.revision(),
            accepted_at: now,
            settling: state
                .restored()
                .map(|restored| Settling::new(restored, now)),
            tick_expected_at: now + TICK_MAX,
            now,
            outputs: Vec::new(),
        };
        for (id, session) in state.sessions() {
            core.leases.start(id, session, now);
        }
        for group in state.groups() {
            core.adopt_group(group, now);
        }
        core
    }

    /// Handles one input and returns what to do about it.
    pub(super) fn handle(&mut self, now: Moment, input: Input, state: &State) -> Vec<Output> {
        self.now = now;
        self.notice_stop(now);
        match input {
            Input::Opened(stream, open) => self.opened(now, stream, open, state),
            Input::Message(stream, up) => self.message(now, stream, up, state),
            Input::Broken(stream) => self.broken(now, stream, state),
            Input::Decided(ticket, decision) => self.decided(now, ticket, decision, state),
            Input::RoundEnded(number, confirmed) => self.round_ended(number, confirmed, state),
            Input::Committed(batch) => self.committed(now, &batch, state),
            Input::Planned(plan) => self.planned(plan),
            Input::Unplanned(group) => {
                self.answer_none(group);
                self.planning.decided(group, Some(now + PLAN_RETRY));
            }
            Input::Asked(id, ask) => self.asked(now, id, ask, state),
            Input::Tick => self.tick(now, state),
        }
        self.begin_round(now);
        self.begin_plans(now, state);
        std::mem::take(&mut self.outputs)
    }

    /// When [`Input::Tick`] is wanted next.
    pub(super) fn next_tick(&self, now: Moment) -> Moment {
        let due = [
            self.leases.next_deadline(),
            self.registrations.due_at(),
            self.handoffs.next(),
            self.pauses.next(),
            self.planning.due_at(),
            self.settling.as_ref().and_then(Settling::due_at),
            self.loads.next(),
            self.churn.next(),
            (!self.reports.is_empty()).then_some(self.reports_due_at),
            self.rounds.due_at(self.leases.window_min(), now),
        ];
        due.into_iter()
            .flatten()
            .fold(now + TICK_MAX, Moment::min)
            .max(now)
    }

    /// Moves all deadlines if this process was stopped since the last tick.
    fn notice_stop(&mut self, now: Moment) {
        let shortest = self.leases.window_min().unwrap_or(WINDOW_DEFAULT);
        let gap = now.since(self.tick_expected_at);
        if gap > shortest / STOPPED_FRACTION {
            tracing::warn!(
                gap_ms = gap.as_millis(),
                "this process was stopped; deadlines are moved"
            );
            self.leases.shift(gap);
            self.registrations.shift(gap);
            self.handoffs.shift(gap);
            self.pauses.shift(gap);
            self.planning.shift(gap);
            if let Some(settling) = &mut self.settling {
                settling.shift(gap);
            }
            self.loads.shift(gap);
            self.churn.shift(gap);
            self.crashes.shift(gap);
            self.accepted_at = self.accepted_at + gap;
        }
        // Any input shows that the process runs; the next tick is due in time from here.
        self.tick_expected_at = now + TICK_MAX;
    }

    fn send(&mut self, stream: StreamId, down: Down) {
        self.outputs.push(Output::Send(stream, down));
    }

    /// Ends a stream and forgets it. A session that lives on has its grace to come back.
    fn close(&mut self, stream: StreamId, close: Close) {
        if let Some(gone) = self.streams.forget(stream) {
            self.leases.detach(gone.session, stream, self.now);
        }
        self.outputs.push(Output::Close(stream, close));
    }

    fn propose(&mut self, command: Command, awaited: Awaited) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.awaited.insert(ticket, awaited);
        self.outputs.push(Output::Propose(ticket, command));
    }

    /// The owners, each once, of tenures in a group.
    fn owners(state: &State, group: GroupId, tenures: &[Tenure]) -> Vec<SessionId> {
        let owners: BTreeSet<SessionId> = tenures
            .iter()
            .filter_map(|tenure| {
                let shard = state.shard(group, tenure.shard)?;
                (shard.epoch == Some(tenure.epoch))
                    .then(|| shard.owner())
                    .flatten()
            })
            .collect();
        owners.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
