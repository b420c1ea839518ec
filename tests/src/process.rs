//! A child process whose output is kept, and which never outlives the story.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::failure::Failure;
use crate::wait;

/// Lines of a log that are shown with a failure.
const TAIL_LINES: usize = 25;

/// How long the kernel may take to carry out a signal that cannot be refused.
const SIGNAL_TIME: Duration = Duration::from_secs(10);

/// A running process. It is killed when this is dropped, also when a test panics.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `command`. What it writes to stderr is appended to the file `log`.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened or the program cannot be started.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self, Failure> {
        let file = open_log(log)?;
        let child = command
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::from(error).during(format!("starting {name}")))?;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| Failure::new(format!("{name} has no process id")))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            pid,
            log: log.to_owned(),
        })
    }

    /// Starts `command` with pipes to its stdin and from its stdout.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn spawn_piped(
        name: &str,
        mut command: Command,
        log: &Path,
    ) -> Result<(Self, ChildStdin, ChildStdout), Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::spawn(name, command, log)?;
        match (process.child.stdin.take(), process.child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok((process, stdin, stdout)),
            _ => Err(Failure::new(format!("{name} has no pipes"))),
        }
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn kill(&mut self) -> Result<(), Failure> {
        self.kill_now()?;
        self.exited(SIGNAL_TIME).await?;
        Ok(())
    }

    /// Sends SIGKILL and does not wait, so that several can be killed at once.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub fn kill_now(&self) -> Result<(), Failure> {
        self.signal(Signal::KILL)
    }

    /// Stops the process with SIGSTOP and waits until all of it stands still.
    ///
    /// # Errors
    ///
    /// When it does not stop.
    pub async fn stop(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        let what = format!("{} stopped by SIGSTOP", self.name);
        wait::until(&what, SIGNAL_TIME, async || match self.state() {
            Ok('T') => Ok(()),
            Ok(state) => Err(format!("it is in state {state}")),
            Err(error) => Err(error.to_string()),
        })
        .await
    }

    /// Wakes a stopped process with SIGCONT.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub fn wake(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to end, as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub fn interrupt(&self) -> Result<(), Failure> {
        self.signal(Signal::INT)
    }

    /// Waits until the process has ended, and tells how.
    ///
    /// # Errors
    ///
    /// When it still runs after `within`.
    pub async fn exited(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => Err(Failure::new(format!(
                "{} has not ended within {within:?}\n{}",
                self.name,
                self.log_tail()
            ))),
        }
    }

    /// Returns how the process ended; `None` while it runs.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    /// Returns the resident memory of the process, in bytes.
    ///
    /// # Errors
    ///
    /// When `/proc` does not say.
    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix("kB"))
            .and_then(|kib| kib.trim().parse::<u64>().ok())
            .map(|kib| kib * 1024)
            .ok_or_else(|| Failure::new(format!("no VmRSS of {}", self.name)))
    }

    /// Returns the last lines of the log, for a failure.
    #[must_use]
    pub fn log_tail(&self) -> String {
        log_tail(&self.name, &self.log)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        rustix::process::kill_process(self.pid, signal).map_err(|error| {
            Failure::from(error).during(format!("sending {signal:?} to {}", self.name))
        })
    }

    /// Returns the state of the process as the kernel writes it: `T` is stopped.
    fn state(&self) -> io::Result<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // The name before it may hold anything, also parentheses.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        state.ok_or_else(|| io::Error::other("no state in /proc"))
    }
}

/// Returns the last lines of a log file, indented under `name`.
#[must_use]
pub fn log_tail(name: &str, log: &Path) -> String {
    let text = match fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    let tail: Vec<String> = lines[from..]
        .iter()
        .map(|line| format!("    {line}"))
        .collect();
    format!("  the log of {name} ends:\n{}", tail.join("\n"))
}

fn open_log(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(log)
}
