//! One state of everything: what is committed and proposed, the leaders, the workers, the streams, the store.
//!
//! Time is relative: a state holds how long ago something was, never when. So two states that differ only
//! in the hour are one.

use crate::bounds::Budget;
use crate::bounds::Timing;
use crate::few::Few;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Leadership;
use crate::network::Stream;
use crate::ownership::Command;
use crate::ownership::Ownership;
use crate::rules::Rules;
use crate::store::Breach;
use crate::store::Store;
use crate::worker::Phase;
use crate::worker::Process;

/// How many worker processes there are at most.
pub const PROCESSES: usize = 3;

/// Most proposals that wait for their commit.
pub const PENDING_MAX: usize = 4;

/// Most streams that have not ended on both sides.
pub const STREAMS_MAX: usize = 6;

/// A proposal that is neither committed nor lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// Who proposed it.
    pub term: Term,
    /// What.
    pub command: Command,
    /// The session that is held until the outcome is known; 0 is none.
    pub holds: SessionId,
}

/// A leader that was deposed and does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zombie {
    /// What it goes on with.
    pub leadership: Leadership,
    /// What was committed when it was deposed.
    pub view: Ownership,
}

/// What must never happen and leaves no other trace. Nothing but the properties reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Breaches {
    /// A grant took an epoch that was granted before, or a lower one: P1.
    pub epoch_repeated: bool,
    /// The store accepted a write below a seal: P2.
    pub accepted_below_a_seal: bool,
    /// The store accepted a write whose owner had not seen the last one before: P3.
    pub lost_update: bool,
    /// The store accepted writes of two owners at one epoch.
    pub two_owners_of_one_epoch: bool,
    /// A token was called current that was not.
    pub false_token: bool,
    /// A leader that had stood still ended a session for the time in which it did.
    pub ended_by_a_woken_leader: bool,
    /// A process that was replaced replaced its successor.
    pub name_taken_back: bool,
}

impl Breaches {
    /// Notes what happened at the store.
    pub fn note(&mut self, breach: Breach) {
        self.accepted_below_a_seal |= breach.accepted_below_a_seal;
        self.lost_update |= breach.lost_update;
        self.two_owners_of_one_epoch |= breach.two_owners_of_one_epoch;
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What is committed.
    pub committed: Ownership,
    /// What is proposed, oldest first.
    pub pending: Few<Proposal, PENDING_MAX>,
    /// The leader in office.
    pub leader: Leadership,
    /// One that was deposed and goes on believing.
    pub zombie: Option<Zombie>,
    /// The workers.
    pub processes: [Process; PROCESSES],
    /// The streams between them, older ones first.
    pub streams: Few<Stream, STREAMS_MAX>,
    /// The store.
    pub store: Store,
    /// What has been used up of the budget.
    pub left: Budget,
    /// The highest epoch that was ever granted.
    pub granted: Epoch,
    /// The latest session that ended because its process was replaced, by process.
    pub replaced: [bool; PROCESSES],
    /// What went wrong.
    pub breaches: Breaches,
}

impl State {
    /// Nobody has registered; the first leader serves.
    pub fn cold(names: [u8; PROCESSES], budget: Budget) -> Self {
        let mut leader = Leadership::elected(1);
        leader.settled = true;
        leader.serving = true;
        let mut processes = names.map(Process::waiting);
        for process in processes.iter_mut().take(2) {
            process.phase = Phase::Running;
        }
        Self {
            committed: Ownership::EMPTY,
            pending: Few::EMPTY,
            leader,
            zombie: None,
            processes,
            streams: Few::EMPTY,
            store: Store::EMPTY,
            left: budget,
            granted: 0,
            replaced: [false; PROCESSES],
            breaches: Breaches::default(),
        }
    }

    /// A process.
    ///
    /// # Panics
    ///
    /// If there is none of that number.
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[usize::from(id)]
    }

    /// A process, to be changed.
    ///
    /// # Panics
    ///
    /// If there is none of that number.
    pub fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes[usize::from(id)]
    }

    /// The numbers of all processes.
    pub fn process_ids() -> impl Iterator<Item = ProcessId> {
        (0..PROCESSES).filter_map(|id| ProcessId::try_from(id).ok())
    }

    /// Time goes on, for everybody alike.
    pub fn tick(&mut self, rules: &Rules, timing: &Timing) {
        for id in Self::process_ids() {
            self.age_process(timing, id);
        }
        self.leader.age(rules, timing);
        if let Some(zombie) = &mut self.zombie {
            zombie.leadership.age(rules, timing);
        }
    }
}
