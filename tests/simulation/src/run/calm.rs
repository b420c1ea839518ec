//! After the faults: everything works again within a bounded time, and nothing is missing.

use std::time::Duration;

use super::{Run, RunError, SHARDS, lock, nanos};
use crate::client::Order;
use crate::machine::Machine;
use crate::totals::SIMULATED_MIN;
use crate::worker::{GROUP, STORES, count_of};

/// How long it may take until every shard is served and the planner is quiet. Above all: a new leader
/// gives every session a full ttl (5 s), connections that hang are noticed after up to 20 s, and shards that
/// fail to open are tried again with a growing delay.
const CALM_MAX: Duration = Duration::from_secs(45);

/// How long nothing has to move for the planner to be quiet.
const QUIET: Duration = Duration::from_secs(2);

impl Run {
    pub(super) fn calm(&mut self) -> Result<(), RunError> {
        self.mend_all()?;
        tracing::info!(target: "simulation", "the faults are over");
        self.restore_all();
        let settled = self.wait(
            "every shard is served, every process runs and the planner is quiet",
            CALM_MAX,
            |run| {
                lock(&run.done).pending_changes == 0
                    && run.machines.iter().all(Machine::is_up)
                    && run.is_served()
                    && run.is_quiet()
            },
        )?;
        if !settled {
            self.describe();
            return Ok(());
        }
        self.agree()?;
        self.look_back()?;
        let left = SIMULATED_MIN.saturating_sub(self.now());
        self.pass(left)?;
        self.check_enough();
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        lock(&self.history).moved_at_ns() + nanos(QUIET) <= self.stamp.now_ns()
    }

    /// Says what the trouble is, for whoever looks into it.
    fn describe(&self) {
        for machine in &self.machines {
            let (name, up) = (&machine.name, machine.is_up());
            let node = machine.node();
            let leads = node.and_then(|node| node.leads());
            let revision = node.and_then(|node| Some(node.state()?.revision().0));
            tracing::warn!(target: "simulation", %name, up, ?leads, ?revision, "left");
        }
        let Some(state) = self.leading_state() else {
            return;
        };
        for group in state.groups() {
            for (index, shard) in group.indexed_shards() {
                tracing::warn!(target: "simulation", %index, ?shard, "left");
            }
            for (name, worker) in group.workers.iter() {
                tracing::warn!(target: "simulation", ?name, ?worker, "left");
            }
        }
    }

    /// Waits until every node has applied what the leader has by now.
    fn agree(&mut self) -> Result<(), RunError> {
        const AGREE_MAX: Duration = Duration::from_secs(20);
        let Some(leader) = self.leading_state() else {
            return Ok(());
        };
        let revision = leader.revision();
        self.wait("every node has caught up", AGREE_MAX, move |run| {
            run.members().into_iter().all(|node| {
                let machine = run.machines.get(node);
                let state = machine
                    .and_then(Machine::node)
                    .and_then(|node| node.state());
                state.is_some_and(|state| state.revision() >= revision)
            })
        })?;
        Ok(())
    }

    /// Looks for what was acknowledged in both stores, and for what workers were told in the events.
    fn look_back(&mut self) -> Result<(), RunError> {
        const READ_MAX: Duration = Duration::from_secs(20);
        self.order(Order::ReadBack(SHARDS));
        self.wait("everything is read back", READ_MAX, |run| {
            lock(&run.done).read_back
        })?;
        let mut history = lock(&self.history);
        for index in 0..SHARDS {
            let Ok(resource) = format!("shard/{GROUP}/{index}").parse() else {
                continue;
            };
            let known = history.acknowledged(STORES[1], index);
            if let Ok(found) = self.store.look(&resource) {
                history.left(STORES[1], index, known, count_of(found.as_ref()));
            }
        }
        history.check_grants();
        Ok(())
    }

    /// A run in which little happens proves little.
    fn check_enough(&self) {
        let mut history = lock(&self.history);
        history.totals.simulated = self.now();
        if let Some(complaint) = history.totals.too_little() {
            history.violate(complaint);
        }
    }
}
