//! What the adapter asks of a bucket, and how a request may end.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{CheckpointError, StoreError};

use super::pause::Pause;

/// What names the state of an object: an ETag, a generation, or its very bytes.
///
/// Two manifests never have equal bytes, so whatever a server makes its versions of, they differ too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version(pub(super) Bytes);

impl Version {
    pub(super) fn text(text: String) -> Self {
        Self(text.into())
    }

    pub(super) fn as_text(&self) -> &str {
        // Made from text by those backends that ask for text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) version: Version,
}

/// How a request failed, by what is known of its effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackendError {
    /// The condition did not hold, or the server was busy with another conditional request for the
    /// same object (S3's 409). This request did nothing; whether an earlier copy of it did is
    /// another question.
    #[error("the condition does not hold")]
    Refused(#[source] StoreError),
    /// The request did nothing: it was not sent, or the server says so.
    #[error("the request was not carried out")]
    NotDone(#[source] StoreError),
    /// The request may have been carried out, or may still be.
    #[error("the request may have been carried out")]
    Unknown(#[source] StoreError),
}

impl BackendError {
    /// Forgets what is known of the effect, for a request whose effect does not matter.
    pub(super) fn into_source(self) -> StoreError {
        match self {
            Self::Refused(source) | Self::NotDone(source) | Self::Unknown(source) => source,
        }
    }

    /// The outcome of something that changes nothing, whatever became of it.
    pub(super) fn into_unavailable(self) -> CheckpointError {
        CheckpointError::unavailable(self.into_source())
    }
}

/// What the adapter asks of a bucket. Names are `/`-separated, of letters, digits and `.`, `_`, `-`.
///
/// No method repeats a request: the caller knows which ones may be.
#[async_trait]
pub(super) trait Backend: fmt::Debug + Send + Sync {
    /// Reads a whole object; `None` when there is none.
    async fn get(&self, name: &str) -> Result<Option<Object>, BackendError>;

    /// Replaces the object if it is at `condition`, or creates it if that is `None` and there is
    /// none: in one atomic step, durably. Returns the new version.
    async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Option<&Version>,
    ) -> Result<Version, BackendError>;

    /// Creates or replaces an object, durably.
    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError>;

    /// Returns the last parts of the names of the objects directly in a folder, after `after`, in
    /// the order of their bytes, at most `limit`.
    async fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, BackendError>;

    /// Returns the names of the folders directly in a folder, in no order.
    async fn folders(&self, folder: &str) -> Result<Vec<String>, BackendError>;

    /// Deletes an object. One that is not there is deleted already.
    async fn delete(&self, name: &str) -> Result<(), BackendError>;
}

/// How often a request that may be repeated is made before its failure is reported.
pub(super) const ATTEMPTS: u32 = 4;

/// Makes a request that may be repeated whatever came of it, each time for at most `deadline`.
pub(super) async fn repeated<T, F>(
    deadline: Duration,
    mut request: impl FnMut() -> F + Send,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, BackendError>> + Send,
{
    let mut pause = Pause::new();
    for _ in 1..ATTEMPTS {
        match within(deadline, request()).await {
            Ok(answer) => return Ok(answer),
            Err(_) => pause.wait().await,
        }
    }
    within(deadline, request()).await
}

/// Makes a request for at most `deadline`: after that its effect is unknown.
pub(super) async fn within<T>(
    deadline: Duration,
    request: impl Future<Output = Result<T, BackendError>> + Send,
) -> Result<T, BackendError> {
    match tokio::time::timeout(deadline, request).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(BackendError::Unknown(
            format!("no answer within {deadline:?}").into(),
        )),
    }
}
