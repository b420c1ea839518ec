//! What an event is about: for whoever files or filters events without knowing each of them.

use crate::event::Event;
use crate::ids::{GroupId, SessionId, ShardIndex, WorkerName};

/// What an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Name of the kind of event, as operators write it.
    pub kind: &'static str,
    /// The group; `None` for an event of the cluster.
    pub group: Option<GroupId>,
    /// The shard; `None` for an event of a whole group, of a worker or of the cluster.
    pub shard: Option<ShardIndex>,
    /// The worker, if the event names one.
    pub worker: Option<&'a WorkerName>,
    /// The sessions: the owner, and who is to follow.
    pub sessions: [Option<SessionId>; 2],
}

impl Event {
    /// What the event is about.
    pub fn subject(&self) -> Subject<'_> {
        let of_group = |kind, group: &GroupId| Subject {
            kind,
            group: Some(*group),
            ..Subject::default()
        };
        let of_worker = |kind, group, worker, session: Option<&SessionId>| Subject {
            worker: Some(worker),
            sessions: [session.copied(), None],
            ..of_group(kind, group)
        };
        let of_tenure = |kind, group, shard: &ShardIndex, owner: &SessionId| Subject {
            shard: Some(*shard),
            sessions: [Some(*owner), None],
            ..of_group(kind, group)
        };
        match self {
            Self::ClusterInitialized { .. } => Subject {
                kind: "cluster-initialized",
                ..Subject::default()
            },
            Self::FeatureEnabled { .. } => Subject {
                kind: "feature-enabled",
                ..Subject::default()
            },
            Self::ClusterRestored { .. } => Subject {
                kind: "cluster-restored",
                ..Subject::default()
            },
            Self::ClusterSettled => Subject {
                kind: "cluster-settled",
                ..Subject::default()
            },
            Self::GroupCreated { group, .. } => of_group("group-created", group),
            Self::PolicySet { group } => of_group("policy-set", group),
            Self::GroupDeleting { group } => of_group("group-deleting", group),
            Self::GroupRemoved { group, .. } => of_group("group-removed", group),
            Self::Registered {
                group,
                worker,
                session,
            } => of_worker("registered", group, worker, Some(session)),
            Self::SessionEnded {
                group,
                worker,
                session,
                ..
            } => of_worker("session-ended", group, worker, Some(session)),
            Self::WorkerModeSet { group, worker, .. } => {
                of_worker("worker-mode-set", group, worker, None)
            }
            Self::FreezeSet { group, reason } => match reason {
                Some(_) => of_group("group-frozen", group),
                None => of_group("group-unfrozen", group),
            },
            Self::Granted {
                group,
                shard,
                owner,
                ..
            } => of_tenure("granted", group, shard, owner),
            Self::Serving {
                group,
                shard,
                owner,
                ..
            } => of_tenure("serving", group, shard, owner),
            Self::Revoking {
                group,
                shard,
                owner,
                next,
                ..
            } => Subject {
                sessions: [Some(*owner), *next],
                ..of_tenure("revoking", group, shard, owner)
            },
            Self::TenureEnded {
                group,
                shard,
                owner,
                ..
            } => of_tenure("tenure-ended", group, shard, owner),
            Self::FloorRaised { group, shard, .. } => Subject {
                shard: Some(*shard),
                ..of_group("floor-raised", group)
            },
            Self::ShardPinned {
                group, shard, to, ..
            } => Subject {
                shard: Some(*shard),
                worker: to.as_ref(),
                ..of_group("shard-pinned", group)
            },
            Self::ShardQuarantined { group, shard, .. } => Subject {
                shard: Some(*shard),
                ..of_group("quarantined", group)
            },
            Self::QuarantineEnded { group, shard } => Subject {
                shard: Some(*shard),
                ..of_group("quarantine-ended", group)
            },
        }
    }
}
