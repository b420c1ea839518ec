//! Runs seeds of the simulation and prints what came of them.
//!
//! ```text
//! simulate --seed 17 --trace trace.txt
//! simulate --seeds 0..300
//! ```

use std::fs;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use simulation::batch::Batch;
use simulation::run::Scenario;
use simulation::seed::{Outcome, SeedError, run_seed};
use simulation::totals::Totals;

/// Runs seeds of the simulation.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// Run this seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds", default_value_t = 0)]
    seed: u64,
    /// Run these seeds, the last one excluded, each in a process of its own.
    #[arg(long, value_name = "A..B", value_parser = parse_range, conflicts_with = "trace")]
    seeds: Option<Range<u64>>,
    /// How many seeds at once; as many as there are cores unless set.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// What kind of run: storm, leaders, zombies, members or skewed.
    #[arg(long, value_name = "KIND", default_value_t)]
    scenario: Scenario,
    /// Write everything that happened into this file, one line each, in order.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write what happened in seeds that fail into files in this folder, named after scenario and seed.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Say what came of each seed.
    #[arg(long)]
    verbose: bool,
    /// Print the outcome of the seed for the process that asked for it, and nothing else.
    #[arg(long, hide = true, conflicts_with = "seeds")]
    outcome: bool,
}

/// A text that is no range of seeds.
#[derive(Debug, thiserror::Error)]
#[error("seeds are given as A..B, with A below B")]
struct NoRange;

/// Why no seed was run, or what came of it cannot be said.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Seed(#[from] SeedError),
    #[error("seeds cannot be run in processes of their own: {0}")]
    Batch(#[source] io::Error),
    #[error("{} cannot be written: {source}", .path.display())]
    Trace { path: PathBuf, source: io::Error },
    #[error("the outcome cannot be told: {0}")]
    Tell(#[from] io::Error),
}

fn parse_range(text: &str) -> Result<Range<u64>, NoRange> {
    let (from, to) = text.split_once("..").ok_or(NoRange)?;
    let range = from.parse().map_err(|_| NoRange)?..to.parse().map_err(|_| NoRange)?;
    if range.is_empty() {
        return Err(NoRange);
    }
    Ok(range)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("simulate: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no seed failed.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let mut summary = Summary::default();
    if let Some(seeds) = &arguments.seeds {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let batch = Batch {
            scenario: arguments.scenario,
            seeds: seeds.clone(),
            at_once: arguments.jobs.map_or(cores, NonZeroUsize::get),
            keep: arguments.keep.clone(),
        };
        let tell = |seed, outcome| summary.add(seed, &outcome, arguments);
        batch.run(tell).map_err(Failure::Batch)?;
    } else {
        let outcome = run_seed(arguments.seed, arguments.scenario)?;
        keep_trace(arguments, &outcome)?;
        if arguments.outcome {
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &outcome).map_err(io::Error::from)?;
            out.flush()?;
            return Ok(outcome.report.violations.is_empty());
        }
        summary.add(arguments.seed, &outcome, arguments);
    }
    Ok(summary.print(arguments.scenario))
}

fn keep_trace(arguments: &Arguments, outcome: &Outcome) -> Result<(), Failure> {
    let write = |path: &Path| {
        fs::write(path, &outcome.trace).map_err(|source| Failure::Trace {
            path: path.to_owned(),
            source,
        })
    };
    if let Some(path) = &arguments.trace {
        write(path)?;
    }
    match &arguments.keep {
        Some(folder) if !outcome.report.violations.is_empty() => {
            fs::create_dir_all(folder)?;
            write(&kept(folder, arguments.scenario, arguments.seed))
        }
        _ => Ok(()),
    }
}

fn kept(folder: &Path, scenario: Scenario, seed: u64) -> PathBuf {
    folder.join(format!("{scenario}-{seed}.txt"))
}

/// What came of all seeds.
#[derive(Debug, Default)]
struct Summary {
    totals: Totals,
    failed: Vec<u64>,
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: &Outcome, arguments: &Arguments) {
        let (scenario, report) = (arguments.scenario, &outcome.report);
        self.totals.add(&report.totals);
        if arguments.verbose {
            println!(
                "{scenario} seed {seed}: {} s, {} handoffs, {} faults, {} writes, {} refused, trace {:016x}",
                report.totals.simulated.as_secs(),
                report.totals.handoffs,
                report.totals.faults_injected(),
                report.totals.accepted,
                report.totals.refused,
                outcome.digest,
            );
        }
        if report.violations.is_empty() {
            return;
        }
        self.failed.push(seed);
        for violation in &report.violations {
            println!("{scenario} seed {seed}: {violation}");
        }
        if let Some(folder) = &arguments.keep {
            let trace = kept(folder, scenario, seed);
            // Not there if its process was killed.
            if trace.exists() {
                println!("  kept: {}", trace.display());
            }
        }
        println!("  run it again: {}", replay(seed, scenario));
    }

    /// Prints everything, and in the last line what a script may read. Returns whether no seed failed.
    fn print(mut self, scenario: Scenario) -> bool {
        let totals = &self.totals;
        println!("{totals}");
        self.failed.sort_unstable();
        let verdict = if self.failed.is_empty() {
            "OK"
        } else {
            println!("seeds of {scenario} that failed: {:?}", self.failed);
            "FAILED"
        };
        println!(
            "simulate: {verdict} scenario={scenario} seeds={} failed={} simulated_seconds={} steps={} handoffs={} \
             faults={} writes={} refusals={} violations={}",
            totals.seeds,
            self.failed.len(),
            totals.simulated.as_secs(),
            totals.steps,
            totals.handoffs,
            totals.faults_injected(),
            totals.accepted,
            totals.refused,
            totals.violations,
        );
        self.failed.is_empty()
    }
}

/// Returns the command that runs a seed again, and shows what happened.
fn replay(seed: u64, scenario: Scenario) -> String {
    format!(
        "(cd tests/simulation && cargo run -- --scenario {scenario} --seed {seed} --trace trace.txt)"
    )
}
