//! What all stories begin with.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Duration;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::ownership::Ownership;
use cluster_tests::recorder::Recorder;
use cluster_tests::worker::{WorkerOptions, WorkerProcess};
use cluster_tests::{rest, wait};
use tenure_proto::v1::{FencingToken, Policy};
use tokio::sync::{Mutex, MutexGuard};

/// The group of every story.
pub(crate) const GROUP: &str = "orders";

/// How long anything may take that must happen but is not measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Shows what a story has measured, also when the story passes: the test runner keeps back only what is
/// printed by macro.
pub(crate) fn measured(figures: impl Display) {
    // Nobody reads a stderr that is closed.
    let _unread = writeln!(io::stderr(), "measured: {figures}");
}

static TURN: Mutex<()> = Mutex::const_new(());

/// Waits until no other story is being told.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// A cluster with a group, and what is seen in it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) recorder: Recorder,
}

impl Stage {
    /// Creates the group in a cluster, with the named fields of the policy set.
    pub(crate) async fn set(
        cluster: Cluster,
        shards: u32,
        policy: Policy,
        fields: &[&str],
    ) -> Result<Self, Failure> {
        cluster
            .client()
            .create_group(GROUP, shards, policy, fields)
            .await?;
        let recorder = Recorder::start(cluster.client(), GROUP);
        Ok(Self { cluster, recorder })
    }

    /// Starts a worker process.
    pub(crate) fn worker(&self, name: &str) -> Result<WorkerProcess, Failure> {
        self.worker_with(name, &[])
    }

    /// Starts a worker process with more arguments.
    pub(crate) fn worker_with(&self, name: &str, more: &[&str]) -> Result<WorkerProcess, Failure> {
        let options = WorkerOptions {
            program: "story-worker".to_owned(),
            coordinators: self.cluster.addresses(),
            group: GROUP.to_owned(),
            name: name.to_owned(),
            arguments: more.iter().map(|&argument| argument.to_owned()).collect(),
        };
        WorkerProcess::start(&options, self.cluster.folder())
    }

    /// Waits until nothing moves.
    pub(crate) async fn at_rest(&self) -> Result<Ownership, Failure> {
        let rest = rest::at_rest(self.cluster.client(), &self.recorder, GROUP, PATIENCE).await;
        rest.map_err(|failure| self.cluster.with_logs(failure))
    }

    /// Waits until nothing moves and each of the workers owns at least `least` shards.
    pub(crate) async fn shared_by(
        &self,
        workers: &[&str],
        least: usize,
    ) -> Result<Ownership, Failure> {
        let what = format!("{workers:?} to own {least} shards each");
        let shared = wait::until(&what, PATIENCE, async || {
            let ownership = self
                .ownership()
                .await
                .map_err(|failure| failure.to_string())?;
            let counts = ownership.per_worker();
            let enough = |name: &&str| counts.get(*name).is_some_and(|&count| count >= least);
            if workers.iter().all(enough) {
                Ok(())
            } else {
                Err(format!("they own {counts:?}"))
            }
        })
        .await;
        shared.map_err(|failure| self.cluster.with_logs(failure))?;
        self.at_rest().await
    }

    /// Waits until another node than this one leads, and returns it.
    pub(crate) async fn leader_other_than(&self, old: u64) -> Result<u64, Failure> {
        wait::until("another leader", PATIENCE, async || {
            match self.cluster.leader().await {
                Ok(leader) if leader != old => Ok(leader),
                Ok(_) => Err("the old one leads".to_owned()),
                Err(failure) => Err(failure.to_string()),
            }
        })
        .await
    }

    /// Returns who owns what.
    pub(crate) async fn ownership(&self) -> Result<Ownership, Failure> {
        self.cluster.client().ownership(GROUP).await
    }

    /// Returns the token of the present tenure of a shard.
    pub(crate) async fn token(&self, shard: u32) -> Result<FencingToken, Failure> {
        let held = self.cluster.client().shard(GROUP, shard).await?;
        let resource = format!("shard/{GROUP}/{shard}");
        Ok(FencingToken {
            resource,
            epoch: held.epoch,
            owner: held.owner,
        })
    }

    /// Checks all that was seen, and ends the cluster in good order.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        let now = self.ownership().await?;
        self.recorder.finish().await.check(&now)?;
        self.cluster.shutdown().await
    }
}

/// Returns the shards of a worker with their epochs.
pub(crate) fn epochs(ownership: &Ownership, worker: &str) -> Vec<(u32, u64)> {
    let of_worker = ownership.iter().filter(|(_, held)| held.worker == worker);
    of_worker.map(|(shard, held)| (shard, held.epoch)).collect()
}

/// Returns the same shards, each at its next epoch.
pub(crate) fn next(epochs: &[(u32, u64)]) -> Vec<(u32, u64)> {
    epochs
        .iter()
        .map(|&(shard, epoch)| (shard, epoch + 1))
        .collect()
}

/// Returns the indexes alone.
pub(crate) fn indexes(epochs: &[(u32, u64)]) -> Vec<u32> {
    epochs.iter().map(|&(shard, _)| shard).collect()
}

/// Returns the median: of an even number of times the upper one of the middle.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
