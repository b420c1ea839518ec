//! Fenced writes beside unfenced ones, and the replicated store beside what else could be used.
//!
//! `make bench` runs all of it; `docs/benchmarks.md` says what is compared with what, and why it is fair.
//!
//! ```text
//!   stores/      each store: how it is opened, and the plainest write to the same server
//!   fenced       the fenced side, the same for all stores
//!   peers        the replicated store, etcd and ZooKeeper, three nodes each
//!   counting     the store in memory, by instructions
//! ```

mod arguments;
mod counting;
mod etcd;
mod fenced;
mod peers;
mod s3;
mod stores;
mod subject;
mod tenure_cluster;
mod zookeeper;

use std::process::ExitCode;

use benches::rounds::{self, Load};
use benches::spread::Spread;
use benches::table::{self, Table};
use clap::Parser;
use cluster_tests::failure::Failure;
use tokio::signal::unix::{SignalKind, signal};

use arguments::Arguments;
use stores::Store;
use subject::Subject;

/// What every write writes, in bytes.
const VALUE_BYTES: usize = 1024;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(count) = &arguments.count {
        return ended(counting::write(count));
    }
    // The servers that are started end with the thread that has started them, so it must be one that
    // lasts: this one, not one of the runtime's.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    ended(runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            // Ends by returning, so that every server that was started is killed.
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                done = Box::pin(run(&arguments)) => done,
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    Err(Failure::new("interrupted"))
                }
                _ = terminate.recv() => Err(Failure::new("terminated")),
            }
        })
    }))
}

fn ended(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let stores = arguments.stores();
    let mut measured = Table::new(&[
        "store",
        "writers",
        "unfenced writes/s",
        "fenced writes/s",
        "time of fenced / unfenced",
        "target",
        "met",
    ]);
    for store in &stores {
        compare(*store, arguments, &mut measured).await?;
    }
    if !stores.is_empty() {
        println!("{measured}");
    }
    if arguments.wants(Subject::Memory) {
        println!("{}", counting::count()?);
    }
    if arguments.wants(Subject::Replicated) {
        println!("{}", peers::compare(arguments).await?);
    }
    Ok(())
}

/// Adds a line for each number of writers.
async fn compare(store: Store, arguments: &Arguments, table: &mut Table) -> Result<(), Failure> {
    for &writers in &arguments.writers {
        eprintln!("{store}, {writers} writers");
        // Laid out anew each time, so that no line profits from what another left behind.
        let opened = stores::open(store, writers).await;
        let opened = opened.map_err(|failure| failure.during(store))?;
        let load = Load {
            writers,
            value_bytes: VALUE_BYTES,
            rounds: arguments.rounds(),
            block: arguments.block(),
        };
        let rates = rounds::run(&[opened.unfenced, opened.fenced], &load).await;
        let rates = rates.map_err(|failure| failure.during(store))?;
        let ratio = rates.time_ratio(1, 0)?;
        let (target, met) = judged(store.target(), &ratio);
        table.add(vec![
            store.to_string(),
            writers.to_string(),
            table::rate(rates.of(0)?.median),
            table::rate(rates.of(1)?.median),
            ratio.to_string(),
            target,
            met,
        ]);
        drop(opened.ground);
    }
    Ok(())
}

/// Says what the ratio should be, and whether it is.
fn judged(target: Option<f64>, ratio: &Spread) -> (String, String) {
    match target {
        None => ("–".to_owned(), "–".to_owned()),
        Some(target) => {
            let met = if ratio.median <= target { "yes" } else { "no" };
            (format!("≤ {target:.2}"), met.to_owned())
        }
    }
}
