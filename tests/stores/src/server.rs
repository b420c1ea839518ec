//! A server that a test starts, kills and starts again.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::process::{self, Process};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::process::Command;

use crate::site::Site;

/// How long a server may take until it answers: also one that recovers, on a machine that is busy
/// with other tests.
const READY_TIME: Duration = Duration::from_secs(120);

/// How long one question may take. A server that is starting may accept a connection and say nothing.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// How long the kernel may take to carry out signals that cannot be refused.
const SIGNAL_TIME: Duration = Duration::from_secs(20);

/// What makes one kind of server different from others.
#[async_trait]
pub trait Program: Send + Sync {
    /// What the server is called in failures.
    fn name(&self) -> String;

    /// The account it runs as when the tests are run by root, which some servers refuse to run as.
    fn account(&self) -> Option<&'static str> {
        None
    }

    /// Lays out the folder. Called once, before the first start.
    ///
    /// # Errors
    ///
    /// When it cannot be laid out.
    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        let _ = site;
        Ok(())
    }

    /// Returns the command that runs the server, in the foreground.
    ///
    /// # Errors
    ///
    /// When the program is not installed.
    fn command(&self, site: &Site) -> Result<Command, Failure>;

    /// Asks the server for something that it answers only when it is ready. `Err` says what is missing.
    async fn answers(&self) -> Result<(), String>;

    /// Takes away what the server has left outside of its folder. Called when its processes are gone.
    fn clean_up(&self, site: &Site) {
        let _ = site;
    }
}

/// What keeps the data of a store, and can be killed.
///
/// The defaults do nothing: for what is no process of its own, or does not keep what it has acknowledged
/// when it is killed.
#[async_trait]
pub trait Crash: Send + Sync {
    /// Kills it, and returns when it is gone.
    ///
    /// # Errors
    ///
    /// When it does not end.
    async fn kill(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Starts it again over what it has made durable, on the same address, and returns when it answers.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    async fn restart(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A server in a folder of its own. It is killed when this is dropped, also when a test panics.
#[derive(Debug)]
pub struct Server<P: Program> {
    running: Running,
    program: P,
    site: Site,
    _folder: TempDir,
}

/// The processes of a server.
#[derive(Debug)]
struct Running {
    name: String,
    root: Option<Process>,
    folder: PathBuf,
    log: PathBuf,
}

impl<P: Program> Server<P> {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// With the end of its log, when it does not.
    pub async fn start(program: P) -> Result<Self, Failure> {
        let mut server = Self::prepared(program).await?;
        server.restart().await?;
        Ok(server)
    }

    /// Lays out a server that is not running yet.
    pub(crate) async fn prepared(program: P) -> Result<Self, Failure> {
        let name = program.name();
        // Its path as the kernel shows it: processes are found by it.
        let folder = tempfile::Builder::new()
            .prefix("tenure-store-")
            .tempdir_in(fs::canonicalize(std::env::temp_dir())?)?;
        let log = folder.path().join("log");
        let site = Site::new(folder.path(), log.clone(), program.account())?;
        let preparing = program.prepare(&site).await;
        preparing.map_err(|failure| failure.during(format!("preparing {name}")))?;
        Ok(Self {
            running: Running {
                name,
                root: None,
                folder: folder.path().to_owned(),
                log,
            },
            program,
            site,
            _folder: folder,
        })
    }

    /// Returns what is special about this server: its addresses, for instance.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// Returns the folder that holds everything of this server.
    pub fn folder(&self) -> &Path {
        self.site.folder()
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Kills every process of the server with SIGKILL and waits until all are gone.
    ///
    /// # Errors
    ///
    /// When one does not end.
    pub async fn kill(&mut self) -> Result<(), Failure> {
        self.running.kill().await
    }

    /// Starts the server again, in the same folder and on the same ports, and waits until it answers.
    /// Kills it first if it runs.
    ///
    /// # Errors
    ///
    /// With the end of its log, when it does not answer.
    pub async fn restart(&mut self) -> Result<(), Failure> {
        self.spawn().await?;
        self.ready().await
    }

    /// Kills the server and starts it again at once.
    ///
    /// # Errors
    ///
    /// As [`kill`](Self::kill) and [`restart`](Self::restart).
    pub async fn crash(&mut self) -> Result<(), Failure> {
        self.kill().await?;
        self.restart().await
    }

    /// Stops every process of the server with SIGSTOP: connections stay, nothing is answered.
    ///
    /// # Errors
    ///
    /// When a signal cannot be sent.
    pub fn freeze(&self) -> Result<(), Failure> {
        self.running.signal_all(Signal::STOP)?;
        Ok(())
    }

    /// Wakes a frozen server.
    ///
    /// # Errors
    ///
    /// When a signal cannot be sent.
    pub fn thaw(&self) -> Result<(), Failure> {
        self.running.signal_all(Signal::CONT)?;
        Ok(())
    }

    pub(crate) async fn spawn(&mut self) -> Result<(), Failure> {
        self.running.kill().await?;
        let mut command = self.program.command(&self.site)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.running.log)?;
        // A group of its own: what it starts is killed with it, and nothing else.
        command.process_group(0).stdout(log);
        let root = Process::spawn(&self.running.name, command, &self.running.log)?;
        self.running.root = Some(root);
        Ok(())
    }

    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        let ready = self.answered().await;
        let log = || process::log_tail(&self.running.name, &self.running.log);
        ready.map_err(|failure| Failure::new(format!("{failure}\n{}", log())))
    }

    /// Waits until the server answers.
    // A loop of its own, as in `kill`: a harness is Send, and what `wait::until` makes of a borrowing
    // closure is not.
    async fn answered(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(status) = self.running.ended()? {
                return Err(Failure::new(format!(
                    "{} has ended while it was starting (code {:?}, signal {:?})",
                    self.running.name,
                    status.code(),
                    status.signal()
                )));
            }
            let missing = match tokio::time::timeout(ANSWER_TIME, self.program.answers()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(missing)) => missing,
                Err(_) => format!("no answer within {ANSWER_TIME:?}"),
            };
            if begin.elapsed() >= READY_TIME {
                return Err(Failure::new(format!(
                    "{} does not answer within {READY_TIME:?}; at last {missing}",
                    self.running.name
                )));
            }
        }
    }
}

#[async_trait]
impl<P: Program> Crash for Server<P> {
    async fn kill(&mut self) -> Result<(), Failure> {
        Self::kill(self).await
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        Self::restart(self).await
    }
}

impl Running {
    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        match &mut self.root {
            Some(root) => root.ended(),
            None => Ok(None),
        }
    }

    async fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut root) = self.root.take() else {
            return Ok(());
        };
        let group = i32::try_from(root.pid())?;
        let begin = Instant::now();
        let mut ticks = tokio::time::interval(INTERVAL);
        // Again and again: one that forks may have done so just before it died.
        loop {
            ticks.tick().await;
            let left = signal_members(group, &self.folder, Signal::KILL)?;
            if left == 0 {
                break;
            }
            if begin.elapsed() >= SIGNAL_TIME {
                return Err(Failure::new(format!(
                    "{left} processes of {} are left {SIGNAL_TIME:?} after SIGKILL",
                    self.name
                )));
            }
        }
        root.exited(SIGNAL_TIME).await?;
        Ok(())
    }

    /// Kills every process, and waits until all are gone: one that is not might write to the folder
    /// while it is being removed. The first is reaped by its own drop.
    fn end(&mut self) {
        if self.root.is_none() {
            return;
        }
        if std::thread::panicking() {
            eprintln!("{}", process::log_tail(&self.name, &self.log));
        }
        let begin = Instant::now();
        while begin.elapsed() < SIGNAL_TIME {
            match self.signal_all(Signal::KILL) {
                Ok(0) => return,
                Ok(_) => std::thread::yield_now(),
                Err(failure) => {
                    eprintln!("killing {}: {failure}", self.name);
                    return;
                }
            }
        }
    }

    fn signal_all(&self, signal: Signal) -> Result<usize, Failure> {
        let Some(root) = &self.root else {
            return Err(Failure::new(format!("{} is not running", self.name)));
        };
        Ok(signal_members(
            i32::try_from(root.pid())?,
            &self.folder,
            signal,
        )?)
    }
}

impl<P: Program> Drop for Server<P> {
    fn drop(&mut self) {
        self.running.end();
        self.program.clean_up(&self.site);
    }
}

/// Sends a signal to every process that belongs to a server, and returns to how many.
///
/// Those of its process group, and those that work in its folder: PostgreSQL gives each of its
/// processes a group of its own.
fn signal_members(group: i32, folder: &Path, signal: Signal) -> io::Result<usize> {
    let mut members = 0;
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that is gone meanwhile is no member.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name before it may hold anything, also parentheses. Then: state, parent, group.
        let mut fields = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace();
        let is_dead = matches!(fields.next(), Some("Z" | "X") | None);
        let in_group = fields.nth(1).and_then(|field| field.parse().ok()) == Some(group);
        let in_folder =
            || fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        if is_dead || !(in_group || in_folder()) {
            continue;
        }
        if let Some(pid) = Pid::from_raw(pid) {
            match rustix::process::kill_process(pid, signal) {
                Ok(()) => members += 1,
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(members)
}
