//! What a worker does: connects, says that it lives, uses the store, gives back, dies.

use crate::bounds::Timing;
use crate::ids::ProcessId;
use crate::network::Up;
use crate::rules::Rules;
use crate::state::State;
use crate::store::Answer;
use crate::store::Ask;
use crate::store::Request;
use crate::worker::Claim;
use crate::worker::Held;

impl State {
    /// A tick passes for a process.
    pub fn age_process(&mut self, timing: &Timing, id: ProcessId) {
        if self.process_mut(id).age(timing) {
            // Whatever the process does next, it does this first: `worker-sdk/src/session.rs`, `tick`.
            self.worker_notices(id);
        }
    }

    /// A process opens a stream to a leader: `worker-sdk/src/session/attachment.rs`, `open_link`.
    pub fn connect(&mut self, id: ProcessId, term: u8) {
        let process = self.process_mut(id);
        process.attempt += 1;
        process.connected = true;
        process.set = false;
        process.opened = Some(0);
        let first = if process.session == 0 {
            Up::Register {
                first: process.first,
            }
        } else {
            Up::Resume(process.session)
        };
        let attempt = process.attempt;
        self.open_stream(id, attempt, term, first);
    }

    /// A process notices that its stream is cut.
    pub fn worker_notices(&mut self, id: ProcessId) {
        self.drop_worker_end(id);
        self.process_mut(id).disconnect();
    }

    /// A process dies: its kernel ends its stream.
    pub fn crash(&mut self, id: ProcessId) {
        self.drop_worker_end(id);
        self.process_mut(id).die();
    }

    /// A process says that it lives: `worker-sdk/src/session.rs`, `send_heartbeat`.
    pub fn send_heartbeat(&mut self, id: ProcessId) {
        self.process_mut(id).sent = Some(0);
        self.say(id, Up::Heartbeat);
    }

    /// A handler returns, or the death of a handle is reported: `worker-sdk/src/session/holdings.rs`, `close` and
    /// `give_up`. The handle is dead before anything is said.
    pub fn give_back(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        let Some(held) = process.held else { return };
        process.lose();
        if process.set {
            self.say(id, Up::Released(held.epoch));
        }
    }

    /// A process asks the store for something.
    pub fn ask_store(&mut self, id: ProcessId, ask: Ask) {
        let Some(held) = self.process(id).held else {
            return;
        };
        self.store.in_flight.push(Request {
            process: id,
            epoch: held.epoch,
            owner: held.owner,
            ask,
        });
    }

    /// A request arrives at the store, and its answer at whoever sent it, unless that is lost.
    pub fn store_answers(&mut self, rules: &Rules, at: usize, heard: bool) {
        let Some(request) = self.store.in_flight.remove(at) else {
            return;
        };
        let (answer, breach) = self.store.handle(rules, request);
        self.breaches.note(breach);
        let process = self.process_mut(request.process);
        let of_handle =
            |held: &Held| held.epoch == request.epoch && held.owner == request.owner && !held.dead;
        let Some(mut held) = process.held.filter(of_handle).filter(|_| heard) else {
            return;
        };
        match (answer, request.ask) {
            (Answer::Refused, _) => held.dead = true,
            (Answer::Found(found), Ask::Read) => held.claim = Claim::Read(found),
            (Answer::Found(found), _) if rules.seal_before_read => {
                held.claim = Claim::Sealed(found);
            }
            // What was read before is not read again.
            (Answer::Found(found), _) => {
                held.claim = Claim::Sealed(held.claim.basis().unwrap_or(found));
            }
            (Answer::Written, _) => {}
        }
        process.held = Some(held);
        let claimed = matches!(held.claim, Claim::Sealed(_)) && request.ask == Ask::Seal;
        if claimed && process.set {
            self.say(request.process, Up::Ready(held.epoch));
        }
    }
}
