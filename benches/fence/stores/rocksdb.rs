//! In RocksDB. Unfenced: one synced put, in a database of the same settings on the same disk.

use std::sync::Arc;

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use rocksdb::{DB, DBCompressionType, Options, WriteOptions};
use tenure_fence::{RocksStore, RocksStoreOptions};

use super::{Opened, name};

struct Plain {
    database: Arc<DB>,
    names: Vec<String>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let (database, name) = (Arc::clone(&self.database), self.names[writer].clone());
        // As everything that waits for a disk.
        let put = tokio::task::spawn_blocking(move || {
            let mut synced = WriteOptions::default();
            synced.set_sync(true);
            database.put_opt(name, value, &synced)
        });
        Ok(put.await??)
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let folder = tempfile::tempdir()?;
    let options = RocksStoreOptions::default();
    let mut plain = Options::default();
    plain.create_if_missing(true);
    plain.set_compression_type(DBCompressionType::Lz4);
    plain.set_write_buffer_size(options.write_buffer_bytes);
    plain.set_max_open_files(512);
    let plain = Plain {
        database: Arc::new(DB::open(&plain, folder.path().join("plain"))?),
        names: (0..writers).map(name).collect(),
    };
    let store = RocksStore::open(folder.path().join("fenced"), options).await?;
    Opened::new(plain, store, writers, folder).await
}
