//! Where the objects are.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ::object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use ::object_store::azure::MicrosoftAzureBuilder;
use ::object_store::gcp::GoogleCloudStorageBuilder;

use super::backend::Backend;
use super::bucket_error::BucketError;
use super::folder::Folder;
use super::gcs::Gcs;
use super::http::Connector;
use super::remote::{Remote, no_retry};

/// A bucket, container or folder, as one address shows it.
///
/// Made from the builders of the crate `object_store`, which is exported as
/// [`builders`](super::builders): they know the ways in which credentials are found. Of the builder's
/// client options only `allow_http` is used; how often a request is repeated, and what for, is decided
/// here.
#[derive(Clone)]
pub struct Bucket {
    pub(super) backend: Arc<dyn Backend>,
}

impl Bucket {
    /// A bucket of S3, or of a server with its interface.
    ///
    /// # Errors
    ///
    /// [`BucketError`] when the builder is incomplete or contradicts itself.
    pub fn s3(builder: AmazonS3Builder) -> Result<Self, BucketError> {
        let store = builder
            .with_http_connector(Connector)
            .with_retry(no_retry())
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // One object, one request: not every server has the request for many.
            .with_disable_bulk_delete(true)
            .build();
        let store = store.map_err(|error| BucketError::new(error.into()))?;
        Ok(Self::new(Remote::new(store)))
    }

    /// A container of Azure Blob Storage.
    ///
    /// # Errors
    ///
    /// [`BucketError`] when the builder is incomplete or contradicts itself.
    pub fn azure(builder: MicrosoftAzureBuilder) -> Result<Self, BucketError> {
        let store = builder
            .with_http_connector(Connector)
            .with_retry(no_retry())
            .build();
        let store = store.map_err(|error| BucketError::new(error.into()))?;
        Ok(Self::new(Remote::new(store)))
    }

    /// A bucket of Google Cloud Storage.
    ///
    /// # Errors
    ///
    /// [`BucketError`] when the builder is incomplete or contradicts itself.
    pub fn gcs(builder: GoogleCloudStorageBuilder) -> Result<Self, BucketError> {
        Ok(Self::new(Gcs::new(builder)?))
    }

    /// A folder of this machine, created when it is first written to. Many processes may share it.
    ///
    /// Of a local file system only: on a network file system neither the lock nor the rename can be
    /// relied on, and nothing here can find out.
    #[must_use]
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self::new(Folder::new(path.into()))
    }

    fn new(backend: impl Backend + 'static) -> Self {
        Self {
            backend: Arc::new(backend),
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(formatter)
    }
}
