//! How long shards are without an owner when a process is killed, at default settings.

use std::time::{Duration, Instant};

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::worker::LocalWorker;
use tenure_proto::v1::Policy;

use crate::story::{GROUP, PATIENCE, Stage, epochs, indexes, measured, median, turn};

const ROUNDS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_killed_worker_are_granted_elsewhere_within_a_second() -> Result<(), Failure> {
    const NAMES: [&str; 4] = ["worker-1", "worker-2", "worker-3", "worker-4"];
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 64, Policy::default(), &[]).await?;
    let mut workers = Vec::new();
    for name in NAMES {
        workers.push(stage.worker(name)?);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let before = stage.shared_by(&NAMES, 1).await?;
        // The one that was started longest ago.
        let victim = workers.remove(0);
        let name = victim.name().to_owned();
        let held = epochs(&before, &name);
        let killed = Instant::now();
        victim.kill().await?;
        times.push(stage.recorder.granted_anew(&held, killed, PATIENCE).await?);
        let after = stage.ownership().await?;
        before.moved_exactly(&after, &indexes(&held))?;
        assert!(after.of(&name).is_empty(), "they are others' now");
        workers.push(stage.worker(&name)?);
    }
    let shown = format!("{times:?}");
    let median = median(times);
    measured(format_args!(
        "worker killed, its shards granted elsewhere: median {median:?} of {shown}"
    ));
    assert!(median <= Duration::from_secs(1), "median {median:?}");
    for worker in workers {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_granted_again_two_seconds_after_the_leader_is_killed() -> Result<(), Failure> {
    const NAMES: [&str; 2] = ["worker-1", "worker-2"];
    let _turn = turn().await;
    let mut stage = Stage::set(Cluster::start().await?, 16, Policy::default(), &[]).await?;
    let mut workers = Vec::new();
    for name in NAMES {
        workers.push(LocalWorker::start(stage.cluster.addresses(), GROUP, name)?);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let before = stage.shared_by(&NAMES, 1).await?;
        let (shard, held) = before
            .iter()
            .next()
            .ok_or_else(|| Failure::new("no shard"))?;
        let leader = stage.cluster.leader().await?;
        let killed = Instant::now();
        stage.cluster.kill(leader).await?;
        // Something to grant: its worker gives it back, and says so to the next leader.
        let given = workers
            .iter()
            .filter(|worker| worker.holder().give_back(shard))
            .count();
        assert_eq!(given, 1, "exactly one worker holds shard {shard}");
        let granted = stage
            .recorder
            .granted_anew(&[(shard, held.epoch)], killed, PATIENCE)
            .await;
        times.push(granted.map_err(|failure| stage.cluster.with_logs(failure))?);
        before.moved_exactly(&stage.ownership().await?, &[shard])?;
        stage.cluster.start_node(leader).await?;
    }
    let shown = format!("{times:?}");
    let median = median(times);
    measured(format_args!(
        "leader killed, a shard granted again: median {median:?} of {shown}"
    ));
    assert!(median <= Duration::from_secs(2), "median {median:?}");
    for worker in workers {
        worker.stop().await?;
    }
    stage.end().await
}
