//! Every store adapter against the real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

mod case;
mod dynamodb;
mod etcd;
mod lost_answers;
mod mysql;
mod object_store;
mod postgres;
mod redis;
mod rocksdb;
mod servers;
mod sink;
mod sql;
mod sqlite;
