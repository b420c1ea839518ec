//! What workers say to a leader, and streams that end.

use crate::bounds::Timing;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Candidate;
use crate::leader::Lease;
use crate::leader::Waiting;
use crate::network::Close;
use crate::network::Down;
use crate::network::Duty;
use crate::network::Up;
use crate::ownership::Command;
use crate::ownership::Register;
use crate::ownership::Shard;
use crate::rules::Rules;
use crate::state::State;

impl State {
    /// A leader hears the next message of a stream: `coordinator/src/control/core/reports.rs` and `opening.rs`.
    pub fn leader_hears(&mut self, rules: &Rules, timing: &Timing, at: usize) {
        let Some((stream, message)) = self.next_up(at) else {
            return;
        };
        let (process, attempt, term) = (stream.process, stream.attempt, stream.term);
        match message {
            Up::Register { first } => {
                self.on_register(rules, timing, term, process, attempt, first);
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
        first: SessionId,
    ) {
        let name = self.process(process).name;
        let mut register = Register {
            process,
            name,
            attempt,
            first,
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
        let was_replaced = holder.is_newer_than(first);
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
    pub(super) fn attach(
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
}
