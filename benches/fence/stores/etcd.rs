//! In etcd, three members. Unfenced: `put`, sent to the same member over one connection, as the store does.

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use store_tests::etcd::EtcdCluster;
use tenure_fence::{EtcdStore, EtcdStoreOptions};

use super::{Opened, name};
use crate::etcd::Client;

struct Plain {
    client: Client,
    names: Vec<Bytes>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        self.client.put(self.names[writer].clone(), value).await
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let cluster = EtcdCluster::start().await?;
    let endpoints = cluster.endpoints();
    let first = endpoints.first();
    let plain = Plain {
        client: Client::new(first.ok_or_else(|| Failure::new("no member"))?)?,
        names: (0..writers).map(|writer| name(writer).into()).collect(),
    };
    let store = EtcdStore::open(&endpoints, EtcdStoreOptions::default()).await?;
    Opened::new(plain, store, writers, cluster).await
}
