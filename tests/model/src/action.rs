//! The steps that may follow on a state, and what each does.

use std::fmt;

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Heartbeats;
use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Leadership;
use crate::leader::Waiting;
use crate::network::Down;
use crate::network::Stream;
use crate::ownership::Command;
use crate::ownership::Ownership;
use crate::ownership::Shard;
use crate::rules::Rules;
use crate::state::PENDING_MAX;
use crate::state::STREAMS_MAX;
use crate::state::State;
use crate::store::Ask;
use crate::worker::Claim;
use crate::worker::Held;
use crate::worker::Phase;

/// One step of one actor, of the network, or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes on by one tick.
    Tick,
    /// Another leader is elected.
    Elect,
    /// A deposed leader finds out.
    StepDown,
    /// A new leader has applied an entry of its own term, and serves.
    Serve,
    /// The oldest proposal commits.
    Commit,
    /// The leader's process stands still.
    Pause,
    /// It goes on.
    Wake,
    /// A process starts.
    Start(ProcessId),
    /// A process crashes.
    Crash(ProcessId),
    /// A process opens a stream to the leader of a term.
    Connect(ProcessId, Term),
    /// A process notices that its stream is cut.
    WorkerNotices(ProcessId),
    /// A process takes the next message of its stream.
    WorkerHears(ProcessId),
    /// A process sends a heartbeat.
    Heartbeat(ProcessId),
    /// A process asks to seal.
    Seal(ProcessId),
    /// A process asks for the latest write without a seal.
    Read(ProcessId),
    /// A process writes.
    Write(ProcessId),
    /// A process gives up what it holds, and says so.
    GiveBack(ProcessId),
    /// The store handles a request, and its sender hears the answer.
    Store(usize),
    /// The store handles a request, and nobody hears the answer.
    StoreUnheard(usize),
    /// A stream is cut.
    Cut(usize),
    /// A leader takes the next message of a stream.
    LeaderHears(usize),
    /// A leader notices that a stream is cut.
    LeaderNotices(usize),
    /// A round is answered by a quorum.
    Round(Term),
    /// What it confirmed is acknowledged.
    Acknowledge(Term),
    /// The end of a silent session is proposed.
    Expire(Term, SessionId),
    /// The end of a tenure whose drain is over is proposed.
    Force(Term),
    /// A registration that has waited is proposed.
    Replace(Term),
    /// A plan grants the shard.
    Grant(Term, SessionId),
    /// A plan, or a drain, asks the shard back; it then goes to the session.
    Revoke(Term, SessionId),
    /// The deletion of the group is proposed.
    Delete(Term),
    /// Its removal is.
    Remove(Term),
    /// The node of a term is asked about the token that it takes for current.
    CheckToken(Term),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "a tick passes"),
            Self::Elect => write!(f, "another leader is elected; the old one does not know"),
            Self::StepDown => write!(f, "the deposed leader finds out and steps down"),
            Self::Serve => write!(f, "the new leader serves"),
            Self::Commit => write!(f, "the oldest proposal commits"),
            Self::Pause => write!(f, "the leader's process stands still"),
            Self::Wake => write!(f, "the leader's process goes on"),
            Self::Start(p) => write!(f, "process {p} starts"),
            Self::Crash(p) => write!(f, "process {p} crashes"),
            Self::Connect(p, t) => write!(f, "process {p} opens a stream to leader {t}"),
            Self::WorkerNotices(p) => write!(f, "process {p} notices that its stream is cut"),
            Self::WorkerHears(p) => write!(f, "process {p} hears its leader"),
            Self::Heartbeat(p) => write!(f, "process {p} sends a heartbeat"),
            Self::Seal(p) => write!(f, "process {p} sends a seal"),
            Self::Read(p) => write!(f, "process {p} sends a read without a seal"),
            Self::Write(p) => write!(f, "process {p} sends a write"),
            Self::GiveBack(p) => write!(f, "process {p} gives its shard up"),
            Self::Store(at) => write!(f, "the store answers request {at} under way"),
            Self::StoreUnheard(at) => {
                write!(
                    f,
                    "the store answers request {at} under way and is not heard"
                )
            }
            Self::Cut(at) => write!(f, "stream {at} is cut"),
            Self::LeaderHears(at) => write!(f, "the leader hears stream {at}"),
            Self::LeaderNotices(at) => write!(f, "the leader notices that stream {at} is cut"),
            Self::Round(t) => write!(f, "a round of leader {t} is answered"),
            Self::Acknowledge(t) => write!(f, "leader {t} acknowledges what its round confirmed"),
            Self::Expire(t, s) => write!(f, "leader {t} proposes that session {s} expired"),
            Self::Force(t) => write!(f, "leader {t} proposes to force the tenure"),
            Self::Replace(t) => write!(f, "leader {t} proposes the registration that waited"),
            Self::Grant(t, s) => write!(f, "leader {t} proposes a grant to session {s}"),
            Self::Revoke(t, s) => {
                write!(
                    f,
                    "leader {t} proposes a revocation in favour of session {s}"
                )
            }
            Self::Delete(t) => write!(f, "leader {t} proposes to delete the group"),
            Self::Remove(t) => write!(f, "leader {t} proposes to remove the group"),
            Self::CheckToken(t) => write!(
                f,
                "leader {t} is asked about the token it takes for current"
            ),
        }
    }
}

/// Whether a budget has something left.
fn some(left: u8) -> bool {
    left > 0
}

impl State {
    /// Collects the steps that may follow.
    pub fn steps(&self, rules: &Rules, bounds: &Bounds, steps: &mut Vec<Action>) {
        if some(self.left.ticks) {
            steps.push(Action::Tick);
        }
        self.consensus_steps(rules, steps);
        for id in Self::process_ids() {
            self.process_steps(rules, bounds, id, steps);
            self.handle_steps(rules, id, steps);
        }
        for at in 0..self.store.in_flight.len() {
            steps.push(Action::Store(at));
            if some(self.left.lost_answers) {
                steps.push(Action::StoreUnheard(at));
            }
        }
        self.stream_steps(bounds, steps);
        let zombie = self.zombie.as_ref();
        for leadership in [Some(&self.leader), zombie.map(|z| &z.leadership)] {
            if let Some(leadership) = leadership.filter(|leadership| leadership.acts()) {
                self.leader_steps(rules, bounds, leadership, steps);
            }
        }
    }

    fn consensus_steps(&self, rules: &Rules, steps: &mut Vec<Action>) {
        if some(self.left.elections) {
            steps.push(Action::Elect);
        }
        if self.zombie.is_some() {
            steps.push(Action::StepDown);
        }
        if !self.leader.serving {
            steps.push(Action::Serve);
        }
        if !self.pending.is_empty() {
            steps.push(Action::Commit);
        }
        if self.leader.paused {
            steps.push(Action::Wake);
        } else if some(self.left.pauses) && self.leader.serving {
            steps.push(Action::Pause);
        }
        if some(self.left.token_checks) {
            // A node that cannot reach a quorum answers nothing.
            if let Some(zombie) = &self.zombie
                && !rules.token_check_needs_a_quorum
            {
                steps.push(Action::CheckToken(zombie.leadership.term));
            }
            if self.leader.serving {
                steps.push(Action::CheckToken(self.leader.term));
            }
        }
    }

    fn process_steps(
        &self,
        rules: &Rules,
        bounds: &Bounds,
        id: ProcessId,
        steps: &mut Vec<Action>,
    ) {
        let process = self.process(id);
        if process.phase == Phase::Waiting && some(self.left.starts) {
            steps.push(Action::Start(id));
        }
        if !process.is_running() {
            return;
        }
        if some(self.left.crashes) {
            steps.push(Action::Crash(id));
        }
        if !process.connected {
            if some(self.left.streams) && self.streams.len() < STREAMS_MAX {
                steps.push(Action::Connect(id, self.leader.term));
                if let Some(zombie) = &self.zombie {
                    steps.push(Action::Connect(id, zombie.leadership.term));
                }
            }
            return;
        }
        let Some(stream) = self.stream_of(id) else {
            return;
        };
        if stream.cut {
            steps.push(Action::WorkerNotices(id));
        }
        // A `Set` is answered with two messages at most.
        let room = stream.up.has_room(2) || stream.cut || stream.leader_gone;
        if !stream.down.is_empty() && room {
            steps.push(Action::WorkerHears(id));
        }
        if self.may_send_heartbeat(rules, bounds, id) {
            steps.push(Action::Heartbeat(id));
        }
    }

    /// A heartbeat is sent where it can add to belief, and one at a time.
    fn may_send_heartbeat(&self, rules: &Rules, bounds: &Bounds, id: ProcessId) -> bool {
        let process = self.process(id);
        let Some(stream) = self.stream_of(id) else {
            return false;
        };
        let waits = [
            Some(&self.leader),
            self.zombie.as_ref().map(|z| &z.leadership),
        ];
        let waits = waits.into_iter().flatten().any(|leadership| {
            let lease = leadership.lease_of(id, process.attempt);
            lease.is_some_and(|lease| match lease.waiting {
                Waiting::Nothing => false,
                Waiting::ForRound(_) => true,
                // One more would wait for the next round, as if it were sent after this one.
                Waiting::Confirmed(_) => rules.acknowledgement_needs_a_later_round,
            })
        });
        process.session != 0
            && process.set
            && process.acknowledged != Some(0)
            && !waits
            && !stream.cut
            && !stream.leader_gone
            && !stream.carries_a_heartbeat()
            && stream.up.has_room(1)
            && (bounds.heartbeats == Heartbeats::Delayed
                || (stream.up.is_empty() && self.leadership(stream.term).acts()))
    }

    fn handle_steps(&self, rules: &Rules, id: ProcessId, steps: &mut Vec<Action>) {
        let process = self.process(id);
        let Some(held) = process.held.filter(|_| process.is_running()) else {
            return;
        };
        let room = self
            .stream_of(id)
            .is_none_or(|stream| stream.up.has_room(1) || stream.cut || stream.leader_gone);
        let may = held.dead || held.drain.is_some() || some(self.left.returns);
        if may && room {
            steps.push(Action::GiveBack(id));
        }
        if held.dead || !room || !self.store.in_flight.has_room(1) {
            return;
        }
        let asks = |held: &Held, write: bool| {
            self.store.in_flight.find(|request| {
                request.process == id
                    && request.epoch == held.epoch
                    && matches!(request.ask, Ask::Write { .. }) == write
            })
        };
        let writes = some(self.left.writes) && asks(&held, true).is_none();
        match held.claim {
            _ if asks(&held, false).is_some() => {}
            Claim::None => {
                if rules.seal_before_read {
                    steps.push(Action::Seal(id));
                }
                if !rules.seal_before_read || some(self.left.unsealed_reads) {
                    steps.push(Action::Read(id));
                }
            }
            Claim::Read(_) => {
                steps.push(Action::Seal(id));
                if writes && rules.seal_before_read {
                    steps.push(Action::Write(id));
                }
            }
            Claim::Sealed(_) if writes => steps.push(Action::Write(id)),
            Claim::Sealed(_) => {}
        }
    }

    fn stream_steps(&self, bounds: &Bounds, steps: &mut Vec<Action>) {
        for (at, stream) in self.streams.iter().enumerate() {
            if !stream.cut && some(self.left.cuts) {
                steps.push(Action::Cut(at));
            }
            if stream.leader_gone || !self.leadership(stream.term).acts() {
                continue;
            }
            if !stream.up.is_empty() && self.may_propose(bounds, stream.term) {
                steps.push(Action::LeaderHears(at));
            }
            if stream.cut {
                steps.push(Action::LeaderNotices(at));
            }
        }
    }

    /// Whether a proposal has room, or needs none because nothing will come of it.
    fn may_propose(&self, bounds: &Bounds, term: Term) -> bool {
        let lost = term != self.leader.term && self.leader.settled;
        lost || self.pending.len() < bounds.pending.min(PENDING_MAX)
    }

    fn leader_steps(
        &self,
        rules: &Rules,
        bounds: &Bounds,
        leader: &Leadership,
        steps: &mut Vec<Action>,
    ) {
        let term = leader.term;
        let in_office = term == self.leader.term;
        let waits = |lease: &crate::leader::Lease| matches!(lease.waiting, Waiting::ForRound(_));
        let quorum = in_office || !rules.acknowledgement_needs_a_round;
        if quorum && !leader.round_answered && leader.leases.find(waits).is_some() {
            steps.push(Action::Round(term));
        }
        if leader.round_answered {
            steps.push(Action::Acknowledge(term));
        }
        // What a deposed leader proposes once its successor has settled is lost.
        let lost = !in_office && self.leader.settled;
        if lost || !self.may_propose(bounds, term) {
            return;
        }
        for lease in leader.leases.iter() {
            if lease.is_overdue(rules, &bounds.timing) {
                steps.push(Action::Expire(term, lease.session));
            }
        }
        let view = self.view(term);
        let revoking = matches!(view.shard, Shard::Revoking { .. });
        if revoking && leader.drain_is_over(rules, &bounds.timing) {
            steps.push(Action::Force(term));
        }
        if leader.candidate_is_due(rules, &bounds.timing) {
            steps.push(Action::Replace(term));
        }
        self.plan_steps(term, view, steps);
    }

    fn plan_steps(&self, term: Term, view: &Ownership, steps: &mut Vec<Action>) {
        let proposed = |is: fn(&Command) -> bool| {
            self.pending
                .find(|proposal| is(&proposal.command))
                .is_some()
        };
        if view.deleting {
            let removing = proposed(|command| *command == Command::Remove);
            if view.shard == Shard::Unowned && !removing {
                steps.push(Action::Remove(term));
            }
            return;
        }
        if some(self.left.deletions) {
            steps.push(Action::Delete(term));
        }
        match view.shard {
            Shard::Unowned if some(self.left.grants) => {
                for live in view.live.iter() {
                    steps.push(Action::Grant(term, live.session));
                }
            }
            Shard::Opening(owner) | Shard::Serving(owner) if some(self.left.revokes) => {
                for live in view.live.iter().filter(|live| live.session != owner) {
                    steps.push(Action::Revoke(term, live.session));
                }
            }
            _ => {}
        }
    }

    /// Takes a step.
    pub fn take(&mut self, rules: &Rules, bounds: &Bounds, action: Action) {
        let timing = &bounds.timing;
        match action {
            Action::Tick => {
                if self.left.ticks != Budget::ENDLESS {
                    self.left.ticks -= 1;
                }
                self.tick(rules, timing);
            }
            Action::Elect => {
                self.left.elections = self.left.elections.saturating_sub(1);
                self.elect();
            }
            Action::StepDown => self.step_down(),
            Action::Serve => {
                if rules.leader_settles_before_it_serves {
                    self.settle();
                }
                self.begin_to_serve(rules, timing);
            }
            Action::Commit => self.commit(rules, timing),
            Action::Pause => {
                self.left.pauses = self.left.pauses.saturating_sub(1);
                self.leader.paused = true;
            }
            Action::Wake => self.leader.paused = false,
            Action::Start(id) => {
                self.left.starts = self.left.starts.saturating_sub(1);
                self.process_mut(id).phase = Phase::Running;
            }
            Action::Crash(id) => {
                self.left.crashes = self.left.crashes.saturating_sub(1);
                self.crash(id);
            }
            Action::Connect(id, term) => {
                self.left.streams = self.left.streams.saturating_sub(1);
                self.connect(id, term);
            }
            Action::WorkerNotices(id) => self.worker_notices(id),
            Action::WorkerHears(id) => {
                self.worker_hears(rules, id);
                self.hear_promptly(rules, bounds, id);
            }
            Action::Heartbeat(id) => self.heartbeat(rules, bounds, id),
            Action::Seal(id) => self.ask_store(id, Ask::Seal),
            Action::Read(id) => {
                if rules.seal_before_read {
                    self.left.unsealed_reads = self.left.unsealed_reads.saturating_sub(1);
                }
                self.ask_store(id, Ask::Read);
            }
            Action::Write(id) => self.write(bounds, id),
            Action::GiveBack(id) => {
                let held = self.process(id).held;
                let unasked = held.is_some_and(|held| !held.dead && held.drain.is_none());
                self.left.returns = self.left.returns.saturating_sub(u8::from(unasked));
                self.give_back(id);
            }
            Action::Store(at) => self.store_answers(rules, at, true),
            Action::StoreUnheard(at) => {
                self.left.lost_answers = self.left.lost_answers.saturating_sub(1);
                self.store_answers(rules, at, false);
            }
            Action::Cut(at) => {
                self.left.cuts = self.left.cuts.saturating_sub(1);
                self.cut(at);
            }
            Action::LeaderHears(at) => self.leader_hears(rules, timing, at),
            Action::LeaderNotices(at) => self.leader_notices(rules, at),
            Action::Round(term) => self.round(term),
            Action::Acknowledge(term) => {
                self.acknowledge(rules, term);
                for id in Self::process_ids() {
                    self.hear_promptly(rules, bounds, id);
                }
            }
            Action::Expire(term, session) => self.expire(timing, term, session),
            Action::Force(term) => self.force(term),
            Action::Replace(term) => self.replace(term),
            Action::Grant(..) | Action::Revoke(..) | Action::Delete(_) | Action::Remove(_) => {
                self.plan(action);
            }
            Action::CheckToken(term) => {
                self.left.token_checks = self.left.token_checks.saturating_sub(1);
                self.check_token(term);
            }
        }
    }

    /// A process says that it lives, and is heard at once if heartbeats are prompt.
    fn heartbeat(&mut self, rules: &Rules, bounds: &Bounds, id: ProcessId) {
        self.send_heartbeat(id);
        if bounds.heartbeats == Heartbeats::Delayed {
            return;
        }
        let attempt = self.process(id).attempt;
        let place = |stream: &Stream| stream.process == id && stream.attempt == attempt;
        let Some(at) = self.streams.position(place) else {
            return;
        };
        let term = self.streams.get(at).map_or(0, |stream| stream.term);
        self.leader_hears(rules, &bounds.timing, at);
        if term == self.leader.term && !self.leader.round_answered {
            self.round(term);
        }
    }

    /// A process hears the acknowledgements that are next on its stream, if they are prompt.
    fn hear_promptly(&mut self, rules: &Rules, bounds: &Bounds, id: ProcessId) {
        if bounds.heartbeats == Heartbeats::Delayed {
            return;
        }
        let next = |state: &Self| {
            let stream = state.stream_of(id).filter(|_| state.process(id).connected);
            stream.and_then(|stream| stream.down.first())
        };
        while next(self) == Some(Down::Acknowledged) {
            self.worker_hears(rules, id);
        }
    }

    fn write(&mut self, bounds: &Bounds, id: ProcessId) {
        let held = self.process(id).held;
        let Some(basis) = held.and_then(|held| held.claim.basis()) else {
            return;
        };
        self.left.writes = self.left.writes.saturating_sub(1);
        let number = bounds.budget.writes - self.left.writes;
        self.ask_store(id, Ask::Write { id: number, basis });
    }

    fn plan(&mut self, action: Action) {
        match action {
            Action::Grant(term, to) => {
                self.left.grants = self.left.grants.saturating_sub(1);
                let view = *self.view(term);
                let (seen, group) = (view.epoch, view.group);
                self.propose(term, Command::Grant { to, seen, group });
            }
            Action::Revoke(term, next) => {
                self.left.revokes = self.left.revokes.saturating_sub(1);
                let view = *self.view(term);
                let (seen, group) = (view.epoch, view.group);
                self.propose(term, Command::Revoke { seen, group, next });
            }
            Action::Delete(term) => {
                self.left.deletions = self.left.deletions.saturating_sub(1);
                self.propose(term, Command::Delete);
            }
            Action::Remove(term) => self.propose(term, Command::Remove),
            _ => {}
        }
    }

    /// Asks a node about the token that it takes for current.
    fn check_token(&mut self, term: Term) {
        let view = self.view(term);
        let owner = view.shard.owner();
        let valid = owner != 0
            && self.committed.owned_by(owner) == Some(view.epoch)
            && self.committed.session(owner).is_some();
        self.breaches.false_token |= owner != 0 && !valid;
    }
}
