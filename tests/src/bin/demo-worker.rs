//! A worker of the demo: counts the words of the shards it is given. Started by the demo.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use cluster_tests::demo::{Counting, Input};
use cluster_tests::failure::Failure;
use cluster_tests::words::WordRule;
use cluster_tests::worker::{Gate, Membership, Order, Reports, orders, report_end, run_program};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often the file is read that says how much input is released.
const RELEASE_INTERVAL: Duration = Duration::from_millis(100);

/// How long a store may be asked again: longer than any fault of the demo lasts.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    membership: Membership,
    /// The list of input files
    #[arg(long)]
    input: PathBuf,
    /// The file that says how much of the input is released
    #[arg(long)]
    release: PathBuf,
    /// What a word is
    #[arg(long, value_parser = |name: &str| WordRule::from_name(name).map_err(|failure| failure.to_string()))]
    rule: WordRule,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_program("demo-worker", run(Arguments::parse())).await
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let reports = Reports;
    let gate = Arc::new(Gate::default());
    let (releases, released) = watch::channel(0);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(arguments.release, releases));

    let input = Arc::new(Input::load(&arguments.input)?);
    let worker = arguments
        .membership
        .worker(&gate, reports)?
        .store_timeout(STORE_TIMEOUT)
        .handler(Counting {
            input,
            rule: arguments.rule,
            released,
            reports,
        })
        .build()?;
    let observer = worker.observer();
    let outcome = Box::pin(worker.run(obey(gate))).await;
    report_end(reports, &observer, &outcome);
    tasks.shutdown().await;
    Ok(outcome?)
}

/// Carries out the orders of the demo until the one to stop.
async fn obey(gate: Arc<Gate>) {
    let mut orders = orders();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Hold => gate.arm(),
            Order::Proceed => gate.open(),
            Order::Stop => return,
            Order::Write | Order::GiveBack { .. } => {}
        }
    }
}

/// Publishes how much of the input is released.
async fn follow(file: PathBuf, releases: watch::Sender<u32>) {
    let mut ticks = tokio::time::interval(RELEASE_INTERVAL);
    loop {
        ticks.tick().await;
        let text = tokio::fs::read_to_string(&file).await.unwrap_or_default();
        if let Ok(released) = text.parse::<u32>() {
            releases.send_if_modified(|before| {
                let more = released > *before;
                *before = released.max(*before);
                more
            });
        }
    }
}
