//! What a worker makes of what it hears.

use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::network::Close;
use crate::network::Down;
use crate::network::Duty;
use crate::network::Up;
use crate::rules::Rules;
use crate::state::State;
use crate::worker::Claim;
use crate::worker::Held;
use crate::worker::Process;

impl State {
    /// A process takes the next message of its stream.
    pub fn worker_hears(&mut self, rules: &Rules, id: ProcessId) {
        let Some(message) = self.next_down(id) else {
            return;
        };
        let process = self.process_mut(id);
        match message {
            Down::Set {
                session,
                revision,
                shard,
            } => self.on_set(rules, id, session, revision, shard),
            Down::Acknowledged => {
                let Some(sent) = process.sent.take() else {
                    return;
                };
                let age = if rules.belief_counts_from_sending {
                    sent
                } else {
                    0
                };
                process.acknowledged = Some(age);
                process.lease = process.lease.min(age);
                process.opened = None;
            }
            Down::Granted { epoch, revision } => process.open(rules, epoch, revision),
            Down::Revoke { epoch, drain } => {
                if process.held.is_some_and(|held| held.epoch == epoch) {
                    process.revoke(rules, drain);
                }
            }
            Down::Lost(epoch) => {
                if process.held.is_some_and(|held| held.epoch <= epoch) {
                    process.lose();
                }
                process.closed = process.closed.max(epoch);
            }
            Down::Close(close) => {
                process.disconnect();
                match close {
                    Close::SessionEnded => process.end_session(),
                    Close::Replaced => process.die(),
                    Close::Retry => {}
                }
                self.drop_worker_end(id);
            }
        }
    }

    /// Takes the `Set` of a stream, and answers it: `worker-sdk/src/session/attachment.rs`, `on_registered`, and
    /// `converge.rs`, `on_set`.
    fn on_set(
        &mut self,
        rules: &Rules,
        id: ProcessId,
        session: SessionId,
        revision: Revision,
        shard: Option<(Epoch, Duty)>,
    ) {
        let process = self.process_mut(id);
        if process.session != session {
            process.end_session();
            process.session = session;
            if process.first == 0 {
                process.first = session;
            }
        }
        process.sent = process.opened;
        process.acknowledged = None;
        process.set = true;
        if process.held.is_some_and(|held| held.dead) {
            process.lose();
        }
        let named = shard.map_or(0, |(epoch, _)| epoch);
        let is_gone = |held: &Held| held.opened_at <= revision && held.epoch != named;
        if process.held.is_some_and(|held| is_gone(&held)) {
            process.lose();
        }
        let mut report = None;
        if let Some((epoch, duty)) = shard {
            report = process.on_set_shard(rules, epoch, duty, revision);
        }
        let held = process.held;
        if let Some(report) = report {
            self.say(id, report);
        }
        let epoch = held.map_or(0, |held| held.epoch);
        self.say(
            id,
            Up::Holding {
                set: revision,
                epoch,
            },
        );
    }
}

impl Process {
    /// Takes what a `Set` says of the shard; returns what is to be said about it. `converge.rs`, `on_set_shard`.
    fn on_set_shard(
        &mut self,
        rules: &Rules,
        epoch: Epoch,
        duty: Duty,
        revision: Revision,
    ) -> Option<Up> {
        if let Some(held) = self.held {
            if held.epoch != epoch {
                return None;
            }
            if let Duty::Drain(left) = duty {
                self.revoke(rules, left);
            }
            let ready = matches!(held.claim, Claim::Sealed(_))
                && duty == Duty::Open
                && rules.ready_is_said_again;
            return ready.then_some(Up::Ready(epoch));
        }
        if self.closed == epoch && rules.closed_tenure_stays_closed {
            // The report of it was lost, and says more than its absence would.
            return rules.release_is_said_again.then_some(Up::Released(epoch));
        }
        if self.closed > epoch && rules.closed_tenure_stays_closed {
            return None;
        }
        if matches!(duty, Duty::Drain(_)) {
            self.closed = self.closed.max(epoch);
            return Some(Up::Released(epoch));
        }
        self.open(rules, epoch, revision);
        None
    }
}
