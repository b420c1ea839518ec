//! A folder of the local file system as a bucket.
//!
//! What a conditional put needs, a file system has in pieces: a lock that ends with its process
//! (`flock`), a rename that replaces a file in one step, and `fsync` of the file and of the folder
//! that names it. Put together in this order they are atomic between processes and durable.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::backend::{Backend, BackendError, Object, Version};

/// A folder of the local file system.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

/// The folder of the locks, and of the files being written under them. No name of an object begins
/// with a dot.
const LOCKS: &str = ".locks";

/// How many locks all objects of a kind share. A fixed set, because a lock's file must never be
/// deleted: one who holds the deleted file and one who creates it anew would both hold "the" lock.
const LOCKS_COUNT: u32 = 256;

/// What an object is put under a lock for.
#[derive(Clone, Copy)]
enum Kind {
    /// To be compared first.
    Conditional,
    /// To have a file to write to that the next one overwrites, should this one crash. Of its own, so
    /// that no manifest waits for a large value.
    Plain,
}

/// How long a lock that is held is left alone before it is tried again. It is held for two syncs,
/// and longer for a large value.
const LOCK_POLL: Duration = Duration::from_millis(1);

/// How often a lock is tried in a row before it is left alone. One who writes without a pause lets go
/// of it for a moment only, and that moment must not be missed each time.
const LOCK_TRIES: u32 = 200;

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Takes the lock of an object.
    ///
    /// Tries again and again instead of waiting for the kernel: a wait there cannot be given up, and
    /// a thread that has waited past its call's deadline would change something nobody expects.
    async fn lock(&self, kind: Kind, name: &str) -> Result<Locked, BackendError> {
        let number = crc32c::crc32c(name.as_bytes()) % LOCKS_COUNT;
        let file_name = match kind {
            Kind::Conditional => format!("{number:03}"),
            Kind::Plain => format!("plain-{number:03}"),
        };
        let path = self.root.join(LOCKS).join(file_name);
        let folder = self.clone();
        let opened = path.clone();
        let file = blocking(move || folder.open_lock(&opened)).await;
        let file = file.map_err(not_done)?;
        loop {
            for _ in 0..LOCK_TRIES {
                match file.try_lock() {
                    Ok(()) => return Ok(Locked { _file: file, path }),
                    Err(TryLockError::WouldBlock) => tokio::task::yield_now().await,
                    Err(TryLockError::Error(error)) => return Err(not_done(error)),
                }
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_folders(&self.root, &self.root.join(LOCKS))?;
                options.open(path)
            }
            opened => opened,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// A lock that is held until it is dropped.
struct Locked {
    _file: File,
    path: PathBuf,
}

impl Locked {
    /// The file to write to before it gets its name. One for each lock: what a crash leaves behind
    /// is overwritten by the next.
    fn unfinished(&self) -> PathBuf {
        self.path.with_extension("unfinished")
    }
}

#[async_trait]
impl Backend for Folder {
    async fn get(&self, name: &str) -> Result<Option<Object>, BackendError> {
        let path = self.path(name);
        let bytes = blocking(move || read(&path)).await.map_err(not_done)?;
        Ok(bytes.map(|bytes| Object {
            version: Version(bytes.clone()),
            bytes,
        }))
    }

    async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Option<&Version>,
    ) -> Result<Version, BackendError> {
        let locked = self.lock(Kind::Conditional, name).await?;
        let (root, path) = (self.root.clone(), self.path(name));
        let (condition, new) = (condition.cloned(), bytes.clone());
        let replaced = blocking(move || {
            let current = read(&path).map_err(not_done)?.map(Version);
            if current != condition {
                return Err(BackendError::Refused("the object is another".into()));
            }
            // From here on the lock is dropped only after the rename: also when the caller has gone.
            replace(&root, &locked.unfinished(), &path, &new)
        });
        replaced.await?;
        Ok(Version(bytes))
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError> {
        let (root, path) = (self.root.clone(), self.path(name));
        let locked = self.lock(Kind::Plain, name).await?;
        blocking(move || replace(&root, &locked.unfinished(), &path, &bytes)).await
    }

    async fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, BackendError> {
        let (folder, after) = (self.path(folder), after.map(str::to_owned));
        let names = blocking(move || entries(&folder, |entry| entry.is_file())).await;
        let names = names.map_err(not_done)?.into_iter();
        let names = names.filter(|name| after.as_ref().is_none_or(|after| name > after));
        Ok(names.take(limit).collect())
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, BackendError> {
        let folder = self.path(folder);
        let names = blocking(move || entries(&folder, |entry| entry.is_dir())).await;
        Ok(names.map_err(not_done)?.into_iter().collect())
    }

    async fn delete(&self, name: &str) -> Result<(), BackendError> {
        let path = self.path(name);
        let deleted = blocking(move || match fs::remove_file(&path) {
            // Not synced: a file that comes back after a crash is garbage as before.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        deleted.await.map_err(not_done)
    }
}

/// Puts bytes under a name in one step, durably.
fn replace(root: &Path, unfinished: &Path, path: &Path, bytes: &[u8]) -> Result<(), BackendError> {
    let parent = path.parent().unwrap_or(root);
    let written = || {
        create_folders(root, parent)?;
        let mut file = File::create(unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    written().map_err(not_done)?;
    fs::rename(unfinished, path).map_err(not_done)?;
    // After the rename the new bytes may be there for good, whatever the sync says.
    sync_folder(parent).map_err(|error| BackendError::Unknown(error.into()))
}

/// Creates a folder and those above it, up to the root, and makes their names durable.
fn create_folders(root: &Path, folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent()
        && folder != root
    {
        create_folders(root, parent)?;
    }
    let created = if folder == root {
        fs::create_dir_all(folder)
    } else {
        fs::create_dir(folder)
    };
    match created {
        // Another came first. It may not have synced it yet, so this one does too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => Ok(()),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn read(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the names in a folder that `wanted` says yes to, in order; none if there is no folder.
fn entries(folder: &Path, wanted: impl Fn(&fs::FileType) -> bool) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if wanted(&entry.file_type()?) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Runs what waits for a disk on a thread for that. It runs to its end even if the caller goes away.
async fn blocking<T: Send + 'static, E: From<StoppedRuntime> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_stopped) => Err(StoppedRuntime.into()),
    }
}

/// The runtime was stopped before the work was done: it may have been begun.
#[derive(Debug, thiserror::Error)]
#[error("the runtime has stopped")]
struct StoppedRuntime;

impl From<StoppedRuntime> for io::Error {
    fn from(stopped: StoppedRuntime) -> Self {
        Self::other(stopped)
    }
}

impl From<StoppedRuntime> for BackendError {
    fn from(stopped: StoppedRuntime) -> Self {
        Self::Unknown(stopped.into())
    }
}

fn not_done(error: io::Error) -> BackendError {
    BackendError::NotDone(error.into())
}
