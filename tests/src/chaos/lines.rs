//! Files of a history: one JSON object a line, kept also when the process that wrote it is killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// What the name of every file ends with.
const SUFFIX: &str = "jsonl";

/// A file to which lines are added.
#[derive(Debug)]
pub struct LineFile {
    // Never held across an await.
    file: Mutex<File>,
}

impl LineFile {
    /// Opens the file `name` of a history.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(folder: &Path, name: &str) -> Result<Self, Failure> {
        let file = Mutex::new(open(folder, name)?);
        Ok(Self { file })
    }

    /// Adds a line. One that cannot be written is missed by the checks: a call that has no answer.
    pub fn add(&self, line: &impl Serialize) {
        if let Ok(mut bytes) = serde_json::to_vec(line) {
            bytes.push(b'\n');
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = file.write_all(&bytes) {
                tracing::error!(%error, "a line of the history is lost");
            }
        }
    }
}

/// Opens a file of a history so that lines are added at its end.
///
/// # Errors
///
/// When it cannot be opened.
pub fn open(folder: &Path, name: &str) -> Result<File, Failure> {
    let path = folder.join(format!("{name}.{SUFFIX}"));
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(&path);
    file.map_err(|error| Failure::from(error).during(path.display()))
}

/// Returns the files of a history whose names begin with `prefix`, in order, each with its name.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn files(folder: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).map_err(|error| Failure::from(error).during(folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let ours = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        if let Some(name) = name.filter(|name| ours && name.starts_with(prefix)) {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the lines of a file. Its last line may be half: its writer was killed.
///
/// # Errors
///
/// When another line is not what it should be.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::from(error).during(path.display()))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let lines = bytes[..whole].split(|&byte| byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_slice(line).map_err(|error| {
                let text = String::from_utf8_lossy(line).into_owned();
                Failure::from(error).during(format!("{}: {text}", path.display()))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_at_the_end_is_left_out_and_one_before_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = LineFile::open(folder.path(), "worker-1").unwrap();
        file.add(&1);
        file.add(&2);
        let (name, path) = files(folder.path(), "worker").unwrap().remove(0);
        assert_eq!(name, "worker-1");
        fs::write(&path, [fs::read(&path).unwrap(), b"3".to_vec()].concat()).unwrap();
        assert_eq!(read::<u8>(&path).unwrap(), [1, 2]);
        fs::write(&path, "1\nx\n2\n").unwrap();
        assert!(read::<u8>(&path).is_err());
    }
}
