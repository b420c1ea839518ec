//! Where a server lives, and as whom it runs.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::failure::Failure;
use cluster_tests::process::Process;
use tokio::process::Command;

/// How long a program that prepares a folder may take, on a machine that is busy with other tests.
const RUN_TIME: Duration = Duration::from_secs(180);

/// The folder of a server and the account that it runs as.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    log: PathBuf,
    /// The numbers of another user and group than those of the tests.
    account: Option<(u32, u32)>,
}

impl Site {
    /// Makes a folder the site of a server. It is given to `account` when the tests are run by root.
    pub(crate) fn new(
        folder: &Path,
        log: PathBuf,
        account: Option<&'static str>,
    ) -> Result<Self, Failure> {
        let account = account.filter(|_| rustix::process::geteuid().is_root());
        let account = account.map(numbers).transpose()?;
        if let Some((user, group)) = account {
            chown(folder, Some(user), Some(group))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            log,
            account,
        })
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that runs in the folder, as the account, and never longer than the tests:
    /// the kernel kills it when the thread that started it ends, however that ends.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL");
        if let Some((user, group)) = self.account {
            command.args([
                format!("--reuid={user}"),
                format!("--regid={group}"),
                "--clear-groups".to_owned(),
            ]);
        }
        command.arg("--").arg(program);
        command.current_dir(&self.folder);
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// With the end of what it wrote, when it fails or takes too long.
    pub async fn run(&self, name: &str, mut command: Command) -> Result<(), Failure> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        command.stdout(log);
        let mut process = Process::spawn(name, command, &self.log)?;
        let status = process.exited(RUN_TIME).await?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{name} ended with {status}\n{}",
            process.log_tail()
        )))
    }

    /// Writes a file that the account can read, and returns its path.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

/// Returns the numbers of an account and its group.
fn numbers(name: &str) -> Result<(u32, u32), Failure> {
    let accounts = fs::read_to_string("/etc/passwd")?;
    accounts
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(())?;
            let mut number = || fields.next()?.parse().ok();
            // The field between the name and the numbers once held the password.
            let _password = number();
            Some((number()?, number()?))
        })
        .ok_or_else(|| Failure::new(format!("there is no account {name}")))
}
