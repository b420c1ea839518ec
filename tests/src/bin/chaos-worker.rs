//! A worker of the chaos run: writes to the shards it is given all the time, and puts down every call and
//! what it believed. Started by `chaos`, which reads what it writes to stdout.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use cluster_tests::failure::Failure;
use cluster_tests::worker::{
    CallLog, Membership, RecordedStore, Reports, Scribe, run_program, run_watched,
};
use tenure::connection::{Connection, ConnectionOptions};
use tenure::{ReplicatedStore, Worker};
use tenure_fence::sqlx::sqlite::SqliteConnectOptions;
use tenure_fence::{SqlOptions, SqliteStore};

/// How long a store may be asked again before the write is given up for the next one.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    membership: Membership,
    /// The file of the store that all workers share
    #[arg(long)]
    sqlite: PathBuf,
    /// How often each shard is written
    #[arg(long, default_value_t = 100)]
    interval_ms: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_program("chaos-worker", run(Arguments::parse())).await
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let membership = arguments.membership;
    let log = Arc::new(CallLog::new(|report| Reports.send(report)));
    // Not the connection of the worker stream: a checkpoint must not hold up a heartbeat.
    let connection = Connection::new(ConnectionOptions::new(membership.coordinators.clone()))?;
    let replicated = Arc::new(ReplicatedStore::new(connection));
    let file = SqliteConnectOptions::new().filename(&arguments.sqlite);
    let sqlite = Arc::new(SqliteStore::open(file, SqlOptions::default()).await?);
    let stores = [
        Arc::new(RecordedStore::new(
            "replicated",
            replicated,
            Arc::clone(&log),
        )),
        Arc::new(RecordedStore::new("sqlite", sqlite, log)),
    ];

    let scribe = Scribe::new(stores.clone(), Duration::from_millis(arguments.interval_ms));
    let mut worker = Worker::builder()
        .coordinators(membership.coordinators)
        .group(membership.group)
        .name(membership.name)
        .store_timeout(STORE_TIMEOUT)
        .handler(scribe.clone());
    for store in stores {
        worker = worker.store(store.name().to_owned(), store);
    }
    let worker = worker.build()?;
    let observer = worker.observer();
    let running = worker.run(async {
        // Without signals it runs until it is killed, which is what happens to workers here.
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "cannot wait for Ctrl-C");
            std::future::pending::<()>().await;
        }
    });
    run_watched(running, scribe.watch_belief(), &observer).await
}
