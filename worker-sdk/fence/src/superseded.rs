//! Asking whether a tenure is over.

use async_trait::async_trait;

use crate::error::StoreError;
use crate::token::FencingToken;

/// Confirms that a tenure is over, before what it has left behind is deleted.
///
/// The worker SDK's `TokenChecker` is one: it asks the coordinators.
#[async_trait]
pub trait CheckSuperseded: Send + Sync {
    /// Returns whether the resource was granted again after this token. `false` when in doubt.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from finding out. Then nothing of that tenure is deleted.
    async fn is_superseded(&self, token: &FencingToken) -> Result<bool, StoreError>;
}
