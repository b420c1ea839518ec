//! The stream job with a sink in PostgreSQL, killed again and again.

use std::path::Path;
use std::time::Duration;

use cluster_tests::failure::Failure;
use cluster_tests::process::Process;
use cluster_tests::wait;
use rand::Rng;
use store_tests::postgres::Postgres;
use store_tests::server::Server;
use tempfile::TempDir;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{CheckpointStore, FencingToken, PostgresStore, SqlOptions};
use tokio::process::Command;

use crate::sql::{Database, PATIENCE};

/// How many jobs are killed, or stopped and woken when the next one works, before one may end.
const KILLS: usize = 50;

/// Lines that are left for the last job, which nobody disturbs.
const LAST_LINES: u64 = 500;

/// Starts a job that ends after so many lines of the stream; `None`: that goes on until it is killed.
fn start(
    server: &Server<Postgres>,
    token: &FencingToken,
    lines: Option<u64>,
    log: &Path,
) -> Result<Process, Failure> {
    let lines = lines.unwrap_or(u64::MAX);
    let mut command = Command::new(env!("CARGO_BIN_EXE_postgres-sink"));
    command.args([server.url(), token.to_string(), lines.to_string()]);
    Process::spawn("postgres-sink", command, log)
}

async fn offset(store: &PostgresStore, token: &FencingToken) -> Result<u64, Failure> {
    let Some(checkpoint) = store.read(&token.resource).await? else {
        return Ok(0);
    };
    Ok(std::str::from_utf8(&checkpoint.data)?.parse()?)
}

/// Waits until the offset has risen above `from` by at least one batch.
async fn until_delivering(
    store: &PostgresStore,
    token: &FencingToken,
    from: u64,
) -> Result<u64, Failure> {
    wait::until("the job to deliver", PATIENCE, async || {
        match offset(store, token).await {
            Ok(now) if now > from => Ok(now),
            Ok(now) => Err(format!("the offset is {now}")),
            Err(failure) => Err(failure.to_string()),
        }
    })
    .await
}

#[tokio::test]
async fn sink_whose_job_is_killed_50_times_has_every_row_once() -> Result<(), Failure> {
    let server = Postgres::start().await?;
    server
        .operate("CREATE TABLE delivered (number bigserial PRIMARY KEY, line text NOT NULL)")
        .await;
    let store = server.open_with(SqlOptions::default()).await?;
    // Not even an accident brings a row in beside the job.
    store.guard_table("delivered").await?;
    let logs = TempDir::new()?;
    let log = logs.path().join("log");
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();

    let mut delivered = 0;
    let mut zombies = Vec::new();
    for kill in 0..KILLS {
        let token = grants.next_tenure(&resource, Holder::New);
        let mut job = start(&server, &token, None, &log)?;
        delivered = until_delivering(&store, &token, delivered).await?;
        for zombie in zombies.drain(..) {
            woken_too_late(zombie).await?;
        }
        // Anywhere within a few transactions.
        let pause = rand::rng().random_range(0..20);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        assert!(job.ended()?.is_none(), "the job has ended by itself");
        if kill % 5 == 4 {
            // It stops wherever it is, and wakes when the next one has taken over.
            job.stop().await?;
            zombies.push(job);
        } else {
            job.kill().await?;
        }
    }
    let token = grants.next_tenure(&resource, Holder::New);
    // Nobody works now; at most one commit is still on its way.
    delivered = offset(&store, &token).await?;
    let lines = delivered + LAST_LINES;
    let mut last = start(&server, &token, Some(lines), &log)?;
    until_delivering(&store, &token, delivered).await?;
    for zombie in zombies {
        woken_too_late(zombie).await?;
    }
    assert!(last.exited(PATIENCE).await?.success());

    let undisturbed: Vec<String> = (0..lines).map(|line| format!("line {line}")).collect();
    assert!(
        server.delivered().await == undisturbed,
        "not the rows of an undisturbed run"
    );
    Ok(())
}

/// A job that wakes after the next one has sealed ends, and not well.
async fn woken_too_late(mut zombie: Process) -> Result<(), Failure> {
    zombie.wake()?;
    let ended = zombie.exited(PATIENCE).await?;
    assert!(!ended.success(), "a job that was replaced has ended well");
    Ok(())
}
