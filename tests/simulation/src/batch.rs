//! Runs many seeds, each in a process of its own, so that each does what it does alone.

use std::env;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread;

use crate::run::Scenario;
use crate::seed::Outcome;

/// The argument that asks a process for its outcome in the form that [`Batch::run`] reads.
pub const OUTCOME: &str = "--outcome";

/// Seeds to be run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What kind of run.
    pub scenario: Scenario,
    /// The seeds.
    pub seeds: Range<u64>,
    /// How many processes at once, at least one.
    pub at_once: usize,
    /// The folder for the traces of seeds that fail.
    pub keep: Option<PathBuf>,
}

impl Batch {
    /// Runs all seeds and tells the outcome of each as soon as it is there. One that fails stops none of the
    /// others.
    ///
    /// # Errors
    ///
    /// If this program cannot be found. A seed whose process cannot be started, or ends without an
    /// outcome, has failed.
    pub fn run(&self, mut tell: impl FnMut(u64, Outcome)) -> io::Result<()> {
        let program = env::current_exe()?;
        let seeds = Mutex::new(self.seeds.clone());
        let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
        // Those that run wait for their outcomes to be told, so that few are kept.
        let (sender, outcomes) = mpsc::sync_channel(self.at_once);
        thread::scope(|scope| {
            for _ in 0..self.at_once.max(1) {
                let (sender, next, program) = (sender.clone(), &next, &program);
                scope.spawn(move || {
                    while let Some(seed) = next() {
                        let mut command = Command::new(program);
                        self.describe(seed, &mut command);
                        if sender.send((seed, outcome_of(command))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (seed, outcome) in outcomes {
                tell(seed, outcome);
            }
        });
        Ok(())
    }

    fn describe(&self, seed: u64, command: &mut Command) {
        command
            .arg(OUTCOME)
            .args(["--scenario", &self.scenario.to_string()])
            .args(["--seed", &seed.to_string()]);
        if let Some(folder) = &self.keep {
            command.arg("--keep").arg(folder);
        }
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
    }
}

fn outcome_of(mut command: Command) -> Outcome {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Outcome::of_failure(format!("its process did not start: {error}")),
    };
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        Outcome::of_failure(format!("its process told no outcome: {}", output.status))
    })
}
