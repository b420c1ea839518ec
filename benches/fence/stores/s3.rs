//! In a bucket of S3. Unfenced: a put of the object, through the same library and client.

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use store_tests::seaweedfs::Seaweedfs;
use store_tests::server::Server;
use tenure_fence::object_store::builders::aws::{AmazonS3, AmazonS3Builder};
use tenure_fence::object_store::builders::path::Path;
use tenure_fence::object_store::builders::{ObjectStoreExt as _, PutPayload};
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};

use super::{Opened, name};
use crate::s3::Connector;

struct Plain {
    bucket: AmazonS3,
    names: Vec<Path>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let put = self
            .bucket
            .put(&self.names[writer], PutPayload::from(value));
        put.await?;
        Ok(())
    }
}

fn builder(server: &Server<Seaweedfs>) -> AmazonS3Builder {
    let (id, secret) = server.access_key();
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(server.bucket())
        .with_access_key_id(id)
        .with_secret_access_key(secret)
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let server = Seaweedfs::start().await?;
    let plain = Plain {
        bucket: builder(&server).with_http_connector(Connector).build()?,
        names: (0..writers).map(|writer| name(writer).into()).collect(),
    };
    let bucket = Bucket::s3(builder(&server))?;
    let store = ObjectStore::open(bucket, ObjectStoreOptions::default()).await?;
    Opened::new(plain, store, writers, server).await
}
