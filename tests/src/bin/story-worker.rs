//! A worker of stories: holds the shards it is given, obeys, and reports what it believes.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use cluster_tests::failure::Failure;
use cluster_tests::worker::{
    Gate, Holder, HolderOptions, Membership, Order, Reports, orders, run_program, run_watched,
};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    membership: Membership,
    /// Ignore that shards are to be given back
    #[arg(long)]
    stubborn: bool,
    /// Seconds that all handlers together may take when it stops, stubborn ones too
    #[arg(long, default_value_t = 3)]
    drain_seconds: u64,
    /// Claim no shard
    #[arg(long)]
    never_opens: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_program("story-worker", run(Arguments::parse())).await
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let reports = Reports;
    let gate = Arc::new(Gate::default());
    let options = HolderOptions {
        reports: Some(reports),
        stubborn: arguments.stubborn,
        never_opens: arguments.never_opens,
    };
    let holder = Holder::new(options);
    let worker = arguments
        .membership
        .worker(&gate, reports)?
        .drain_timeout(Duration::from_secs(arguments.drain_seconds))
        .handler(holder.clone())
        .build()?;
    let observer = worker.observer();
    let running = worker.run(obey(gate, holder.clone()));
    run_watched(running, holder.watch_belief(), &observer).await
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
