//! 100,000 shards and 100 workers in one group.

use std::time::{Duration, Instant};

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::ownership::Ownership;
use cluster_tests::wait;
use cluster_tests::worker::LocalWorker;
use tenure_proto::v1::{Group, Policy, ShardPhase};

use crate::story::{GROUP, measured, turn};

const SHARDS: u32 = 100_000;

const WORKERS: u32 = 100;

/// How long each part of this may take. What is measured has bounds of its own.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_shards_are_granted_in_ten_seconds_and_a_leaver_moves_only_its_own()
-> Result<(), Failure> {
    let _turn = turn().await;
    let cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let resident_before = cluster.node(leader)?.process()?.resident_bytes()?;

    let begin = Instant::now();
    cluster
        .client()
        .create_group(GROUP, SHARDS, Policy::default(), &[])
        .await?;
    measured(format_args!(
        "{SHARDS} shards created after {:?}",
        begin.elapsed()
    ));
    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        let name = format!("worker-{number:03}");
        workers.push(LocalWorker::start(cluster.addresses(), GROUP, &name)?);
    }
    until_group(&cluster, "all to be granted", |group| {
        group.unowned == 0 && group.workers == WORKERS
    })
    .await?;
    let granted = begin.elapsed();
    measured(format_args!(
        "{SHARDS} shards granted to {WORKERS} workers after {granted:?}"
    ));
    until_group(&cluster, "all to be served", |group| {
        group.serving == SHARDS
    })
    .await?;
    measured(format_args!(
        "all of them serve after {:?}",
        begin.elapsed()
    ));

    let leader = cluster.leader().await?;
    let resident = cluster.node(leader)?.process()?.resident_bytes()?;
    let per_shard = resident.saturating_sub(resident_before) / u64::from(SHARDS);
    measured(format_args!(
        "coordinator {leader}: {} MiB, {per_shard} bytes for each shard",
        resident >> 20
    ));
    assert!(
        granted <= Duration::from_secs(10),
        "granted after {granted:?}"
    );

    exactly_its_shards_move_when_one_leaves(&cluster, workers.swap_remove(7)).await?;
    // All at once: each has a thousand shards to give back.
    let stopping: Vec<_> = workers
        .into_iter()
        .map(|worker| tokio::spawn(worker.stop()))
        .collect();
    for stopped in stopping {
        stopped.await??;
    }
    cluster.shutdown().await
}

async fn exactly_its_shards_move_when_one_leaves(
    cluster: &Cluster,
    leaver: LocalWorker,
) -> Result<(), Failure> {
    let before = at_rest(cluster).await?;
    let name = leaver.name().to_owned();
    let held = before.of(&name);
    let begin = Instant::now();
    leaver.stop().await?;
    until_group(cluster, "its shards to be served by others", |group| {
        group.serving == SHARDS && group.workers == WORKERS - 1
    })
    .await?;
    measured(format_args!(
        "{name} left; its {} shards are served after {:?}",
        held.len(),
        begin.elapsed()
    ));
    assert!(!held.is_empty(), "{name} had shards");
    before.moved_exactly(&at_rest(cluster).await?, &held)
}

/// Waits until looks a second apart show the same, all of it served, and returns it. Without a
/// recorder: so many events are a load of their own.
async fn at_rest(cluster: &Cluster) -> Result<Ownership, Failure> {
    let client = cluster.client();
    let mut last = client.ownership(GROUP).await?;
    let mut since = Instant::now();
    wait::until("shards to come to rest", PATIENCE, async || {
        let now = client
            .ownership(GROUP)
            .await
            .map_err(|failure| failure.to_string())?;
        if now.count(ShardPhase::Serving) != now.len() || now != last {
            let moved = last.moved(&now).len();
            last = now;
            since = Instant::now();
            return Err(format!("{moved} shards moved a moment ago"));
        }
        if since.elapsed() < Duration::from_secs(1) {
            return Err("some moved less than a second ago".to_owned());
        }
        Ok(now)
    })
    .await
}

async fn until_group(
    cluster: &Cluster,
    what: &str,
    holds: impl Fn(&Group) -> bool,
) -> Result<(), Failure> {
    let waited = wait::until(what, PATIENCE, async || {
        let group = cluster
            .client()
            .group(GROUP)
            .await
            .map_err(|failure| failure.to_string())?;
        if holds(&group) {
            return Ok(());
        }
        Err(format!(
            "{} unowned, {} opening, {} serving, {} revoking, {} workers",
            group.unowned, group.opening, group.serving, group.revoking, group.workers
        ))
    })
    .await;
    waited.map_err(|failure| cluster.with_logs(failure))
}
