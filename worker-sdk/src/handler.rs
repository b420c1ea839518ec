//! What a stream processor implements.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::WorkerError;
use crate::held_shard::HeldShard;

/// The work on a shard: one method, called once for each tenure.
///
/// ```
/// use tenure::{HeldShard, ShardHandler, WorkerError};
///
/// struct Counter;
///
/// impl ShardHandler for Counter {
///     async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
///         // Raises the fence to our epoch, then reads what it guards.
///         let checkpoint = shard.claim().await?;
///         let mut count = match checkpoint {
///             Some(checkpoint) => String::from_utf8(checkpoint.data.to_vec())?.parse()?,
///             None => 0_u64,
///         };
///         // Ends when the shard is revoked; returning releases it.
///         while let Some(amount) = shard.until_revoked(next_amount()).await? {
///             count += amount;
///             shard.write(count.to_string()).await?;
///         }
///         Ok(())
///     }
/// }
///
/// async fn next_amount() -> u64 {
///     1
/// }
/// ```
pub trait ShardHandler: Send + Sync + 'static {
    /// Works on a shard until it is revoked or there is nothing left to do.
    ///
    /// Claim it first; until then the shard is not served. When [`HeldShard::revoked`] resolves, write
    /// a last checkpoint and return: returning releases the shard, and nothing written through a
    /// clone of the handle afterwards lands. Once the handle is lost every call on it fails; the
    /// handler is then given the builder's `handler_grace` to return before its task is aborted.
    ///
    /// A handler of one shard is never run twice at once in one process. It must not block its
    /// thread: use `spawn_blocking` for long computations.
    ///
    /// # Errors
    ///
    /// Whatever keeps the shard from being worked on. It is given back as one that could not be opened,
    /// with the text, and this worker is avoided for it for a while.
    fn run(&self, shard: HeldShard) -> impl Future<Output = Result<(), WorkerError>> + Send;
}

/// Lets an `Arc` of a handler be one, so that a program can keep looking at it.
impl<H: ShardHandler> ShardHandler for Arc<H> {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        H::run(self, shard).await
    }
}

/// A handler of whatever type.
#[async_trait]
pub(crate) trait AnyHandler: Send + Sync {
    async fn run_any(&self, shard: HeldShard) -> Result<(), WorkerError>;
}

#[async_trait]
impl<H: ShardHandler> AnyHandler for H {
    async fn run_any(&self, shard: HeldShard) -> Result<(), WorkerError> {
        self.run(shard).await
    }
}
