//! `tenure worker cordon`, `uncordon`, `drain`, `pause` and `resume`.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

use crate::command::{WaitArguments, WorkerArguments};
use crate::connection::{Connection, Intent};
use crate::console::Console;
use crate::error::CliError;
use crate::text::{self, Wide};
use crate::wait::{self, Progress};

/// Sets the mode of a worker and says so.
pub(super) async fn set(
    connection: &Connection,
    console: &mut Console<'_>,
    worker: &WorkerArguments,
    mode: v1::WorkerMode,
    timeout: Option<Duration>,
) -> Result<(), CliError> {
    let revision = change(connection, worker, mode, timeout).await?;
    report(console, worker, mode, revision, None)?;
    if console.json() {
        return Ok(());
    }
    let WorkerArguments { group, name } = worker;
    match (mode, timeout) {
        (v1::WorkerMode::Paused, Some(timeout)) => console.note(format_args!(
            "restart it now: its shards wait for {}; `tenure worker resume {group} {name} --wait` ends the pause",
            humantime::format_duration(timeout)
        )),
        (v1::WorkerMode::Cordoned, _) => console.note(format_args!(
            "it keeps the shards it has; `tenure worker uncordon {group} {name}` lets it take more"
        )),
        _ => Ok(()),
    }
}

/// Drains a worker, and waits for it if asked to.
pub(super) async fn drain(
    connection: &Connection,
    console: &mut Console<'_>,
    worker: &WorkerArguments,
    wait: &WaitArguments,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let before = show(connection, worker).await?.1;
    let mode = v1::WorkerMode::Draining;
    let revision = change(connection, worker, mode, None).await?;
    if !wait.wait {
        return report(console, worker, mode, revision, None);
    }
    let shards = before.map_or(0, |worker| worker.shards);
    let take_back = format!(
        "`tenure worker uncordon {} {}` takes it back",
        worker.group, worker.name
    );
    let took = wait::until_reached(console, wait, interrupted, &take_back, || async {
        let (seen, now) = show(connection, worker).await?;
        let left = now.map_or(0, |worker| worker.shards);
        if seen >= revision && left == 0 {
            return Ok(Progress::Reached);
        }
        Ok(Progress::Underway(format!(
            "{left} of {shards} shards left"
        )))
    })
    .await?;
    let done = format!("{shards} shards moved away in {}", wait::seconds(took));
    report(console, worker, mode, revision, Some(done))
}

/// Ends a pause. With `--wait` only once the worker is back and nothing waits for it any more.
pub(super) async fn resume(
    connection: &Connection,
    console: &mut Console<'_>,
    worker: &WorkerArguments,
    wait: &WaitArguments,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let mut done = None;
    if wait.wait {
        let take_back = "the pause lasts until its time is over";
        let took = wait::until_reached(console, wait, interrupted, take_back, || async {
            let now = show(connection, worker).await?.1.unwrap_or_default();
            if now.mode() != v1::WorkerMode::Paused || (now.session.is_some() && now.waiting == 0) {
                return Ok(Progress::Reached);
            }
            let place = match now.session {
                Some(_) => "it is back",
                None => "it is away",
            };
            Ok(Progress::Underway(format!(
                "{place}, {} shards wait for it",
                now.waiting
            )))
        })
        .await?;
        let shards = show(connection, worker)
            .await?
            .1
            .map_or(0, |now| now.shards);
        done = Some(format!(
            "{shards} shards are with it after {}",
            wait::seconds(took)
        ));
    }
    let mode = v1::WorkerMode::Active;
    let revision = change(connection, worker, mode, None).await?;
    report(console, worker, mode, revision, done)
}

async fn change(
    connection: &Connection,
    worker: &WorkerArguments,
    mode: v1::WorkerMode,
    timeout: Option<Duration>,
) -> Result<u64, CliError> {
    let request = v1::SetWorkerModeRequest {
        group: worker.group.clone(),
        worker: worker.name.clone(),
        mode: mode.into(),
        pause_timeout_ms: timeout.map_or(0, |timeout| {
            u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
        }),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service)
                .set_worker_mode(request)
                .await
        })
        .await?;
    Ok(answer.revision)
}

/// The worker as some node sees it, and the revision of that; `None` if nothing is known of it.
async fn show(
    connection: &Connection,
    worker: &WorkerArguments,
) -> Result<(u64, Option<v1::Worker>), CliError> {
    let request = v1::ListWorkersRequest {
        group: worker.group.clone(),
        worker: worker.name.clone(),
    };
    let answer = connection
        .call(Intent::Read, request, |service, request| async move {
            AdminServiceClient::new(service).list_workers(request).await
        })
        .await?;
    Ok((answer.revision, answer.workers.into_iter().next()))
}

#[derive(Serialize)]
struct ChangeView<'a> {
    worker: &'a str,
    mode: String,
    revision: Wide,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<String>,
}

fn report(
    console: &mut Console<'_>,
    worker: &WorkerArguments,
    mode: v1::WorkerMode,
    revision: u64,
    done: Option<String>,
) -> Result<(), CliError> {
    let mode = text::worker_mode(mode.into());
    if console.json() {
        return console.document(&ChangeView {
            worker: &worker.name,
            mode,
            revision: Wide(revision),
            done,
        });
    }
    let name = &worker.name;
    match done {
        Some(done) => console.note(format_args!("worker {name} is {mode}: {done}")),
        None => console.note(format_args!(
            "worker {name} is {mode} as of revision {revision}"
        )),
    }
}
