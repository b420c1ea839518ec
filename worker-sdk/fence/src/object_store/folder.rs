//! A folder of the local file system as a bucket.
//!
//! What a conditional put needs, a file system has in pieces: a lock that ends with its process
//! (`flock`), a rename that replaces a file in one step, and `fsync` of the file and of the folder
//! that names it. Put together in this order they are atomic between processes and durable.
//!
//! A name can be seen before it is durable: its process may have crashed, or failed, between the
//! rename and the sync. So whoever reads an object syncs the folder that names it before it relies on
//! what it has read; and whoever uses a folder that another has made syncs its name once.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::backend::{Backend, BackendError, Object, Version};

/// A folder of the local file system.
#[derive(Clone)]
pub(super) struct Folder {
    root: PathBuf,
    /// Folders below the root, and the root, whose names this process has synced.
    durable: Arc<Mutex<HashSet<PathBuf>>>,
    sync: Arc<SyncFolder>,
}

/// Makes the names in a folder durable.
type SyncFolder = dyn Fn(&Path) -> io::Result<()> + Send + Sync;

/// How many folders are remembered to be durable. Beyond it they are synced once more.
const DURABLE_MAX: usize = 65_536;

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
        Self {
            root,
            durable: Arc::default(),
            sync: Arc::new(sync_folder),
        }
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
                self.create(&self.root.join(LOCKS))?;
                options.open(path)
            }
            opened => opened,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Reads a file, and makes sure that a crash does not take it away again.
    fn read_durable(&self, path: &Path) -> io::Result<Option<Bytes>> {
        let bytes = read(path)?;
        if bytes.is_some() {
            // After the read: what was renamed before it is synced by this, whoever renamed it.
            (self.sync)(path.parent().unwrap_or(&self.root))?;
        }
        Ok(bytes)
    }

    /// Puts bytes under a name in one step, durably.
    fn replace(&self, unfinished: &Path, path: &Path, bytes: &[u8]) -> Result<(), BackendError> {
        let parent = path.parent().unwrap_or(&self.root);
        let written = || {
            self.create(parent)?;
            let mut file = File::create(unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        written().map_err(not_done)?;
        fs::rename(unfinished, path).map_err(not_done)?;
        // After the rename the new bytes may be there for good, whatever the sync says.
        (self.sync)(parent).map_err(|error| BackendError::Unknown(error.into()))
    }

    /// Creates a folder and those above it, and makes their names durable.
    fn create(&self, folder: &Path) -> io::Result<()> {
        let is_there = folder.is_dir();
        if is_there && (!folder.starts_with(&self.root) || self.durable().contains(folder)) {
            // What is there above the root is not made by this, and not this one's to sync.
            return Ok(());
        }
        let parent = match folder.parent() {
            None => return Ok(()),
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        self.create(parent)?;
        match fs::create_dir(folder) {
            // By another process, perhaps a moment ago: it may not have synced it yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created?,
        }
        match (self.sync)(parent) {
            // The root is in a folder that only its owner may read. Then it is the owner who has
            // made the root, and not another process like this one.
            Err(error) if is_there && error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
        let mut durable = self.durable();
        if durable.len() >= DURABLE_MAX {
            durable.clear();
        }
        durable.insert(folder.to_owned());
        Ok(())
    }

    fn durable(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Folder({})", self.root.display())
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
        let (folder, path) = (self.clone(), self.path(name));
        let bytes = blocking(move || folder.read_durable(&path)).await;
        let bytes = bytes.map_err(not_done)?;
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
        let (folder, path) = (self.clone(), self.path(name));
        let (condition, new) = (condition.cloned(), bytes.clone());
        let replaced = blocking(move || {
            let current = read(&path).map_err(not_done)?.map(Version);
            if current != condition {
                return Err(BackendError::Refused("the object is another".into()));
            }
            // From here on the lock is dropped only after the rename: also when the caller has gone.
            folder.replace(&locked.unfinished(), &path, &new)
        });
        replaced.await?;
        Ok(Version(bytes))
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError> {
        let (folder, path) = (self.clone(), self.path(name));
        let locked = self.lock(Kind::Plain, name).await?;
        blocking(move || folder.replace(&locked.unfinished(), &path, &bytes)).await
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::error::CheckpointError;
    use crate::object_store::{Bucket, ObjectStore, ObjectStoreOptions};
    use crate::store::CheckpointStore;
    use crate::token::FencingToken;

    /// A folder whose names become durable only while `is_well`.
    fn ailing(root: &Path) -> (Folder, Arc<AtomicBool>) {
        let is_well = Arc::new(AtomicBool::new(true));
        let mut folder = Folder::new(root.to_owned());
        folder.sync = Arc::new({
            let is_well = Arc::clone(&is_well);
            move |folder: &Path| {
                if is_well.load(Ordering::Relaxed) {
                    return sync_folder(folder);
                }
                Err(io::Error::other("the disk is ill"))
            }
        });
        (folder, is_well)
    }

    #[tokio::test]
    async fn a_name_that_may_not_be_durable_is_not_relied_on() {
        let root = tempfile::tempdir().unwrap();
        let (folder, is_well) = ailing(&root.path().join("bucket"));
        let first = folder.put_if("a/b", "first".into(), None).await.unwrap();
        is_well.store(false, Ordering::Relaxed);
        let put = folder.put_if("a/b", "second".into(), Some(&first)).await;
        assert!(matches!(put, Err(BackendError::Unknown(_))), "{put:?}");
        // It can be seen, but a crash may take it away again.
        let seen = fs::read(folder.path("a/b")).unwrap();
        assert_eq!(seen, b"second");
        assert!(folder.get("a/b").await.is_err());
        is_well.store(true, Ordering::Relaxed);
        let found = folder.get("a/b").await.unwrap().unwrap();
        assert_eq!(found.bytes, "second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_seal_is_acknowledged_only_when_a_crash_cannot_undo_it() {
        let root = tempfile::tempdir().unwrap();
        let (folder, is_well) = ailing(&root.path().join("bucket"));
        let other = Bucket::folder(folder.root.clone());
        let bucket = Bucket {
            backend: Arc::new(folder),
        };
        let options = ObjectStoreOptions::default;
        let store = ObjectStore::open(bucket, options()).await.unwrap();
        let token = |epoch: u64| -> FencingToken {
            format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
                .parse()
                .unwrap()
        };
        store.seal(&token(7)).await.unwrap();
        is_well.store(false, Ordering::Relaxed);
        // The first has put its manifest in place, the second finds it there.
        for _ in 0..2 {
            let sealed = store.seal(&token(8)).await;
            assert!(
                matches!(sealed, Err(ref error) if error.is_retryable()),
                "{sealed:?}"
            );
        }
        // By another process that can sync it is acknowledged.
        let other = ObjectStore::open(other, options()).await.unwrap();
        assert_eq!(other.seal(&token(8)).await.unwrap(), None);
        is_well.store(true, Ordering::Relaxed);
        assert_eq!(store.seal(&token(8)).await.unwrap(), None);
        let stale = store.seal(&token(7)).await;
        assert!(matches!(stale, Err(CheckpointError::Fenced { .. })));
    }

    #[tokio::test]
    async fn a_folder_that_another_process_has_made_is_synced_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("deep/bucket");
        let other = Folder::new(root.clone());
        other.put("a/b/first", "1".into()).await.unwrap();

        let synced: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
        let mut folder = Folder::new(root.clone());
        folder.sync = Arc::new({
            let synced = Arc::clone(&synced);
            move |folder: &Path| {
                synced.lock().unwrap().push(folder.to_owned());
                sync_folder(folder)
            }
        });
        folder.put("a/b/second", "2".into()).await.unwrap();
        let parent = root.parent().unwrap().to_owned();
        // Each name on the way in the folder that holds it, and last the object's own.
        let names = vec![parent, root.clone(), root.join("a"), root.join("a/b")];
        assert_eq!(std::mem::take(&mut *synced.lock().unwrap()), names);
        folder.put("a/b/third", "3".into()).await.unwrap();
        assert_eq!(*synced.lock().unwrap(), [root.join("a/b")]);
    }
}
