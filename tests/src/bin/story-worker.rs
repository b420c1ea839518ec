//! A worker of stories: holds the shards it is given, obeys, and reports what it believes.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use cluster_tests::failure::Failure;
use cluster_tests::worker::{
    Gate, GatedStore, Holder, HolderOptions, Order, Report, Reports, orders,
};
use tenure::connection::{Connection, ConnectionOptions};
use tenure::{ReplicatedStore, Worker};

/// How long belief is watched on after the worker has stopped, so that the last spans are reported.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// How long a stubborn handler keeps the worker from stopping.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Parser)]
struct Arguments {
    /// Client addresses of the coordinators
    #[arg(long, value_delimiter = ',', required = true)]
    coordinators: Vec<String>,
    /// The group to serve
    #[arg(long)]
    group: String,
    /// Name of this worker
    #[arg(long)]
    name: String,
    /// Ignore that shards are to be given back
    #[arg(long)]
    stubborn: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("story-worker: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let reports = Reports;
    let gate = Arc::new(Gate::default());
    let options = HolderOptions {
        reports: Some(reports),
        stubborn: arguments.stubborn,
    };
    let holder = Holder::new(options);
    // Not the connection of the worker stream: a checkpoint must not hold up a heartbeat.
    let connection = Connection::new(ConnectionOptions::new(arguments.coordinators.clone()))?;
    let store = GatedStore::new(ReplicatedStore::new(connection), Arc::clone(&gate), reports);
    let worker = Worker::builder()
        .coordinators(arguments.coordinators)
        .group(arguments.group)
        .name(arguments.name)
        .store("replicated", Arc::new(store))
        .drain_timeout(DRAIN_TIMEOUT)
        .handler(holder.clone())
        .build()?;
    let observer = worker.observer();
    let running = Box::pin(worker.run(obey(gate, holder.clone())));
    let watching = holder.watch_belief();
    let outcome = {
        let mut watching = std::pin::pin!(watching);
        let outcome = tokio::select! {
            outcome = running => outcome,
            () = &mut watching => Ok(()),
        };
        let _over = tokio::time::timeout(LAST_LOOK, watching).await;
        outcome
    };
    let error = outcome
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    reports.send(&Report::Ended {
        error,
        sessions: observer.status().counters.sessions,
    });
    Ok(outcome?)
}

/// Carries out the orders of the story until the one to stop.
async fn obey(gate: Arc<Gate>, holder: Holder) {
    let mut orders = orders();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Hold => gate.arm(),
            Order::Proceed => gate.open(),
            Order::Write => holder.write_all(),
            Order::GiveBack { shard } => {
                if !holder.give_back(shard) {
                    tracing::warn!(shard, "not held");
                }
            }
            Order::Stop => return,
        }
    }
}
