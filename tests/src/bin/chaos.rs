//! Chaos on real processes. See [`cluster_tests::chaos`].

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cluster_tests::chaos::check::Violation;
use cluster_tests::chaos::{self, Options};
use cluster_tests::failure::Failure;

/// Runs coordinators and workers, does them harm, and checks what happened.
#[derive(Debug, Parser)]
struct Arguments {
    /// Chooses the faults; a random number unless set
    #[arg(long)]
    seed: Option<u64>,
    /// For how many seconds faults happen
    #[arg(long, default_value_t = 90)]
    seconds: u64,
    /// How many coordinators
    #[arg(long, default_value = "3", value_parser = clap::builder::PossibleValuesParser::new(["3", "5"]))]
    nodes: String,
    /// How many workers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    workers: u8,
    /// Where everything is kept; must not exist. A temporary folder unless set, which is removed after a
    /// run without violations
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Only checks the histories of a run that was kept in this folder
    #[arg(long, conflicts_with_all = ["seed", "seconds", "nodes", "workers", "folder"])]
    check: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let interrupted = async {
        let reason = match tokio::signal::ctrl_c().await {
            Ok(()) => "interrupted".to_owned(),
            Err(error) => format!("cannot wait for Ctrl-C: {error}"),
        };
        Err(Failure::new(reason))
    };
    let outcome = tokio::select! {
        outcome = Box::pin(run(Arguments::parse())) => outcome,
        interrupted = interrupted => interrupted,
    };
    match outcome {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("chaos: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<Vec<Violation>, Failure> {
    if let Some(folder) = arguments.check {
        let (extent, violations) = chaos::verdict(&folder.join("histories")).await?;
        show(&violations);
        println!("chaos: {extent:?}, violations {}", violations.len());
        return Ok(violations);
    }
    let seed = arguments
        .seed
        .unwrap_or_else(|| rand::random::<u32>().into());
    let keep = arguments.folder.is_some();
    let folder = arguments.folder.unwrap_or_else(|| {
        env::temp_dir().join(format!("tenure-chaos-{seed}-{}", std::process::id()))
    });
    if folder.exists() {
        let text = format!("{} exists already", folder.display());
        return Err(Failure::new(text));
    }
    println!("chaos: seed {seed}, in {}", folder.display());
    let summary = chaos::run(Options {
        seed,
        length: Duration::from_secs(arguments.seconds),
        nodes: arguments.nodes.parse()?,
        workers: arguments.workers,
        folder: folder.clone(),
    })
    .await?;
    show(&summary.violations);
    println!("{summary}");
    finish(&folder, keep, &summary.violations)?;
    Ok(summary.violations)
}

fn show(violations: &[Violation]) {
    for violation in violations {
        println!("VIOLATION of {violation}");
    }
}

fn finish(folder: &Path, keep: bool, violations: &[Violation]) -> Result<(), Failure> {
    if keep || !violations.is_empty() {
        println!("chaos: everything is kept in {}", folder.display());
        return Ok(());
    }
    Ok(fs::remove_dir_all(folder)?)
}
