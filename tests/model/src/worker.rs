//! A worker process: its belief, and the tenure it holds. The counterpart of `worker-sdk/src/session`.
//!
//! Nothing here is done in time: a process acts whenever the checker lets it, so one that does not
//! act for a while is a process that is paused. Only what a handle finds out by comparing its clock holds at once.

mod acting;
mod hearing;

use crate::bounds::Timing;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Ticks;
use crate::ids::WriteId;
use crate::ids::aged;
use crate::rules::Rules;

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
    /// The first session it had; 0 if it never had one.
    pub first: SessionId,
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
            first: 0,
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
