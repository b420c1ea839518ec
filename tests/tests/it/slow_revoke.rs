//! A revoke arrives late and is ignored.

use std::time::Duration;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::worker::{Report, now_ns, overlaps};
use tenure_proto::v1::Policy;

use crate::story::{PATIENCE, Stage, epochs, turn};

/// How late the revoke arrives.
const DELAY: Duration = Duration::from_secs(2);

/// Scenario 27.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_dead_before_the_forced_grant_although_the_revoke_was_late()
-> Result<(), Failure> {
    let _turn = turn().await;
    // The window of belief is longer than the delay, so that the worker goes on believing meanwhile.
    let policy = Policy {
        disconnect_grace_ms: 6_000,
        drain_timeout_ms: 3_000,
        ..Policy::default()
    };
    let fields = ["disconnect_grace_ms", "drain_timeout_ms"];
    let stage = Stage::set(Cluster::start().await?, 4, policy, &fields).await?;
    let stubborn = stage.worker_with("a", &["--stubborn"])?;
    let before = stage.shared_by(&["a"], 4).await?;

    // What is sent to it waits in its socket.
    stubborn.process().stop().await?;
    let b = stage.worker("b")?;
    let revoked = stage.recorder.until("a revoke", PATIENCE, |history| {
        let revoked = history.serving(4) < 4;
        if revoked {
            Ok(())
        } else {
            Err("all are served".to_owned())
        }
    });
    revoked.await?;
    tokio::time::sleep(DELAY).await;
    stubborn.process().wake()?;

    let forced = stage
        .recorder
        .until("a forced handoff", PATIENCE, |history| {
            let anew = epochs(&before, "a").into_iter().find_map(|(shard, epoch)| {
                history
                    .seen_grant(shard, epoch + 1)
                    .map(|grant| (shard, epoch, grant.at))
            });
            anew.ok_or_else(|| "nothing was granted anew".to_owned())
        });
    let (shard, epoch, granted) = forced.await?;
    let granted_ns = now_ns() - u64::try_from(granted.elapsed().as_nanos())?;
    let lost = |report: &Report| match report {
        Report::Lost {
            shard: of,
            epoch: at,
            reason,
        } if (*of, *at) == (shard, epoch) => Some(reason.clone()),
        _ => None,
    };
    let reason = stubborn
        .until_reported("the end of the handle", PATIENCE, lost)
        .await?;
    assert_eq!(reason, "the time to drain was over");
    let believed = stubborn.believed();
    let last = believed
        .iter()
        .filter(|span| (span.shard, span.epoch) == (shard, epoch))
        .map(|span| span.until_ns)
        .max()
        .ok_or_else(|| Failure::new("it never believed"))?;
    assert!(
        last < granted_ns,
        "believed at {last}, granted at {granted_ns}"
    );

    let mut spans = Vec::new();
    for worker in [stubborn, b] {
        let name = worker.name().to_owned();
        // The stubborn one lets its time to drain pass.
        spans.extend(worker.stop(PATIENCE).await?.believed(&name));
    }
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}
