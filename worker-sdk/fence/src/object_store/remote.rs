//! S3 and Azure, by the crate `object_store`.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, PutResult,
    RetryConfig, UpdateVersion,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;

use super::backend::{Backend, BackendError, Object, Version};
use super::http::StatusError;

/// A bucket behind the crate `object_store`.
pub(super) struct Remote {
    store: Arc<dyn ObjectStore>,
}

/// The crate repeats nothing: it does not know which requests may be.
pub(super) fn no_retry() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

impl Remote {
    pub(super) fn new(store: impl ObjectStore) -> Self {
        Self {
            store: Arc::new(store),
        }
    }

    async fn put_opts(
        &self,
        name: &str,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<PutResult, BackendError> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let (path, payload) = (path(name)?, PutPayload::from(bytes));
        let put = self.store.put_opts(&path, payload, options);
        put.await.map_err(failed)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store's own Debug may show its credentials.
        write!(formatter, "Remote({})", self.store)
    }
}

#[async_trait]
impl Backend for Remote {
    async fn get(&self, name: &str) -> Result<Option<Object>, BackendError> {
        let found = match self.store.get(&path(name)?).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let e_tag = found.meta.e_tag.clone();
        let bytes = found.bytes().await.map_err(failed)?;
        let version = version(e_tag)?;
        Ok(Some(Object { bytes, version }))
    }

    async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Option<&Version>,
    ) -> Result<Version, BackendError> {
        let mode = match condition {
            None => PutMode::Create,
            Some(version) => PutMode::Update(UpdateVersion {
                e_tag: Some(version.as_text().to_owned()),
                version: None,
            }),
        };
        let put = self.put_opts(name, bytes, mode).await?;
        version(put.e_tag)
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError> {
        self.put_opts(name, bytes, PutMode::Overwrite).await?;
        Ok(())
    }

    async fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, BackendError> {
        let folder = path(folder)?;
        let mut objects = match after {
            Some(after) => {
                let offset = path(&format!("{folder}/{after}"))?;
                self.store.list_with_offset(Some(&folder), &offset)
            }
            None => self.store.list(Some(&folder)),
        };
        let mut names = Vec::new();
        while names.len() < limit {
            let Some(object) = objects.try_next().await.map_err(failed)? else {
                break;
            };
            let name = object.location.as_ref();
            let name = name.strip_prefix(folder.as_ref()).unwrap_or_default();
            let name = name.strip_prefix('/').unwrap_or_default();
            // A server that lists what is below a folder as well, or does not know how to begin in
            // the middle.
            if name.is_empty() || name.contains('/') || after.is_some_and(|after| name <= after) {
                continue;
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, BackendError> {
        let listed = self.store.list_with_delimiter(Some(&path(folder)?)).await;
        let folders = listed.map_err(failed)?.common_prefixes;
        let names = folders.iter().filter_map(Path::filename);
        Ok(names.map(str::to_owned).collect())
    }

    async fn delete(&self, name: &str) -> Result<(), BackendError> {
        match self.store.delete(&path(name)?).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

fn path(name: &str) -> Result<Path, BackendError> {
    Path::parse(name).map_err(|error| BackendError::NotDone(error.into()))
}

fn version(e_tag: Option<String>) -> Result<Version, BackendError> {
    let e_tag = e_tag.ok_or_else(|| BackendError::Unknown("the answer has no ETag".into()))?;
    Ok(Version::text(e_tag))
}

/// Says what is known of the effect of a request that the crate reports as failed.
fn failed(error: Error) -> BackendError {
    match &error {
        // 412, and 409: Azure's answer to a create of what exists, S3's to one of two conditional
        // requests at the same time.
        Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotModified { .. } => {
            return BackendError::Refused(error.into());
        }
        Error::NotFound { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. } => return BackendError::NotDone(error.into()),
        _ => {}
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(status) = source.downcast_ref::<StatusError>() {
            if status.is_ambiguous() {
                break;
            }
            return BackendError::NotDone(error.into());
        }
        // Nothing was sent.
        let request = source.downcast_ref::<reqwest::Error>();
        if request.is_some_and(reqwest::Error::is_connect) {
            return BackendError::NotDone(error.into());
        }
        cause = source.source();
    }
    BackendError::Unknown(error.into())
}
