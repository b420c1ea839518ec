//! What all worker programs have in common: how they are started, where they keep checkpoints, and what
//! they say in the end.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tenure::connection::{Connection, ConnectionOptions};
use tenure::{Observer, ReplicatedStore, RunError, Worker, WorkerBuilder};

use super::gate::{Gate, GatedStore};
use super::report::{Report, Reports};
use crate::failure::Failure;

/// How long belief is watched on after the worker has stopped, so that the last spans are reported.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// The arguments of every worker program; see `WorkerOptions`.
#[derive(Clone, Debug, clap::Args)]
pub struct Membership {
    /// Client addresses of the coordinators
    #[arg(long, value_delimiter = ',', required = true)]
    pub coordinators: Vec<String>,
    /// The group to serve
    #[arg(long)]
    pub group: String,
    /// Name of this worker
    #[arg(long)]
    pub name: String,
}

impl Membership {
    /// Begins to set up the worker, with the replicated store behind a gate.
    ///
    /// # Errors
    ///
    /// When an address is malformed.
    pub fn worker(self, gate: &Arc<Gate>, reports: Reports) -> Result<WorkerBuilder, Failure> {
        // Not the connection of the worker stream: a checkpoint must not hold up a heartbeat.
        let connection = Connection::new(ConnectionOptions::new(self.coordinators.clone()))?;
        let store = GatedStore::new(ReplicatedStore::new(connection), Arc::clone(gate), reports);
        let worker = Worker::builder()
            .coordinators(self.coordinators)
            .group(self.group)
            .name(self.name)
            .store("replicated", Arc::new(store));
        Ok(worker)
    }
}

/// Runs a worker program: logs to stderr, and says there why it failed.
pub async fn run_program(
    name: &str,
    program: impl Future<Output = Result<(), Failure>>,
) -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    match program.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a worker while its belief is watched, and reports how it ended.
///
/// # Errors
///
/// What ended the worker, if it was not told to stop.
pub async fn run_watched(
    worker: impl Future<Output = Result<(), RunError>>,
    watching: impl Future<Output = ()>,
    observer: &Observer,
) -> Result<(), Failure> {
    let mut worker = Box::pin(worker);
    let mut watching = std::pin::pin!(watching);
    let outcome = tokio::select! {
        outcome = &mut worker => outcome,
        () = &mut watching => Ok(()),
    };
    let _over = tokio::time::timeout(LAST_LOOK, watching).await;
    report_end(Reports, observer, &outcome);
    Ok(outcome?)
}

/// Reports how a worker ended.
pub fn report_end(reports: Reports, observer: &Observer, outcome: &Result<(), RunError>) {
    let error = outcome.as_ref().err().map(ToString::to_string);
    reports.send(&Report::Ended {
        error: error.unwrap_or_default(),
        sessions: observer.status().counters.sessions,
    });
}
