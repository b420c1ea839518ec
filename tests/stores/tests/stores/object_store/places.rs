//! The buckets that the tests use, and what they have in common.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use store_tests::server::{Program, Server};
use tempfile::TempDir;
use tenure_fence::kit::{Harness, Holder, LocalGrants};
use tenure_fence::object_store::builders::aws::AmazonS3Builder;
use tenure_fence::object_store::builders::azure::MicrosoftAzureBuilder;
use tenure_fence::object_store::builders::gcp::GoogleCloudStorageBuilder;
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Fence, FencingToken, Resource, Write,
};
use tokio::runtime::Handle;
use tokio::task;

/// A bucket that a store can be opened in again and again.
pub(super) trait Place: Send + Sync {
    /// The bucket, as if `address` were its server's; `None` for its own.
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure>;

    /// Kills what keeps the bucket and starts it again, if it keeps its data by itself.
    fn crash(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn bucket(&self) -> Result<Bucket, Failure> {
        self.bucket_at(None)
    }
}

/// The options of all tests: small limits, so that values of all kinds are within the kit's reach.
pub(super) fn options() -> ObjectStoreOptions {
    ObjectStoreOptions {
        max_value_bytes: 1024 * 1024,
        part_bytes: 100_000,
        ..ObjectStoreOptions::default()
    }
}

pub(super) async fn open(place: &dyn Place) -> Result<ObjectStore, Failure> {
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

/// Kills a server and starts it again, within a call of the kit: on this thread, because the kernel ends
/// a server with the thread that has started it.
fn crash<P: Program>(server: &mut Server<P>) -> Result<(), Failure> {
    let runtime = Handle::current();
    task::block_in_place(|| runtime.block_on(server.crash()))
}

impl Place for Server<Seaweedfs> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        let url = url(address, self.address());
        s3(url, Self::bucket(self), self.access_key())
    }

    fn crash(&mut self) -> Result<(), Failure> {
        crash(self)
    }
}

impl Place for Server<Moto> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        let url = url(address, self.address());
        s3(url, Self::bucket(self), ("any", "thing"))
    }
}

impl Place for Server<Azurite> {
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
}

impl Place for Server<FakeGcs> {
    fn bucket_at(&self, address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        gcs(&url(address, self.address()), Self::bucket(self))
    }

    fn crash(&mut self) -> Result<(), Failure> {
        crash(self)
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

impl Place for TestFolder {
    fn bucket_at(&self, _address: Option<SocketAddr>) -> Result<Bucket, Failure> {
        Ok(Bucket::folder(self.path()))
    }
}

/// What the kit is given: a place, and how many handles of the store take turns.
pub(super) struct InPlace<P> {
    place: P,
    handles: usize,
    store: Arc<dyn CheckpointStore>,
    grants: LocalGrants,
}

impl<P: Place> InPlace<P> {
    /// With several handles each call goes to the next: what one of them remembers is always old.
    pub(super) async fn new(place: P, handles: usize) -> Result<Self, Failure> {
        Ok(Self {
            store: opened(&place, handles).await?,
            place,
            handles,
            grants: LocalGrants::new(),
        })
    }
}

async fn opened(place: &dyn Place, handles: usize) -> Result<Arc<dyn CheckpointStore>, Failure> {
    let mut stores = Vec::new();
    for _ in 0..handles {
        stores.push(open(place).await?);
    }
    let next = AtomicUsize::new(0);
    Ok(Arc::new(InTurn { stores, next }))
}

#[async_trait]
impl<P: Place> Harness for InPlace<P> {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.store)
    }

    async fn fresh_resource(&mut self) -> Resource {
        self.grants.fresh_resource()
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        self.grants.next_tenure(resource, holder)
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }

    async fn reopen(&mut self) {
        self.place.crash().unwrap();
        self.store = opened(&self.place, self.handles).await.unwrap();
    }
}

/// Handles of one store that take turns, as processes that share it would.
struct InTurn {
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

/// A write whose content is told by its number.
pub(super) fn write(number: u64, data: impl Into<bytes::Bytes>) -> Write {
    Write {
        sequence: tenure_fence::Sequence::new(number).unwrap(),
        write_id: tenure_fence::WriteId::new(rand::random()),
        data: data.into(),
    }
}
