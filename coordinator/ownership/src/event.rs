//! Facts: what a committed command did. Watchers see them in order.

use std::fmt;

use tenure_fence::{Epoch, GroupName};

use crate::feature::Feature;
use crate::ids::{ClusterId, GroupId, SessionId, ShardIndex, WorkerName};
use crate::session::{SessionEnd, WorkerMode};
use crate::shard::RevokeReason;

/// One fact. Several can come from one command; they are then numbered by ordinal within its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cluster got its identity.
    ClusterInitialized {
        /// The identity.
        cluster: ClusterId,
    },
    /// A group exists.
    GroupCreated {
        /// This life of the group.
        group: GroupId,
        /// Its name.
        name: GroupName,
        /// Its number of shards.
        shard_count: u32,
    },
    /// A group's policy was replaced.
    PolicySet {
        /// The group.
        group: GroupId,
    },
    /// A group is being deleted.
    GroupDeleting {
        /// The group.
        group: GroupId,
    },
    /// A group is gone; its tombstone remains.
    GroupRemoved {
        /// The group.
        group: GroupId,
        /// Its name.
        name: GroupName,
    },
    /// A worker process registered.
    Registered {
        /// The group.
        group: GroupId,
        /// The worker.
        worker: WorkerName,
        /// Its new session.
        session: SessionId,
    },
    /// A session ended. The ends of its tenures follow it in the same revision.
    SessionEnded {
        /// The group.
        group: GroupId,
        /// The worker.
        worker: WorkerName,
        /// The session.
        session: SessionId,
        /// Why.
        end: SessionEnd,
    },
    /// A worker's mode changed.
    WorkerModeSet {
        /// The group.
        group: GroupId,
        /// The worker.
        worker: WorkerName,
        /// The mode.
        mode: WorkerMode,
    },
    /// Planned moves of a group were stopped, or go on.
    FreezeSet {
        /// The group.
        group: GroupId,
        /// Why they are stopped; `None` when they go on.
        reason: Option<String>,
    },
    /// A shard has a new owner, which opens it.
    Granted {
        /// The group.
        group: GroupId,
        /// The shard.
        shard: ShardIndex,
        /// The epoch of the new tenure.
        epoch: Epoch,
        /// The owner.
        owner: SessionId,
    },
    /// The owner of a shard serves.
    Serving {
        /// The group.
        group: GroupId,
        /// The shard.
        shard: ShardIndex,
        /// The epoch.
        epoch: Epoch,
        /// The owner.
        owner: SessionId,
    },
    /// The owner of a shard is asked to stop.
    Revoking {
        /// The group.
        group: GroupId,
        /// The shard.
        shard: ShardIndex,
        /// The epoch.
        epoch: Epoch,
        /// The owner.
        owner: SessionId,
        /// Who is to follow.
        next: Option<SessionId>,
        /// Why.
        reason: RevokeReason,
    },
    /// A tenure ended. A `Granted` of the same revision may follow.
    TenureEnded {
        /// The group.
        group: GroupId,
        /// The shard.
        shard: ShardIndex,
        /// The epoch that ended.
        epoch: Epoch,
        /// Who held it.
        owner: SessionId,
        /// How.
        cause: EndCause,
    },
    /// The floor of a shard's epochs rose.
    FloorRaised {
        /// The group.
        group: GroupId,
        /// The shard.
        shard: ShardIndex,
        /// No grant takes an epoch up to this one.
        floor: u64,
    },
    /// A behaviour was switched on.
    FeatureEnabled {
        /// The behaviour.
        feature: Feature,
    },
}

/// How a tenure ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The owner gave the shard back.
    Released,
    /// The owner could not open it, with what it said.
    OpenFailed(String),
    /// The owner lost its handle.
    Lost,
    /// The owner did not release it in time.
    Forced,
    /// The owner's session ended.
    SessionEnded(SessionEnd),
}

impl Event {
    /// The group the event belongs to; `None` for events of the cluster.
    pub fn group(&self) -> Option<GroupId> {
        match self {
            Self::ClusterInitialized { .. } | Self::FeatureEnabled { .. } => None,
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
            | Self::FloorRaised { group, .. } => Some(*group),
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
        }
    }
}
