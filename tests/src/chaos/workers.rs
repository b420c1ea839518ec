//! Workers, each on a host of its own, whose calls go to files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::network::{Host, Network};
use super::tamper::{Orders, Tamper};
use super::{GROUP, check, lines};
use crate::binaries;
use crate::failure::Failure;
use crate::process::Process;

/// How long a worker may take to give its shards back after Ctrl-C.
const END_TIME: Duration = Duration::from_secs(20);

/// How all workers are started.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Client addresses of the coordinators.
    pub coordinators: Vec<String>,
    /// The file of the store they share.
    pub sqlite: PathBuf,
    /// Where their logs go.
    pub folder: PathBuf,
    /// Where what they put down goes.
    pub histories: PathBuf,
}

/// A place for a worker: a host, and what runs there.
#[derive(Debug)]
pub struct Worker {
    place: u8,
    orders: Orders,
    process: Option<Process>,
    /// Processes that were replaced by a newer one of the same name and are to end by themselves.
    replaced: Vec<Process>,
    started: u32,
}

impl Worker {
    /// Returns its place, from 1.
    #[must_use]
    pub fn place(&self) -> u8 {
        self.place
    }

    /// Returns its process, if it runs.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns what its process is told to see.
    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }
}

/// All workers.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    settings: WorkerSettings,
}

impl Workers {
    /// Prepares `count` places. Nothing is started.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn new(count: u8, tamper: &Tamper, settings: WorkerSettings) -> Result<Self, Failure> {
        let mut workers = Vec::new();
        for place in 1..=count {
            workers.push(Worker {
                place,
                orders: tamper.orders(&Host::Worker(place).name())?,
                process: None,
                replaced: Vec::new(),
                started: 0,
            });
        }
        Ok(Self { workers, settings })
    }

    /// Returns the places of all workers.
    #[must_use]
    pub fn places(&self) -> Vec<u8> {
        self.workers.iter().map(Worker::place).collect()
    }

    /// Returns a worker.
    ///
    /// # Errors
    ///
    /// When there is no such place.
    pub fn worker(&self, place: u8) -> Result<&Worker, Failure> {
        let worker = self.workers.iter().find(|worker| worker.place == place);
        worker.ok_or_else(|| Failure::new(format!("there is no worker {place}")))
    }

    fn worker_mut(&mut self, place: u8) -> Result<&mut Worker, Failure> {
        let worker = self.workers.iter_mut().find(|worker| worker.place == place);
        worker.ok_or_else(|| Failure::new(format!("there is no worker {place}")))
    }

    /// Starts a worker. If it runs already, the old process is left to find out that it was replaced.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn start(&mut self, place: u8, network: &Network) -> Result<(), Failure> {
        let settings = self.settings.clone();
        let worker = self.worker_mut(place)?;
        worker.started += 1;
        let name = Host::Worker(place).name();
        let mut command = network.command(Host::Worker(place));
        command.args(worker.orders.prefix());
        command.arg(binaries::find("chaos-worker")?);
        command
            .arg("--coordinators")
            .arg(settings.coordinators.join(","));
        command.arg("--group").arg(GROUP).arg("--name").arg(&name);
        command.arg("--sqlite").arg(&settings.sqlite);
        let history = format!("{}{place}-{}", check::WORKER, worker.started);
        command.stdin(Stdio::null());
        command.stdout(lines::open(&settings.histories, &history)?);
        let log = log(&settings.folder, &name);
        let process = Process::spawn(&name, command, &log)?;
        worker.replaced.extend(worker.process.replace(process));
        Ok(())
    }

    /// Kills a worker with SIGKILL, if it runs.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn kill(&mut self, place: u8) -> Result<(), Failure> {
        match self.worker_mut(place)?.process.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Wakes all processes of a worker.
    ///
    /// # Errors
    ///
    /// When a signal cannot be sent.
    pub fn wake(&mut self, place: u8) -> Result<(), Failure> {
        let worker = self.worker_mut(place)?;
        for process in worker.process.iter_mut().chain(&mut worker.replaced) {
            if process.ended()?.is_none() {
                process.wake()?;
            }
        }
        Ok(())
    }

    /// Returns the workers that have ended by themselves although nobody replaced them. They are not
    /// running any more.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub fn ended(&mut self) -> Result<Vec<(u8, String)>, Failure> {
        let mut ended = Vec::new();
        for worker in &mut self.workers {
            if let Some(process) = &mut worker.process
                && let Some(status) = process.ended()?
            {
                let text = format!("{status}\n{}", process.log_tail());
                ended.push((worker.place, text));
                worker.process = None;
            }
        }
        Ok(ended)
    }

    /// Returns the workers of which a replaced process still runs.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub fn still_replaced(&mut self) -> Result<BTreeSet<u8>, Failure> {
        let mut left = BTreeSet::new();
        for worker in &mut self.workers {
            for process in &mut worker.replaced {
                if process.ended()?.is_none() {
                    left.insert(worker.place);
                }
            }
        }
        Ok(left)
    }

    /// Ends all workers as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When one does not end, or not with exit status 0.
    pub async fn shutdown(mut self) -> Result<(), Failure> {
        for worker in &self.workers {
            if let Some(process) = &worker.process {
                process.interrupt()?;
            }
        }
        for worker in &mut self.workers {
            let Some(mut process) = worker.process.take() else {
                continue;
            };
            let status = process.exited(END_TIME).await?;
            if !status.success() {
                let (place, log) = (worker.place, process.log_tail());
                let text = format!("worker {place} ended with {status}\n{log}");
                return Err(Failure::new(text));
            }
        }
        Ok(())
    }
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}
