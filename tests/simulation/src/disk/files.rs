//! Files of a simulated disk: what is written to one is lost in a crash unless the file was synced.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_coordinator::storage::{FileWriter, Files, StorageError};

use crate::dice::Dice;

/// Files. Clones are the same files.
#[derive(Clone, Debug, Default)]
pub struct DiskFiles {
    files: Arc<Mutex<BTreeMap<String, Contents>>>,
}

type Contents = Arc<Mutex<File>>;

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// How many of them are durable.
    synced: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn missing(operation: &'static str) -> StorageError {
    StorageError::Io {
        operation,
        source: io::ErrorKind::NotFound.into(),
    }
}

impl DiskFiles {
    /// Tears every file that was not synced: some prefix is left of it, or nothing.
    pub(super) fn crash(&self, dice: &mut Dice) {
        lock(&self.files).retain(|_, contents| {
            let mut file = lock(contents);
            let unsynced = file.bytes.len() - file.synced;
            if unsynced > 0 {
                let left = file.synced + dice.below(unsynced + 1);
                file.bytes.truncate(left);
                file.synced = left;
            }
            !file.bytes.is_empty()
        });
    }
}

struct Writer(Contents);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileWriter for Writer {
    fn sync(&mut self) -> io::Result<()> {
        let mut file = lock(&self.0);
        file.synced = file.bytes.len();
        Ok(())
    }
}

impl Files for DiskFiles {
    fn create(&self, name: &str) -> Result<Box<dyn FileWriter>, StorageError> {
        let contents = Contents::default();
        lock(&self.files).insert(name.to_owned(), Arc::clone(&contents));
        Ok(Box::new(Writer(contents)))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + Send>, StorageError> {
        let files = lock(&self.files);
        let contents = files.get(name).ok_or_else(|| missing("open a file"))?;
        let bytes = lock(contents).bytes.clone();
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let mut files = lock(&self.files);
        let contents = files.remove(from).ok_or_else(|| missing("rename a file"))?;
        files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        lock(&self.files).remove(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, StorageError> {
        Ok(lock(&self.files).keys().cloned().collect())
    }
}
