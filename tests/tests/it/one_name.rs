//! Two processes want one name.

use std::time::Instant;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::worker::{Believed, Order, Report, WorkerProcess, overlaps};
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tenure_proto::v1::{AttachRequest, Policy, Register, Session};

use crate::story::{GROUP, PATIENCE, Stage, epochs, next, turn};

/// Scenario 18.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_live_processes_the_newer_one_keeps_the_name_and_the_older_one_stops()
-> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 8, Policy::default(), &[]).await?;
    let mut first = stage.worker("a")?;
    let before = stage.shared_by(&["a"], 8).await?;
    let second = stage.worker("a")?;
    ends_as_replaced(&mut first).await?;

    // Once: no flip-flop. Each shard went one epoch up, from the first session to the second.
    let after = stage.at_rest().await?;
    assert_eq!(epochs(&after, "a"), next(&epochs(&before, "a")));
    assert_eq!(
        stage
            .recorder
            .look(|history| history.sessions_of("a").len()),
        2
    );

    let mut spans = first.believed();
    spans.extend(stop(second).await?);
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}

/// Scenario 26.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_restarted_while_the_old_one_is_stopped_never_believes_beside_it()
-> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 4, Policy::default(), &[]).await?;
    let mut first = stage.worker("a")?;
    stage.shared_by(&["a"], 4).await?;
    // Stopped between its own check and the store's.
    first.order(Order::Hold).await?;
    first.order(Order::Write).await?;
    let held = |report: &Report| matches!(report, Report::Held { .. }).then_some(());
    first.until_reported("a write", PATIENCE, held).await?;
    first.process().stop().await?;

    let second = stage.worker("a")?;
    claims(&second, 4).await?;
    first.order(Order::Proceed).await?;
    first.process().wake()?;
    ends_as_replaced(&mut first).await?;

    assert!(
        first.log().refused() >= 1,
        "the store refused what it wrote on waking"
    );
    assert_eq!(
        stage
            .recorder
            .look(|history| history.sessions_of("a").len()),
        2
    );
    let mut spans = first.believed();
    assert!(!spans.is_empty(), "it believed before it was stopped");
    spans.extend(stop(second).await?);
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}

/// Scenario 39.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_registers_again_takes_nothing_from_the_process_that_has_its_name()
-> Result<(), Failure> {
    let _turn = turn().await;
    let policy = Policy {
        ttl_ms: 2_000,
        ..Policy::default()
    };
    let stage = Stage::set(Cluster::start().await?, 8, policy, &["ttl_ms"]).await?;
    let mut first = stage.worker("a")?;
    let b = stage.worker("b")?;
    let before = stage.shared_by(&["a", "b"], 1).await?;
    first.process().stop().await?;
    stage
        .recorder
        .granted_anew(&epochs(&before, "a"), Instant::now(), PATIENCE)
        .await?;

    let second = stage.worker("a")?;
    let before = stage.shared_by(&["a", "b"], 1).await?;
    first.process().wake()?;
    ends_as_replaced(&mut first).await?;
    before.moved_exactly(&stage.at_rest().await?, &[])?;
    assert_eq!(
        stage
            .recorder
            .look(|history| history.sessions_of("a").len()),
        2
    );

    let mut spans = first.believed();
    spans.extend(stop(second).await?);
    spans.extend(stop(b).await?);
    assert_eq!(overlaps(&spans), []);
    stage.end().await
}

/// Scenario 39, second half.
#[tokio::test(flavor = "multi_thread")]
async fn a_register_whose_answer_was_lost_is_answered_with_the_same_session() -> Result<(), Failure>
{
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 1, Policy::default(), &[]).await?;
    let first = register(&stage, 1).await?;
    // The stream of the first answer is gone, as if it had never arrived.
    let second = register(&stage, 2).await?;
    assert_eq!(first, second);
    let registered = stage
        .recorder
        .until("the registration", PATIENCE, |history| {
            let sessions = history.sessions_of("raw");
            if sessions.is_empty() {
                Err("there is none".to_owned())
            } else {
                Ok(sessions)
            }
        });
    assert_eq!(registered.await?, [first.number]);
    stage.end().await
}

/// Waits until a worker that was replaced has ended, and checks that it says so.
async fn ends_as_replaced(worker: &mut WorkerProcess) -> Result<(), Failure> {
    let status = worker.ended(PATIENCE).await?;
    let ended = |report: &Report| match report {
        Report::Ended { error, .. } => Some(error.clone()),
        _ => None,
    };
    let errors: Vec<String> = worker
        .log()
        .look(|reports| reports.iter().filter_map(ended).collect());
    assert!(!status.success(), "{} ended with {status}", worker.name());
    assert_eq!(errors, ["a newer process registered as a"]);
    Ok(())
}

/// Waits until a worker has claimed a number of shards.
async fn claims(worker: &WorkerProcess, shards: usize) -> Result<(), Failure> {
    let claimed = |report: &&Report| matches!(report, Report::Claimed { .. });
    worker
        .until("claims", PATIENCE, |reports| {
            (reports.iter().filter(claimed).count() >= shards).then_some(())
        })
        .await
}

/// Registers on a stream of its own and returns the session; the stream breaks after that.
async fn register(stage: &Stage, attempt: u64) -> Result<Session, Failure> {
    let leader = stage.cluster.leader().await?;
    let channel = stage
        .cluster
        .client()
        .channel(stage.cluster.node(leader)?.address())?;
    let register = Register {
        group: GROUP.to_owned(),
        worker: "raw".to_owned(),
        nonce: vec![7; 16].into(),
        attempt,
        ..Register::default()
    };
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender
        .send(AttachRequest {
            message: Some(Up::Register(register)),
        })
        .await?;
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let attaching = async {
        let mut answers = WorkerServiceClient::new(channel)
            .attach(requests)
            .await?
            .into_inner();
        match answers.message().await?.and_then(|answer| answer.message) {
            Some(Down::Registered(registered)) => registered
                .session
                .ok_or_else(|| Failure::new("registered without a session")),
            other => Err(Failure::new(format!("answered with {other:?}"))),
        }
    };
    tokio::time::timeout(PATIENCE, attaching).await?
}

/// Stops a worker and returns the spans in which it believed.
async fn stop(worker: WorkerProcess) -> Result<Vec<Believed>, Failure> {
    let name = worker.name().to_owned();
    Ok(worker.stop(PATIENCE).await?.believed(&name))
}
