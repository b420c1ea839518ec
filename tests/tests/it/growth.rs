//! Nodes come and go while workers work.

use std::time::{Duration, Instant};

use cluster_tests::cluster::{Cluster, ClusterOptions};
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use cluster_tests::worker::WorkerProcess;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::{GetShardRequest, Policy, ShardRef};
use tonic::Code;

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SHARDS: u32 = 32;

/// Must show 7 of the issue on operations: one, three, five, two replaced, three again.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go_under_load_and_no_grant_is_lost() -> Result<(), Failure> {
    let _turn = turn().await;
    let options = ClusterOptions {
        nodes: 1,
        spares: 6,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::with(options).await?;
    let mut stage = Stage::set(cluster, SHARDS, Policy::default(), &[]).await?;
    let mut workers = Vec::new();
    for name in NAMES {
        workers.push(stage.worker(name)?);
    }
    stage.shared_by(&NAMES, 1).await?;
    let begun = Instant::now();
    let mut used = stage.cluster.ids();

    for size in [3, 5] {
        while stage.cluster.nodes().len() < size {
            used.push(stage.cluster.grow().await?);
            works(&mut stage, &mut workers).await?;
        }
    }
    // Two die for good, the leader among them, and are replaced.
    let leader = stage.cluster.leader().await?;
    let other = stage.cluster.follower().await?;
    stage.cluster.kill_all(&[leader, other]).await?;
    for dead in [leader, other] {
        stage.cluster.remove(dead).await?;
        works(&mut stage, &mut workers).await?;
        used.push(stage.cluster.grow().await?);
        works(&mut stage, &mut workers).await?;
    }
    // And down to three, with the leader first, which runs on and finds out.
    for _ in 0..2 {
        let leader = stage.cluster.leader().await?;
        let removed = stage.cluster.remove(leader).await?;
        works(&mut stage, &mut workers).await?;
        let address = removed.address().to_owned();
        let client = stage.cluster.client().clone();
        wait::until(
            "the node to notice that it was removed",
            PATIENCE,
            async || match client.status(&address).await {
                Ok(status) if status.removed => Ok(()),
                Ok(status) => Err(format!("it believes in leader {}", status.leader_id)),
                Err(status) => Err(status.to_string()),
            },
        )
        .await
        .map_err(|failure| stage.cluster.with_logs(failure))?;
        // What it has is old from now on, so it shows nothing.
        let shard = Some(ShardRef {
            group: GROUP.to_owned(),
            index: 0,
        });
        let request = GetShardRequest {
            shard,
            linearizable: false,
        };
        let mut old = OwnershipServiceClient::new(client.channel(&address)?);
        let read = old.get_shard(request).await.map_err(|status| status.code());
        assert_eq!(read.err(), Some(Code::Unavailable));
    }
    assert_eq!(stage.cluster.nodes().len(), 3);
    let mut distinct = used.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), used.len(), "no id is used twice: {used:?}");
    measured(format_args!(
        "one, three, five, two replaced, three nodes in {:?}, {} moves meanwhile",
        begun.elapsed(),
        stage.ownership().await?.grants() - u64::from(SHARDS)
    ));
    for worker in workers {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}

/// Each worker writes, and one is killed and comes back: its shards are granted anew.
async fn works(stage: &mut Stage, workers: &mut Vec<WorkerProcess>) -> Result<(), Failure> {
    use cluster_tests::worker::Order;

    for worker in workers.iter_mut() {
        worker.order(Order::Write).await?;
    }
    let victim = workers.remove(0);
    let name = victim.name().to_owned();
    let before = stage.ownership().await?.grants();
    victim.kill().await?;
    workers.push(stage.worker(&name)?);
    wait::until(
        "shards to be granted",
        Duration::from_secs(30),
        async || {
            let now = stage
                .ownership()
                .await
                .map_err(|failure| failure.to_string())?;
            match now.grants() > before {
                true => Ok(()),
                false => Err(format!("{before} grants as before")),
            }
        },
    )
    .await
    .map_err(|failure| stage.cluster.with_logs(failure))
}
