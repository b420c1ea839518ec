//! The operator commands of Tenure: what the binary `tenure` does besides serving.
//!
//! ```text
//!  arguments ─▶ command ─▶ settings (flags over environment over file over defaults)
//!                             │
//!                         connection ── follows the leader, keeps to the timeout ──▶ coordinators
//!                             │
//!                          console ── tables or JSON to stdout, talk to stderr ──▶ exit status
//! ```
//!
//! A binary embeds [`OperatorCommand`] in its own commands and hands it to [`execute`]. What the
//! commands do, how they print and what their exit statuses mean is in `docs/cli.md`.
//!
//! Not for programs that hold shards: those link the SDK. Invariants:
//!
//! * stdout carries data and nothing else; with `--json` it is one document, or one line for each event;
//! * 64-bit numbers are strings in JSON, since many readers of JSON keep only 53 bits of a number;
//! * a change is sent again only if the earlier attempt certainly did nothing.

mod backup;
mod cluster;
mod command;
mod connection;
mod console;
mod doctor;
mod error;
mod events;
mod features;
mod group;
mod options;
mod origin;
mod plan;
mod policy;
mod restore;
mod settings;
mod shard;
mod text;
mod token;
mod wait;
mod watch;
mod worker;

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

pub use crate::command::{
    Area, BackupArguments, ClusterCommand, DoctorArguments, EventsArguments, GroupCommand,
    NodeArgument, OperatorCommand, Phase, RestoreArguments, ShardCommand, TokenCommand,
    WaitArguments, WatchArguments, WorkerArguments, WorkerCommand,
};
pub use crate::console::Console;
pub use crate::error::{CliError, Exit};
pub use crate::options::ClientOptions;
pub use crate::origin::Origin;
pub use crate::policy::Assignment;
pub use crate::restore::{Offline, Restored};
pub use crate::settings::{Environment, Settings, Tls};

use crate::connection::Connection;

/// Runs one command with what the process offers, and reports how it ended.
///
/// Errors are written to stderr as one line. Ctrl-C ends `watch` and what waits in good order and kills any
/// other command, which then leaves what it asked for to the coordinator.
pub fn execute(command: &OperatorCommand, offline: &Offline) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report(&CliError::Output(error), &mut io::stderr()),
    };
    let mut out = io::stdout().lock();
    let mut err = io::stderr();
    let width = terminal_size::terminal_size().map(|(width, _)| width.0);
    let mut input = io::stdin().lock();
    let is_asked = input.is_terminal() && io::stderr().is_terminal();
    let mut console = Console::new(&mut out, &mut err, width);
    if is_asked {
        console = console.asking(&mut input);
    }
    let interrupted = async {
        // Without a handler the signal kills the process, which ends the command as well.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let outcome = runtime.block_on(run(
        command,
        &Environment::of_process(),
        offline,
        &mut console,
        interrupted,
    ));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, &mut io::stderr()),
    }
}

/// Runs one command. `interrupted` ends `watch`, `events` and what waits; the other commands do not poll it.
///
/// # Errors
/// One [`CliError`] for each exit status of `docs/cli.md`. A reader of stdout that went away, as
/// `head` does, is not an error.
pub async fn run(
    command: &OperatorCommand,
    environment: &Environment,
    offline: &Offline,
    console: &mut Console<'_>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let settings = Settings::resolve(command.options(), environment)?;
    console.set_json(command.options().json);
    let connection = Connection::new(&settings)?;
    let outcome = match command {
        OperatorCommand::Group(area) => group::run(&area.command, &connection, console).await,
        OperatorCommand::Shard(area) => shard::run(&area.command, &connection, console).await,
        OperatorCommand::Worker(area) => {
            worker::run(&area.command, &connection, console, interrupted).await
        }
        OperatorCommand::Events(events) => {
            events::run(events, &connection, console, interrupted).await
        }
        OperatorCommand::Plan(arguments) => plan::show(arguments, &connection, console).await,
        OperatorCommand::Rebalance(arguments) => {
            plan::rebalance(arguments, &connection, console).await
        }
        OperatorCommand::Watch(watch) => watch::run(watch, &connection, console, interrupted).await,
        OperatorCommand::Token(area) => token::run(&area.command, &connection, console).await,
        OperatorCommand::Doctor(doctor) => {
            doctor::run(doctor, &settings, &connection, console).await
        }
        OperatorCommand::Cluster(area) => {
            cluster::run(&area.command, &connection, offline, console).await
        }
    };
    match outcome.and_then(|()| console.flush()) {
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes an error as one line and gives the exit status that goes with it.
pub fn report(error: &CliError, err: &mut dyn io::Write) -> ExitCode {
    // Nobody is left to be told that stderr is closed.
    let _ = writeln!(err, "error: {error}");
    error.exit().into()
}
