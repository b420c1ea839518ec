//! What operators ask for, and what they take back in the end.

use tenure_proto::v1::WorkerMode;

use super::storm::What;
use super::{Run, SHARDS, WORKERS, lock};
use crate::client::{Change, Order, Pin};
use crate::machine::{Machine, Role};

impl Run {
    pub(super) fn give_order(&mut self, what: What) {
        match what {
            What::RestartWorker => {
                let worker = self.some_worker();
                self.stop_worker(worker);
            }
            What::RestartNode => {
                let Some(node) = self.node_to_harm() else {
                    return;
                };
                if let Some(handle) = self.machines.get(node).and_then(Machine::node) {
                    handle.stop();
                }
                lock(&self.history).totals.order("restart node");
            }
            What::SetTerms => {
                let terms = self.terms();
                self.order(Order::SetTerms(terms));
                lock(&self.history).totals.order("terms");
            }
            _ => {
                let node = self.some_node();
                self.order(Order::Transfer(u64::try_from(node + 1).unwrap_or(1)));
                lock(&self.history).totals.order("transfer");
            }
        }
    }

    /// Changes something as operators do.
    pub(super) fn operate(&mut self, what: What) {
        let worker = self.some_worker();
        let shard = u32::try_from(self.dice.below(SHARDS as usize)).unwrap_or(0);
        match what {
            What::Drain => {
                let drain = self.dice.chance(500);
                self.drain(worker, drain);
            }
            What::Cordon => self.set_mode(worker, WorkerMode::Cordoned),
            What::Pause => {
                self.set_mode(worker, WorkerMode::Paused);
                // That is what a pause is for.
                if self.dice.chance(700) {
                    self.stop_worker(worker);
                }
            }
            What::Activate => self.set_mode(worker, WorkerMode::Active),
            What::Freeze => self.change("freeze", Change::Freeze(true)),
            What::Thaw => self.change("thaw", Change::Freeze(false)),
            What::Pin => {
                let name = self.name(worker);
                let pin = if self.dice.chance(600) {
                    Pin::To(name)
                } else {
                    Pin::KeptOff(name)
                };
                self.change("pin", Change::Pin(shard, Some(pin)));
            }
            What::Unpin => self.change("unpin", Change::Pin(shard, None)),
            _ => {
                let most = u32::try_from(self.dice.below(4)).unwrap_or(0);
                self.change("rebalance", Change::Rebalance(most));
            }
        }
    }

    fn stop_worker(&mut self, worker: usize) {
        let machine = self.machines.get(worker);
        if let Some(Role::Worker { process }) = machine.map(|machine| &machine.role) {
            process.stop();
        }
        lock(&self.history).totals.order("restart worker");
    }

    fn change(&mut self, name: &'static str, change: Change) {
        lock(&self.done).pending_changes += 1;
        // As with orders, the client takes them at once.
        if self.changes.try_send(change).is_err() {
            self.violate("the client takes no changes".to_owned());
        }
        lock(&self.history).totals.order(name);
    }

    fn set_mode(&mut self, worker: usize, mode: WorkerMode) {
        let order = match mode {
            WorkerMode::Cordoned => "cordon",
            WorkerMode::Draining => "drain",
            WorkerMode::Paused => "pause",
            WorkerMode::Active | WorkerMode::Unspecified => "activate",
        };
        let name = self.name(worker);
        self.change(order, Change::Mode(name, mode));
    }

    pub(super) fn drain(&mut self, worker: usize, drain: bool) {
        let mode = if drain {
            WorkerMode::Draining
        } else {
            WorkerMode::Active
        };
        self.set_mode(worker, mode);
    }

    /// Takes back everything that operators have changed.
    pub(super) fn restore_all(&mut self) {
        for worker in self.nodes..self.nodes + WORKERS {
            self.set_mode(worker, WorkerMode::Active);
        }
        self.change("thaw", Change::Freeze(false));
        for shard in 0..SHARDS {
            self.change("unpin", Change::Pin(shard, None));
        }
    }
}
