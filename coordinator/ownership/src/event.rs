//! Facts: what a committed command did. Watchers see them in order, and nodes keep them for a while.
//!
//! They are encoded as records are, by numbers that are never reused: a kept event is read by every
//! later release.

use std::collections::BTreeSet;
use std::fmt;

use minicbor::{Decode, Encode};
use tenure_fence::{Epoch, GroupName};

use crate::feature::Feature;
use crate::ids::{ClusterId, GroupId, SessionId, ShardIndex, WorkerName};
use crate::session::{SessionEnd, WorkerMode};
use crate::shard::RevokeReason;

/// One fact. Several can come from one command; they are then numbered by ordinal within its revision.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// The cluster got its identity.
    #[n(0)]
    ClusterInitialized {
        /// The identity.
        #[n(0)]
        cluster: ClusterId,
    },
    /// A group exists.
    #[n(1)]
    GroupCreated {
        /// This life of the group.
        #[n(0)]
        group: GroupId,
        /// Its name.
        #[cbor(n(1), with = "crate::codec::group_name")]
        name: GroupName,
        /// Its number of shards.
        #[n(2)]
        shard_count: u32,
    },
    /// A group's policy was replaced.
    #[n(2)]
    PolicySet {
        /// The group.
        #[n(0)]
        group: GroupId,
    },
    /// A group is being deleted.
    #[n(3)]
    GroupDeleting {
        /// The group.
        #[n(0)]
        group: GroupId,
    },
    /// A group is gone; its tombstone remains.
    #[n(4)]
    GroupRemoved {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// Its name.
        #[cbor(n(1), with = "crate::codec::group_name")]
        name: GroupName,
    },
    /// A worker process registered.
    #[n(5)]
    Registered {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The worker.
        #[n(1)]
        worker: WorkerName,
        /// Its new session.
        #[n(2)]
        session: SessionId,
    },
    /// A session ended. The ends of its tenures follow it in the same revision.
    #[n(6)]
    SessionEnded {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The worker.
        #[n(1)]
        worker: WorkerName,
        /// The session.
        #[n(2)]
        session: SessionId,
        /// Why.
        #[n(3)]
        end: SessionEnd,
    },
    /// A worker's mode changed.
    #[n(7)]
    WorkerModeSet {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The worker.
        #[n(1)]
        worker: WorkerName,
        /// The mode.
        #[n(2)]
        mode: WorkerMode,
    },
    /// Planned moves of a group were stopped, or go on.
    #[n(14)]
    FreezeSet {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// Why they are stopped; `None` when they go on.
        #[n(1)]
        reason: Option<String>,
    },
    /// A shard has a new owner, which opens it.
    #[n(8)]
    Granted {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// The epoch of the new tenure.
        #[cbor(n(2), with = "crate::codec::epoch")]
        epoch: Epoch,
        /// The owner.
        #[n(3)]
        owner: SessionId,
    },
    /// The owner of a shard serves.
    #[n(9)]
    Serving {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// The epoch.
        #[cbor(n(2), with = "crate::codec::epoch")]
        epoch: Epoch,
        /// The owner.
        #[n(3)]
        owner: SessionId,
    },
    /// The owner of a shard is asked to stop.
    #[n(10)]
    Revoking {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// The epoch.
        #[cbor(n(2), with = "crate::codec::epoch")]
        epoch: Epoch,
        /// The owner.
        #[n(3)]
        owner: SessionId,
        /// Who is to follow.
        #[n(4)]
        next: Option<SessionId>,
        /// Why.
        #[n(5)]
        reason: RevokeReason,
    },
    /// A tenure ended. A `Granted` of the same revision may follow.
    #[n(11)]
    TenureEnded {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// The epoch that ended.
        #[cbor(n(2), with = "crate::codec::epoch")]
        epoch: Epoch,
        /// Who held it.
        #[n(3)]
        owner: SessionId,
        /// How.
        #[n(4)]
        cause: EndCause,
    },
    /// The floor of a shard's epochs rose.
    #[n(12)]
    FloorRaised {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// No grant takes an epoch up to this one.
        #[n(2)]
        floor: u64,
    },
    /// A behaviour was switched on.
    #[n(13)]
    FeatureEnabled {
        /// The behaviour.
        #[n(0)]
        feature: Feature,
    },
    /// The state of one cluster became that of another. The ends of all sessions are before it.
    #[n(30)]
    ClusterRestored {
        /// The cluster of the backup.
        #[n(0)]
        from: ClusterId,
        /// The new one.
        #[n(1)]
        to: ClusterId,
    },
    /// The wait after a restore is over: shards are granted.
    #[n(31)]
    ClusterSettled,
    /// It was said where a shard belongs, or that it may be anywhere again: then both are empty.
    #[n(24)]
    ShardPinned {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// The worker it belongs on.
        #[n(2)]
        to: Option<WorkerName>,
        /// The workers it is kept off.
        #[n(3)]
        kept_off: BTreeSet<WorkerName>,
    },
    /// A shard is granted to nobody from now on.
    #[n(25)]
    ShardQuarantined {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
        /// How many owners crashed.
        #[n(2)]
        crashes: u32,
    },
    /// A shard in quarantine is granted again.
    #[n(26)]
    QuarantineEnded {
        /// The group.
        #[n(0)]
        group: GroupId,
        /// The shard.
        #[n(1)]
        shard: ShardIndex,
    },
}

/// How a tenure ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum EndCause {
    /// The owner gave the shard back.
    #[n(0)]
    Released,
    /// The owner could not open it, with what it said.
    #[n(1)]
    OpenFailed(#[n(0)] String),
    /// The owner lost its handle.
    #[n(2)]
    Lost,
    /// The owner did not release it in time.
    #[n(3)]
    Forced,
    /// The owner's session ended.
    #[n(4)]
    SessionEnded(#[n(0)] SessionEnd),
}

/// Bytes that are not an event of this version.
#[derive(Debug, thiserror::Error)]
#[error("not an event of this version")]
pub struct UnknownEvent(#[source] minicbor::decode::Error);

impl Event {
    /// The event as it is kept.
    pub fn encode(&self) -> Vec<u8> {
        crate::codec::to_vec(self)
    }

    /// Reads a kept event.
    ///
    /// # Errors
    /// [`UnknownEvent`] for damaged bytes, and for an event that only a later release knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, UnknownEvent> {
        crate::codec::from_slice(bytes).map_err(UnknownEvent)
    }

    /// The group the event belongs to; `None` for events of the cluster.
    pub fn group(&self) -> Option<GroupId> {
        match self {
            Self::ClusterInitialized { .. }
            | Self::FeatureEnabled { .. }
            | Self::ClusterRestored { .. }
            | Self::ClusterSettled => None,
            Self::GroupCreated { group, .. }
            | Self::PolicySet { group }
            | Self::GroupDeleting { group }
            | Self::GroupRemoved { group, .. }
            | Self::Registered { group, .. }
            | Self::SessionEnded { group, .. }
            | Self::WorkerModeSet { group, .. }
            | Self::FreezeSet { group, .. }
            | Self::Granted { group, .. }
            | Self::Serving { group, .. }
            | Self::Revoking { group, .. }
            | Self::TenureEnded { group, .. }
            | Self::FloorRaised { group, .. }
            | Self::ShardPinned { group, .. }
            | Self::ShardQuarantined { group, .. }
            | Self::QuarantineEnded { group, .. } => Some(*group),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterInitialized { cluster } => {
                write!(f, "cluster initialized cluster={cluster}")
            }
            Self::GroupCreated {
                name, shard_count, ..
            } => {
                write!(f, "group created name={name} shards={shard_count}")
            }
            Self::PolicySet { group } => write!(f, "policy set group=#{group}"),
            Self::GroupDeleting { group } => write!(f, "group deleting group=#{group}"),
            Self::GroupRemoved { name, .. } => write!(f, "group removed name={name}"),
            Self::Registered {
                worker, session, ..
            } => {
                write!(f, "registered worker={worker} session={session}")
            }
            Self::SessionEnded {
                worker,
                session,
                end,
                ..
            } => {
                write!(
                    f,
                    "session ended worker={worker} session={session} end={end:?}"
                )
            }
            Self::WorkerModeSet { worker, mode, .. } => {
                write!(f, "mode set worker={worker} mode={mode:?}")
            }
            Self::FreezeSet { reason, .. } => match reason {
                Some(reason) => write!(f, "frozen reason={reason:?}"),
                None => f.write_str("unfrozen"),
            },
            Self::Granted {
                shard,
                epoch,
                owner,
                ..
            } => {
                write!(f, "granted shard={shard} epoch={epoch} owner={owner}")
            }
            Self::Serving {
                shard,
                epoch,
                owner,
                ..
            } => {
                write!(f, "serving shard={shard} epoch={epoch} owner={owner}")
            }
            Self::Revoking {
                shard,
                epoch,
                owner,
                next,
                reason,
                ..
            } => {
                write!(
                    f,
                    "revoking shard={shard} epoch={epoch} owner={owner} reason={reason:?}"
                )?;
                match next {
                    Some(next) => write!(f, " next={next}"),
                    None => Ok(()),
                }
            }
            Self::TenureEnded {
                shard,
                epoch,
                owner,
                cause,
                ..
            } => {
                write!(
                    f,
                    "tenure ended shard={shard} epoch={epoch} owner={owner} cause={cause:?}"
                )
            }
            Self::FloorRaised { shard, floor, .. } => {
                write!(f, "floor raised shard={shard} floor={floor}")
            }
            Self::FeatureEnabled { feature } => write!(f, "feature enabled feature={feature:?}"),
            Self::ClusterRestored { from, to } => {
                write!(f, "cluster restored from={from} to={to}")
            }
            Self::ClusterSettled => f.write_str("cluster settled"),
            Self::ShardPinned {
                shard,
                to,
                kept_off,
                ..
            } => match (to, kept_off.is_empty()) {
                (Some(to), _) => write!(f, "pinned shard={shard} to={to}"),
                (None, true) => write!(f, "unpinned shard={shard}"),
                (None, false) => {
                    let workers: Vec<&str> = kept_off.iter().map(WorkerName::as_str).collect();
                    write!(f, "pinned shard={shard} kept_off={}", workers.join(","))
                }
            },
            Self::ShardQuarantined { shard, crashes, .. } => {
                write!(f, "quarantined shard={shard} crashes={crashes}")
            }
            Self::QuarantineEnded { shard, .. } => write!(f, "quarantine ended shard={shard}"),
        }
    }
}
