//! A leadership: the leases in its memory, and what it decides. The counterpart of `coordinator/src/control`.
//!
//! It lives as long as its node believes to lead, which may be longer than it does: then its view of what is
//! committed stands still, no round of it is answered, and nothing it proposes commits once the next
//! leader has settled.

mod deciding;
mod hearing;
mod lease;

pub use lease::Lease;
pub use lease::Waiting;

use crate::bounds::Timing;
use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::ids::Ticks;
use crate::ids::aged;
use crate::ownership::LIVE_MAX;
use crate::ownership::Register;
use crate::rules::Rules;

/// A registration that waits for the belief of the process it replaces to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// What will be proposed.
    pub register: Register,
}

/// One leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leadership {
    /// Its number.
    pub term: Term,
    /// An entry of its term is applied.
    pub settled: bool,
    /// It accepts streams.
    pub serving: bool,
    /// Its process stands still.
    pub paused: bool,
    /// Its sessions.
    pub leases: Few<Lease, LIVE_MAX>,
    /// How long ago the drain of the tenure that is being revoked began.
    pub drain: Option<Ticks>,
    /// A registration that waits.
    pub candidate: Option<Candidate>,
    /// A round is answered, and what it confirmed is not acknowledged yet.
    pub round_answered: bool,
}

impl Leadership {
    /// A leader that was just elected.
    pub fn elected(term: Term) -> Self {
        Self {
            term,
            settled: false,
            serving: false,
            paused: false,
            leases: Few::EMPTY,
            drain: None,
            candidate: None,
            round_answered: false,
        }
    }

    /// Whether it can do anything now.
    pub fn acts(&self) -> bool {
        self.serving && !self.paused
    }

    /// The lease of a session.
    pub fn lease(&self, session: SessionId) -> Option<Lease> {
        self.leases.find(|lease| lease.session == session)
    }

    pub(super) fn lease_mut(&mut self, session: SessionId) -> Option<&mut Lease> {
        self.leases
            .iter_mut()
            .find(|lease| lease.session == session)
    }

    /// The lease whose present stream is that one.
    pub fn lease_of(&self, process: ProcessId, attempt: Attempt) -> Option<Lease> {
        self.leases
            .find(|lease| lease.process == process && lease.stream == attempt)
    }

    /// Notes a decision to end a tenure of a session.
    pub(super) fn hold(&mut self, session: SessionId) {
        if let Some(lease) = self.lease_mut(session) {
            lease.undecided += 1;
        }
    }

    /// Its outcome is known. A worker that was turned away meanwhile gets its grace anew.
    pub(super) fn release(&mut self, session: SessionId) {
        if let Some(lease) = self.lease_mut(session) {
            lease.undecided = lease.undecided.saturating_sub(1);
            if lease.undecided == 0 && lease.broken.is_some() {
                lease.broken = Some(0);
                lease.asleep = 0;
            }
        }
    }

    /// A tick passes.
    pub fn age(&mut self, rules: &Rules, timing: &Timing) {
        if self.paused && rules.woken_leader_moves_its_deadlines {
            return;
        }
        let asleep = u8::from(self.paused);
        for lease in self.leases.iter_mut() {
            lease.heard = aged(lease.heard, timing.window);
            let counts = lease.alive < timing.ttl;
            lease.alive = aged(lease.alive, timing.ttl);
            lease.broken = lease.broken.map(|age| aged(age, timing.window));
            lease.asleep += if counts { asleep } else { 0 };
        }
        let longest = timing.drain.max(timing.window);
        self.drain = self.drain.map(|age| aged(age, longest));
    }

    /// Whether the drain that runs is over: `coordinator/src/control/handoffs.rs`, `drain`.
    pub fn drain_is_over(&self, rules: &Rules, timing: &Timing) -> bool {
        let wait = if rules.force_waits_for_belief {
            timing.drain.max(timing.window)
        } else {
            timing.drain
        };
        self.drain.is_some_and(|age| age >= wait)
    }

    /// Whether the registration that waits may be proposed.
    pub fn candidate_is_due(&self, rules: &Rules, timing: &Timing) -> bool {
        let Some(candidate) = self.candidate else {
            return false;
        };
        let over = self
            .lease(candidate.register.replaces)
            .is_none_or(|lease| lease.heard >= timing.window);
        over || !rules.replacement_waits_for_belief
    }
}
