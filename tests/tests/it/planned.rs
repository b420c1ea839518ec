//! Planned restarts: nobody notices them.

use std::collections::BTreeMap;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::ownership::Ownership;
use cluster_tests::worker::WorkerProcess;
use tenure_proto::v1::{Policy, WorkerMode};

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const WORKERS: [&str; 8] = [
    "worker-1", "worker-2", "worker-3", "worker-4", "worker-5", "worker-6", "worker-7", "worker-8",
];
const SHARDS: u32 = 800;

/// A group whose shards are shared by all workers.
async fn shared() -> Result<(Stage, Vec<WorkerProcess>, Ownership), Failure> {
    let stage = Stage::set(Cluster::start().await?, SHARDS, Policy::default(), &[]).await?;
    let mut workers = Vec::new();
    for name in WORKERS {
        workers.push(patient(&stage, name)?);
    }
    let before = stage.shared_by(&WORKERS, least()).await?;
    Ok((stage, workers, before))
}

/// Starts a worker that waits as long as most do for others to take its shards.
fn patient(stage: &Stage, name: &str) -> Result<WorkerProcess, Failure> {
    stage.worker_with(name, &["--drain-seconds", "30"])
}

fn least() -> usize {
    SHARDS as usize / WORKERS.len()
}

/// Returns how many more tenures each shard has had.
fn tenures_since(before: &Ownership, after: &Ownership) -> BTreeMap<u32, u64> {
    let epoch = |shard| before.get(shard).map_or(0, |held| held.epoch);
    let shards = after.iter();
    shards
        .map(|(shard, held)| (shard, held.epoch - epoch(shard)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_with_pauses_moves_no_shard_and_each_gets_the_next_epoch()
-> Result<(), Failure> {
    let _turn = turn().await;
    let (stage, workers, before) = shared().await?;
    let mut restarted = Vec::new();
    for worker in workers {
        let name = worker.name().to_owned();
        let client = stage.cluster.client();
        client
            .set_worker_mode(GROUP, &name, WorkerMode::Paused)
            .await?;
        worker.stop(PATIENCE).await?;
        restarted.push(patient(&stage, &name)?);
        let back = stage.shared_by(&WORKERS, least()).await?;
        client
            .set_worker_mode(GROUP, &name, WorkerMode::Active)
            .await?;
        assert_eq!(back.of(&name), before.of(&name));
    }
    let after = stage.at_rest().await?;
    for name in WORKERS {
        assert_eq!(after.of(name), before.of(name), "{name}");
    }
    let tenures = tenures_since(&before, &after);
    assert!(tenures.values().all(|count| *count == 1), "{tenures:?}");
    measured(format_args!(
        "{} workers restarted with {SHARDS} shards: 0 moves, one more epoch each",
        WORKERS.len()
    ));
    for worker in restarted {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}

/// Shards whose way is shown when a story fails.
const SHOWN_MAX: usize = 40;

/// Says from where to where a shard has gone, oldest first, and why.
async fn way(stage: &Stage, shard: u32) -> Result<String, Failure> {
    let name = format!("{GROUP}/{shard}");
    let address = stage.cluster.addresses().swap_remove(0);
    let arguments = ["shard", "history", &name, "--address", &address];
    let history = stage.cluster.operate(&arguments).await?;
    let tenures = history["tenures"].as_array().cloned().unwrap_or_default();
    let steps = tenures.iter().rev().map(|tenure| {
        let text = |field: &str| tenure[field].as_str().unwrap_or("-").to_owned();
        let (worker, how, why) = (text("worker"), text("end_cause"), text("revoke_reason"));
        format!("{worker} ({how}, {why})")
    });
    Ok(format!("{shard}: {}", steps.collect::<Vec<_>>().join(", ")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_with_drains_moves_each_shard_at_most_twice() -> Result<(), Failure> {
    let _turn = turn().await;
    let (stage, workers, before) = shared().await?;
    let mut restarted = Vec::new();
    for worker in workers {
        let name = worker.name().to_owned();
        // It drains itself, as at SIGTERM, and nothing waits for it.
        worker.stop(PATIENCE).await?;
        stage.at_rest().await?;
        restarted.push(patient(&stage, &name)?);
        stage.shared_by(&WORKERS, least()).await?;
    }
    let after = stage.at_rest().await?;
    let tenures = tenures_since(&before, &after);
    let often = tenures.iter().filter(|(_, count)| **count > 2);
    let often: Vec<u32> = often.map(|(shard, _)| *shard).collect();
    let mut ways = Vec::new();
    for shard in often.iter().take(SHOWN_MAX) {
        ways.push(way(&stage, *shard).await?);
    }
    assert!(
        often.is_empty(),
        "{} shards moved more than twice: {ways:#?}",
        often.len()
    );
    measured(format_args!(
        "{} workers drained and restarted with {SHARDS} shards: {} moves, at most {} of one shard",
        WORKERS.len(),
        tenures.values().sum::<u64>(),
        tenures.values().max().unwrap_or(&0)
    ));
    for worker in restarted {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}
