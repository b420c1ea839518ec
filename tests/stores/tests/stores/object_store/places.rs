//! The buckets that the tests use, and what they have in common.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use store_tests::server::{Crash, Server};
use tempfile::TempDir;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::object_store::builders::aws::AmazonS3Builder;
use tenure_fence::object_store::builders::azure::MicrosoftAzureBuilder;
use tenure_fence::object_store::builders::gcp::GoogleCloudStorageBuilder;
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Fence, FencingToken, Resource, Write,
};

use crate::case::Place;

/// Where a bucket is.
pub(super) trait Bucketed: Crash {
    /// The bucket, as if `address` were its server's; `None` for its own.
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure>;

    fn bucket(&self) -> Result<Bucket, Failure> {
        self.bucket_at(None)
    }

    /// Whether what was acknowledged is there after a kill.
    fn outlives_a_kill(&self) -> bool {
        true
    }
}

/// The options of all tests but those of the probe: small limits, so that values of all kinds are within
/// the kit's reach, and no longer races than there must be.
pub(super) fn options() -> ObjectStoreOptions {
    ObjectStoreOptions {
        max_value_bytes: 1024 * 1024,
        part_bytes: 100_000,
        race_time: Duration::ZERO,
        ..ObjectStoreOptions::default()
    }
}

pub(super) async fn open(place: &dyn Bucketed) -> Result<ObjectStore, Failure> {
    Ok(ObjectStore::open(place.bucket()?, options()).await?)
}

/// S3, as the address and the keys of a server.
pub(super) fn s3(endpoint: String, bucket: &str, key: (&str, &str)) -> Result<Bucket, Failure> {
    let builder = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(bucket)
        .with_access_key_id(key.0)
        .with_secret_access_key(key.1);
    Ok(Bucket::s3(builder)?)
}

pub(super) fn gcs(endpoint: &str, bucket: &str) -> Result<Bucket, Failure> {
    let builder = GoogleCloudStorageBuilder::new()
        .with_base_url(endpoint)
        .with_bucket_name(bucket)
        .with_skip_signature(true);
    Ok(Bucket::gcs(builder)?)
}

fn url(address: Option<SocketAddr>, own: SocketAddr) -> String {
    format!("http://{}", address.unwrap_or(own))
}

impl Bucketed for Server<Seaweedfs> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        let url = url(address, self.address());
        s3(url, Self::bucket(self), self.access_key())
    }
}

impl Bucketed for Server<Moto> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        let url = url(address, self.address());
        s3(url, Self::bucket(self), ("any", "thing"))
    }

    // It keeps everything in memory.
    fn outlives_a_kill(&self) -> bool {
        false
    }
}

impl Bucketed for Server<Azurite> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        let (account, key) = self.account_key();
        let url = url(address, self.address());
        let builder = MicrosoftAzureBuilder::new()
            .with_endpoint(format!("{url}/{account}"))
            .with_allow_http(true)
            .with_account(account)
            .with_access_key(key)
            .with_container_name(self.container());
        Ok(Bucket::azure(builder)?)
    }

    // It keeps an index in memory, and writes it out now and then.
    fn outlives_a_kill(&self) -> bool {
        false
    }
}

impl Bucketed for Server<FakeGcs> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        gcs(&url(address, self.address()), Self::bucket(self))
    }
}

/// A folder that is removed with the test.
pub(super) struct TestFolder(TempDir);

impl TestFolder {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("bucket")
    }
}

// It is no process.
impl Crash for TestFolder {}

impl Bucketed for TestFolder {
    fn bucket_at(&self, _address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        Ok(Bucket::folder(self.path()))
    }
}

/// A bucket, and how many handles of the store take turns in it: with several, each call goes to the
/// next, and what one of them remembers is always old.
pub(super) struct InBucket<B> {
    pub(super) bucket: B,
    pub(super) handles: usize,
}

#[async_trait]
impl<B: Bucketed> Place for InBucket<B> {
    type Store = InTurn;

    async fn open(&self) -> Result<InTurn, CheckpointError> {
        let mut stores = Vec::new();
        for _ in 0..self.handles {
            let bucket = self.bucket.bucket().map_err(|failure| {
                let source = failure.to_string().into();
                CheckpointError::Unavailable { source }
            })?;
            stores.push(ObjectStore::open(bucket, options()).await?);
        }
        let next = AtomicUsize::new(0);
        Ok(InTurn { stores, next })
    }
}

#[async_trait]
impl<B: Bucketed> Crash for InBucket<B> {
    async fn kill(&mut self) -> Result<(), Failure> {
        if self.bucket.outlives_a_kill() {
            self.bucket.kill().await?;
        }
        Ok(())
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        if self.bucket.outlives_a_kill() {
            self.bucket.restart().await?;
        }
        Ok(())
    }
}

/// Handles of one store that take turns, as processes that share it would.
pub(super) struct InTurn {
    stores: Vec<ObjectStore>,
    next: AtomicUsize,
}

impl InTurn {
    fn next(&self) -> &ObjectStore {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.stores[turn % self.stores.len()]
    }
}

#[async_trait]
impl CheckpointStore for InTurn {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        self.next().seal(token).await
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        self.next().seal_many(tokens).await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        self.next().write(token, write).await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        self.next().read(resource).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        self.next().fence(resource).await
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        self.next().delete(token, deletion).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.next().probe().await
    }

    fn max_value_bytes(&self) -> usize {
        self.next().max_value_bytes()
    }
}

/// Tenures of one resource.
pub(super) struct Tenures {
    grants: LocalGrants,
    resource: Resource,
}

impl Tenures {
    pub(super) fn new() -> Self {
        let mut grants = LocalGrants::new();
        let resource = grants.fresh_resource();
        Self { grants, resource }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn next(&mut self) -> FencingToken {
        self.grants.next_tenure(&self.resource, Holder::New)
    }
}
