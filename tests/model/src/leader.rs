//! A leadership: the leases in its memory, and what it decides. The counterpart of `coordinator/src/control`.
//!
//! It lives as long as its node believes to lead, which may be longer than it does: then its view of what is
//! committed stands still, no round of it is answered, and nothing it proposes commits once the next
//! leader has settled.

use crate::bounds::Timing;
use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::ids::Ticks;
use crate::ids::aged;
use crate::network::Close;
use crate::network::Down;
use crate::network::Duty;
use crate::network::Up;
use crate::ownership::Command;
use crate::ownership::Event;
use crate::ownership::LIVE_MAX;
use crate::ownership::Live;
use crate::ownership::Outcome;
use crate::ownership::Register;
use crate::ownership::Rejection;
use crate::ownership::SessionEnd;
use crate::ownership::Shard;
use crate::rules::Rules;
use crate::state::Proposal;
use crate::state::State;

/// How far a heartbeat has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// None waits.
    Nothing,
    /// It waits for a round to begin; with the stream it came on.
    ForRound(Attempt),
    /// A quorum has answered the round that began after it came.
    Confirmed(Attempt),
}

/// What the leader knows of a session: `coordinator/src/control/leases.rs`, `Lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Its process.
    pub process: ProcessId,
    /// How long ago the last heartbeat came that may be acknowledged: belief counts from here.
    pub heard: Ticks,
    /// How long ago the last sign of life came: silence counts from here.
    pub alive: Ticks,
    /// How long ago the present stream broke.
    pub broken: Option<Ticks>,
    /// The session's present stream; 0 if it has none.
    pub stream: Attempt,
    /// The highest attempt seen.
    pub attempt: Attempt,
    /// The `Set` of the present stream: its revision, and the tenure in it until it was answered.
    pub set: Revision,
    /// The tenure in that `Set`; `None` once it was answered.
    pub unanswered: Option<Epoch>,
    /// Decisions to end a tenure of the session whose outcome is not known.
    pub undecided: u8,
    /// A heartbeat that is to be acknowledged.
    pub waiting: Waiting,
    /// Ticks of the silence in which the leader itself stood still. Nothing but a property reads it.
    pub asleep: Ticks,
}

impl Lease {
    fn new(live: Live, age: (Ticks, Ticks)) -> Self {
        Self {
            session: live.session,
            process: live.process,
            heard: age.0,
            alive: age.1,
            broken: None,
            stream: 0,
            attempt: 0,
            set: 0,
            unanswered: None,
            undecided: 0,
            waiting: Waiting::Nothing,
            asleep: 0,
        }
    }

    /// Whether the session may be expired: `coordinator/src/control/leases.rs`, `deadline`.
    pub fn is_overdue(&self, rules: &Rules, timing: &Timing) -> bool {
        let grace = if rules.expiry_waits_for_belief {
            timing.window
        } else {
            0
        };
        let broken = self.broken.is_some_and(|age| age >= grace);
        self.undecided == 0 && (broken || self.alive >= timing.ttl)
    }

    /// Whether it would be overdue also without the time in which the leader stood still.
    fn was_silent_itself(&self, timing: &Timing) -> bool {
        let broken = self
            .broken
            .is_some_and(|age| age.saturating_sub(self.asleep) >= timing.window);
        broken || self.alive.saturating_sub(self.asleep) >= timing.ttl
    }

    /// A sign of life came.
    fn lives(&mut self, counts: bool) {
        self.alive = 0;
        self.asleep = 0;
        if counts {
            self.heard = 0;
        }
    }
}

/// A registration that waits for the belief of the process it replaces to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// What will be proposed.
    pub register: Register,
}

/// One leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leadership {
    /// Its number.
    pub term: Term,
    /// An entry of its term is applied.
    pub settled: bool,
    /// It accepts streams.
    pub serving: bool,
    /// Its process stands still.
    pub paused: bool,
    /// Its sessions.
    pub leases: Few<Lease, LIVE_MAX>,
    /// How long ago the drain of the tenure that is being revoked began.
    pub drain: Option<Ticks>,
    /// A registration that waits.
    pub candidate: Option<Candidate>,
    /// A round is answered, and what it confirmed is not acknowledged yet.
    pub round_answered: bool,
}

impl Leadership {
    /// A leader that was just elected.
    pub fn elected(term: Term) -> Self {
        Self {
            term,
            settled: false,
            serving: false,
            paused: false,
            leases: Few::EMPTY,
            drain: None,
            candidate: None,
            round_answered: false,
        }
    }

    /// Whether it can do anything now.
    pub fn acts(&self) -> bool {
        self.serving && !self.paused
    }

    /// The lease of a session.
    pub fn lease(&self, session: SessionId) -> Option<Lease> {
        self.leases.find(|lease| lease.session == session)
    }

    fn lease_mut(&mut self, session: SessionId) -> Option<&mut Lease> {
        self.leases
            .iter_mut()
            .find(|lease| lease.session == session)
    }

    /// The lease whose present stream is that one.
    pub fn lease_of(&self, process: ProcessId, attempt: Attempt) -> Option<Lease> {
        self.leases
            .find(|lease| lease.process == process && lease.stream == attempt)
    }

    /// Notes a decision to end a tenure of a session.
    fn hold(&mut self, session: SessionId) {
        if let Some(lease) = self.lease_mut(session) {
            lease.undecided += 1;
        }
    }

    /// Its outcome is known. A worker that was turned away meanwhile gets its grace anew.
    fn release(&mut self, session: SessionId) {
        if let Some(lease) = self.lease_mut(session) {
            lease.undecided = lease.undecided.saturating_sub(1);
            if lease.undecided == 0 && lease.broken.is_some() {
                lease.broken = Some(0);
                lease.asleep = 0;
            }
        }
    }

    /// A tick passes.
    pub fn age(&mut self, rules: &Rules, timing: &Timing) {
        if self.paused && rules.woken_leader_moves_its_deadlines {
            return;
        }
        let asleep = u8::from(self.paused);
        for lease in self.leases.iter_mut() {
            lease.heard = aged(lease.heard, timing.window);
            let counts = lease.alive < timing.ttl;
            lease.alive = aged(lease.alive, timing.ttl);
            lease.broken = lease.broken.map(|age| aged(age, timing.window));
            lease.asleep += if counts { asleep } else { 0 };
        }
        let longest = timing.drain.max(timing.window);
        self.drain = self.drain.map(|age| aged(age, longest));
    }

    /// Whether the drain that runs is over: `coordinator/src/control/handoffs.rs`, `drain`.
    pub fn drain_is_over(&self, rules: &Rules, timing: &Timing) -> bool {
        let wait = if rules.force_waits_for_belief {
            timing.drain.max(timing.window)
        } else {
            timing.drain
        };
        self.drain.is_some_and(|age| age >= wait)
    }

    /// Whether the registration that waits may be proposed.
    pub fn candidate_is_due(&self, rules: &Rules, timing: &Timing) -> bool {
        let Some(candidate) = self.candidate else {
            return false;
        };
        let over = self
            .lease(candidate.register.replaces)
            .is_none_or(|lease| lease.heard >= timing.window);
        over || !rules.replacement_waits_for_belief
    }
}

impl State {
    /// A leader begins to serve, with all clocks as new: `coordinator/src/control/core.rs`, `new`.
    pub fn begin_to_serve(&mut self, rules: &Rules, timing: &Timing) {
        let committed = self.committed;
        let leader = &mut self.leader;
        let silence = if rules.new_leader_gives_a_fresh_ttl {
            (0, 0)
        } else {
            (timing.window, timing.ttl)
        };
        leader.serving = true;
        leader.leases = Few::EMPTY;
        for live in committed.live.iter() {
            leader.leases.push(Lease::new(live, silence));
        }
        let drain = if rules.new_leader_restarts_drains {
            0
        } else {
            timing.drain.max(timing.window)
        };
        leader.drain = matches!(committed.shard, Shard::Revoking { .. }).then_some(drain);
    }

    /// A leader hears the next message of a stream: `coordinator/src/control/core/reports.rs` and `opening.rs`.
    pub fn leader_hears(&mut self, rules: &Rules, timing: &Timing, at: usize) {
        let Some((stream, message)) = self.next_up(at) else {
            return;
        };
        let (process, attempt, term) = (stream.process, stream.attempt, stream.term);
        match message {
            Up::Register { previous } => {
                self.on_register(rules, timing, term, process, attempt, previous);
                return;
            }
            Up::Resume(session) => {
                if self.view(term).session(session).is_some() {
                    self.attach(rules, timing, term, session, attempt);
                } else {
                    self.close(term, process, attempt, Close::SessionEnded);
                }
                return;
            }
            _ => {}
        }
        // A stream that was superseded has nothing to say.
        let Some(lease) = self.leadership(term).lease_of(process, attempt) else {
            return;
        };
        let session = lease.session;
        match message {
            Up::Register { .. } | Up::Resume(_) => {}
            Up::Heartbeat => self.on_heartbeat(rules, term, session, attempt),
            Up::Ready(epoch) => self.propose(term, Command::Ready { session, epoch }),
            Up::Released(epoch) => self.propose(term, Command::Release { session, epoch }),
            Up::Holding { set, epoch } => self.on_holding(rules, term, lease, set, epoch),
        }
    }

    fn on_heartbeat(&mut self, rules: &Rules, term: Term, session: SessionId, attempt: Attempt) {
        let leader = self.leadership_mut(term);
        let joins = leader.round_answered && !rules.acknowledgement_needs_a_later_round;
        let Some(lease) = leader.lease_mut(session) else {
            return;
        };
        let counts = lease.undecided == 0 || !rules.undecided_is_not_acknowledged;
        lease.lives(counts);
        if counts {
            lease.waiting = if joins {
                Waiting::Confirmed(attempt)
            } else {
                Waiting::ForRound(attempt)
            };
        }
    }

    /// Takes a shard back that a worker should hold and does not: `coordinator/src/control/core/reports.rs`,
    /// `holding`.
    fn on_holding(&mut self, rules: &Rules, term: Term, lease: Lease, set: Revision, held: Epoch) {
        let expected = if rules.answer_names_its_set {
            let answered = lease.unanswered.filter(|_| lease.set == set);
            if let (Some(_), Some(lease)) =
                (answered, self.leadership_mut(term).lease_mut(lease.session))
            {
                lease.unanswered = None;
            }
            answered
        } else {
            self.view(term).owned_by(lease.session)
        };
        let owned = self.view(term).owned_by(lease.session);
        if let Some(epoch) = expected
            && rules.what_is_not_held_is_taken_back
            && epoch != 0
            && epoch != held
            && owned == Some(epoch)
        {
            let session = lease.session;
            self.propose(term, Command::Release { session, epoch });
        }
    }

    /// `coordinator/src/control/core/opening.rs`, `register`.
    fn on_register(
        &mut self,
        rules: &Rules,
        timing: &Timing,
        term: Term,
        process: ProcessId,
        attempt: Attempt,
        previous: SessionId,
    ) {
        let name = self.process(process).name;
        let mut register = Register {
            process,
            name,
            attempt,
            previous,
            replaces: 0,
        };
        let Some(holder) = self.view(term).holder(name) else {
            self.propose(term, Command::Register(register));
            return;
        };
        if holder.process == process {
            self.attach(rules, timing, term, holder.session, attempt);
            return;
        }
        let was_replaced = previous != 0 && previous < holder.session;
        if rules.only_a_new_process_replaces && was_replaced {
            self.close(term, process, attempt, Close::Replaced);
            return;
        }
        if let Some(other) = self.cancel_candidate(term) {
            self.close(term, other.process, other.attempt, Close::Retry);
        }
        let undecided = self
            .leadership(term)
            .lease(holder.session)
            .is_none_or(|lease| lease.undecided > 0);
        if undecided {
            self.close(term, process, attempt, Close::Retry);
            return;
        }
        register.replaces = holder.session;
        let leader = self.leadership_mut(term);
        leader.hold(holder.session);
        leader.candidate = Some(Candidate { register });
    }

    /// Takes the registration that waits back, and the decision with it.
    fn cancel_candidate(&mut self, term: Term) -> Option<Register> {
        let leader = self.leadership_mut(term);
        let candidate = leader.candidate.take()?;
        leader.release(candidate.register.replaces);
        Some(candidate.register)
    }

    /// Makes a stream the session's own, and says where it stands: `coordinator/src/control/core/opening.rs`,
    /// `attach` and `greet`.
    fn attach(
        &mut self,
        rules: &Rules,
        timing: &Timing,
        term: Term,
        session: SessionId,
        attempt: Attempt,
    ) {
        let Some(live) = self.view(term).session(session) else {
            return;
        };
        let Some(lease) = self.leadership(term).lease(session) else {
            return;
        };
        if attempt <= lease.attempt && rules.highest_attempt_wins {
            self.close(term, live.process, attempt, Close::Retry);
            return;
        }
        if lease.undecided > 0 && rules.undecided_is_not_resumed {
            if let Some(lease) = self.leadership_mut(term).lease_mut(session) {
                lease.lives(false);
            }
            self.close(term, live.process, attempt, Close::Retry);
            return;
        }
        let view = *self.view(term);
        let epoch = view.owned_by(session);
        let shard = epoch.map(|epoch| (epoch, self.duty(timing, term, view.shard)));
        if let Some(lease) = self.leadership_mut(term).lease_mut(session) {
            lease.lives(true);
            lease.attempt = attempt.max(lease.attempt);
            lease.stream = attempt;
            lease.broken = None;
            lease.set = view.revision;
            lease.unanswered = Some(epoch.unwrap_or(0));
            // The message that opened the stream is acknowledged like a heartbeat.
            lease.waiting = Waiting::ForRound(attempt);
        }
        // Otherwise its end is yet to be noticed, and is then taken for that of the new one.
        if lease.stream != 0 && rules.break_names_its_stream {
            self.close(term, live.process, lease.stream, Close::Retry);
        }
        let set = Down::Set {
            session,
            revision: view.revision,
            shard,
        };
        self.tell(term, live.process, attempt, set);
    }

    fn duty(&mut self, timing: &Timing, term: Term, shard: Shard) -> Duty {
        match shard {
            Shard::Unowned | Shard::Opening(_) => Duty::Open,
            Shard::Serving(_) => Duty::Serve,
            Shard::Revoking { .. } => {
                let clock = &mut self.leadership_mut(term).drain;
                let Some(age) = *clock else {
                    *clock = Some(0);
                    return Duty::Drain(timing.drain);
                };
                let left = timing.drain.max(timing.window).saturating_sub(age);
                Duty::Drain(left.min(timing.drain))
            }
        }
    }

    /// A leader notices that a stream is cut: `coordinator/src/control/core/reports.rs`, `broken`.
    pub fn leader_notices(&mut self, rules: &Rules, at: usize) {
        let Some(stream) = self.drop_leader_end(at) else {
            return;
        };
        let waits = self.leadership(stream.term).candidate.is_some_and(|other| {
            other.register.process == stream.process && other.register.attempt == stream.attempt
        });
        if waits {
            self.cancel_candidate(stream.term);
        }
        let leader = self.leadership_mut(stream.term);
        for lease in leader.leases.iter_mut() {
            if lease.process != stream.process {
                continue;
            }
            if lease.stream == stream.attempt {
                lease.stream = 0;
                lease.broken = Some(0);
            } else if !rules.break_names_its_stream {
                lease.broken = Some(0);
            }
        }
    }

    /// A round begins and is answered by a quorum. Only the leader in office finds one.
    pub fn round(&mut self, term: Term) {
        let leader = self.leadership_mut(term);
        leader.round_answered = true;
        for lease in leader.leases.iter_mut() {
            if let Waiting::ForRound(attempt) = lease.waiting {
                lease.waiting = Waiting::Confirmed(attempt);
            }
        }
    }

    /// What a round confirmed is acknowledged: `coordinator/src/control/core/ticking.rs`, `round_ended`.
    pub fn acknowledge(&mut self, rules: &Rules, term: Term) {
        self.leadership_mut(term).round_answered = false;
        let leases = self.leadership(term).leases;
        for lease in leases.iter() {
            let Waiting::Confirmed(attempt) = lease.waiting else {
                continue;
            };
            if let Some(lease) = self.leadership_mut(term).lease_mut(lease.session) {
                lease.waiting = Waiting::Nothing;
            }
            let undecided = lease.undecided > 0 && rules.undecided_is_not_acknowledged;
            if lease.stream == attempt && !undecided {
                self.tell(term, lease.process, attempt, Down::Acknowledged);
            }
        }
    }

    /// Proposes the end of a session that was silent for too long.
    pub fn expire(&mut self, timing: &Timing, term: Term, session: SessionId) {
        let healthy = self
            .leadership(term)
            .lease(session)
            .is_some_and(|lease| !lease.was_silent_itself(timing) && lease.asleep > 0);
        self.breaches.ended_by_a_woken_leader |= healthy;
        self.leadership_mut(term).hold(session);
        self.propose_end(term, Command::Expire(session), session);
    }

    /// Proposes the end of a tenure whose drain is over.
    pub fn force(&mut self, term: Term) {
        let view = *self.view(term);
        let owner = view.shard.owner();
        let leader = self.leadership_mut(term);
        leader.drain = None;
        leader.hold(owner);
        let force = Command::Force {
            epoch: view.epoch,
            group: view.group,
        };
        self.propose_end(term, force, owner);
    }

    /// Proposes the registration that has waited.
    pub fn replace(&mut self, term: Term) {
        if let Some(candidate) = self.leadership_mut(term).candidate.take() {
            let register = candidate.register;
            self.propose_end(term, Command::Register(register), register.replaces);
        }
    }

    /// The leader takes note of what was committed, and tells whom it concerns:
    /// `coordinator/src/control/core/committed.rs`.
    pub fn take_note(&mut self, timing: &Timing, events: impl Iterator<Item = Event>) {
        let term = self.leader.term;
        let revision = self.committed.revision;
        for event in events {
            match event {
                Event::Registered(live) => self.leader.leases.push(Lease::new(live, (0, 0))),
                Event::Granted(owner, epoch) => {
                    self.tell_session(owner, Down::Granted { epoch, revision });
                }
                Event::Revoking(owner, epoch) => {
                    self.leader.drain = Some(0);
                    let drain = timing.drain;
                    self.tell_session(owner, Down::Revoke { epoch, drain });
                }
                Event::TenureEnded {
                    owner,
                    epoch,
                    forced,
                } => {
                    self.leader.drain = None;
                    if forced {
                        self.tell_session(owner, Down::Lost(epoch));
                    }
                }
                Event::Ended(session, end) => {
                    let ended = self.leader.lease(session);
                    self.leader.leases.retain(|lease| lease.session != session);
                    let close = match end {
                        SessionEnd::Over => Close::SessionEnded,
                        SessionEnd::Replaced => Close::Replaced,
                    };
                    if let Some(lease) = ended.filter(|lease| lease.stream != 0) {
                        self.close(term, lease.process, lease.stream, close);
                    }
                }
            }
        }
    }

    fn tell_session(&mut self, session: SessionId, down: Down) {
        let Some(lease) = self.leader.lease(session) else {
            return;
        };
        if lease.stream != 0 {
            self.tell(self.leader.term, lease.process, lease.stream, down);
        }
    }

    /// The outcome of a proposal is known to the leader that made it: `coordinator/src/control/core/decided.rs`.
    pub fn decided(
        &mut self,
        rules: &Rules,
        timing: &Timing,
        proposal: Proposal,
        outcome: Outcome,
    ) {
        self.leader.release(proposal.holds);
        let Command::Register(register) = proposal.command else {
            return;
        };
        let term = self.leader.term;
        let (process, attempt) = (register.process, register.attempt);
        if !self.is_open(term, process, attempt) {
            return;
        }
        match outcome {
            Ok(_) => {
                let session = self.committed.last_session;
                self.attach(rules, timing, term, session, attempt);
            }
            Err(Rejection::AlreadyRegistered(session)) => {
                self.attach(rules, timing, term, session, attempt);
            }
            Err(Rejection::Replaced) => self.close(term, process, attempt, Close::Replaced),
            Err(Rejection::Stale) => self.close(term, process, attempt, Close::Retry),
        }
    }
}
