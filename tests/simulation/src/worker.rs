//! A worker on a simulated machine: the real SDK, and a handler that counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::connection::{Connection, ConnectionOptions};
use tenure::{
    Checkpoint, HeldShard, LostReason, ReplicatedStore, ShardError, ShardHandler, Worker,
    WorkerError,
};
use tokio_util::sync::CancellationToken;

use crate::clock::MachineClock;
use crate::dice::Dice;
use crate::history::{History, Tenure};
use crate::network::MachineNetwork;
use crate::store::{SharedStore, StoreClient};

/// The group all workers serve.
pub const GROUP: &str = "counts";

/// The names of the stores that every shard is written to.
pub const STORES: [&str; 2] = ["replicated", "shared"];

/// What a worker runs on.
#[derive(Clone)]
pub struct WorkerSetup {
    /// The worker's name.
    pub name: String,
    /// Number of its machine.
    pub machine: usize,
    /// Number of its process: never used twice in a run.
    pub process: u64,
    /// Client addresses of the coordinators.
    pub coordinators: Vec<String>,
    /// The machine's network.
    pub network: MachineNetwork,
    /// The machine's clock.
    pub clock: MachineClock,
    /// The store outside of the coordinators.
    pub store: Arc<SharedStore>,
    /// What is recorded.
    pub history: Arc<Mutex<History>>,
    /// Seed of what its handlers do.
    pub seed: u64,
}

/// A worker's process, from outside. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct WorkerProcess {
    ended: Arc<Mutex<Option<String>>>,
    stop: CancellationToken,
}

impl WorkerProcess {
    /// Tells the worker to stop in good order.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns how the process has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        self.ended_mut().clone()
    }

    fn ended_mut(&self) -> MutexGuard<'_, Option<String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a worker until it is told to stop or cannot go on.
pub async fn run(setup: WorkerSetup, process: WorkerProcess) {
    let ended = match serve(setup, process.stop.clone()).await {
        Ok(()) => "stopped".to_owned(),
        Err(error) => error.chain(),
    };
    tracing::info!(target: "simulation", ended, "worker ended");
    *process.ended_mut() = Some(ended);
}

async fn serve(setup: WorkerSetup, stop: CancellationToken) -> Result<(), WorkerError> {
    let network = Arc::new(setup.network.clone());
    let options = ConnectionOptions::new(setup.coordinators.clone()).dialer(network.clone());
    let calls = Connection::new(options)?;
    let worker = Worker::builder()
        .coordinators(setup.coordinators.clone())
        .dialer(network)
        .clock(Arc::new(setup.clock.clone()))
        .group(GROUP)
        .name(setup.name.clone())
        .address(format!("{}:9000", setup.name))
        .drain_timeout(Duration::from_secs(2))
        .handler_grace(Duration::from_secs(1))
        .store_timeout(Duration::from_secs(3))
        .store(STORES[0], Arc::new(ReplicatedStore::new(calls)))
        .store(
            STORES[1],
            Arc::new(StoreClient::new(Arc::clone(&setup.store))),
        )
        .handler(Counting {
            dice: Mutex::new(Dice::new(setup.seed, "handlers")),
            setup,
        })
        .build()?;
    worker.run(stop.cancelled_owned()).await?;
    Ok(())
}

/// Counts up in every store, one write after the other.
struct Counting {
    setup: WorkerSetup,
    dice: Mutex<Dice>,
}

/// What a handler does with one tenure.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// How long it waits before it claims.
    hesitation: Duration,
    /// It gives up instead of claiming.
    fails: bool,
    /// It goes on when it is asked to stop.
    stubborn: bool,
}

/// Takes a handle out of the history when the handler is gone, however it went.
struct Entry<'a> {
    history: &'a Mutex<History>,
    tenure: Tenure,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        lock(self.history).closed(self.tenure);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the count in a checkpoint.
#[must_use]
pub fn count_of(checkpoint: Option<&Checkpoint>) -> u64 {
    let Some(checkpoint) = checkpoint else {
        return 0;
    };
    let digits = checkpoint.data.split(|byte| *byte == b' ').next();
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

impl Counting {
    fn choose<T>(&self, choice: impl FnOnce(&mut Dice) -> T) -> T {
        choice(&mut lock(&self.dice))
    }

    fn manner(&self) -> Manner {
        self.choose(|dice| Manner {
            hesitation: if dice.chance(50) {
                dice.millis(500..=4_000)
            } else {
                Duration::ZERO
            },
            fails: dice.chance(15),
            stubborn: dice.chance(120),
        })
    }

    /// Returns what is written for a count: mostly little.
    fn data(&self, count: u64) -> String {
        let padding = self.choose(|dice| {
            if dice.chance(10) {
                dice.below(30_000)
            } else {
                dice.below(100)
            }
        });
        format!("{count} {}", "x".repeat(padding))
    }

    /// Writes a count. Returns whether it was acknowledged.
    async fn write(
        &self,
        shard: &HeldShard,
        store: &'static str,
        count: u64,
    ) -> Result<bool, ShardError> {
        let written = shard.write_to(store, self.data(count)).await;
        let mut history = lock(&self.setup.history);
        match written {
            Ok(()) => {
                tracing::debug!(target: "simulation", shard = shard.id().index, epoch = %shard.epoch(), store, count, "written");
                history.wrote(store, shard.id().index, shard.epoch().get(), count);
                Ok(true)
            }
            Err(ShardError::Lost(reason)) => {
                if matches!(reason, LostReason::Fenced { .. }) {
                    history.totals.refused += 1;
                }
                Err(ShardError::Lost(reason))
            }
            // Unknown or not possible now: the next one is another write.
            Err(ShardError::Store { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a count as the shard's only owner, and checks it against what this owner was told it has
    /// written.
    async fn read(
        &self,
        shard: &HeldShard,
        store: &'static str,
        acknowledged: u64,
    ) -> Result<(), ShardError> {
        match shard.read_from(store).await {
            Ok(found) => {
                let count = count_of(found.as_ref());
                let by = format!("the owner at epoch {}", shard.epoch());
                let (index, mut history) = (shard.id().index, lock(&self.setup.history));
                history.read_as_owner(store, index, acknowledged, count, &by);
                Ok(())
            }
            // It can be asked again, when it is known to be the only owner and the store answers.
            Err(ShardError::AtRisk | ShardError::Store { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the coordinators whether the tenure is current, and checks that they do not say so once a
    /// later one is granted.
    async fn verify(&self, shard: &HeldShard) -> Result<(), ShardError> {
        let (index, epoch) = (shard.id().index, shard.epoch().get());
        let was_over = lock(&self.setup.history).is_superseded(index, epoch);
        match shard.verify().await {
            Ok(current) => {
                lock(&self.setup.history).verified(index, epoch, was_over, current);
                Ok(())
            }
            Err(ShardError::Coordinator(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn count(&self, shard: &HeldShard, manner: Manner) -> Result<(), WorkerError> {
        let found = shard.claim_all().await?;
        let mut counts = [0; STORES.len()];
        for (count, store) in counts.iter_mut().zip(STORES) {
            *count = count_of(found.get(store).and_then(Option::as_ref));
            let (index, epoch) = (shard.id().index, shard.epoch().get());
            lock(&self.setup.history).found(store, index, epoch, *count);
        }
        let mut acknowledged = counts;
        loop {
            let pause = self.choose(|dice| dice.millis(100..=900));
            let pause = tokio::time::sleep(pause);
            if manner.stubborn {
                pause.await;
            } else if shard.until_revoked(pause).await?.is_none() {
                return Ok(());
            }
            for ((count, store), known) in counts.iter_mut().zip(STORES).zip(&mut acknowledged) {
                *count += 1;
                if self.write(shard, store, *count).await? {
                    *known = *count;
                }
                if self.choose(|dice| dice.chance(100)) {
                    self.read(shard, store, *known).await?;
                }
            }
            if self.choose(|dice| dice.chance(40)) {
                self.verify(shard).await?;
            }
        }
    }
}

impl ShardHandler for Counting {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        let WorkerSetup {
            machine,
            process,
            history,
            ..
        } = &self.setup;
        lock(history).opened(*machine, *process, &shard);
        let _entry = Entry {
            history,
            tenure: (shard.id().index, shard.epoch().get(), *process),
        };
        let manner = self.manner();
        tokio::time::sleep(manner.hesitation).await;
        if manner.fails {
            return Err(WorkerError::new("the handler would not open it"));
        }
        self.count(&shard, manner).await
    }
}
