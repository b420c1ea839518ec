//! The files whose words are counted, and which shard has which.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_proto::keys::hash_of_key;

use super::SHARDS;
use crate::failure::Failure;

/// Bytes at the beginning of a file in which a zero byte says that it is no text, as git judges it.
const PROBE_BYTES: usize = 8_000;

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Where it is.
    pub path: PathBuf,
    /// How long it was when the list was made.
    pub bytes: u64,
    /// The shard whose owner reads it.
    pub shard: u32,
}

/// All text files of some folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    files: Vec<InputFile>,
}

impl Input {
    /// Finds all text files in folders and what is in them. Links are not followed.
    ///
    /// # Errors
    ///
    /// When a folder or a file cannot be read, or there is no text at all.
    pub fn find(folders: &[PathBuf]) -> Result<Self, Failure> {
        let mut paths = BTreeSet::new();
        for folder in folders {
            collect(folder, &mut paths)
                .map_err(|failure| failure.during(format!("reading {}", folder.display())))?;
        }
        let mut input = Self::default();
        for path in paths {
            let file =
                File::open(&path).map_err(|error| Failure::from(error).during(path.display()))?;
            let bytes = file.metadata()?.len();
            if bytes > 0 && is_text(file)? {
                let shard = shard_of(&path);
                input.files.push(InputFile { path, bytes, shard });
            }
        }
        if input.files.is_empty() {
            return Err(Failure::new(format!(
                "there is no text file in {folders:?}"
            )));
        }
        Ok(input)
    }

    /// Returns the files in order of their paths.
    #[must_use]
    pub fn files(&self) -> &[InputFile] {
        &self.files
    }

    /// Returns the files of a shard, in the order in which they are read.
    #[must_use]
    pub fn of_shard(&self, shard: u32) -> Vec<InputFile> {
        self.files
            .iter()
            .filter(|file| file.shard == shard)
            .cloned()
            .collect()
    }

    /// Returns the length of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the length of the files of each shard.
    #[must_use]
    pub fn bytes_by_shard(&self) -> Vec<u64> {
        let mut bytes = vec![0; SHARDS as usize];
        for file in &self.files {
            bytes[file.shard as usize] += file.bytes;
        }
        bytes
    }

    /// Writes the list for worker processes: `<shard> <bytes> <path>`, each ended by a zero byte, which
    /// no path can hold.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, to: &Path) -> Result<(), Failure> {
        let mut text = Vec::new();
        for file in &self.files {
            text.extend_from_slice(format!("{} {} ", file.shard, file.bytes).as_bytes());
            text.extend_from_slice(file.path.as_os_str().as_bytes());
            text.push(0);
        }
        Ok(fs::write(to, text)?)
    }

    /// Reads a list that was written.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is no such list.
    pub fn load(from: &Path) -> Result<Self, Failure> {
        let text = fs::read(from)?;
        let lines = text
            .split(|&byte| byte == 0)
            .filter(|line| !line.is_empty());
        let files = lines.map(parse_line).collect::<Option<Vec<InputFile>>>();
        let files = files
            .ok_or_else(|| Failure::new(format!("{} is no list of input files", from.display())))?;
        Ok(Self { files })
    }
}

fn parse_line(line: &[u8]) -> Option<InputFile> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let shard = u32::try_from(number()?).ok()?;
    let bytes = number()?;
    let path = PathBuf::from(OsString::from_vec(parts.next()?.to_vec()));
    Some(InputFile { path, bytes, shard })
}

/// Returns the folders to read when none is named: the sources of the crates that this program was
/// built from, as cargo has downloaded them.
///
/// # Errors
///
/// When cargo cannot be asked or has downloaded nothing.
pub(super) fn downloaded_crates() -> Result<Vec<PathBuf>, Failure> {
    // Set by cargo and by nobody else; without it the one on the path is asked.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version=1",
            "--offline",
            "--filter-platform",
        ])
        .arg(host_platform()?)
        .current_dir(workspace)
        .output()
        .map_err(|error| Failure::from(error).during("asking cargo for its downloads"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::new(text).during("asking cargo for its downloads"));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let resolved: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folders: BTreeSet<PathBuf> = packages
        .filter(|package| !package["source"].is_null())
        .filter(|package| {
            package["id"]
                .as_str()
                .is_some_and(|id| resolved.contains(id))
        })
        .filter_map(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(Path::to_path_buf)
        .collect();
    if folders.is_empty() {
        return Err(Failure::new(
            "cargo has downloaded no crate; name a folder with DEMO_INPUT",
        ));
    }
    Ok(folders.into_iter().collect())
}

/// Returns the platform for which crates were downloaded: those for others need not be there.
fn host_platform() -> Result<String, Failure> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::new("rustc does not name its host"))
}

fn collect(folder: &Path, paths: &mut BTreeSet<PathBuf>) -> Result<(), Failure> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                paths.insert(entry.path());
            }
        }
    }
    Ok(())
}

fn is_text(file: File) -> Result<bool, Failure> {
    let mut beginning = Vec::with_capacity(PROBE_BYTES);
    file.take(PROBE_BYTES as u64).read_to_end(&mut beginning)?;
    Ok(!beginning.contains(&0))
}

/// Spreads files evenly, and the same way whoever asks.
fn shard_of(path: &Path) -> u32 {
    // The remainder is below the number of shards.
    u32::try_from(hash_of_key(path.as_os_str().as_bytes()) % u64::from(SHARDS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_files_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a b\nc");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join("one"), "text").unwrap();
        fs::write(inner.join("two"), "more text").unwrap();
        fs::write(folder.path().join("binary"), b"te\0xt").unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("one"), folder.path().join("link")).unwrap();

        let input = Input::find(&[folder.path().to_path_buf()]).unwrap();
        assert_eq!(input.files().len(), 2);
        assert_eq!(input.bytes(), 13);
        assert!(input.files().iter().all(|file| file.shard < SHARDS));

        let list = folder.path().join("list");
        input.save(&list).unwrap();
        assert_eq!(Input::load(&list).unwrap(), input);
    }

    #[test]
    fn a_folder_without_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let failure = Input::find(&[folder.path().to_path_buf()])
            .unwrap_err()
            .to_string();
        assert!(failure.starts_with("there is no text file in"), "{failure}");
    }
}
