//! A worker process, seen from the story.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::belief::Believed;
use super::order::Order;
use super::report::Report;
use crate::binaries;
use crate::failure::Failure;
use crate::process::Process;

/// How long an order may wait for a worker to read it. Its pipe takes thousands.
const ORDER_TIME: Duration = Duration::from_secs(10);

/// How a worker process is started.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// The program: `story-worker` or `demo-worker`.
    pub program: String,
    /// Client addresses of the coordinators.
    pub coordinators: Vec<String>,
    /// The group.
    pub group: String,
    /// The worker's name.
    pub name: String,
    /// More arguments.
    pub arguments: Vec<String>,
}

/// A worker process. Killed when dropped.
#[derive(Debug)]
pub struct WorkerProcess {
    name: String,
    process: Process,
    stdin: ChildStdin,
    log: ReportLog,
    reader: JoinHandle<()>,
}

/// All that a worker process has reported. Clones are the same log, and it outlives the process.
#[derive(Clone, Debug)]
pub struct ReportLog {
    // Never held across an await.
    reports: Arc<Mutex<Vec<Report>>>,
    changed: watch::Receiver<u64>,
}

impl ReportLog {
    /// Looks at all reports so far.
    pub fn look<T>(&self, look: impl FnOnce(&[Report]) -> T) -> T {
        look(&lock(&self.reports))
    }

    /// Returns how many writes the stores refused because the tenure was over.
    #[must_use]
    pub fn refused(&self) -> usize {
        let refused = |report: &&Report| matches!(report, Report::Refused { .. });
        self.look(|reports| reports.iter().filter(refused).count())
    }
}

impl ReportLog {
    /// Returns the spans in which the worker, who is called `name`, was seen to believe.
    #[must_use]
    pub fn believed(&self, name: &str) -> Vec<Believed> {
        let span = |report: &Report| match *report {
            Report::Believed {
                shard,
                epoch,
                from_ns,
                until_ns,
            } => {
                let worker = name.to_owned();
                Some(Believed {
                    worker,
                    shard,
                    epoch,
                    from_ns,
                    until_ns,
                })
            }
            _ => None,
        };
        self.look(|reports| reports.iter().filter_map(span).collect())
    }
}

impl WorkerProcess {
    /// Starts a worker. Its log goes to a file in `folder`.
    ///
    /// # Errors
    ///
    /// When the program was not built or cannot be started.
    pub fn start(options: &WorkerOptions, folder: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(binaries::find(&options.program)?);
        command
            .arg("--coordinators")
            .arg(options.coordinators.join(","));
        command
            .arg("--group")
            .arg(&options.group)
            .arg("--name")
            .arg(&options.name);
        command.args(&options.arguments);
        let log = folder.join(format!("{}.log", options.name));
        let (process, stdin, stdout) = Process::spawn_piped(&options.name, command, &log)?;
        let (changes, changed) = watch::channel(0);
        let reports = ReportLog {
            reports: Arc::default(),
            changed,
        };
        let reader = tokio::spawn(read(stdout, Arc::clone(&reports.reports), changes));
        Ok(Self {
            name: options.name.clone(),
            process,
            stdin,
            log: reports,
            reader,
        })
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Gives an order. A process that is stopped reads it when it wakes.
    ///
    /// # Errors
    ///
    /// When the process has ended.
    pub async fn order(&mut self, order: Order) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(&order)?;
        line.push(b'\n');
        let writing = async {
            self.stdin.write_all(&line).await?;
            self.stdin.flush().await
        };
        let given = tokio::time::timeout(ORDER_TIME, writing).await;
        let given = given.map_err(|_| Failure::new("its pipe is full"))?;
        given.map_err(|error| self.with_log(error.into()).during(format!("{order:?}")))
    }

    /// Returns what it has reported and will report.
    #[must_use]
    pub fn log(&self) -> &ReportLog {
        &self.log
    }

    /// Waits until a report gives a value.
    ///
    /// # Errors
    ///
    /// Says what was waited for, and what the worker reported and logged last.
    pub async fn until_reported<T>(
        &self,
        what: &str,
        within: Duration,
        check: impl Fn(&Report) -> Option<T>,
    ) -> Result<T, Failure> {
        self.until(what, within, |reports| reports.iter().find_map(&check))
            .await
    }

    /// Waits until all reports so far together give a value.
    ///
    /// # Errors
    ///
    /// Says what was waited for, and what the worker reported and logged last.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        check: impl Fn(&[Report]) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut changed = self.log.changed.clone();
        let waiting = async {
            loop {
                changed.borrow_and_update();
                if let Some(value) = self.log.look(&check) {
                    return Some(value);
                }
                if changed.changed().await.is_err() {
                    // It has ended; the last look has seen all there is.
                    return self.log.look(&check);
                }
            }
        };
        let ended = match tokio::time::timeout(within, waiting).await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "it has ended".to_owned(),
            Err(_) => format!("not within {within:?}"),
        };
        let last: Option<Report> = self.log.look(|reports| reports.last().cloned());
        let text = format!(
            "{what} of {}: {ended}; its last report is {last:?}",
            self.name
        );
        Err(self.with_log(Failure::new(text)))
    }

    /// Returns the spans of belief that were reported.
    #[must_use]
    pub fn believed(&self) -> Vec<Believed> {
        self.log.believed(&self.name)
    }

    /// Kills the process with SIGKILL, and returns when all it had reported is in its log.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn kill(mut self) -> Result<ReportLog, Failure> {
        self.process.kill().await?;
        self.finish().await
    }

    /// Orders the worker to stop, waits until it has, and returns all it has reported.
    ///
    /// # Errors
    ///
    /// When it does not end in time, or not with exit status 0.
    pub async fn stop(mut self, within: Duration) -> Result<ReportLog, Failure> {
        self.order(Order::Stop).await?;
        let status = self.process.exited(within).await?;
        if !status.success() {
            return Err(self.with_log(Failure::new(format!("{} ended with {status}", self.name))));
        }
        self.finish().await
    }

    /// Waits until the process ends of itself, and tells how.
    ///
    /// # Errors
    ///
    /// When it does not in time.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let status = self.process.exited(within).await?;
        (&mut self.reader).await?;
        Ok(status)
    }

    async fn finish(mut self) -> Result<ReportLog, Failure> {
        (&mut self.reader).await?;
        Ok(self.log)
    }

    fn with_log(&self, failure: Failure) -> Failure {
        Failure::new(format!("{failure}\n{}", self.process.log_tail()))
    }
}

fn lock(reports: &Mutex<Vec<Report>>) -> MutexGuard<'_, Vec<Report>> {
    // Every change is whole before the lock is given back.
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(stdout: ChildStdout, reports: Arc<Mutex<Vec<Report>>>, changes: watch::Sender<u64>) {
    let mut lines = BufReader::new(stdout).lines();
    // A killed process may leave half a line.
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(report) = serde_json::from_str::<Report>(&line) {
            lock(&reports).push(report);
            changes.send_modify(|changes| *changes += 1);
        }
    }
}
