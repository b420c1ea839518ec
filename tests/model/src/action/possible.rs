//! Which steps may follow on a state.

use crate::action::Action;
use crate::bounds::Bounds;
use crate::bounds::Heartbeats;
use crate::ids::ProcessId;
use crate::ids::Term;
use crate::leader::Leadership;
use crate::leader::Waiting;
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
}
