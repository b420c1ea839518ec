//! Why an address is no bucket.

use crate::error::StoreError;

/// A bucket that cannot be addressed as it is described. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("the description of the bucket cannot be used")]
pub struct BucketError {
    #[source]
    source: StoreError,
}

impl BucketError {
    pub(super) fn new(source: StoreError) -> Self {
        Self { source }
    }
}
