//! In a folder. Unfenced: the file replaced durably in one step: written beside it, synced, renamed, and
//! the folder synced.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};

use super::Opened;

/// The folder of the values, and one beside it for what is not finished.
struct Plain {
    values: PathBuf,
    unfinished: PathBuf,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let unfinished = self.unfinished.join(writer.to_string());
        let values = self.values.clone();
        let replaced = tokio::task::spawn_blocking(move || {
            replace(&unfinished, &values, &writer.to_string(), &value)
        });
        Ok(replaced.await??)
    }
}

fn replace(unfinished: &Path, folder: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let mut file = File::create(unfinished)?;
    file.write_all(value)?;
    file.sync_all()?;
    fs::rename(unfinished, folder.join(name))?;
    File::open(folder)?.sync_all()
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let folder = tempfile::tempdir()?;
    let plain = Plain {
        values: folder.path().join("plain"),
        unfinished: folder.path().join("unfinished"),
    };
    fs::create_dir(&plain.values)?;
    fs::create_dir(&plain.unfinished)?;
    let bucket = Bucket::folder(folder.path().join("fenced"));
    let store = ObjectStore::open(bucket, ObjectStoreOptions::default()).await?;
    Opened::new(plain, store, writers, folder).await
}
