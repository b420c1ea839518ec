//! What can be asked for.

use clap::ValueEnum;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
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
    /// The replicated store beside etcd and ZooKeeper.
    Replicated,
}
