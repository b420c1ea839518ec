//! Three of five nodes, of which one after the other is exchanged for one that is new, while workers write.

use std::time::Duration;

use super::{Run, RunError, lock};
use crate::client::Order;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::machine::{Machine, Role};
use crate::process::Pause;

/// Nodes in the cluster when nothing is being changed.
pub(super) const MEMBERS: usize = 3;

/// How often a node is exchanged.
const ROUNDS: usize = 8;

/// How long one change may take. Above all: an election after a leader that was paused, a snapshot, a call
/// that hangs and is repeated.
const CHANGE_MAX: Duration = Duration::from_secs(60);

/// How often, in thousand, the node that is to go is dead already.
const DEAD: u32 = 300;

impl Run {
    pub(super) fn exchange_members(&mut self) -> Result<(), RunError> {
        for _ in 0..ROUNDS {
            let (Some(new), Some(old)) = (self.some_spare(), self.some_member()) else {
                self.violate("no node can be exchanged".to_owned());
                return Ok(());
            };
            let is_dead = self.dice.chance(DEAD);
            if is_dead {
                if let Some(machine) = self.machines.get_mut(old) {
                    machine.kill(true);
                }
                self.note("node lost for ever", old);
            }
            let (new_host, old_host) = (self.name(new), self.name(old));
            self.order(Order::AddNode(new_host.clone()));
            lock(&self.history).totals.order("add node");
            let added = |run: &Self| lock(&run.done).members.contains_key(&new_host);
            if !self.meanwhile("the node is added", !is_dead, added)? {
                return Ok(());
            }
            self.order(Order::RemoveNode(old_host.clone()));
            lock(&self.history).totals.order("remove node");
            let removed = |run: &Self| !lock(&run.done).members.contains_key(&old_host);
            if !self.meanwhile("the node is removed", true, removed)? {
                return Ok(());
            }
            self.wipe(old)?;
        }
        Ok(())
    }

    /// Lets things go wrong until a change is made: with workers, and with a node if all others live.
    fn meanwhile(
        &mut self,
        what: &str,
        nodes_too: bool,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<bool, RunError> {
        let pause = self.dice.millis(200..=1_500);
        self.pass(pause)?;
        self.harm_some_worker();
        if nodes_too {
            self.harm_some_member();
        }
        self.wait(what, CHANGE_MAX, is_so)
    }

    fn harm_some_worker(&mut self) {
        let worker = self.some_worker();
        if !self.machines.get(worker).is_some_and(Machine::is_up) {
            return;
        }
        let time = self.dice.millis(50..=6_000);
        if self.dice.chance(500) {
            self.kill(worker, false, time);
            self.note("worker killed", worker);
        } else {
            self.pause(worker, Pause::Stopped, time);
            self.note("worker paused", worker);
        }
    }

    /// Kills, pauses or cuts off a member for a while, if all of them are up.
    fn harm_some_member(&mut self) {
        let members = self.members();
        let is_up = |node: &usize| self.machines.get(*node).is_some_and(Machine::is_up);
        if !members.iter().all(is_up) {
            return;
        }
        let leader = self.leader().filter(|_| self.dice.chance(500));
        let Some(node) = leader.or_else(|| self.some_member()) else {
            return;
        };
        let time = self.dice.millis(200..=4_000);
        match self.dice.below(4) {
            0 => {
                self.kill(node, false, time);
                self.note("node killed", node);
            }
            1 => {
                self.kill(node, true, time);
                self.note("node lost power", node);
            }
            2 => {
                self.pause(node, Pause::Stopped, time);
                self.note("node paused", node);
            }
            _ => {
                self.cut_off(&[node], time);
                self.note("node cut off", node);
            }
        }
    }

    /// Makes a machine that is no member any more new.
    fn wipe(&mut self, node: usize) -> Result<(), RunError> {
        let seed = self.dice.seed();
        if let Some(machine) = self.machines.get_mut(node) {
            machine.kill(false);
            if let Role::Node { disk, .. } = &mut machine.role {
                *disk = Disk::new(Dice::new(seed, "disk"));
            }
        }
        self.start(node)
    }

    /// The nodes that are members, as far as operators know.
    pub(super) fn members(&self) -> Vec<usize> {
        let members = lock(&self.done).members.clone();
        let is_member = |node: &usize| members.contains_key(&self.name(*node));
        (0..self.nodes).filter(is_member).collect()
    }

    fn some_member(&mut self) -> Option<usize> {
        let members = self.members();
        let drawn = self.dice.below(members.len().max(1));
        members.get(drawn).copied()
    }

    fn some_spare(&mut self) -> Option<usize> {
        let members = self.members();
        let spare = |node: &usize| !members.contains(node);
        let spares: Vec<usize> = (0..self.nodes).filter(spare).collect();
        let drawn = self.dice.below(spares.len().max(1));
        spares.get(drawn).copied()
    }
}
