//! Everything that may enter the log.
//!
//! Every command carries the facts it was decided on (`seen` epochs, sessions, the process replaced),
//! and apply refuses it when they no longer hold: a late plan is rejected, never harmful. A command
//! with many shards is judged shard by shard; see [`Effect::refused`](crate::apply::Effect::refused).

mod placing;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use tenure_fence::{Epoch, GroupName, Owner, Sequence, WriteId};

pub use self::placing::{OneShard, PinShard, PinTo, Quarantine};
use crate::feature::Feature;
use crate::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use crate::policy::Policy;
use crate::session::WorkerMode;
use crate::shard::RevokeReason;

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Command {
    /// Gives the cluster its identity. The first command of every cluster, accepted once.
    #[n(0)]
    InitCluster(#[n(0)] ClusterId),
    /// Creates a group.
    #[n(1)]
    CreateGroup(#[n(0)] CreateGroup),
    /// Replaces a group's policy.
    #[n(2)]
    SetPolicy(#[n(0)] SetPolicy),
    /// Starts the deletion of a group: everything is revoked.
    #[n(3)]
    DeleteGroup(#[cbor(n(0), with = "crate::codec::group_name")] GroupName),
    /// Removes a group under deletion; refused while a shard is owned.
    #[n(4)]
    RemoveGroup(#[n(0)] GroupId),
    /// Registers a worker process.
    #[n(5)]
    Register(#[n(0)] Box<Register>),
    /// Ends sessions that were silent for too long, each with all its shards.
    #[n(6)]
    Expire(#[n(0)] Vec<SessionId>),
    /// Ends a session whose worker stops, and releases all its shards.
    #[n(7)]
    Leave(#[n(0)] SessionId),
    /// Says whether shards may be placed on a worker.
    #[n(8)]
    SetWorkerMode(#[n(0)] SetWorkerMode),
    /// Carries out a plan: grants and revocations.
    #[n(9)]
    Assign(#[n(0)] Assign),
    /// A worker has sealed and read all stores of shards.
    #[n(10)]
    Ready(#[n(0)] Ready),
    /// A worker gives shards back.
    #[n(11)]
    Release(#[n(0)] Release),
    /// Takes shards from owners that did not release them in time.
    #[n(12)]
    Force(#[n(0)] Force),
    /// Seals shards in the replicated store.
    #[n(13)]
    Seal(#[n(0)] Seal),
    /// Writes one checkpoint to the replicated store.
    #[n(14)]
    WriteCheckpoint(#[n(0)] WriteCheckpoint),
    /// Deletes one checkpoint in the replicated store: a write whose content is nothing.
    #[n(15)]
    DeleteCheckpoint(#[n(0)] DeleteCheckpoint),
    /// Switches a behaviour on, on every node at this entry.
    #[n(16)]
    EnableFeature(#[n(0)] Feature),
    /// Ends a pause that has lasted for too long.
    #[n(17)]
    EndPause(#[n(0)] EndPause),
    /// Stops the planned moves of a group, or lets them go on.
    #[n(18)]
    SetFreeze(#[n(0)] SetFreeze),
    /// Makes the state of one cluster, as a backup holds it, that of a new cluster.
    #[n(25)]
    Restore(#[n(0)] Restore),
    /// Ends the wait that began with the restore at that revision: shards may be granted again.
    #[n(26)]
    Settle(#[n(0)] Revision),
    /// Says where one shard belongs, or where never.
    #[n(21)]
    PinShard(#[n(0)] PinShard),
    /// Takes back what [`Command::PinShard`] said.
    #[n(22)]
    UnpinShard(#[n(0)] OneShard),
    /// Grants a shard to nobody any more: one owner after the other crashed.
    #[n(23)]
    Quarantine(#[n(0)] Quarantine),
    /// Ends the quarantine of a shard.
    #[n(24)]
    RetryShard(#[n(0)] OneShard),
}

/// See [`Command::CreateGroup`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CreateGroup {
    /// Name; must not be in use, also not by a group under deletion.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub name: GroupName,
    /// Number of shards, 1 to 1,000,000. Fixed for the life of the group.
    #[n(1)]
    pub shard_count: u32,
    /// Its policy.
    #[n(2)]
    pub policy: Policy,
}

/// See [`Command::SetPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetPolicy {
    /// The group.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// Revision of the policy this one was edited from; `None` overwrites whatever is there.
    #[n(1)]
    pub seen: Option<Revision>,
    /// The whole new policy.
    #[n(2)]
    pub policy: Policy,
}

/// See [`Command::Register`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Register {
    /// The group to serve.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// The worker's name.
    #[n(1)]
    pub worker: WorkerName,
    /// The process.
    #[n(2)]
    pub nonce: ProcessNonce,
    /// The first session this process had, `None` for a process that never had one. A process may not
    /// take its name from a newer one, and is the newer the later its first session began.
    #[n(3)]
    pub first: Option<SessionId>,
    /// The live session of the name that the proposer saw and waited for, or none. A precondition.
    #[n(4)]
    pub replaces: Option<SessionId>,
    /// Wish for the ttl; `None` takes the policy's. Within the bounds of [`crate::policy::bounds::TTL`].
    #[cbor(n(5), with = "crate::codec::millis_option", has_nil)]
    pub ttl: Option<Duration>,
    /// Share of the group's shards relative to other workers.
    #[n(6)]
    pub weight: u32,
    /// Labels.
    #[n(7)]
    pub labels: BTreeMap<String, String>,
    /// Where routers send requests.
    #[n(8)]
    pub address: String,
}

/// See [`Command::SetWorkerMode`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetWorkerMode {
    /// The group.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// The worker; it need not be registered.
    #[n(1)]
    pub worker: WorkerName,
    /// What it shall be.
    #[n(2)]
    pub mode: WorkerMode,
    /// With [`WorkerMode::Paused`], and only then: how long its shards wait for it, within
    /// [`crate::session::PAUSE_TIMEOUT`].
    #[cbor(n(3), with = "crate::codec::millis_option", has_nil)]
    pub pause_timeout: Option<Duration>,
}

/// See [`Command::EndPause`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EndPause {
    /// The group.
    #[n(0)]
    pub group: GroupId,
    /// The worker.
    #[n(1)]
    pub worker: WorkerName,
    /// The pause that is meant, by its beginning. A precondition.
    #[n(2)]
    pub since: Revision,
}

/// See [`Command::SetFreeze`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetFreeze {
    /// The group.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// Why its planned moves are stopped, 1 to 256 bytes; `None` lets them go on.
    #[n(1)]
    pub reason: Option<String>,
}

/// See [`Command::Assign`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Assign {
    /// The group planned for.
    #[n(0)]
    pub group: GroupId,
    /// Unowned shards to give away.
    #[n(1)]
    pub grants: Vec<Grant>,
    /// Owned shards to ask back.
    #[n(2)]
    pub revokes: Vec<Revoke>,
}

/// Grants an unowned shard at its next epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// The shard.
    #[n(0)]
    pub shard: ShardIndex,
    /// Its epoch when this was planned.
    #[cbor(n(1), with = "crate::codec::epoch_option", has_nil)]
    pub seen: Option<Epoch>,
    /// The new owner, a live session of the group.
    #[n(2)]
    pub to: SessionId,
}

/// Asks an owner to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Revoke {
    /// The shard.
    #[n(0)]
    pub shard: ShardIndex,
    /// The epoch of the tenure to end.
    #[cbor(n(1), with = "crate::codec::epoch")]
    pub seen: Epoch,
    /// Who gets it in the entry that ends the tenure; `None` leaves that to the next plan.
    #[n(2)]
    pub next: Option<SessionId>,
    /// Why.
    #[n(3)]
    pub reason: RevokeReason,
}

/// One tenure: a shard and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Tenure {
    /// The shard.
    #[n(0)]
    pub shard: ShardIndex,
    /// The epoch.
    #[cbor(n(1), with = "crate::codec::epoch")]
    pub epoch: Epoch,
}

/// See [`Command::Ready`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ready {
    /// The owner.
    #[n(0)]
    pub session: SessionId,
    /// The stores it has attached, sealed at the epochs below. At most 16.
    #[n(1)]
    pub stores: Vec<StoreName>,
    /// The shards that serve from now on.
    #[n(2)]
    pub tenures: Vec<Tenure>,
}

/// See [`Command::Release`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Release {
    /// The owner.
    #[n(0)]
    pub session: SessionId,
    /// What it gives back.
    #[n(1)]
    pub releases: Vec<Released>,
}

/// One shard given back.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Released {
    /// Which tenure ends.
    #[n(0)]
    pub tenure: Tenure,
    /// Why.
    #[n(1)]
    pub cause: ReleaseCause,
}

/// Why a worker gives a shard back.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ReleaseCause {
    /// Its work on the shard is done, or it was asked to stop.
    #[n(0)]
    Finished,
    /// The shard could not be opened.
    #[n(1)]
    OpenFailed(#[n(0)] String),
    /// A store has a fence above the epoch granted; the floor rises to it.
    #[n(2)]
    StoreAhead(#[cbor(n(0), with = "crate::codec::epoch")] Epoch),
    /// The handle was lost: the worker no longer holds what it was granted.
    #[n(3)]
    Lost,
}

/// See [`Command::Force`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Force {
    /// The group.
    #[n(0)]
    pub group: GroupId,
    /// Tenures that are being revoked and whose deadline is over.
    #[n(1)]
    pub tenures: Vec<Tenure>,
}

/// See [`Command::Seal`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Seal {
    /// The group, by name, as a token names it.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// Who seals.
    #[cbor(n(1), with = "crate::codec::owner")]
    pub owner: Owner,
    /// What it seals.
    #[n(2)]
    pub tenures: Vec<Tenure>,
}

/// See [`Command::WriteCheckpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct WriteCheckpoint {
    /// The group, by name.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// Who writes.
    #[cbor(n(1), with = "crate::codec::owner")]
    pub owner: Owner,
    /// The shard and the writer's epoch.
    #[n(2)]
    pub tenure: Tenure,
    /// Sequence within the epoch.
    #[cbor(n(3), with = "crate::codec::sequence")]
    pub sequence: Sequence,
    /// Tells a retry from another write.
    #[cbor(n(4), with = "crate::codec::write_id")]
    pub write_id: WriteId,
    /// CRC-32C of `data`, computed where the request was accepted.
    #[n(5)]
    pub crc32c: u32,
    /// The checkpoint.
    #[cbor(n(6), with = "crate::codec::data")]
    pub data: Bytes,
}

/// See [`Command::DeleteCheckpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DeleteCheckpoint {
    /// The group, by name.
    #[cbor(n(0), with = "crate::codec::group_name")]
    pub group: GroupName,
    /// Who deletes.
    #[cbor(n(1), with = "crate::codec::owner")]
    pub owner: Owner,
    /// The shard and the epoch of the deleter.
    #[n(2)]
    pub tenure: Tenure,
    /// Sequence within the epoch, one with those of writes.
    #[cbor(n(3), with = "crate::codec::sequence")]
    pub sequence: Sequence,
    /// Tells a retry from another deletion or write.
    #[cbor(n(4), with = "crate::codec::write_id")]
    pub write_id: WriteId,
}

/// See [`Command::Restore`]. Applied once, to a backup, before a node of the new cluster has started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Restore {
    /// The cluster that the state belongs to. A precondition.
    #[n(0)]
    pub from: ClusterId,
    /// Identity of the new cluster, never used before.
    #[n(1)]
    pub to: ClusterId,
    /// Every floor is at least this: a number that no other restore of the same backup has.
    #[n(2)]
    pub floor_min: u64,
    /// The shortest time for which nothing is granted, if the policies and sessions of the backup do
    /// not ask for a longer one.
    #[cbor(n(3), with = "crate::codec::millis")]
    pub quiet_min: Duration,
}

/// Bytes that are no command this version knows.
#[derive(Debug, thiserror::Error)]
#[error("not a command of this version")]
pub struct DecodeError(#[source] minicbor::decode::Error);

impl Command {
    /// Encodes the command for the log.
    pub fn encode(&self) -> Vec<u8> {
        crate::codec::to_vec(self)
    }

    /// Decodes a command from the log.
    ///
    /// # Errors
    /// [`DecodeError`] for damaged bytes, and for a command that only a newer version knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        crate::codec::from_slice(bytes).map_err(DecodeError)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InitCluster(cluster) => write!(f, "init cluster={cluster}"),
            Self::CreateGroup(c) => write!(f, "create group={} shards={}", c.name, c.shard_count),
            Self::SetPolicy(c) => write!(f, "set policy group={}", c.group),
            Self::DeleteGroup(name) => write!(f, "delete group={name}"),
            Self::RemoveGroup(id) => write!(f, "remove group=#{id}"),
            Self::Register(c) => write!(f, "register group={} worker={}", c.group, c.worker),
            Self::Expire(sessions) => write!(f, "expire sessions={}", sessions.len()),
            Self::Leave(session) => write!(f, "leave session={session}"),
            Self::SetWorkerMode(c) => {
                write!(
                    f,
                    "set mode group={} worker={} mode={:?}",
                    c.group, c.worker, c.mode
                )
            }
            Self::Assign(c) => {
                write!(
                    f,
                    "assign group=#{} grants={} revokes={}",
                    c.group,
                    c.grants.len(),
                    c.revokes.len()
                )
            }
            Self::Ready(c) => write!(f, "ready session={} shards={}", c.session, c.tenures.len()),
            Self::Release(c) => write!(
                f,
                "release session={} shards={}",
                c.session,
                c.releases.len()
            ),
            Self::Force(c) => write!(f, "force group=#{} shards={}", c.group, c.tenures.len()),
            Self::Seal(c) => write!(f, "seal group={} shards={}", c.group, c.tenures.len()),
            Self::WriteCheckpoint(c) => {
                write!(
                    f,
                    "write group={} shard={} bytes={}",
                    c.group,
                    c.tenure.shard,
                    c.data.len()
                )
            }
            Self::DeleteCheckpoint(c) => write!(
                f,
                "delete checkpoint group={} shard={}",
                c.group, c.tenure.shard
            ),
            Self::EnableFeature(feature) => write!(f, "enable feature={feature:?}"),
            Self::EndPause(c) => write!(f, "end pause group=#{} worker={}", c.group, c.worker),
            Self::SetFreeze(c) => {
                let verb = if c.reason.is_some() {
                    "freeze"
                } else {
                    "unfreeze"
                };
                write!(f, "{verb} group={}", c.group)
            }
            Self::Restore(c) => write!(f, "restore from={} to={}", c.from, c.to),
            Self::Settle(restored_at) => write!(f, "settle restored_at={restored_at}"),
            Self::PinShard(c) => write!(f, "pin {c}"),
            Self::UnpinShard(c) => write!(f, "unpin {c}"),
            Self::Quarantine(c) => write!(f, "quarantine {c}"),
            Self::RetryShard(c) => write!(f, "retry {c}"),
        }
    }
}
