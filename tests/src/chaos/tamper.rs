//! Wall clocks that jump and syncs that fail, inside a process that knows nothing of it.
//!
//! A small library (`tamper.c`) is loaded before the C library. libfaketime would do for the clock, but
//! its version 0.9.10 makes `clock_nanosleep` fail when the monotonic clock is left alone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::output;
use crate::failure::Failure;

/// The library.
const SOURCE: &str = include_str!("tamper.c");

/// Builds the library once, and knows where.
#[derive(Clone, Debug)]
pub struct Tamper {
    library: PathBuf,
    folder: PathBuf,
}

/// What one process is told.
#[derive(Clone, Debug)]
pub struct Orders {
    library: PathBuf,
    file: PathBuf,
}

impl Tamper {
    /// Compiles the library into `folder`.
    ///
    /// # Errors
    ///
    /// When there is no C compiler, or the code is wrong.
    pub fn build(folder: &Path) -> Result<Self, Failure> {
        let (source, library) = (folder.join("tamper.c"), folder.join("tamper.so"));
        fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        compiler.arg(&library).arg(&source).arg("-ldl");
        output(&mut compiler).map_err(|failure| failure.during("compiling tamper.c with cc"))?;
        let folder = folder.to_owned();
        Ok(Self { library, folder })
    }

    /// Returns the orders for a process, which has none yet.
    ///
    /// # Errors
    ///
    /// When their file cannot be written.
    pub fn orders(&self, name: &str) -> Result<Orders, Failure> {
        let file = self.folder.join(format!("{name}.tamper"));
        fs::write(&file, [0; 16])?;
        let library = self.library.clone();
        Ok(Orders { library, file })
    }
}

impl Orders {
    /// Returns what stands before a program so that it obeys: `env`, and two variables.
    #[must_use]
    pub fn prefix(&self) -> [String; 3] {
        [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("CHAOS_TAMPER={}", self.file.display()),
        ]
    }

    /// Sets the wall clock wrong by so many seconds.
    ///
    /// # Errors
    ///
    /// When the order cannot be written.
    pub fn set_clock(&self, offset_seconds: i64) -> Result<(), Failure> {
        self.write(0, offset_seconds)
    }

    /// Says whether syncs fail.
    ///
    /// # Errors
    ///
    /// When the order cannot be written.
    pub fn set_syncs_fail(&self, fail: bool) -> Result<(), Failure> {
        self.write(8, fail.into())
    }

    fn write(&self, offset: u64, number: i64) -> Result<(), Failure> {
        let file = OpenOptions::new().write(true).open(&self.file)?;
        Ok(file.write_all_at(&number.to_ne_bytes(), offset)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(orders: &Orders, arguments: &[&str]) -> Result<String, Failure> {
        let [program, variables @ ..] = orders.prefix();
        output(Command::new(program).args(variables).args(arguments))
    }

    #[test]
    fn a_process_sees_the_clock_and_the_syncs_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let orders = Tamper::build(folder.path()).unwrap().orders("a").unwrap();
        let year = || -> u32 {
            run(&orders, &["date", "+%Y"])
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let file = folder.path().join("file");
        let sync = || {
            run(
                &orders,
                &[
                    "dd",
                    "if=/dev/zero",
                    "count=1",
                    "conv=fsync",
                    &format!("of={}", file.display()),
                ],
            )
        };
        let now = year();
        sync().unwrap();
        orders.set_clock(10 * 366 * 24 * 3600).unwrap();
        assert!(year() >= now + 10);
        orders.set_clock(0).unwrap();
        assert!(year() < now + 10);
        orders.set_syncs_fail(true).unwrap();
        assert!(sync().is_err());
        orders.set_syncs_fail(false).unwrap();
        sync().unwrap();
    }
}
