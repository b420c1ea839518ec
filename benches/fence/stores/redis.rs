//! In Redis, with every write synced. Unfenced: `SET`, over as many shared connections.

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use store_tests::redis::Redis;
use tenure_fence::{RedisStore, RedisStoreOptions};

use super::{Opened, name};

struct Plain {
    connections: Vec<MultiplexedConnection>,
    names: Vec<String>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let mut connection = self.connections[writer % self.connections.len()].clone();
        let mut set = redis::cmd("SET");
        set.arg(self.names[writer].as_str()).arg(value.as_ref());
        set.query_async::<()>(&mut connection).await?;
        Ok(())
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let server = Redis::start().await?;
    let client = Client::open(server.url())?;
    let options = RedisStoreOptions::default();
    let mut connections = Vec::new();
    for _ in 0..options.connections {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connections.push(connection.await?);
    }
    let plain = Plain {
        connections,
        names: (0..writers).map(name).collect(),
    };
    let store = RedisStore::open(&server.url(), options).await?;
    Opened::new(plain, store, writers, server).await
}
