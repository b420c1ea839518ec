//! The binary `tenure`: runs a coordinator, or one of the operator commands.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tenure_cli::{Offline, OperatorCommand};
use tenure_coordinator::node::{self, DevArgs, NodeError, ServeArgs};

/// A command passes through many small buffers that one thread fills and another one empties. The system's
/// allocator took 13 % of a leader's processor time for them: see `docs/benchmarks.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Decides which one worker may write to each shard, and makes storage refuse everybody else.
#[derive(Debug, Parser)]
#[command(name = "tenure", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a coordinator
    Serve(ServeArgs),
    /// Run a coordinator of one node on this machine, for trying things out
    Dev(DevArgs),
    #[command(flatten)]
    Operator(Box<OperatorCommand>),
}

const OFFLINE: Offline = Offline {
    restore: node::restore,
};

/// How long blocking work may go on after a node has stopped.
const LINGER_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Serve(args) => run(node::serve(args)),
        Command::Dev(args) => run(node::dev(args)),
        Command::Operator(command) => tenure_cli::execute(&command, &OFFLINE),
    }
}

fn run(node: impl Future<Output = Result<(), NodeError>>) -> ExitCode {
    let threads = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let operation = "start threads";
    let result = threads
        .map_err(|source| NodeError::Process { operation, source })
        .and_then(|threads| {
            let result = threads.block_on(node);
            threads.shutdown_timeout(LINGER_MAX);
            result
        });
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("tenure: {}", error.line());
    ExitCode::FAILURE
}
