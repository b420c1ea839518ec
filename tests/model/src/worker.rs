//! A worker process: its belief, and the tenure it holds. The counterpart of `worker-sdk/src/session`.
//!
//! Nothing here is done in time: a process acts whenever the checker lets it, so one that does not
//! act for a while is a process that is paused. Only what a handle finds out by comparing its clock holds at once.

use crate::bounds::Timing;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Ticks;
use crate::ids::WriteId;
use crate::ids::aged;
use crate::network::Close;
use crate::network::Down;
use crate::network::Duty;
use crate::network::Up;
use crate::rules::Rules;
use crate::state::State;
use crate::store::Answer;
use crate::store::Ask;
use crate::store::Request;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started yet.
    Waiting,
    /// It runs, or is paused.
    Running,
    /// It crashed, or it was replaced and has stopped.
    Dead,
}

/// How far an owner has come with opening its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// It has read nothing.
    None,
    /// It has read, without a seal.
    Read(WriteId),
    /// It has sealed, and read.
    Sealed(WriteId),
}

impl Claim {
    /// What the owner has read.
    pub fn basis(self) -> Option<WriteId> {
        match self {
            Self::None => None,
            Self::Read(basis) | Self::Sealed(basis) => Some(basis),
        }
    }
}

/// A tenure that a process holds: its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Its epoch.
    pub epoch: Epoch,
    /// The session it was granted to.
    pub owner: SessionId,
    /// The revision of the message that opened it: an older `Set` says nothing about it.
    pub opened_at: Revision,
    /// What was read.
    pub claim: Claim,
    /// What is left of the drain, once it was asked back.
    pub drain: Option<Ticks>,
    /// The handle is dead, and the coordinator has not been told.
    pub dead: bool,
}

/// One worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its worker's name.
    pub name: u8,
    /// Whether it runs.
    pub phase: Phase,
    /// Its session; 0 if it has none.
    pub session: SessionId,
    /// The latest session it had; 0 if it never had one.
    pub previous: SessionId,
    /// The number of its latest stream.
    pub attempt: Attempt,
    /// It has that stream.
    pub connected: bool,
    /// The `Set` of that stream has arrived.
    pub set: bool,
    /// How long ago the latest acknowledged message was sent; `None` before the first acknowledgement on
    /// the stream.
    pub acknowledged: Option<Ticks>,
    /// How long ago the latest heartbeat, or the opening message of the stream, was sent; `None` once
    /// it is acknowledged.
    pub sent: Option<Ticks>,
    /// How long ago the present stream was opened; `None` once anything on it is acknowledged, and without one.
    pub opened: Option<Ticks>,
    /// How long ago the lease was renewed.
    pub lease: Ticks,
    /// What it holds.
    pub held: Option<Held>,
    /// The latest tenure it gave up: none up to it is opened again.
    pub closed: Epoch,
}

impl Process {
    /// A process that was not started.
    pub fn waiting(name: u8) -> Self {
        Self {
            name,
            phase: Phase::Waiting,
            session: 0,
            previous: 0,
            attempt: 0,
            connected: false,
            set: false,
            acknowledged: None,
            sent: None,
            opened: None,
            lease: 0,
            held: None,
            closed: 0,
        }
    }

    /// It is gone, and what it knew with it.
    fn die(&mut self) {
        *self = Self {
            phase: Phase::Dead,
            attempt: self.attempt,
            ..Self::waiting(self.name)
        };
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// What it holds and may use.
    pub fn handle(&self) -> Option<Held> {
        self.held.filter(|held| self.is_running() && !held.dead)
    }

    /// What `HeldShard::is_current` says: `worker-sdk/src/held_shard.rs`, `require_current`.
    pub fn is_current(&self, timing: &Timing) -> bool {
        let in_window = self.acknowledged.is_some_and(|age| age < timing.window);
        self.handle().is_some() && in_window
    }

    /// Gives the tenure up without a word to anybody.
    fn lose(&mut self) {
        if let Some(held) = self.held.take() {
            self.closed = self.closed.max(held.epoch);
        }
    }

    /// `worker-sdk/src/session/attachment.rs`, `end_session`.
    fn end_session(&mut self) {
        self.lose();
        self.session = 0;
        self.acknowledged = None;
        self.sent = None;
        self.lease = 0;
    }

    fn disconnect(&mut self) {
        self.connected = false;
        self.set = false;
        self.opened = None;
        self.sent = None;
    }

    /// A tick passes. What a handle finds out by its clock alone holds at once. Returns whether the lease
    /// has ended, and the session with it.
    fn age(&mut self, timing: &Timing) -> bool {
        if !self.is_running() {
            return false;
        }
        self.opened = self
            .opened
            .map(|age| aged(age, timing.ttl.max(timing.drain)));
        if self.session == 0 {
            return false;
        }
        self.sent = self.sent.map(|age| aged(age, timing.ttl));
        // What is older is no longer told apart: neither belief nor a drain is left.
        let longest = timing.drain.max(timing.window);
        self.acknowledged = self.acknowledged.map(|age| aged(age, longest));
        self.lease = aged(self.lease, timing.ttl);
        if let Some(held) = &mut self.held {
            held.drain = held.drain.map(|left| left.saturating_sub(1));
            held.dead |= held.drain == Some(0);
        }
        let ended = self.lease >= timing.ttl;
        if ended {
            self.end_session();
        }
        ended
    }

    /// Begins a tenure, unless it or a later one was given up: `worker-sdk/src/session/converge.rs`, `open`.
    fn open(&mut self, rules: &Rules, epoch: Epoch, revision: Revision) {
        if rules.closed_tenure_stays_closed && self.closed >= epoch {
            return;
        }
        if self.held.is_some_and(|held| held.epoch >= epoch) {
            return;
        }
        self.lose();
        self.held = Some(Held {
            epoch,
            owner: self.session,
            opened_at: revision,
            claim: Claim::None,
            drain: None,
            dead: false,
        });
    }

    /// Is asked for its shard: `worker-sdk/src/session/belief.rs`, `drain_deadline`.
    fn revoke(&mut self, rules: &Rules, drain: Ticks) {
        let counted = if rules.drain_counts_from_the_acknowledged {
            self.acknowledged.or(self.opened).unwrap_or(0)
        } else {
            0
        };
        let left = drain.saturating_sub(counted);
        if let Some(held) = &mut self.held {
            // A later deadline never replaces an earlier one.
            let left = held.drain.map_or(left, |before| before.min(left));
            held.drain = Some(left);
            held.dead |= left == 0;
        }
    }
}

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
                previous: process.previous,
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
            process.previous = session;
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
