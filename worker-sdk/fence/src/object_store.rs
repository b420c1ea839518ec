//! Checkpoints in an object store: S3, Azure Blob Storage, Google Cloud Storage, or a local folder.
//!
//! # How it fences
//!
//! ```text
//!   <prefix>/manifest/shard/orders/7      one small object for each resource: the fence, the latest
//!                                         sequence, and the value or where it is. Replaced by
//!                                         conditional put only: If-None-Match, If-Match, generation
//!   <prefix>/data/shard/orders/7/<epoch>.<sequence>.<owner>.<write id>.<upload>.<part>
//!                                         values too large for the manifest. Written once, under a
//!                                         name that nobody else uses
//! ```
//!
//! Check and write are one step because the manifest is replaced on the condition that it is still
//! the one the decision was made from. An owner that was replaced may upload as much data as it
//! likes: what it uploads is garbage that no manifest refers to, never damage. Each manifest holds a
//! random nonce, so that one that was replaced never comes back with the same ETag.
//!
//! The manifest last seen is remembered. A write then takes one put (two with a value of its own
//! object) and no read; a wrong memory is noticed by the condition, and decided again from what is
//! stored.
//!
//! # Outcomes
//!
//! An answer that was lost, or a server's error that may have come after the request was applied, is
//! settled by reading the manifest back: the nonce says whose it is, and it lists the nonces of those
//! before it, and of the last of each earlier tenure. So is a refusal: a proxy that repeats puts passes
//! on the refusal of its repetition. Only when that cannot be read, or tells nothing any more, is the
//! outcome unknown. S3's `409` (another conditional request was at work) is no verdict: the put is made
//! again.
//!
//! # What is promised, and what is not
//!
//! * The promise is the server's: conditional puts that are atomic over *all* its endpoints, and reads
//!   that see the latest put. [`ObjectStore::open`] tries both, over the endpoints it is given, and
//!   refuses a bucket that fails. A server that is wrong only seldom may pass.
//! * A replica (cross-region replication, a read-only mirror) is behind, so it is not the bucket:
//!   never write to it while the original may still be written to.
//! * A bucket restored from a backup has its fences of then. Restore manifests together with the data
//!   they refer to.
//! * Whoever may write to the bucket may write around the fence. A bucket policy can require the
//!   conditions: see `docs/stores.md`.

mod backend;
mod bucket;
mod bucket_error;
mod cache;
mod collect;
#[cfg(test)]
mod double;
mod folder;
#[cfg(all(fuzzing, feature = "etcd"))]
pub(crate) mod fuzzing;
mod gcs;
mod http;
mod large;
mod layout;
mod listing;
mod manifest;
mod manifests;
mod options;
mod pause;
mod probe;
mod remote;
mod store;
mod values;

pub use bucket::Bucket;
pub use bucket_error::BucketError;
pub use collect::Collected;
pub use large::LargeCheckpoint;
pub use options::ObjectStoreOptions;
pub use store::ObjectStore;

/// The builders that a [`Bucket`] is made from: the crate `object_store`.
pub use ::object_store as builders;
