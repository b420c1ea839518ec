//! Coordinators are killed at any moment while shards move.

use std::env;
use std::time::Duration;

use cluster_tests::client::Client;
use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use cluster_tests::worker::LocalWorker;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenure_proto::v1::{Policy, WorkerMode};
use tokio_util::sync::CancellationToken;

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const KILLS: usize = 50;

const SHARDS: u32 = 48;

const WORKERS: [&str; 3] = ["worker-1", "worker-2", "worker-3"];

/// Most grants that are let pass before the next kill. One worker has 16 shards, so kills fall into
/// every part of a handoff of all of them.
const GRANTS_MAX: usize = 12;

/// Most time after that grant, in microseconds: somewhere in the middle of what follows it.
const MICROS_MAX: u64 = 20_000;

/// A node that is to be killed, and when.
#[derive(Debug)]
struct Kill {
    node: u64,
    grants: usize,
    delay: Duration,
}

impl Kill {
    fn draw(random: &mut StdRng, nodes: &[u64]) -> Self {
        Self {
            node: nodes[random.random_range(0..nodes.len())],
            grants: random.random_range(0..=GRANTS_MAX),
            delay: Duration::from_micros(random.random_range(0..=MICROS_MAX)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_lost_and_no_epoch_reused_whenever_nodes_are_killed() -> Result<(), Failure> {
    let _turn = turn().await;
    let seed = match env::var("TENURE_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => rand::rng().random(),
    };
    measured(format_args!(
        "seed {seed}: TENURE_SEED={seed} draws the same kills again"
    ));
    let mut random = StdRng::seed_from_u64(seed);

    let mut stage = Stage::set(Cluster::start().await?, SHARDS, Policy::default(), &[]).await?;
    let mut workers = Vec::new();
    for name in WORKERS {
        workers.push(LocalWorker::start(stage.cluster.addresses(), GROUP, name)?);
    }
    stage.shared_by(&WORKERS, 1).await?;

    let stop = CancellationToken::new();
    let client = stage.cluster.client().clone();
    let killing = async {
        let killed = kill_nodes(&mut stage, &mut random).await;
        stop.cancel();
        killed
    };
    let (killed, moved) = tokio::join!(killing, keep_moving(&client, &stop));
    killed
        .and(moved)
        .map_err(|failure| failure.during(format!("seed {seed}")))?;

    let now = stage.at_rest().await?;
    stage.recorder.look(|history| history.check(&now))?;
    measured(format_args!(
        "{KILLS} kills during {} grants, none lost",
        now.grants()
    ));

    all_killed_at_once_keep_owners_and_epochs(&mut stage).await?;
    for worker in workers {
        worker.stop().await?;
    }
    stage.end().await
}

async fn kill_nodes(stage: &mut Stage, random: &mut StdRng) -> Result<(), Failure> {
    let nodes = stage.cluster.ids();
    for number in 1..=KILLS {
        let kill = Kill::draw(random, &nodes);
        let moment = format!("kill {number}, {kill:?}");
        let from = stage.recorder.look(|history| history.grants());
        let passed = stage.recorder.until("shards to move", PATIENCE, |history| {
            let grants = history.grants() - from;
            if grants >= kill.grants {
                Ok(())
            } else {
                Err(format!("{grants} have"))
            }
        });
        let passed = passed.await;
        passed.map_err(|failure| stage.cluster.with_logs(failure.during(&moment)))?;
        // The moment is what the seed chooses; there is nothing to wait for.
        tokio::time::sleep(kill.delay).await;
        stage.cluster.kill(kill.node).await?;
        let started = stage.cluster.start_node(kill.node).await;
        started.map_err(|failure| failure.during(&moment))?;
    }
    Ok(())
}

/// Drains one worker after the other and takes it back, so that its shards go and come.
async fn keep_moving(client: &Client, stop: &CancellationToken) -> Result<(), Failure> {
    for name in WORKERS.into_iter().cycle() {
        client
            .set_worker_mode(GROUP, name, WorkerMode::Draining)
            .await?;
        wait::until("a worker to be drained", PATIENCE, async || {
            let ownership = client
                .ownership(GROUP)
                .await
                .map_err(|failure| failure.to_string())?;
            let left = ownership.of(name).len();
            if left == 0 {
                Ok(())
            } else {
                Err(format!("{name} has {left} shards"))
            }
        })
        .await?;
        client
            .set_worker_mode(GROUP, name, WorkerMode::Active)
            .await?;
        if stop.is_cancelled() {
            return Ok(());
        }
    }
    Ok(())
}

async fn all_killed_at_once_keep_owners_and_epochs(stage: &mut Stage) -> Result<(), Failure> {
    let before = stage.at_rest().await?;
    let nodes = stage.cluster.ids();
    stage.cluster.kill_all(&nodes).await?;
    for &node in &nodes {
        stage.cluster.start_node(node).await?;
    }
    stage.cluster.leader().await?;
    before.moved_exactly(&stage.ownership().await?, &[])?;
    // Also when every worker has found the new leader and the planner has had its say.
    before.moved_exactly(&stage.at_rest().await?, &[])
}
