//! What is due: expiries, replacements, forced handoffs, rounds and plans.

use tenure_ownership::Command;
use tenure_ownership::State;
use tenure_ownership::command::EndPause;
use tenure_ownership::command::Force;
use tenure_ownership::group::Group;
use tenure_ownership::group::GroupPhase;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::planner::Observed;
use tenure_ownership::planner::PauseReason;
use tenure_ownership::planner::Plan;

use super::super::leases::Lease;
use super::super::message::Down;
use super::super::pauses::paused;
use super::super::registrations::Stage;
use super::Awaited;
use super::Core;
use super::Output;
use crate::clock::Moment;

/// Moves in one log entry. At some 20 bytes a move an entry stays well below a mebibyte, and a quarter of
/// a second is the most that one apply keeps others waiting.
const MOVES_PER_ENTRY: usize = 10_000;

impl Core {
    pub(super) fn tick(&mut self, now: Moment, state: &State) {
        self.expire(now);
        self.replace(now);
        self.force(now, state);
        self.end_pauses(now, state);
        self.retry_reports(now);
        self.settle(now);
        self.plan_measured(now);
        for group in self.handoffs.take_delays(now) {
            self.planning.touch(group);
        }
    }

    /// Proposes the end of every session that was silent for too long, in one entry.
    fn expire(&mut self, now: Moment) {
        let sessions = self.leases.overdue(now);
        if sessions.is_empty() {
            return;
        }
        for session in &sessions {
            self.leases.hold(*session);
        }
        self.propose(
            Command::Expire(sessions.clone()),
            Awaited::Expiry { sessions },
        );
    }

    /// Takes registrations a step further: damped ones are decided on, decided ones are proposed once
    /// their predecessor has stopped believing.
    fn replace(&mut self, now: Moment) {
        for (stream, candidate) in self.registrations.due(now) {
            match candidate.stage {
                Stage::Damped => self.decide_to_replace(stream, candidate),
                Stage::Decided => self.propose_registration(
                    stream,
                    candidate.register,
                    candidate.attempt,
                    Some(candidate.replaces),
                ),
            }
        }
    }

    /// Proposes the end of tenures whose drain is over.
    fn force(&mut self, now: Moment, state: &State) {
        for (group, drained) in self.handoffs.take_drained(now) {
            for tenures in drained.chunks(MOVES_PER_ENTRY) {
                let owners = Self::owners(state, group, tenures);
                for owner in &owners {
                    self.leases.hold(*owner);
                }
                let tenures = tenures.to_vec();
                let force = Force {
                    group,
                    tenures: tenures.clone(),
                };
                let awaited = Awaited::Force {
                    group,
                    tenures,
                    owners,
                };
                self.propose(Command::Force(force), awaited);
            }
        }
    }

    /// Proposes the end of every pause that has lasted for too long.
    fn end_pauses(&mut self, now: Moment, state: &State) {
        for pause in self.pauses.take_due(now) {
            let (group, since) = pause;
            let worker = state.group(group).and_then(|group| paused(group, since));
            let Some(worker) = worker.cloned() else {
                continue;
            };
            tracing::warn!(%group, %worker, "the pause of a worker is over");
            let end = EndPause {
                group,
                worker,
                since,
            };
            self.propose(Command::EndPause(end), Awaited::EndOfPause { pause });
        }
    }

    pub(super) fn begin_round(&mut self, now: Moment) {
        let due = self.rounds.due_at(self.leases.window_min(), now);
        if due.is_some_and(|due| due <= now) {
            let number = self.rounds.begin(now);
            self.outputs.push(Output::Round(number));
        }
    }

    /// Acknowledges what waited for the round, if it was confirmed.
    pub(super) fn round_ended(&mut self, number: u64, confirmed: bool, state: &State) {
        for (session, waiting) in self.rounds.finish(number, confirmed) {
            // The lease may know less than the state: an end that is applied is not always seen here yet.
            let Some(lease) = self
                .leases
                .get(session)
                .filter(|_| state.session(session).is_some())
            else {
                continue;
            };
            if lease.stream() != Some(waiting.stream) {
                continue;
            }
            // An end of a tenure is on its way: what was heard before it must not extend belief past it.
            if lease.is_undecided() {
                continue;
            }
            self.send(
                waiting.stream,
                Down::Ack {
                    sequence: waiting.sequence,
                },
            );
        }
    }

    pub(super) fn begin_plans(&mut self, now: Moment, state: &State) {
        for id in self.planning.take_due(now) {
            let Some(group) = state.group(id) else {
                self.planning.forget(id);
                continue;
            };
            match group.header.phase {
                GroupPhase::Active => {
                    let mut observed = self.observe(now, group);
                    observed.evened_out_by = self.asks.begin(id);
                    self.outputs.push(Output::Plan(id, observed));
                }
                GroupPhase::Deleting if self.asks.is_waiting(id) => {
                    self.answer_none(id);
                    self.planning.proposed(id, 0);
                    self.planning.touch(id);
                }
                GroupPhase::Deleting if group.unowned_count() == group.header.shard_count => {
                    self.planning.proposed(id, 1);
                    self.propose(Command::RemoveGroup(id), Awaited::Removal { group: id });
                }
                GroupPhase::Deleting => self.planning.proposed(id, 0),
            }
        }
    }

    /// What this leader knows of a group beside the state.
    pub(super) fn observe(&self, now: Moment, group: &Group) -> Observed {
        let moves_max = group.header.policy.moves_per_minute_max;
        let group = group.header.id;
        let sessions = |is: fn(&Lease) -> bool| {
            let found = self.leases.of_group(group).filter(|(_, lease)| is(lease));
            found.map(|(id, _)| id).collect()
        };
        Observed {
            seen: Some(self.seen),
            lock_delays: self.handoffs.lock_delays_of(group),
            restart_graces: self.handoffs.restart_graces_of(group),
            disconnected: sessions(|lease| lease.stream().is_none()),
            stopping: sessions(Lease::is_stopping),
            backing_off: self.handoffs.backing_off_of(group),
            opening_overdue: self.handoffs.overdue_openings_of(group),
            rebalance_paused: self.pause_reason(now, group),
            homes: self.homes.of_group(group),
            loads: self.loads.of_group(group),
            suspects: self.crashes.suspects_of(group, now),
            churn_left: moves_max.map(|most| self.churn.left(group, most, now)),
            evened_out_by: None,
        }
    }

    /// Nothing is rebalanced while most workers seem gone, and none by a fresh leader that has not heard from
    /// all of them: what looks idle then is about to come back.
    fn pause_reason(&self, now: Moment, group: GroupId) -> Option<PauseReason> {
        if self.leases.in_mass_failure(group) {
            return Some(PauseReason::MassFailure);
        }
        let unheard = |lease: &Lease| !lease.was_attached() && now < self.accepted_at + lease.ttl;
        let cold = self.leases.of_group(group).any(|(_, lease)| unheard(lease));
        cold.then_some(PauseReason::NewLeader)
    }

    /// Proposes the moves of a plan, in pieces.
    pub(super) fn planned(&mut self, plan: Plan) {
        self.answer(&plan);
        let group = plan.group;
        for session in &plan.stranded {
            self.dismiss(*session);
        }
        let commands: Vec<Command> = plan.into_commands(MOVES_PER_ENTRY).collect();
        self.planning.proposed(group, commands.len());
        for command in commands {
            self.propose(command, Awaited::Assignment { group });
        }
    }

    /// Tells a worker that stops that it waits for nothing.
    fn dismiss(&mut self, session: SessionId) {
        let lease = self.leases.get(session).filter(|lease| lease.is_stopping());
        if let Some(stream) = lease.and_then(Lease::stream) {
            self.send(stream, Down::Dismissed);
        }
    }
}
