//! Fencing tokens, the one rule that admits a write, and the contract of fenced checkpoint stores.
//!
//! A worker that was paused, cut off or replaced may still believe that it owns a shard. Nothing
//! can stop it from believing; what can be stopped is its writes. Every grant of a shard carries a
//! number that only rises, its [`Epoch`]; every write carries that number; and a store refuses a
//! write whose number is below the highest it has been *sealed* with. This crate is that check,
//! and nothing else: it knows no coordinator, and a storage team can use it without the rest.
//!
//! # Seal, read, write
//!
//! ```text
//!   old owner, epoch 7            store                     new owner, epoch 8
//!                          fence 7, checkpoint 480
//!   write 490 at 7 ───────▶ accepted
//!                          fence 8 ◀──────────────────────── 1. seal at 8
//!                          checkpoint 490 ─────────────────▶ 2. read (the answer of the seal)
//!   write 500 at 7 ───────▶ Fenced { presented: 7, current: 8 }
//!                          accepted ◀─────────────────────── 3. write 495 at 8
//! ```
//!
//! The order is the whole point. The new owner first raises the fence, then reads, then writes.
//! After the fence is up nothing of the old owner can land, so what the new owner reads is the last
//! write there will ever be from before. An owner that reads first and raises the fence second
//! (or with its first write, as the familiar SQL form `WHERE fence <= :token` does) loses whatever
//! the old owner wrote in between, and was told had been stored.
//!
//! # What is here
//!
//! * The words: [`Epoch`], [`Resource`], [`Owner`], [`FencingToken`], [`Sequence`], [`WriteId`].
//! * The rule: [`admit_seal`], [`admit_write`] and [`admit_sequence`]. Every store uses these three
//!   functions or is checked against them; there is no second place where admission is decided.
//! * The contract: [`CheckpointStore`], and [`CheckpointError`], whose variants say what to do next.
//! * Feature `memory`: a store in memory, for tests and demonstrations.
//! * Feature `rocksdb`: `RocksStore`, a database of this process: the default for one machine.
//! * Feature `redis`: `RedisStore`, a Redis server.
//! * Feature `etcd`: `EtcdStore`, an etcd cluster.
//! * Feature `dynamodb`: a store in Amazon DynamoDB.
//! * Features `postgres`, `mysql`, `sqlite`: stores in SQL databases, and the user's own transactions
//!   with the fence checked in them.
//! * Feature `object-store`: S3, Azure Blob Storage, Google Cloud Storage, a local folder.
//! * Feature `kit`: the conformance kit that every adapter runs.
//!
//! # Invariants
//!
//! 1. A fence never falls, whatever happens to the data it guards.
//! 2. No write is admitted below a sealed epoch, and none above it.
//! 3. One epoch has one owner.
//! 4. Within an epoch a sequence belongs to one content for ever; a deletion is a write of nothing.

mod admission;
mod checkpoint;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod epoch;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(fuzzing, feature = "object-store", feature = "etcd"))]
pub mod fuzzing;
#[cfg(feature = "kit")]
pub mod kit;
#[cfg(any(feature = "etcd", feature = "redis", feature = "rocksdb"))]
mod layout;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
mod name;
#[cfg(feature = "object-store")]
pub mod object_store;
mod owner;
mod parse;
#[cfg(any(feature = "etcd", feature = "rocksdb"))]
mod parts;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(
    feature = "etcd",
    feature = "memory",
    feature = "object-store",
    feature = "redis",
    feature = "rocksdb"
))]
#[allow(dead_code, reason = "each of these stores decides with its part of it")]
mod record;
#[cfg(feature = "redis")]
mod redis;
mod resource;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sequence;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod store;
mod superseded;
mod token;

pub use admission::{
    Fence, Refusal, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
pub use checkpoint::{Checkpoint, Deletion, Write};
#[cfg(feature = "dynamodb")]
pub use dynamodb::{DynamodbOptions, DynamodbStore};
pub use epoch::{Epoch, EpochOutOfRange};
pub use error::{CheckpointError, StoreError};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdIdentity, EtcdStore, EtcdStoreOptions, EtcdTls, EtcdUser};
#[cfg(feature = "memory")]
pub use memory::{MemoryStore, Refusals};
#[cfg(feature = "mysql")]
pub use mysql::MysqlStore;
pub use name::{GroupName, LeaseName, NameError, NameKind};
pub use owner::Owner;
pub use parse::ParseError;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use redis::{RedisDurability, RedisReplicas, RedisStore, RedisStoreOptions};
pub use resource::{Resource, ShardRef};
#[cfg(feature = "rocksdb")]
pub use rocksdb::{RocksStore, RocksStoreOptions};
pub use sequence::{Sequence, SequenceOutOfRange, WriteId};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use sql::{
    FencedTransaction, Isolation, LayoutError, SqlBackend, SqlName, SqlNameError, SqlOptions,
    SqlStore,
};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
/// The driver of the SQL stores, whose connections run the user's statements in a
/// [`FencedTransaction`].
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use sqlx;
pub use store::CheckpointStore;
pub use superseded::CheckSuperseded;
pub use token::FencingToken;
