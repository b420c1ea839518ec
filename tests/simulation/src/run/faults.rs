//! What can go wrong, and how it is mended.

use std::time::Duration;

use super::{Run, RunError, lock, nanos};
use crate::machine::Role;
use crate::process::Pause;

/// The longest that a message usually takes.
pub(super) const USUAL_DELAY: Duration = Duration::from_millis(8);

/// How long a sync usually takes.
const USUAL_SYNC: Duration = Duration::from_millis(2);

/// What ends a fault. Machines are named by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mending {
    /// A machine that is down is started.
    Start(usize),
    /// A paused process goes on.
    Resume(usize),
    /// Two machines reach each other again.
    Repair(usize, usize),
    /// One machine reaches another again.
    RepairOneWay(usize, usize),
    /// What was held between two machines arrives.
    Release(usize, usize),
    /// A link loses nothing any more.
    Lossless(usize, usize),
    /// A link is as quick as usual.
    Quick(usize, usize),
    /// A disk is as quick as usual.
    QuickDisk(usize),
}

impl Run {
    pub(super) fn mend_after(&mut self, after: Duration, mending: Mending) {
        let at = self.stamp.now_ns() + nanos(after);
        self.mendings.push((at, mending));
    }

    pub(super) fn mend_due(&mut self) -> Result<(), RunError> {
        let now = self.stamp.now_ns();
        // In the order in which they were planned.
        while let Some(due) = self.mendings.iter().position(|(at, _)| *at <= now) {
            let (_, mending) = self.mendings.remove(due);
            self.mend(mending)?;
        }
        Ok(())
    }

    /// Ends every fault at once.
    pub(super) fn mend_all(&mut self) -> Result<(), RunError> {
        for (_, mending) in std::mem::take(&mut self.mendings) {
            self.mend(mending)?;
        }
        let count = self.machines.len();
        for one in 0..count {
            for other in one + 1..count {
                self.mend(Mending::Lossless(one, other))?;
                self.mend(Mending::Release(one, other))?;
            }
        }
        for machine in 0..count {
            self.mend(Mending::Resume(machine))?;
            self.mend(Mending::QuickDisk(machine))?;
            self.start(machine)?;
        }
        self.store.heal();
        Ok(())
    }

    fn mend(&mut self, mending: Mending) -> Result<(), RunError> {
        tracing::debug!(target: "simulation", ?mending, "mended");
        match mending {
            Mending::Start(machine) => return self.start(machine),
            Mending::Resume(machine) => self.resume(machine),
            Mending::Repair(one, other) => {
                self.network.repair(self.name(one), self.name(other));
            }
            Mending::RepairOneWay(from, to) => {
                self.network.repair_oneway(self.name(from), self.name(to));
            }
            Mending::Release(one, other) => {
                self.network.release(self.name(one), self.name(other));
            }
            Mending::Lossless(one, other) => {
                let (one, other) = (self.name(one), self.name(other));
                self.network.set_link_fail_rate(one, other, 0.0);
            }
            Mending::Quick(one, other) => {
                let (one, other) = (self.name(one), self.name(other));
                self.network
                    .set_link_max_message_latency(one, other, USUAL_DELAY);
            }
            Mending::QuickDisk(machine) => {
                if let Some(disk) = self.machines.get(machine).and_then(|it| it.disk()) {
                    disk.set_sync_duration(USUAL_SYNC);
                }
            }
        }
        Ok(())
    }

    pub(super) fn name(&self, machine: usize) -> String {
        let machine = self.machines.get(machine);
        machine.map_or_else(String::new, |machine| machine.name.to_string())
    }

    fn resume(&mut self, machine: usize) {
        let Some(it) = self.machines.get_mut(machine) else {
            return;
        };
        if !it.is_paused() {
            return;
        }
        let mut history = lock(&self.history);
        if matches!(it.role, Role::Worker { .. }) && history.is_outlived(machine) {
            history.totals.zombies += 1;
            tracing::info!(target: "simulation", machine = %it.name, "a zombie wakes");
        }
        it.resume();
    }

    pub(super) fn note(&mut self, fault: &'static str, machine: usize) {
        lock(&self.history).totals.fault(fault);
        let machine = self.name(machine);
        tracing::info!(target: "simulation", machine, "{fault}");
    }

    /// Kills a process, which comes back after a while.
    pub(super) fn kill(&mut self, machine: usize, power_lost: bool, back: Duration) {
        if let Some(it) = self.machines.get_mut(machine) {
            it.kill(power_lost);
        }
        self.mend_after(back, Mending::Start(machine));
    }

    /// Pauses a process for a while.
    pub(super) fn pause(&mut self, machine: usize, pause: Pause, time: Duration) {
        if let Some(it) = self.machines.get_mut(machine) {
            it.pause(pause);
        }
        self.mend_after(time, Mending::Resume(machine));
    }

    /// Cuts the link between two machines for a while.
    pub(super) fn cut(&mut self, one: usize, other: usize, time: Duration) {
        if one == other {
            return;
        }
        self.network.partition(self.name(one), self.name(other));
        self.mend_after(time, Mending::Repair(one, other));
    }

    /// Lets nothing pass from one machine to another for a while; the other direction works.
    pub(super) fn cut_one_way(&mut self, from: usize, to: usize, time: Duration) {
        if from == to {
            return;
        }
        self.network
            .partition_oneway(self.name(from), self.name(to));
        self.mend_after(time, Mending::RepairOneWay(from, to));
    }

    /// Cuts machines off from all others, but not from each other.
    pub(super) fn cut_off(&mut self, machines: &[usize], time: Duration) {
        for other in 0..self.machines.len() {
            if machines.contains(&other) {
                continue;
            }
            for machine in machines {
                self.cut(*machine, other, time);
            }
        }
    }

    /// Delivers nothing between two machines for a while, and then all of it.
    pub(super) fn hold(&mut self, one: usize, other: usize, time: Duration) {
        if one == other {
            return;
        }
        self.network.hold(self.name(one), self.name(other));
        self.mend_after(time, Mending::Release(one, other));
    }

    /// Loses bursts of messages between two machines for a while.
    pub(super) fn lose(&mut self, one: usize, other: usize, time: Duration) {
        if one == other {
            return;
        }
        let rate = 0.005 + 0.005 * f64::from(u8::try_from(self.dice.below(8)).unwrap_or(0));
        let (first, second) = (self.name(one), self.name(other));
        self.network.set_link_fail_rate(first, second, rate);
        self.mend_after(time, Mending::Lossless(one, other));
        self.mend_after(time, Mending::Release(one, other));
    }

    /// Makes messages between two machines take long for a while.
    pub(super) fn slow(&mut self, one: usize, other: usize, delay: Duration, time: Duration) {
        if one == other {
            return;
        }
        let (first, second) = (self.name(one), self.name(other));
        self.network
            .set_link_max_message_latency(first, second, delay);
        self.mend_after(time, Mending::Quick(one, other));
    }
}
