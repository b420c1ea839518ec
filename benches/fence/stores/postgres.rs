//! In PostgreSQL. Unfenced: one prepared statement that inserts or replaces, in its own transaction.

use std::str::FromStr as _;

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use store_tests::postgres::Postgres;
use tenure_fence::{PostgresStore, SqlOptions};

use super::connections::Connections;
use super::{Opened, name};

const PUT: &str = "INSERT INTO plain (name, data) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET data = excluded.data";

struct Plain {
    connections: Connections<PgConnection>,
    names: Vec<String>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let (mut connection, _slot) = self.connections.take().await?;
        sqlx::query(PUT)
            .bind(self.names[writer].as_str())
            .bind(value.as_ref())
            .execute(&mut connection)
            .await?;
        self.connections.give_back(connection);
        Ok(())
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let server = Postgres::start().await?;
    let connect = PgConnectOptions::from_str(&server.url())?;
    let options = SqlOptions::default();
    let mut connections = Vec::new();
    for _ in 0..options.connections_max {
        connections.push(connect.connect().await?);
    }
    if let Some(connection) = connections.first_mut() {
        sqlx::query("CREATE TABLE plain (name text PRIMARY KEY, data bytea NOT NULL)")
            .execute(connection)
            .await?;
    }
    let plain = Plain {
        connections: Connections::new(connections),
        names: (0..writers).map(name).collect(),
    };
    let store = PostgresStore::open(connect, options).await?;
    Opened::new(plain, store, writers, server).await
}
