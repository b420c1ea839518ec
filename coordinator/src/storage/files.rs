//! Snapshot files: written once, made durable, renamed into place, read, removed.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use super::StorageError;

/// A file being written.
pub trait FileWriter: Write + Send {
    /// Makes everything written so far durable.
    ///
    /// # Errors
    ///
    /// What the operating system says; the file must then not be used.
    fn sync(&mut self) -> io::Result<()>;
}

/// A flat set of files. A file's content does not change once [`rename`](Files::rename) gave it its
/// final name.
pub trait Files: Send + Sync {
    /// Creates an empty file, replacing one of that name.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it could not be created.
    fn create(&self, name: &str) -> Result<Box<dyn FileWriter>, StorageError>;

    /// Opens a file for reading from its start. It stays readable after it was removed.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it does not exist or could not be opened.
    fn open(&self, name: &str) -> Result<Box<dyn Read + Send>, StorageError>;

    /// Renames a file durably, replacing one of the new name.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the name may not survive a crash.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;

    /// Removes a file; a missing one is no error.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it is still there.
    fn remove(&self, name: &str) -> Result<(), StorageError>;

    /// Returns the names of all files, ascending.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if they could not be listed.
    fn list(&self) -> Result<Vec<String>, StorageError>;
}

/// Files in a folder on disk.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, creating it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if it could not be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(|source| StorageError::Io {
            operation: "create a folder",
            source,
        })?;
        Ok(Self { path })
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), StorageError> {
    fs::File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| StorageError::Io {
            operation: "sync a folder",
            source,
        })
}

impl FileWriter for fs::File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Files for Folder {
    fn create(&self, name: &str) -> Result<Box<dyn FileWriter>, StorageError> {
        let file = fs::File::create(self.path.join(name)).map_err(|source| StorageError::Io {
            operation: "create a file",
            source,
        })?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + Send>, StorageError> {
        let file = fs::File::open(self.path.join(name)).map_err(|source| StorageError::Io {
            operation: "open a file",
            source,
        })?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        fs::rename(self.path.join(from), self.path.join(to)).map_err(|source| {
            StorageError::Io {
                operation: "rename a file",
                source,
            }
        })?;
        sync_folder(&self.path)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StorageError::Io {
                operation: "remove a file",
                source: error,
            }),
            _ => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<String>, StorageError> {
        let listing = |source| StorageError::Io {
            operation: "list a folder",
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name();
            if let Some(name) = name.to_str() {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

type Contents = Arc<Mutex<Vec<u8>>>;

/// Files in memory, for simulations.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: Arc<Mutex<BTreeMap<String, Contents>>>,
}

impl MemoryFiles {
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<String, Contents>) -> R) -> R {
        f(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn missing(operation: &'static str) -> StorageError {
        StorageError::Io {
            operation,
            source: io::ErrorKind::NotFound.into(),
        }
    }
}

struct MemoryWriter(Contents);

impl Write for MemoryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileWriter for MemoryWriter {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for MemoryFiles {
    fn create(&self, name: &str) -> Result<Box<dyn FileWriter>, StorageError> {
        let contents = Contents::default();
        self.with(|files| files.insert(name.to_owned(), Arc::clone(&contents)));
        Ok(Box::new(MemoryWriter(contents)))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + Send>, StorageError> {
        let contents = self
            .with(|files| files.get(name).map(Arc::clone))
            .ok_or_else(|| Self::missing("open a file"))?;
        let bytes = contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.with(|files| {
            let contents = files
                .remove(from)
                .ok_or_else(|| Self::missing("rename a file"))?;
            files.insert(to.to_owned(), contents);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.with(|files| files.remove(name));
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, StorageError> {
        Ok(self.with(|files| files.keys().cloned().collect()))
    }
}
