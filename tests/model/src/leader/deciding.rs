//! What a leader begins, proposes and acknowledges, and what it makes of what was committed.

use crate::bounds::Timing;
use crate::few::Few;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Lease;
use crate::leader::Waiting;
use crate::network::Close;
use crate::network::Down;
use crate::ownership::Command;
use crate::ownership::Event;
use crate::ownership::Outcome;
use crate::ownership::Rejection;
use crate::ownership::SessionEnd;
use crate::ownership::Shard;
use crate::rules::Rules;
use crate::state::Proposal;
use crate::state::State;

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
