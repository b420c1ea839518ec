//! What a cluster that was made from a backup has to wait for.
//!
//! A restore ends every session in the state, not in the processes that had them: a worker that was
//! cut off with the old cluster may believe in its shards until its ttl is over. So nothing is granted
//! until the longest ttl has passed, counted by the leader from when it accepts streams.

use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::ids::{ClusterId, Revision};

/// A restore whose wait is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Restored {
    /// The cluster of the backup.
    #[n(0)]
    pub from: ClusterId,
    /// Revision of the restore.
    #[n(1)]
    pub at: Revision,
    /// How long nothing is granted: the longest ttl that a session of the backup can have had.
    #[cbor(n(2), with = "crate::codec::millis")]
    pub quiet: Duration,
}
