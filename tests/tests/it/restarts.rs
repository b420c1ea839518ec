//! A worker process dies and comes back.

use std::time::Instant;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use tenure_proto::v1::Policy;

use crate::story::{PATIENCE, Stage, epochs, indexes, measured, next, turn};

/// Scenarios 17 and 29.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_restarted_at_once_opens_its_shards_anew_and_nothing_else_moves()
-> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 16, Policy::default(), &[]).await?;
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    let before = stage.shared_by(&["a", "b"], 1).await?;
    let held = epochs(&before, "a");

    let killed = Instant::now();
    a.kill().await?;
    let a = stage.worker("a")?;
    let takeover = stage.recorder.granted_anew(&held, killed, PATIENCE).await?;
    measured(format_args!(
        "killed and started again, its shards granted again after {takeover:?}"
    ));

    // It has lost its memory, not its name: the same shards, one epoch higher, all of them opened.
    let after = stage.at_rest().await?;
    before.moved_exactly(&after, &indexes(&held))?;
    assert_eq!(epochs(&after, "a"), next(&held));
    assert_eq!(
        stage
            .recorder
            .look(|history| history.sessions_of("a").len()),
        2
    );

    a.stop(PATIENCE).await?;
    b.stop(PATIENCE).await?;
    stage.end().await
}
