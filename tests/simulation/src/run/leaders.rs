//! Five nodes, whose leader is replaced again and again while workers write.

use std::time::Duration;

use super::{Run, RunError, lock};
use crate::client::Order;
use crate::process::Pause;

/// How often the leader is replaced.
const REPLACED: u64 = 50;

/// How long it may take until another node leads: two elections with a pause longer than most.
const ELECTION_MAX: Duration = Duration::from_secs(20);

/// How long the next one waits for it. An order to hand over may not reach a leader that was deposed before,
/// or come to nothing because the other node is down.
const TRANSFER_MAX: Duration = Duration::from_secs(4);

/// Least of writes acknowledged meanwhile: ten for each leader. Fewer are no load.
const WRITES_MIN: u64 = 10 * REPLACED;

/// How often, in thousand, a worker is drained along with a leader, or taken back if one is drained: shards are
/// to move while leaders do.
const DRAIN: u32 = 500;

/// How many tries it may take.
const TRIES_MAX: u64 = 3 * REPLACED;

impl Run {
    pub(super) fn replace_leaders(&mut self) -> Result<(), RunError> {
        let begun = lock(&self.history).totals.clone();
        let mut drained = None;
        for _ in 0..TRIES_MAX {
            let leaders = lock(&self.history).totals.leaders;
            if leaders >= begun.leaders + REPLACED {
                self.check_load(begun.accepted);
                return Ok(());
            }
            if !self.wait("a node leads", ELECTION_MAX, |run| run.leader().is_some())? {
                return Ok(());
            }
            let under_load = self.dice.millis(300..=1_500);
            self.pass(under_load)?;
            if let Some(leader) = self.leader() {
                self.depose(leader);
            }
            if self.dice.chance(DRAIN) {
                drained = self.drain_in_turn(drained);
            }
            let until = self.now() + TRANSFER_MAX;
            while lock(&self.history).totals.leaders == leaders && self.now() < until {
                self.step()?;
            }
        }
        self.violate(format!("the leader was not replaced {REPLACED} times"));
        Ok(())
    }

    /// Takes the drained worker back, or drains one if none is. Returns the one that is drained then.
    fn drain_in_turn(&mut self, drained: Option<usize>) -> Option<usize> {
        if let Some(worker) = drained {
            self.drain(worker, false);
            return None;
        }
        let worker = self.some_worker();
        self.drain(worker, true);
        Some(worker)
    }

    fn check_load(&self, accepted_before: u64) {
        let mut history = lock(&self.history);
        let accepted = history.totals.accepted - accepted_before;
        if accepted < WRITES_MIN {
            history.violate(format!(
                "did too little: {accepted} writes of {WRITES_MIN} while leaders were replaced"
            ));
        }
    }

    fn depose(&mut self, leader: usize) {
        let time = self.dice.millis(1_500..=4_000);
        match self.dice.below(6) {
            0 => {
                self.kill(leader, false, time);
                self.note("leader killed", leader);
            }
            1 => {
                self.kill(leader, true, time);
                self.note("leader lost power", leader);
            }
            2 => {
                self.pause(leader, Pause::Stopped, time);
                self.note("leader paused", leader);
            }
            3 => {
                self.cut_off(&[leader], time);
                self.note("leader cut off", leader);
            }
            4 => {
                for other in 0..self.machines.len() {
                    self.cut_one_way(leader, other, time);
                }
                self.note("leader heard by nobody", leader);
            }
            _ => {
                let to = (leader + 1 + self.dice.below(self.nodes - 1)) % self.nodes;
                self.order(Order::Transfer(u64::try_from(to + 1).unwrap_or(1)));
                lock(&self.history).totals.order("transfer");
            }
        }
    }
}
