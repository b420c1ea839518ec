//! A handler that holds what it is given and does what the story says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::{HeldShard, ShardError, ShardHandler, WorkerError};
use tokio::sync::Notify;

use super::belief::Watched;
use super::report::{Report, Reports};

/// How a holder behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct HolderOptions {
    /// Where it reports; `None` reports nothing.
    pub reports: Option<Reports>,
    /// Whether it ignores that a shard is to be given back.
    pub stubborn: bool,
    /// Whether it never claims a shard.
    pub never_opens: bool,
}

/// Claims each shard, then holds it until it is revoked.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    options: HolderOptions,
    watched: Watched,
    // Never held across an await.
    held: Arc<Mutex<BTreeMap<u32, Arc<Triggers>>>>,
}

/// What can be asked of a shard that is held.
#[derive(Debug, Default)]
struct Triggers {
    write: Notify,
    give_back: Notify,
}

impl Holder {
    /// Creates a holder of nothing.
    #[must_use]
    pub fn new(options: HolderOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Lets every shard that is held write a checkpoint.
    pub fn write_all(&self) {
        for triggers in self.held().values() {
            triggers.write.notify_one();
        }
    }

    /// Gives a shard back although nobody asked for it. Returns whether it is held.
    pub fn give_back(&self, shard: u32) -> bool {
        match self.held().get(&shard) {
            Some(triggers) => {
                triggers.give_back.notify_one();
                true
            }
            None => false,
        }
    }

    /// Reports what is believed of the shards, until it is dropped.
    pub async fn watch_belief(&self) {
        match self.options.reports {
            Some(reports) => self.watched.clone().run(reports).await,
            None => std::future::pending().await,
        }
    }

    fn report(&self, report: &Report) {
        if let Some(reports) = self.options.reports {
            reports.send(report);
        }
    }

    async fn serve(&self, shard: &HeldShard, triggers: &Triggers) -> Result<(), ShardError> {
        let (index, epoch) = (shard.id().index, shard.epoch().get());
        if self.options.never_opens {
            tokio::select! {
                () = shard.revoked() => return Ok(()),
                reason = shard.lost() => return Err(ShardError::Lost(reason)),
            }
        }
        shard.claim().await?;
        self.report(&Report::Claimed {
            shard: index,
            epoch,
            bytes: 0,
        });
        loop {
            tokio::select! {
                () = shard.revoked(), if !self.options.stubborn => return Ok(()),
                reason = shard.lost() => return Err(ShardError::Lost(reason)),
                () = triggers.give_back.notified() => return Ok(()),
                () = triggers.write.notified() => {
                    shard.write(format!("written in epoch {epoch}")).await?;
                    self.report(&Report::Written { shard: index, epoch, bytes: 0 });
                }
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Triggers>>> {
        // Every change is whole before the lock is given back.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardHandler for Holder {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        if self.options.reports.is_some() {
            self.watched.add(&shard);
        }
        let triggers = Arc::new(Triggers::default());
        self.held().insert(shard.id().index, Arc::clone(&triggers));
        let outcome = self.serve(&shard, &triggers).await;
        self.held().remove(&shard.id().index);
        Ok(outcome?)
    }
}
