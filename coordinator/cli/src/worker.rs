//! `tenure worker`.

mod modes;

use std::collections::BTreeMap;
use std::future::Future;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

use crate::command::WorkerCommand;
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::text::{self, Wide};

pub(crate) async fn run(
    command: &WorkerCommand,
    connection: &Connection,
    console: &mut Console<'_>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    match command {
        WorkerCommand::List { group } => list(connection, console, group).await,
        WorkerCommand::Cordon(worker) => {
            modes::set(connection, console, worker, v1::WorkerMode::Cordoned, None).await
        }
        WorkerCommand::Uncordon(worker) => {
            modes::set(connection, console, worker, v1::WorkerMode::Active, None).await
        }
        WorkerCommand::Drain { worker, wait } => {
            modes::drain(connection, console, worker, wait, interrupted).await
        }
        WorkerCommand::Pause { worker, timeout } => {
            let mode = v1::WorkerMode::Paused;
            modes::set(connection, console, worker, mode, Some(*timeout)).await
        }
        WorkerCommand::Resume { worker, wait } => {
            modes::resume(connection, console, worker, wait, interrupted).await
        }
    }
}

async fn list(
    connection: &Connection,
    console: &mut Console<'_>,
    group: &str,
) -> Result<(), CliError> {
    let request = v1::ListWorkersRequest {
        group: group.to_owned(),
        worker: String::new(),
    };
    let answer = connection
        .call(Intent::Read, request, |service, request| async move {
            AdminServiceClient::new(service).list_workers(request).await
        })
        .await?;
    if console.json() {
        let workers = answer.workers.iter().map(WorkerView::from).collect();
        return console.document(&Many {
            workers,
            revision: Wide(answer.revision),
        });
    }
    let columns = [
        Column::Text("NAME"),
        Column::Number("SESSION"),
        Column::Text("MODE"),
        Column::Number("WEIGHT"),
        Column::Number("SHARDS"),
        Column::Number("WAITING"),
        Column::Text("TTL"),
        Column::Text("WINDOW"),
        Column::Text("ADDRESS"),
        Column::Text("LABELS"),
    ];
    console.table(&columns, answer.workers.iter().map(row).collect())
}

fn row(worker: &v1::Worker) -> Vec<String> {
    let live = worker.session.is_some();
    // A worker that is known only by its mode has none of what a session has.
    let of_session = |text: String| if live { text } else { "-".to_owned() };
    let labels: Vec<_> = sorted(worker)
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    vec![
        worker.name.clone(),
        worker
            .session
            .as_ref()
            .map_or_else(|| "-".to_owned(), |made| made.number.to_string()),
        text::worker_mode(worker.mode),
        of_session(worker.weight.to_string()),
        worker.shards.to_string(),
        worker.waiting.to_string(),
        of_session(text::millis(worker.ttl_ms)),
        of_session(text::millis(worker.window_ms)),
        text::or_dash(&worker.address),
        text::or_dash(&labels.join(",")),
    ]
}

fn sorted(worker: &v1::Worker) -> BTreeMap<&String, &String> {
    worker.labels.iter().collect()
}

#[derive(Serialize)]
struct Many<'a> {
    workers: Vec<WorkerView<'a>>,
    revision: Wide,
}

#[derive(Serialize)]
struct WorkerView<'a> {
    name: &'a str,
    session: Option<String>,
    mode: String,
    weight: u32,
    shards: u32,
    waiting: u32,
    ttl_ms: Wide,
    window_ms: Wide,
    address: Option<&'a str>,
    labels: BTreeMap<&'a String, &'a String>,
}

impl<'a> From<&'a v1::Worker> for WorkerView<'a> {
    fn from(worker: &'a v1::Worker) -> Self {
        Self {
            name: &worker.name,
            session: worker.session.as_ref().map(text::session),
            mode: text::worker_mode(worker.mode),
            weight: worker.weight,
            shards: worker.shards,
            waiting: worker.waiting,
            ttl_ms: Wide(worker.ttl_ms),
            window_ms: Wide(worker.window_ms),
            address: Some(worker.address.as_str()).filter(|address| !address.is_empty()),
            labels: sorted(worker),
        }
    }
}
