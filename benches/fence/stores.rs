//! The stores that are measured, and the plainest write to each.
//!
//! Both sides of a store write values of one size to the same server, or on the same disk, as durably,
//! through the same client library and as many connections.

mod connections;
mod dynamodb;
mod etcd;
mod folder;
mod mariadb;
mod memory;
mod postgres;
mod redis;
mod rocksdb;
mod s3;
mod sqlite;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use benches::rounds::Writes;
use cluster_tests::failure::Failure;
use tenure_fence::CheckpointStore;

use crate::fenced::Fenced;
use crate::subject::Subject;

pub(crate) use memory::Plain as PlainMemory;

/// A store that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Rocksdb,
    Sqlite,
    Postgres,
    Mariadb,
    Redis,
    Etcd,
    S3,
    Folder,
    Dynamodb,
}

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) unfenced: Arc<dyn Writes>,
    pub(crate) fenced: Arc<dyn Writes>,
    /// The server or folder that both use, for as long as they are used.
    pub(crate) ground: Box<dyn Any + Send>,
}

impl Store {
    pub(crate) const ALL: [Self; 10] = [
        Self::Memory,
        Self::Rocksdb,
        Self::Sqlite,
        Self::Postgres,
        Self::Mariadb,
        Self::Redis,
        Self::Etcd,
        Self::S3,
        Self::Folder,
        Self::Dynamodb,
    ];

    pub(crate) fn subject(self) -> Subject {
        match self {
            Self::Memory => Subject::Memory,
            Self::Rocksdb => Subject::Rocksdb,
            Self::Sqlite => Subject::Sqlite,
            Self::Postgres => Subject::Postgres,
            Self::Mariadb => Subject::Mariadb,
            Self::Redis => Subject::Redis,
            Self::Etcd => Subject::Etcd,
            Self::S3 => Subject::S3,
            Self::Folder => Subject::Folder,
            Self::Dynamodb => Subject::Dynamodb,
        }
    }

    /// What the time of a fenced write should be at most, as a multiple of that of an unfenced one.
    /// `None` where the time says nothing.
    pub(crate) fn target(self) -> Option<f64> {
        match self {
            // Too short for a clock: its instructions are counted.
            Self::Memory => None,
            Self::Rocksdb => Some(1.10),
            Self::Sqlite | Self::Postgres | Self::Mariadb => Some(1.15),
            Self::S3 | Self::Folder => Some(1.25),
            // Reading and comparing costs the server something of its own there.
            Self::Redis | Self::Etcd => Some(1.50),
            // What is measured is how fast the emulator interprets expressions.
            Self::Dynamodb => None,
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::Rocksdb => "RocksDB",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Redis => "Redis",
            Self::Etcd => "etcd, three members",
            Self::S3 => "S3 (SeaweedFS)",
            Self::Folder => "folder",
            Self::Dynamodb => "DynamoDB (dynalite)",
        })
    }
}

/// Starts what a store needs, opens it, and seals a resource for each writer.
pub(crate) async fn open(store: Store, writers: usize) -> Result<Opened, Failure> {
    match store {
        Store::Memory => memory::open(writers).await,
        Store::Rocksdb => rocksdb::open(writers).await,
        Store::Sqlite => sqlite::open(writers).await,
        Store::Postgres => postgres::open(writers).await,
        Store::Mariadb => mariadb::open(writers).await,
        Store::Redis => redis::open(writers).await,
        Store::Etcd => etcd::open(writers).await,
        Store::S3 => s3::open(writers).await,
        Store::Folder => folder::open(writers).await,
        Store::Dynamodb => dynamodb::open(writers).await,
    }
}

impl Opened {
    async fn new(
        unfenced: impl Writes + 'static,
        store: impl CheckpointStore + 'static,
        writers: usize,
        ground: impl Any + Send,
    ) -> Result<Self, Failure> {
        Ok(Self {
            unfenced: Arc::new(unfenced),
            fenced: Arc::new(Fenced::seal(store, writers).await?),
            ground: Box::new(ground),
        })
    }
}

/// The name that a writer writes to without a fence: as long as that of a resource.
fn name(writer: usize) -> String {
    format!("plain/bench/{writer}")
}
