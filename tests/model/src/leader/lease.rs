//! What a leader knows of a session. The counterpart of `coordinator/src/control/leases.rs`.

use crate::bounds::Timing;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Ticks;
use crate::ownership::Live;
use crate::rules::Rules;

/// How far a heartbeat has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// None waits.
    Nothing,
    /// It waits for a round to begin; with the stream it came on.
    ForRound(Attempt),
    /// A quorum has answered the round that began after it came.
    Confirmed(Attempt),
}

/// What the leader knows of a session: `coordinator/src/control/leases.rs`, `Lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Its process.
    pub process: ProcessId,
    /// How long ago the last heartbeat came that may be acknowledged: belief counts from here.
    pub heard: Ticks,
    /// How long ago the last sign of life came: silence counts from here.
    pub alive: Ticks,
    /// How long ago the present stream broke.
    pub broken: Option<Ticks>,
    /// The session's present stream; 0 if it has none.
    pub stream: Attempt,
    /// The highest attempt seen.
    pub attempt: Attempt,
    /// The `Set` of the present stream: its revision, and the tenure in it until it was answered.
    pub set: Revision,
    /// The tenure in that `Set`; `None` once it was answered.
    pub unanswered: Option<Epoch>,
    /// Decisions to end a tenure of the session whose outcome is not known.
    pub undecided: u8,
    /// A heartbeat that is to be acknowledged.
    pub waiting: Waiting,
    /// Ticks of the silence in which the leader itself stood still. Nothing but a property reads it.
    pub asleep: Ticks,
}

impl Lease {
    pub(super) fn new(live: Live, age: (Ticks, Ticks)) -> Self {
        Self {
            session: live.session,
            process: live.process,
            heard: age.0,
            alive: age.1,
            broken: None,
            stream: 0,
            attempt: 0,
            set: 0,
            unanswered: None,
            undecided: 0,
            waiting: Waiting::Nothing,
            asleep: 0,
        }
    }

    /// Whether the session may be expired: `coordinator/src/control/leases.rs`, `deadline`.
    pub fn is_overdue(&self, rules: &Rules, timing: &Timing) -> bool {
        let grace = if rules.expiry_waits_for_belief {
            timing.window
        } else {
            0
        };
        let broken = self.broken.is_some_and(|age| age >= grace);
        self.undecided == 0 && (broken || self.alive >= timing.ttl)
    }

    /// Whether it would be overdue also without the time in which the leader stood still.
    pub(super) fn was_silent_itself(&self, timing: &Timing) -> bool {
        let broken = self
            .broken
            .is_some_and(|age| age.saturating_sub(self.asleep) >= timing.window);
        broken || self.alive.saturating_sub(self.asleep) >= timing.ttl
    }

    /// A sign of life came.
    pub(super) fn lives(&mut self, counts: bool) {
        self.alive = 0;
        self.asleep = 0;
        if counts {
            self.heard = 0;
        }
    }
}
