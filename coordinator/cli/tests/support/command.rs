//! Running a command as a person would, and what comes of it.

use std::future::Future;

use clap::{Parser, Subcommand};
use tenure_cli::{CliError, Console, Environment, Offline, OperatorCommand, Restored};

/// The operator commands as a binary embeds them.
#[derive(Parser)]
#[command(name = "tenure")]
pub(crate) struct Program {
    #[command(subcommand)]
    command: Embedding,
}

#[derive(Subcommand)]
enum Embedding {
    /// A command of the binary, with a `--config` that means something else
    Serve {
        #[arg(long)]
        config: String,
    },
    #[command(flatten)]
    Operator(Box<OperatorCommand>),
}

/// A binary that can restore what is called `good`.
const OFFLINE: Offline = Offline {
    restore: |arguments| {
        if !arguments.from.ends_with("good") {
            let message = "the backup is damaged".to_owned();
            return Err(CliError::Failed { message });
        }
        Ok(Restored {
            from: 0xa,
            cluster: 0xb,
            node: 108,
            backup_revision: 107,
            revision: 108,
            groups: 1,
            shards: 64,
            sessions_ended: 3,
            wait_ms: 10_000,
        })
    },
};

/// How a command ended and what it wrote.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: u8,
}

pub(crate) async fn tenure(environment: &Environment, arguments: &[&str]) -> Ran {
    tenure_until(environment, arguments, std::future::pending()).await
}

/// Runs a command; `interrupted` stands for Ctrl-C.
pub(crate) async fn tenure_until(
    environment: &Environment,
    arguments: &[&str],
    interrupted: impl Future<Output = ()>,
) -> Ran {
    let program = match Program::try_parse_from(["tenure"].iter().chain(arguments)) {
        Ok(program) => program,
        Err(error) => {
            return Ran {
                out: String::new(),
                err: error.to_string(),
                exit: 2,
            };
        }
    };
    let command = match program.command {
        Embedding::Operator(command) => command,
        Embedding::Serve { config } => {
            return Ran {
                out: config,
                err: String::new(),
                exit: 0,
            };
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console::new(&mut out, &mut err, None);
    let outcome = tenure_cli::run(&command, environment, &OFFLINE, &mut console, interrupted).await;
    let mut exit = 0;
    if let Err(error) = outcome {
        tenure_cli::report(&error, &mut err);
        exit = error.exit() as u8;
    }
    Ran {
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        exit,
    }
}
