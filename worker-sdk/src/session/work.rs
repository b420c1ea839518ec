//! The handlers that run, one for each shard at a time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::clock::Moment;
use crate::error::{LostReason, WorkerError};
use crate::handler::AnyHandler;
use crate::held_shard::HeldShard;
use crate::session::tenure::TenureId;

/// A handler that has ended.
pub(crate) struct Ended {
    /// What it worked on.
    pub(crate) tenure: TenureId,
    /// Its handle.
    pub(crate) shard: HeldShard,
    /// How it ended.
    pub(crate) outcome: Outcome,
}

/// How a handler ended.
pub(crate) enum Outcome {
    /// It returned.
    Returned(Result<(), WorkerError>),
    /// It panicked.
    Panicked,
    /// It did not return in time after its handle was lost.
    Aborted,
}

/// A handler that runs.
struct Running {
    tenure: TenureId,
    shard: HeldShard,
    abort: AbortHandle,
}

/// All handlers of a worker.
///
/// A shard that is granted anew while its old handler has not returned yet waits for that: two
/// handlers of one shard in one process would surprise everybody who writes one.
pub(crate) struct Work {
    handler: Arc<dyn AnyHandler>,
    /// How long a handler may go on after its handle was lost.
    grace: Duration,
    tasks: JoinSet<Result<(), WorkerError>>,
    running: BTreeMap<u32, Running>,
    by_task: HashMap<Id, u32>,
    waiting: BTreeMap<u32, (TenureId, HeldShard)>,
    /// Handlers whose handles are lost, and until when they may go on. In order of time.
    overstaying: VecDeque<(Moment, TenureId)>,
}

impl Work {
    pub(crate) fn new(handler: Arc<dyn AnyHandler>, grace: Duration) -> Self {
        Self {
            handler,
            grace,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            by_task: HashMap::new(),
            waiting: BTreeMap::new(),
            overstaying: VecDeque::new(),
        }
    }

    /// Starts the handler of a shard, or lets it wait for the one before.
    pub(crate) fn open(&mut self, tenure: TenureId, shard: HeldShard) {
        if self.running.contains_key(&tenure.shard) {
            self.waiting.insert(tenure.shard, (tenure, shard));
            return;
        }
        self.start(tenure, shard);
    }

    fn start(&mut self, tenure: TenureId, shard: HeldShard) {
        let handler = Arc::clone(&self.handler);
        let handle = shard.clone();
        let abort = self
            .tasks
            .spawn(async move { handler.run_any(handle).await });
        self.by_task.insert(abort.id(), tenure.shard);
        self.running.insert(
            tenure.shard,
            Running {
                tenure,
                shard,
                abort,
            },
        );
    }

    /// Returns the handle of a tenure.
    pub(crate) fn shard(&self, tenure: TenureId) -> Option<&HeldShard> {
        let running = self
            .running
            .get(&tenure.shard)
            .filter(|running| running.tenure == tenure);
        if let Some(running) = running {
            return Some(&running.shard);
        }
        let waiting = self
            .waiting
            .get(&tenure.shard)
            .filter(|(waiting, _)| *waiting == tenure);
        waiting.map(|(_, shard)| shard)
    }

    /// Returns whether the handler of a tenure has been started and has not ended.
    pub(crate) fn is_running(&self, tenure: TenureId) -> bool {
        self.running
            .get(&tenure.shard)
            .is_some_and(|running| running.tenure == tenure)
    }

    /// Returns whether no handler runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Kills a handle. Its handler has the grace to return.
    pub(crate) fn kill(&mut self, tenure: TenureId, reason: LostReason, now: Moment) {
        if let Some(shard) = self.shard(tenure) {
            shard.kill(reason);
        }
        if self.is_running(tenure) {
            self.overstaying.push_back((now + self.grace, tenure));
        } else if self
            .waiting
            .get(&tenure.shard)
            .is_some_and(|(waiting, _)| *waiting == tenure)
        {
            self.waiting.remove(&tenure.shard);
        }
    }

    /// Returns when the next handler that has lost its handle must have returned.
    pub(crate) fn next_abort(&self) -> Option<Moment> {
        self.overstaying.front().map(|&(moment, _)| moment)
    }

    /// Aborts the handlers that had to return by now.
    pub(crate) fn abort_due(&mut self, now: Moment) {
        while let Some(&(moment, tenure)) = self.overstaying.front() {
            if moment > now {
                return;
            }
            self.overstaying.pop_front();
            if let Some(running) = self.running.get(&tenure.shard)
                && running.tenure == tenure
            {
                tracing::warn!(
                    shard = %running.shard.id(),
                    epoch = %tenure.epoch,
                    "handler did not return after its shard was lost, aborted"
                );
                running.abort.abort();
            }
        }
    }

    /// Returns the next handler that ends; never while none runs.
    pub(crate) async fn next(&mut self) -> Ended {
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let (id, outcome) = match joined {
                Ok((id, returned)) => (id, Outcome::Returned(returned)),
                Err(error) => (error.id(), outcome_of(&error)),
            };
            if let Some(ended) = self.finish(id, outcome) {
                return ended;
            }
        }
    }

    fn finish(&mut self, id: Id, outcome: Outcome) -> Option<Ended> {
        let index = self.by_task.remove(&id)?;
        let Running { tenure, shard, .. } = self.running.remove(&index)?;
        if let Some((next, handle)) = self.waiting.remove(&index) {
            self.start(next, handle);
        }
        Some(Ended {
            tenure,
            shard,
            outcome,
        })
    }
}

fn outcome_of(error: &JoinError) -> Outcome {
    if error.is_panic() {
        Outcome::Panicked
    } else {
        Outcome::Aborted
    }
}
