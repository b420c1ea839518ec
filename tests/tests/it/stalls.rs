//! The coordinator stands still, or nobody can reach it for a moment.

use std::time::{Duration, Instant};

use cluster_tests::cluster::{Cluster, ClusterOptions};
use cluster_tests::failure::Failure;
use cluster_tests::proxy::Party;
use cluster_tests::wait;
use cluster_tests::worker::overlaps;
use tenure_proto::v1::Policy;

use crate::story::{PATIENCE, Stage, turn};

/// Longer than another leader takes, also on a busy machine.
const TTL: Duration = Duration::from_secs(4);

fn policy() -> Result<Policy, Failure> {
    Ok(Policy {
        ttl_ms: u64::try_from(TTL.as_millis())?,
        ..Policy::default()
    })
}

/// Scenario 15.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_for_three_ttls_ends_nobody_on_waking() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 8, policy()?, &["ttl_ms"]).await?;
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    let before = stage.shared_by(&["a", "b"], 1).await?;
    let old = stage.cluster.leader().await?;

    let stopped = Instant::now();
    let process = stage.cluster.node(old)?.process()?;
    process.stop().await?;
    let new = stage.leader_other_than(old).await?;
    // The silence itself is what the story is about.
    tokio::time::sleep((3 * TTL).saturating_sub(stopped.elapsed())).await;
    process.wake()?;
    wait::until(
        "the old leader to follow the new one",
        PATIENCE,
        async || {
            let address = stage
                .cluster
                .node(old)
                .map_err(|failure| failure.to_string())?;
            match stage.cluster.client().status(address.address()).await {
                Ok(status) if status.leader_id == new => Ok(()),
                said => Err(format!("it says {said:?}")),
            }
        },
    )
    .await?;

    let after = stage.at_rest().await?;
    before.moved_exactly(&after, &[])?;
    for name in ["a", "b"] {
        let sessions = stage
            .recorder
            .look(|history| history.sessions_of(name).len());
        assert_eq!(sessions, 1, "{name} kept its session");
    }
    let mut spans = a.stop(PATIENCE).await?.believed("a");
    spans.extend(b.stop(PATIENCE).await?.believed("b"));
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}

/// Scenario 21.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_all_lose_their_streams_for_a_moment_keep_everything() -> Result<(), Failure> {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    /// Twice what a single worker's broken stream is given.
    const BLINK: Duration = Duration::from_millis(1_500);
    let _turn = turn().await;
    let options = ClusterOptions {
        proxied: true,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::with(options).await?;
    let stage = Stage::set(cluster, 12, policy()?, &["ttl_ms"]).await?;
    let mut workers = Vec::new();
    for name in NAMES {
        workers.push(stage.worker(name)?);
    }
    let before = stage.shared_by(&NAMES, 1).await?;

    let parties = workers
        .iter()
        .map(|worker| Party::Process(worker.process().pid()));
    stage.cluster.proxies()?.isolate(parties);
    tokio::time::sleep(BLINK).await;
    stage.cluster.proxies()?.heal();

    let after = stage.at_rest().await?;
    before.moved_exactly(&after, &[])?;
    let mut spans = Vec::new();
    for worker in workers {
        let name = worker.name().to_owned();
        let sessions = stage
            .recorder
            .look(|history| history.sessions_of(&name).len());
        assert_eq!(sessions, 1, "{name} kept its session");
        spans.extend(worker.stop(PATIENCE).await?.believed(&name));
    }
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}
