//! Every worker is stopped until others have its shards, and wakes with its old handles.

use std::time::Duration;

use super::{Run, RunError, WORKERS, lock};
use crate::machine::Machine;
use crate::process::Pause;

/// How often each of them is one.
const ROUNDS: usize = 2;

/// How long it may take until a stopped worker's shards are others': its ttl (at most 5 s), a full
/// one from a new leader, a lock delay (2 s), an opening.
const OUTLIVED_MAX: Duration = Duration::from_secs(20);

/// How long it may take until every shard is served and the next worker has some of them: the one before
/// resumes or registers, a lock delay (2 s), an opening that hesitates (4 s) or fails and is tried again.
const OWNING_MAX: Duration = Duration::from_secs(20);

impl Run {
    /// Tells whether a worker runs and has shards, none of which is another's already.
    fn has_shards(&self, worker: usize) -> bool {
        let is_up = self.machines.get(worker).is_some_and(Machine::is_up);
        let history = lock(&self.history);
        is_up && history.has_handles(worker) && !history.is_outlived(worker)
    }

    pub(super) fn make_zombies(&mut self) -> Result<(), RunError> {
        for round in 0..ROUNDS {
            for worker in self.nodes..self.nodes + WORKERS {
                let settle = self.dice.millis(500..=1_500);
                self.pass(settle)?;
                // One that has nothing cannot lose it: all shards are served as soon as the first worker
                // that registered has them, and the others get theirs later.
                let owning = self.wait("the next worker has shards", OWNING_MAX, move |run| {
                    run.is_served() && run.has_shards(worker)
                })?;
                if !owning {
                    return Ok(());
                }
                let pause = if round % 2 == 0 {
                    Pause::Stopped
                } else {
                    Pause::Suspended
                };
                // It is woken below, once it is outlived.
                self.pause(worker, pause, Duration::from_secs(3_600));
                self.note("worker paused", worker);
                let outlived = self.wait("its shards are others'", OUTLIVED_MAX, move |run| {
                    lock(&run.history).is_outlived(worker)
                })?;
                if !outlived {
                    return Ok(());
                }
                let late = self.dice.millis(0..=2_000);
                self.pass(late)?;
                self.mend_after(Duration::ZERO, super::Mending::Resume(worker));
                self.pass(Duration::from_secs(1))?;
            }
        }
        let zombies = lock(&self.history).totals.zombies;
        if zombies < u64::try_from(ROUNDS * WORKERS).unwrap_or(u64::MAX) {
            self.violate(format!("only {zombies} workers were zombies"));
        }
        Ok(())
    }
}
