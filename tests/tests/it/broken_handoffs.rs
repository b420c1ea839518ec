//! Handoffs in which one of the two workers does not do its part: each shard is served in the end, and the
//! operator is told what happened to it.

use std::time::{Duration, Instant};

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use cluster_tests::worker::WorkerProcess;
use tenure_proto::v1::{Policy, ShardPhase, WorkerMode};

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const SHARDS: u32 = 16;

/// How long a worker may take to release.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

async fn stage(drain_timeout: Duration) -> Result<Stage, Failure> {
    let policy = Policy {
        drain_timeout_ms: u64::try_from(drain_timeout.as_millis())?,
        // All at once.
        handoffs_in_flight_max: SHARDS,
        ..Policy::default()
    };
    let fields = ["drain_timeout_ms", "handoffs_in_flight_max"];
    Stage::set(Cluster::start().await?, SHARDS, policy, &fields).await
}

/// Waits until every shard is in a phase, of a worker.
async fn all(stage: &Stage, phase: ShardPhase, worker: &str) -> Result<(), Failure> {
    let what = format!("all shards to be {} on {worker}", phase.as_str_name());
    let waited = wait::until(&what, PATIENCE, async || {
        let ownership = stage.ownership().await;
        let ownership = ownership.map_err(|failure| failure.to_string())?;
        let there = ownership
            .iter()
            .filter(|(_, held)| held.phase == phase && held.worker == worker);
        let there = there.count();
        match there == ownership.len() {
            true => Ok(()),
            false => Err(format!("{there} are: {ownership:?}")),
        }
    });
    waited
        .await
        .map_err(|failure| stage.cluster.with_logs(failure))
}

/// Drains a worker, starts the one that follows, and waits until every shard is asked for.
async fn drained_to(stage: &Stage, from: &str, to: &str) -> Result<WorkerProcess, Failure> {
    // First, or some of its shards would be asked for only to even out the two.
    let client = stage.cluster.client();
    client
        .set_worker_mode(GROUP, from, WorkerMode::Draining)
        .await?;
    let next = stage.worker(to)?;
    all(stage, ShardPhase::Revoking, from).await?;
    Ok(next)
}

/// Waits until a worker serves every shard, and shows how long that took.
async fn followed(stage: &Stage, what: &str, next: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    all(stage, ShardPhase::Serving, next).await?;
    measured(format_args!(
        "{what}: served elsewhere after {:?}",
        begun.elapsed()
    ));
    Ok(())
}

/// Checks how the tenure before the present one ended, as `tenure shard show` says it.
async fn shown_as(
    stage: &Stage,
    worker: &str,
    revoke_reason: Option<&str>,
    end_cause: &str,
    session_end: Option<&str>,
) -> Result<(), Failure> {
    let follower = stage.cluster.follower().await?;
    let address = stage.cluster.node(follower)?.address().to_owned();
    for shard in 0..SHARDS {
        let shard = format!("{GROUP}/{shard}");
        let arguments = ["shard", "show", &shard, "--address", &address];
        let shown = stage.cluster.operate(&arguments).await?;
        let before = &shown["before"];
        assert_eq!(before["worker"], worker, "{shown}");
        assert_eq!(before["revoke_reason"].as_str(), revoke_reason, "{shown}");
        assert_eq!(before["end_cause"], end_cause, "{shown}");
        assert_eq!(before["session_end"].as_str(), session_end, "{shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_releases_loses_its_shards_and_is_named() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = stage(DRAIN_TIMEOUT).await?;
    let stubborn = stage.worker_with("stubborn", &["--stubborn"])?;
    all(&stage, ShardPhase::Serving, "stubborn").await?;
    let next = drained_to(&stage, "stubborn", "next").await?;
    followed(&stage, "a handler never releases", "next").await?;
    // Its worker gives them up, a moment before it would be forced to.
    shown_as(&stage, "stubborn", Some("draining"), "lost", None).await?;
    for worker in [stubborn, next] {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_answer_is_forced_off_and_named() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = stage(DRAIN_TIMEOUT).await?;
    let stopped = stage.worker_with("stopped", &["--stubborn"])?;
    all(&stage, ShardPhase::Serving, "stopped").await?;
    let next = drained_to(&stage, "stopped", "next").await?;
    // Its session outlives the drain timeout.
    stopped.process().stop().await?;
    followed(&stage, "a worker does not answer", "next").await?;
    shown_as(&stage, "stopped", Some("draining"), "forced", None).await?;
    stopped.process().wake()?;
    for worker in [stopped, next] {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_while_it_drains_is_followed_and_named() -> Result<(), Failure> {
    let _turn = turn().await;
    // Nobody is forced here.
    let stage = stage(Duration::from_secs(3_600)).await?;
    let dying = stage.worker_with("dying", &["--stubborn"])?;
    all(&stage, ShardPhase::Serving, "dying").await?;
    let next = drained_to(&stage, "dying", "next").await?;
    dying.kill().await?;
    followed(&stage, "a worker died while it drained", "next").await?;
    shown_as(
        &stage,
        "dying",
        Some("draining"),
        "session-ended",
        Some("expired"),
    )
    .await?;
    next.stop(PATIENCE).await?;
    stage.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_after_the_release_is_followed_and_named() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = stage(DRAIN_TIMEOUT).await?;
    let first = stage.worker("first")?;
    all(&stage, ShardPhase::Serving, "first").await?;
    let dying = stage.worker_with("dying", &["--never-opens"])?;
    let client = stage.cluster.client();
    client
        .set_worker_mode(GROUP, "first", WorkerMode::Draining)
        .await?;
    all(&stage, ShardPhase::Opening, "dying").await?;
    let last = stage.worker("last")?;
    dying.kill().await?;
    followed(&stage, "a target died after the release", "last").await?;
    shown_as(&stage, "dying", None, "session-ended", Some("expired")).await?;
    for worker in [first, last] {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}
