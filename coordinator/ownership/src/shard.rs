//! One shard: its epoch, who owns it, and its place in the replicated store.
//!
//! ```text
//!             grant               ready
//!  Unowned ──────────▶ Opening ──────────▶ Serving
//!     ▲                   │                   │ revoke(next?)
//!     │ release / expire  │ revoke            ▼
//!     ├───────────────────┴──────────────▶ Revoking
//!     │                                       │ release or force → Unowned, or straight to
//!     └───────────────────────────────────────┘ Opening(next) in the same entry
//! ```

use minicbor::{Decode, Encode};
use tenure_fence::{Epoch, Fence, Owner, Sequence, WriteId};

use crate::group::Group;
use crate::ids::{Revision, SessionId, StoreName, WorkerName};
use crate::session::WorkerMode;

/// The record of a shard.
///
/// There are millions of them, so what most shards do not have is in a box of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Shard {
    /// Epoch of the latest grant. It outlives the owner: the next grant continues from it.
    #[cbor(n(0), with = "crate::codec::epoch_option", has_nil)]
    pub epoch: Option<Epoch>,
    /// No grant takes an epoch up to this number. Raised by deletion of the group, `StoreAhead` and restore.
    #[n(1)]
    pub floor: u64,
    /// Who owns it.
    #[n(2)]
    pub state: ShardState,
    /// The shard in the replicated store; `None` until its first seal there.
    #[n(3)]
    pub replicated: Option<Box<Replicated>>,
    /// Per attached store, the highest epoch at which it was reported ready, in order of name.
    /// A store that shows a lower fence than this was restored to an older state.
    #[n(4)]
    pub stores: Box<[StoreReady]>,
    /// The latest failure to open; `None` again once a worker is ready.
    #[n(5)]
    pub open_failure: Option<Box<OpenFailure>>,
}

/// The owner of a shard and what it is doing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ShardState {
    /// Nobody owns it. `None` if nobody ever did.
    #[n(0)]
    Unowned(#[n(0)] Option<Box<TenureEnd>>),
    /// Granted; the owner has not sealed its stores yet, so it must not be sent traffic.
    #[n(1)]
    Opening(#[n(0)] SessionId),
    /// Sealed and read: the owner serves.
    #[n(2)]
    Serving(#[n(0)] SessionId),
    /// The owner has been asked to stop and still owns the shard until it releases it, its drain
    /// deadline passes, or its session ends. Storage keeps admitting its epoch until then.
    #[n(3)]
    Revoking(#[n(0)] Box<Revocation>),
}

impl Default for ShardState {
    fn default() -> Self {
        Self::Unowned(None)
    }
}

/// A revocation on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Revocation {
    /// Who is asked to stop.
    #[n(0)]
    pub owner: SessionId,
    /// Who gets the shard in the entry that ends the tenure, if shards may still go to it then.
    #[n(1)]
    pub next: Option<SessionId>,
    /// Why.
    #[n(2)]
    pub reason: RevokeReason,
    /// Revision of the revocation: tells one revocation from the next when deadlines are kept.
    #[n(3)]
    pub since: Revision,
}

/// Why a shard is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum RevokeReason {
    /// The worker is drained.
    #[n(0)]
    Draining,
    /// The shard sits better elsewhere.
    #[n(1)]
    Rebalance,
    /// The owner did not open the shard in time.
    #[n(2)]
    OpeningDeadline,
    /// The group is deleted.
    #[n(3)]
    GroupDeleted,
    /// The worker has said that it stops.
    #[n(4)]
    Stopping,
    /// The owner is not where the shard may be: it lacks a required label, the shard is pinned
    /// elsewhere or kept off it, or the shard is in quarantine.
    #[n(6)]
    Placement,
}

/// How the latest tenure of a shard ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TenureEnd {
    /// Revision of the command that ended it: shards that ended together share it.
    #[n(0)]
    pub at: Revision,
    /// The worker that held the shard.
    #[n(1)]
    pub worker: WorkerName,
    /// Whether the owner is known to have stopped. After an unclean end the lock delay applies.
    #[n(2)]
    pub clean: bool,
}

/// What the replicated store knows of a shard. The bytes are a blob beside the state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Replicated {
    /// Epoch of the fence.
    #[cbor(n(0), with = "crate::codec::epoch")]
    pub epoch: Epoch,
    /// Owner of the fence.
    #[cbor(n(1), with = "crate::codec::owner")]
    pub owner: Owner,
    /// The latest accepted write or deletion; it outlives the data, so that a sequence is never used
    /// twice.
    #[n(2)]
    pub latest: Option<Written>,
}

impl Replicated {
    /// The fence as the admission rule takes it.
    pub fn fence(&self) -> Fence {
        Fence {
            epoch: self.epoch,
            owner: self.owner,
        }
    }
}

/// One accepted write, or deletion: a write whose content is nothing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Written {
    /// Epoch of the writer.
    #[cbor(n(0), with = "crate::codec::epoch")]
    pub epoch: Epoch,
    /// The writer.
    #[cbor(n(1), with = "crate::codec::owner")]
    pub owner: Owner,
    /// Its sequence within the epoch.
    #[cbor(n(2), with = "crate::codec::sequence")]
    pub sequence: Sequence,
    /// Tells its retry from another write or deletion.
    #[cbor(n(3), with = "crate::codec::write_id")]
    pub write_id: WriteId,
    /// Length and checksum of the bytes; `None` for a deletion.
    #[n(4)]
    pub content: Option<Content>,
}

/// Length and checksum of a checkpoint's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Content {
    /// Length in bytes.
    #[n(0)]
    pub length: u32,
    /// CRC-32C of the bytes.
    #[n(1)]
    pub crc32c: u32,
}

/// The highest epoch at which a store was reported ready.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StoreReady {
    /// Name of the store.
    #[n(0)]
    pub store: StoreName,
    /// The epoch.
    #[cbor(n(1), with = "crate::codec::epoch")]
    pub epoch: Epoch,
}

/// The latest failure to open a shard.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OpenFailure {
    /// Failures since a worker was last ready.
    #[n(0)]
    pub count: u32,
    /// The worker that failed last.
    #[n(1)]
    pub worker: WorkerName,
    /// What it said, at most [`OpenFailure::REASON_BYTES_MAX`] bytes.
    #[n(2)]
    pub reason: String,
    /// Revision of the failure: the delay before the next try counts from when the leader saw it.
    #[n(3)]
    pub at: Revision,
}

impl OpenFailure {
    /// Longest reason kept, in bytes: one line for an operator.
    pub const REASON_BYTES_MAX: usize = 256;
}

impl Shard {
    /// The owning session in any owned state.
    pub fn owner(&self) -> Option<SessionId> {
        match &self.state {
            ShardState::Unowned(_) => None,
            ShardState::Opening(owner) | ShardState::Serving(owner) => Some(*owner),
            ShardState::Revoking(revocation) => Some(revocation.owner),
        }
    }

    /// Length and checksum of the shard's checkpoint in the replicated store; `None` without one.
    pub fn content(&self) -> Option<Content> {
        self.replicated.as_ref()?.latest.as_ref()?.content
    }

    /// Bytes of the shard's checkpoint in the replicated store.
    pub fn checkpoint_bytes(&self) -> u64 {
        self.content()
            .map_or(0, |content| u64::from(content.length))
    }

    /// Whether the shard is as its group was created with: it has no record.
    pub(crate) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The paused worker that an unowned shard waits for: the one that held it last.
    pub fn waits_for_paused<'a>(&'a self, group: &Group) -> Option<&'a WorkerName> {
        let ShardState::Unowned(Some(end)) = &self.state else {
            return None;
        };
        let worker = group.workers.get(&end.worker)?;
        (worker.mode == WorkerMode::Paused).then_some(&end.worker)
    }

    /// The number no grant may repeat: the highest epoch granted or ruled out, 0 if there is none.
    pub fn highest_epoch(&self) -> u64 {
        self.epoch.map_or(0, Epoch::get).max(self.floor)
    }

    /// The epoch the next grant takes; `None` when the epochs are used up.
    pub fn next_epoch(&self) -> Option<Epoch> {
        self.highest_epoch()
            .checked_add(1)
            .and_then(|number| Epoch::try_from(number).ok())
    }
}
