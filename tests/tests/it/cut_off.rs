//! Nodes and workers are cut off from the rest and come back.

use std::time::{Duration, Instant};

use cluster_tests::cluster::{Cluster, ClusterOptions};
use cluster_tests::failure::Failure;
use cluster_tests::proxy::Party;
use cluster_tests::wait;
use cluster_tests::worker::overlaps;
use tenure_proto::v1::{FencingToken, Policy, StatusResponse};

use crate::story::{PATIENCE, Stage, epochs, measured, turn};

/// How long a node is cut off: several times the longest election timeout, 1.2 s.
const LONG: Duration = Duration::from_secs(5);

/// Scenario 24.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_cut_off_neither_disturbs_the_leader_nor_vouches_for_an_old_token()
-> Result<(), Failure> {
    let _turn = turn().await;
    let stage = proxied(4).await?;
    let a = stage.worker("a")?;
    let before = stage.shared_by(&["a"], 4).await?;
    let old = stage.token(0).await?;
    let (leader, node) = (
        stage.cluster.leader().await?,
        stage.cluster.follower().await?,
    );
    let term = status(&stage, leader).await?.term;

    stage.cluster.proxies()?.isolate([Party::Node(node)]);
    let cut = Instant::now();
    a.kill().await?;
    let b = stage.worker("b")?;
    stage
        .recorder
        .granted_anew(&epochs(&before, "a"), Instant::now(), PATIENCE)
        .await?;
    while cut.elapsed() < LONG {
        assert_ne!(says(&stage, node, &old).await?, Some(true), "cut off");
    }

    let committed = status(&stage, leader).await?.applied_index;
    stage.cluster.proxies()?.heal();
    // Not once while it catches up does it vouch for the old token.
    wait::until("the node to catch up", PATIENCE, async || {
        let said = says(&stage, node, &old)
            .await
            .map_err(|failure| failure.to_string())?;
        assert_ne!(said, Some(true), "healed");
        let status = status(&stage, node)
            .await
            .map_err(|failure| failure.to_string())?;
        let caught_up = status.applied_index >= committed && status.leader_id == leader;
        if caught_up {
            Ok(())
        } else {
            Err(format!("it is at {}", status.applied_index))
        }
    })
    .await?;
    let after = status(&stage, leader).await?;
    assert_eq!(
        (after.leader_id, after.term),
        (leader, term),
        "the leader was not disturbed"
    );
    assert_eq!(
        says(&stage, leader, &stage.token(0).await?).await?,
        Some(true)
    );

    b.stop(PATIENCE).await?;
    stage.end().await
}

/// Scenario 25.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cut_off_with_its_leader_stops_believing_before_its_shards_are_granted()
-> Result<(), Failure> {
    let _turn = turn().await;
    let stage = proxied(8).await?;
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    let before = stage.shared_by(&["a", "b"], 1).await?;
    let held = epochs(&before, "a");
    let (shard, _) = *held.first().ok_or_else(|| Failure::new("a has no shard"))?;
    let token = stage.token(shard).await?;
    let old = stage.cluster.leader().await?;
    assert_eq!(says(&stage, old, &token).await?, Some(true), "before");

    let cut = Instant::now();
    stage
        .cluster
        .proxies()?
        .isolate([Party::Node(old), Party::Process(a.process().pid())]);
    stage.leader_other_than(old).await?;
    // From here on the old leader can have no quorum, and every `valid` would be wrong.
    let granting = stage.recorder.granted_anew(&held, cut, PATIENCE);
    let asking = async {
        while says(&stage, old, &token).await? != Some(true) {}
        Err::<Duration, Failure>(Failure::new("the leader that is cut off says valid"))
    };
    let takeover = tokio::select! {
        granted = granting => granted?,
        said = asking => said?,
    };
    measured(format_args!(
        "cut off with its leader, shards granted elsewhere after {takeover:?}"
    ));
    assert_ne!(
        says(&stage, old, &token).await?,
        Some(true),
        "after the grant"
    );

    stage.cluster.proxies()?.heal();
    stage.shared_by(&["a", "b"], 1).await?;
    let mut spans = a.stop(PATIENCE).await?.believed("a");
    assert!(
        spans.iter().any(|span| span.shard == shard),
        "it believed before it was cut off"
    );
    spans.extend(b.stop(PATIENCE).await?.believed("b"));
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}

async fn proxied(shards: u32) -> Result<Stage, Failure> {
    let options = ClusterOptions {
        proxied: true,
        ..ClusterOptions::default()
    };
    let policy = Policy {
        ttl_ms: 2_000,
        ..Policy::default()
    };
    Stage::set(Cluster::with(options).await?, shards, policy, &["ttl_ms"]).await
}

async fn status(stage: &Stage, node: u64) -> Result<StatusResponse, Failure> {
    Ok(stage
        .cluster
        .client()
        .status(stage.cluster.node(node)?.address())
        .await?)
}

/// Asks one node whether a token is current: `None` if it does not say.
async fn says(stage: &Stage, node: u64, token: &FencingToken) -> Result<Option<bool>, Failure> {
    let address = stage.cluster.node(node)?.address();
    let answer = stage
        .cluster
        .client()
        .check_token(address, token.clone())
        .await;
    Ok(answer.ok().map(|answer| answer.current))
}
