//! What each step does.

use crate::action::Action;
use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Heartbeats;
use crate::ids::ProcessId;
use crate::ids::Term;
use crate::network::Down;
use crate::network::Stream;
use crate::ownership::Command;
use crate::rules::Rules;
use crate::state::State;
use crate::store::Ask;
use crate::worker::Phase;

impl State {
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
