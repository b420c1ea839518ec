//! The usual run: three quarters of a minute in which anything can go wrong at any time.

use std::time::Duration;

use super::{Run, RunError, Scenario, WORKERS, lock};
use crate::machine::Machine;
use crate::process::Pause;
use crate::totals::HANDOFFS_MIN;

/// How long it lasts. What is left of the minute is calm.
const STORM: Duration = Duration::from_secs(42);

/// How long it may go on for the handoffs that a run must have: in one of two thousand storms few happen.
const STORM_MAX: Duration = Duration::from_secs(180);

/// How often, in thousand, something in a storm with bad clocks begins with a drained worker that is cut off.
const CUT_OFF_DRAINED: u32 = 400;

/// What happens next, each with its weight.
const WHAT: &[(usize, What)] = &[
    (6, What::KillNode),
    (4, What::PowerLoss),
    (1, What::PowerLossOfAll),
    (5, What::PauseNode),
    (2, What::SuspendNode),
    (3, What::SlowDisk),
    (3, What::StallDisk),
    (3, What::FailSync),
    (8, What::KillWorker),
    (3, What::LoseWorker),
    (9, What::PauseWorker),
    (3, What::SuspendWorker),
    (3, What::StepClock),
    (5, What::CutOff),
    (4, What::CutOffLeader),
    (4, What::CutOffLeaderWithWorker),
    (6, What::CutOneWay),
    (6, What::CutLink),
    (5, What::HoldLink),
    (5, What::LossyLink),
    (5, What::SlowLink),
    (3, What::FailStore),
    (14, What::Drain),
    (4, What::Cordon),
    (6, What::Pause),
    (8, What::Activate),
    (2, What::Freeze),
    (3, What::Thaw),
    (4, What::Pin),
    (2, What::Unpin),
    (2, What::Rebalance),
    (10, What::RestartWorker),
    (4, What::RestartNode),
    (3, What::SetTerms),
    (5, What::Transfer),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    KillNode,
    PowerLoss,
    PowerLossOfAll,
    PauseNode,
    SuspendNode,
    SlowDisk,
    StallDisk,
    FailSync,
    KillWorker,
    LoseWorker,
    PauseWorker,
    SuspendWorker,
    StepClock,
    CutOff,
    CutOffLeader,
    CutOffLeaderWithWorker,
    CutOneWay,
    CutLink,
    HoldLink,
    LossyLink,
    SlowLink,
    FailStore,
    Drain,
    Cordon,
    Pause,
    Activate,
    Freeze,
    Thaw,
    Pin,
    Unpin,
    Rebalance,
    RestartWorker,
    RestartNode,
    SetTerms,
    Transfer,
}

impl Run {
    pub(super) fn storm(&mut self) -> Result<(), RunError> {
        let begun = self.now();
        while self.now() < begun + STORM
            || (self.lacks_handoffs() && self.now() < begun + STORM_MAX)
        {
            let pause = self.dice.millis(200..=1_600);
            self.pass(pause)?;
            if self.scenario == Scenario::Skewed && self.dice.chance(CUT_OFF_DRAINED) {
                self.cut_off_drained()?;
            }
            self.happen();
        }
        Ok(())
    }

    fn lacks_handoffs(&self) -> bool {
        lock(&self.history).totals.handoffs < HANDOFFS_MIN
    }

    /// Drains a worker and cuts it off before it can let go. What it believes ends by its own clock, and what
    /// the leader waits for by the leader's.
    fn cut_off_drained(&mut self) -> Result<(), RunError> {
        let worker = self.some_worker();
        self.drain(worker, true);
        // The order reaches the leader, and hardly more.
        let ordered = self.dice.millis(10..=100);
        self.pass(ordered)?;
        let time = self.dice.millis(2_000..=3_000);
        self.cut_off(&[worker], time);
        self.note("drained worker cut off", worker);
        self.pass(time)?;
        self.drain(worker, false);
        Ok(())
    }

    fn happen(&mut self) {
        let all: usize = WHAT.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.dice.below(all);
        for (weight, what) in WHAT {
            if drawn < *weight {
                self.carry_out(*what);
                return;
            }
            drawn -= weight;
        }
    }

    fn carry_out(&mut self, what: What) {
        match what {
            What::KillNode
            | What::PowerLoss
            | What::PowerLossOfAll
            | What::PauseNode
            | What::SuspendNode
            | What::SlowDisk
            | What::StallDisk
            | What::FailSync => self.harm_node(what),
            What::KillWorker
            | What::LoseWorker
            | What::PauseWorker
            | What::SuspendWorker
            | What::StepClock => self.harm_worker(what),
            What::CutOff | What::CutOffLeader | What::CutOffLeaderWithWorker => self.isolate(what),
            What::CutOneWay | What::CutLink | What::HoldLink | What::LossyLink | What::SlowLink => {
                self.harm_link(what)
            }
            What::FailStore => {
                let time = self.dice.millis(200..=3_000);
                self.store
                    .fail_until(self.stamp.now_ns() + super::nanos(time));
                self.note("store failed", self.client());
            }
            What::Drain
            | What::Cordon
            | What::Pause
            | What::Activate
            | What::Freeze
            | What::Thaw
            | What::Pin
            | What::Unpin
            | What::Rebalance => self.operate(what),
            What::RestartWorker | What::RestartNode | What::SetTerms | What::Transfer => {
                self.give_order(what)
            }
        }
    }

    pub(super) fn some_node(&mut self) -> usize {
        self.dice.below(self.nodes)
    }

    pub(super) fn some_worker(&mut self) -> usize {
        self.nodes + self.dice.below(WORKERS)
    }

    /// Draws a node that is up, and which may fail too: mostly a majority is left.
    pub(super) fn node_to_harm(&mut self) -> Option<usize> {
        let down = self.machines.iter().take(self.nodes);
        let down = down.filter(|machine| !machine.is_up()).count();
        let may_lose_quorum = self.dice.chance(80);
        let node = self.some_node();
        let is_up = self.machines.get(node).is_some_and(Machine::is_up);
        (is_up && (may_lose_quorum || down < (self.nodes - 1) / 2)).then_some(node)
    }

    fn harm_node(&mut self, what: What) {
        if what == What::PowerLossOfAll {
            for node in 0..self.nodes {
                let back = self.dice.millis(200..=2_000);
                self.kill(node, true, back);
            }
            self.note("all nodes lost power", 0);
            return;
        }
        let Some(node) = self.node_to_harm() else {
            return;
        };
        let back = self.dice.millis(200..=5_000);
        match what {
            What::KillNode => {
                self.kill(node, false, back);
                self.note("node killed", node);
            }
            What::PowerLoss => {
                self.kill(node, true, back);
                self.note("node lost power", node);
            }
            What::PauseNode => {
                let time = self.dice.millis(100..=7_000);
                self.pause(node, Pause::Stopped, time);
                self.note("node paused", node);
            }
            What::SuspendNode => {
                let time = self.dice.millis(100..=7_000);
                self.pause(node, Pause::Suspended, time);
                self.note("node suspended", node);
            }
            _ => self.harm_disk(what, node),
        }
    }

    fn harm_disk(&mut self, what: What, node: usize) {
        let Some(disk) = self.machines.get(node).and_then(Machine::disk).cloned() else {
            return;
        };
        match what {
            What::SlowDisk => {
                disk.set_sync_duration(self.dice.millis(20..=200));
                let time = self.dice.millis(1_000..=8_000);
                self.mend_after(time, super::Mending::QuickDisk(node));
                self.note("disk slow", node);
            }
            What::StallDisk => {
                disk.stall(self.dice.millis(500..=7_000));
                self.note("disk stalled", node);
            }
            _ => {
                // The node ends itself, and is started again on what is there.
                disk.break_syncs();
                self.note("sync failed", node);
            }
        }
    }

    fn harm_worker(&mut self, what: What) {
        let worker = self.some_worker();
        if !self.machines.get(worker).is_some_and(Machine::is_up) {
            return;
        }
        match what {
            What::KillWorker => {
                let back = self.dice.millis(50..=6_000);
                self.kill(worker, false, back);
                self.note("worker killed", worker);
            }
            What::LoseWorker => {
                // Nobody hears that its sockets are closed.
                let time = self.dice.millis(1_000..=8_000);
                self.cut_off(&[worker], time);
                self.kill(worker, true, time);
                self.note("worker lost", worker);
            }
            What::PauseWorker => {
                let time = self.dice.millis(100..=9_000);
                self.pause(worker, Pause::Stopped, time);
                self.note("worker paused", worker);
            }
            What::SuspendWorker => {
                let time = self.dice.millis(100..=9_000);
                self.pause(worker, Pause::Suspended, time);
                self.note("worker suspended", worker);
            }
            _ => {
                let step = self.dice.millis(50..=4_000);
                if let Some(machine) = self.machines.get(worker) {
                    machine.clock.advance(step);
                }
                self.note("clock stepped", worker);
            }
        }
    }

    fn isolate(&mut self, what: What) {
        let time = self.dice.millis(200..=6_000);
        let leader = self.leader();
        match (what, leader) {
            (What::CutOff, _) => {
                let machine = self.dice.below(self.client());
                self.cut_off(&[machine], time);
                self.note("machine cut off", machine);
            }
            (What::CutOffLeader, Some(leader)) => {
                self.cut_off(&[leader], time);
                self.note("leader cut off", leader);
            }
            (_, Some(leader)) => {
                let worker = self.some_worker();
                self.cut_off(&[leader, worker], time);
                self.note("leader and a worker cut off", leader);
            }
            (_, None) => {}
        }
    }

    fn harm_link(&mut self, what: What) {
        // One end is a node: workers do not talk to each other.
        let node = self.some_node();
        let other = self.dice.below(self.machines.len());
        if node == other {
            return;
        }
        let time = self.dice.millis(200..=7_000);
        match what {
            What::CutOneWay => {
                if self.dice.chance(500) {
                    self.cut_one_way(node, other, time);
                } else {
                    self.cut_one_way(other, node, time);
                }
                self.note("one-way cut", node);
            }
            What::CutLink => {
                self.cut(node, other, time);
                self.note("link cut", node);
            }
            What::HoldLink => {
                self.hold(node, other, time);
                self.note("link held", node);
            }
            What::LossyLink => {
                self.lose(node, other, time);
                self.note("link lossy", node);
            }
            _ => {
                let delay = self.dice.millis(40..=600);
                self.slow(node, other, delay, time);
                self.note("link slow", node);
            }
        }
    }
}
