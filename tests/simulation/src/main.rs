//! Runs seeds of the simulation and prints what came of them.
//!
//! ```text
//! simulate --seed 17 --trace trace.txt
//! simulate --seeds 0..300
//! ```

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use simulation::run::Scenario;
use simulation::seed::{SeedError, run_seed};
use simulation::totals::Totals;

/// Runs seeds of the simulation.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// Run this seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds, the last one excluded.
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// What kind of run: storm, leaders, zombies or skewed.
    #[arg(long, value_name = "KIND", default_value_t)]
    scenario: Scenario,
    /// Write everything that happened into this file, one line each, in order. With several seeds: of
    /// the last.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Say what came of each seed.
    #[arg(long)]
    verbose: bool,
}

/// A text that is no range of seeds.
#[derive(Debug, thiserror::Error)]
#[error("seeds are given as A..B, with A below B")]
struct NoRange;

fn parse_range(text: &str) -> Result<Range<u64>, NoRange> {
    let (from, to) = text.split_once("..").ok_or(NoRange)?;
    let range = from.parse().map_err(|_| NoRange)?..to.parse().map_err(|_| NoRange)?;
    if range.is_empty() {
        return Err(NoRange);
    }
    Ok(range)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.seed, arguments.seeds.clone()) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(seeds)) => seeds,
        (None, None) => 0..1,
    };
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for seed in seeds {
        match run_one(seed, &arguments) {
            Ok(counted) => {
                if counted.violations > 0 {
                    failed.push(seed);
                }
                totals.add(&counted);
            }
            Err(error) => {
                println!("seed {seed}: {error}");
                failed.push(seed);
            }
        }
        if failed.last() == Some(&seed) {
            println!("  replay: {}", replay(seed, arguments.scenario));
        }
    }
    println!("{totals}");
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("seeds that failed: {failed:?}");
    ExitCode::FAILURE
}

fn run_one(seed: u64, arguments: &Arguments) -> Result<Totals, SeedError> {
    let outcome = run_seed(seed, arguments.scenario, arguments.trace.is_some())?;
    if let Some(path) = &arguments.trace
        && let Err(error) = fs::write(path, &outcome.trace)
    {
        println!("{} cannot be written: {error}", path.display());
    }
    let report = outcome.report;
    if arguments.verbose {
        println!(
            "seed {seed}: {} handoffs, {} faults, {} writes, {} violations",
            report.totals.handoffs,
            report.totals.faults_injected(),
            report.totals.accepted,
            report.totals.violations,
        );
    }
    for violation in &report.violations {
        println!("seed {seed}: {violation}");
    }
    Ok(report.totals)
}

/// Returns the command that runs a seed again, and shows what happened.
fn replay(seed: u64, scenario: Scenario) -> String {
    format!(
        "(cd tests/simulation && cargo run -- --scenario {scenario} --seed {seed} --trace trace.txt)"
    )
}
