//! How an object store is used.

use std::time::Duration;

use super::bucket::Bucket;

/// How an [`ObjectStore`](super::ObjectStore) is used. Every process that shares a bucket takes the
/// same prefix; the rest may differ.
#[derive(Clone, Debug)]
pub struct ObjectStoreOptions {
    /// What the names of all objects begin with: one or more `/`-separated segments of letters,
    /// digits, `.`, `_` and `-`. Default `tenure`.
    pub prefix: String,
    /// How long a call may take, all its requests together. Default 20 s. What is done with large
    /// values piece by piece is bounded by `part_deadline` instead.
    pub deadline: Duration,
    /// How long a request for a part of a value may take. Default 60 s.
    pub part_deadline: Duration,
    /// The largest value of a write, in bytes, inclusive: it is held in memory. Default 64 MiB.
    /// Larger ones are written with [`write_large`](super::ObjectStore::write_large).
    pub max_value_bytes: usize,
    /// The largest value that is kept in the manifest itself, in bytes, inclusive. Default 16 KiB:
    /// one put for each write instead of two, and not much more to move for a seal.
    pub inline_bytes_max: usize,
    /// How long the objects of a larger value are, in bytes. Default 16 MiB. At least 1; four are in
    /// memory at once.
    pub part_bytes: u32,
    /// How long the probe goes on to let puts race: at least 2 rounds and at most 128. Default 1 s. A
    /// server that checks and writes in two steps is found by chance, so the longer the surer.
    pub race_time: Duration,
    /// The same bucket by its other addresses, if it has several. Only the probe uses them: a server
    /// whose conditions hold for each address by itself is refused.
    pub other_endpoints: Vec<Bucket>,
}

impl Default for ObjectStoreOptions {
    fn default() -> Self {
        Self {
            prefix: "tenure".to_owned(),
            deadline: Duration::from_secs(20),
            part_deadline: Duration::from_secs(60),
            max_value_bytes: 64 * 1024 * 1024,
            inline_bytes_max: 16 * 1024,
            part_bytes: 16 * 1024 * 1024,
            race_time: Duration::from_secs(1),
            other_endpoints: Vec::new(),
        }
    }
}
