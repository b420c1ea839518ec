//! The worker processes of the demo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::GROUP;
use super::pace::WHOLE;
use crate::failure::Failure;
use crate::words::WordRule;
use crate::worker::{Report, ReportLog, WorkerOptions, WorkerProcess};

/// How long a worker may take to write last checkpoints and give its shards back.
const STOP_TIME: Duration = Duration::from_secs(30);

/// What all workers are told.
#[derive(Clone, Debug)]
pub(super) struct CrewOptions {
    /// Client addresses of the coordinators.
    pub(super) coordinators: Vec<String>,
    /// The list of input files.
    pub(super) input: PathBuf,
    /// The file that says how much of it is released.
    pub(super) release: PathBuf,
    /// What a word is.
    pub(super) rule: WordRule,
    /// Where their logs go.
    pub(super) folder: PathBuf,
}

/// All workers, by name.
#[derive(Debug)]
pub(super) struct Crew {
    options: CrewOptions,
    workers: BTreeMap<String, WorkerProcess>,
    progress: Progress,
}

/// How far the workers have come: also those that were killed. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    // Never held across an await.
    logs: Arc<Mutex<Vec<ReportLog>>>,
    /// Bytes of the input, by shard.
    totals: Arc<[u64]>,
}

impl Crew {
    /// Creates a crew without workers, for an input of so many bytes by shard.
    pub(super) fn new(options: CrewOptions, totals: Arc<[u64]>) -> Self {
        let logs = Arc::default();
        let progress = Progress { logs, totals };
        Self {
            options,
            workers: BTreeMap::new(),
            progress,
        }
    }

    /// Returns how far they have come.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Starts a worker.
    pub(super) fn start(&mut self, name: &str) -> Result<(), Failure> {
        let options = WorkerOptions {
            program: "demo-worker".to_owned(),
            coordinators: self.options.coordinators.clone(),
            group: GROUP.to_owned(),
            name: name.to_owned(),
            arguments: vec![
                format!("--input={}", text_of(&self.options.input)?),
                format!("--release={}", text_of(&self.options.release)?),
                format!("--rule={}", self.options.rule.name()),
            ],
        };
        let worker = WorkerProcess::start(&options, &self.options.folder)?;
        self.progress.logs().push(worker.log().clone());
        self.workers.insert(name.to_owned(), worker);
        Ok(())
    }

    /// Returns a worker.
    pub(super) fn worker(&mut self, name: &str) -> Result<&mut WorkerProcess, Failure> {
        let worker = self.workers.get_mut(name);
        worker.ok_or_else(|| Failure::new(format!("{name} does not run")))
    }

    /// Kills a worker with SIGKILL.
    pub(super) async fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let worker = self.workers.remove(name);
        worker
            .ok_or_else(|| Failure::new(format!("{name} does not run")))?
            .kill()
            .await?;
        Ok(())
    }

    /// Stops all workers in good order.
    pub(super) async fn stop(&mut self) -> Result<(), Failure> {
        while let Some((_, worker)) = self.workers.pop_first() {
            worker.stop(STOP_TIME).await?;
        }
        Ok(())
    }

    /// Returns the ends of the workers' logs.
    pub(super) fn log_tails(&self) -> String {
        let tails: Vec<String> = self
            .workers
            .values()
            .map(|worker| worker.process().log_tail())
            .collect();
        tails.join("\n")
    }
}

impl Progress {
    /// Returns the part of the input that accepted checkpoints cover, in hundredths of a per cent.
    pub(super) fn part(&self) -> u32 {
        let total = self.totals.iter().sum::<u64>().max(1);
        let part = u128::from(self.bytes()) * u128::from(WHOLE) / u128::from(total);
        u32::try_from(part).unwrap_or(WHOLE)
    }

    /// Returns the bytes that accepted checkpoints cover.
    pub(super) fn bytes(&self) -> u64 {
        self.covered().iter().sum()
    }

    /// Returns the bytes that no accepted checkpoint covers, by shard.
    pub(super) fn left(&self) -> Vec<u64> {
        let covered = self.covered();
        let both = self.totals.iter().zip(covered);
        both.map(|(total, covered)| total.saturating_sub(covered))
            .collect()
    }

    fn covered(&self) -> Vec<u64> {
        let mut covered = vec![0; self.totals.len()];
        for log in self.logs().iter() {
            log.look(|reports| {
                for report in reports {
                    let (Report::Written { shard, bytes, .. }
                    | Report::Claimed { shard, bytes, .. }) = report
                    else {
                        continue;
                    };
                    if let Some(most) = covered.get_mut(*shard as usize) {
                        *most = u64::max(*most, *bytes);
                    }
                }
            });
        }
        covered
    }

    /// Returns how many writes of workers that had lost their shard were refused.
    pub(super) fn refused(&self) -> usize {
        self.logs().iter().map(ReportLog::refused).sum()
    }

    fn logs(&self) -> MutexGuard<'_, Vec<ReportLog>> {
        // Every change is whole before the lock is given back.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str()
        .ok_or_else(|| Failure::new(format!("{} is not UTF-8", path.display())))
}
