//! Words of the domain as messages.

pub(super) mod history;
mod plan;
mod stream;

use std::time::Duration;

use tenure_ownership::event::EndCause;
use tenure_ownership::group::{Freeze, Group, GroupPhase};
use tenure_ownership::ids::{ClusterId, Revision, SessionId, ShardIndex, WorkerName};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::{SessionEnd, Worker, WorkerMode};
use tenure_ownership::shard::{RevokeReason, Shard, ShardState, Written};
use tenure_ownership::{Event, State};
use tenure_proto::v1 as pb;
use tonic::Status;

use crate::watch::Cursor;

pub(super) use self::plan::plan;
pub(super) use self::stream::down;

pub(super) fn cluster_id(cluster: ClusterId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&cluster.0.to_be_bytes())
}

pub(super) fn session(cluster: ClusterId, session: SessionId) -> pb::Session {
    pb::Session {
        cluster_id: cluster_id(cluster),
        number: session.0,
    }
}

pub(super) fn cursor(cursor: Cursor) -> pb::Cursor {
    pb::Cursor {
        revision: cursor.revision.0,
        ordinal: cursor.ordinal,
    }
}

/// What became of one of several writes.
pub(super) fn write_outcome(outcome: Result<Revision, Status>) -> pb::WriteOutcome {
    match outcome {
        Ok(revision) => pb::WriteOutcome {
            revision: revision.0,
            error: bytes::Bytes::new(),
        },
        // Its details are the whole google.rpc.Status, with code and message.
        Err(status) => pb::WriteOutcome {
            revision: 0,
            error: bytes::Bytes::copy_from_slice(status.details()),
        },
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn phase(shard: &Shard) -> pb::ShardPhase {
    match shard.state {
        ShardState::Unowned(_) => pb::ShardPhase::Unowned,
        ShardState::Opening(_) => pb::ShardPhase::Opening,
        ShardState::Serving(_) => pb::ShardPhase::Serving,
        ShardState::Revoking(_) => pb::ShardPhase::Revoking,
    }
}

pub(super) fn revoke_reason(reason: RevokeReason) -> pb::RevokeReason {
    match reason {
        RevokeReason::Draining => pb::RevokeReason::Draining,
        RevokeReason::Rebalance => pb::RevokeReason::Rebalance,
        RevokeReason::OpeningDeadline => pb::RevokeReason::OpeningDeadline,
        RevokeReason::GroupDeleted => pb::RevokeReason::GroupDeleted,
        RevokeReason::Stopping => pb::RevokeReason::Stopping,
        RevokeReason::Placement => pb::RevokeReason::Placement,
    }
}

pub(super) fn worker_mode(mode: WorkerMode) -> pb::WorkerMode {
    match mode {
        WorkerMode::Active => pb::WorkerMode::Active,
        WorkerMode::Draining => pb::WorkerMode::Draining,
        WorkerMode::Cordoned => pb::WorkerMode::Cordoned,
        WorkerMode::Paused => pb::WorkerMode::Paused,
    }
}

/// A shard with its owner's name and address.
pub(super) fn shard(
    state: &State,
    cluster: ClusterId,
    group: &Group,
    index: ShardIndex,
    shard: &Shard,
) -> pb::Shard {
    let owner = shard.owner();
    let owning = owner.and_then(|owner| state.session(owner));
    let revocation = match &shard.state {
        ShardState::Revoking(revocation) => Some(revocation),
        _ => None,
    };
    let next = revocation.and_then(|revocation| state.session(revocation.next?));
    let placement = group.placements.get(&index);
    pb::Shard {
        pinned_to: placement.map(plan::pinned_to).unwrap_or_default(),
        kept_off: placement.map(plan::kept_off).unwrap_or_default(),
        quarantine: placement.and_then(plan::quarantine),
        shard: Some(pb::ShardRef {
            group: group.header.name.to_string(),
            index: index.0,
        }),
        phase: phase(shard).into(),
        epoch: shard.epoch.map_or(0, |epoch| epoch.get()),
        owner: owner.map(|owner| session(cluster, owner)),
        worker: owning
            .map(|session| session.worker.to_string())
            .unwrap_or_default(),
        address: owning
            .map(|session| session.address.clone())
            .unwrap_or_default(),
        open_failure: shard.open_failure.as_ref().map(|failure| pb::OpenFailure {
            count: failure.count,
            worker: failure.worker.to_string(),
            reason: failure.reason.clone(),
        }),
        revoke_reason: revocation
            .map_or(pb::RevokeReason::Unspecified, |revocation| {
                revoke_reason(revocation.reason)
            })
            .into(),
        next_worker: next
            .map(|session| session.worker.to_string())
            .unwrap_or_default(),
        checkpoint_bytes: shard.checkpoint_bytes(),
    }
}

pub(super) fn policy(policy: &Policy) -> pb::Policy {
    pb::Policy {
        ttl_ms: millis(policy.ttl),
        disconnect_grace_ms: millis(policy.disconnect_grace),
        restart_grace_ms: millis(policy.restart_grace),
        lock_delay_ms: millis(policy.lock_delay),
        drain_timeout_ms: millis(policy.drain_timeout),
        opening_deadline_ms: millis(policy.opening_deadline),
        handoffs_in_flight_max: policy.handoffs_in_flight_max.unwrap_or(0),
        load_factor_permille: policy.load_factor_permille,
        checkpoint_bytes_max: policy.checkpoint_bytes_max,
        checkpoint_total_bytes_max: policy.checkpoint_total_bytes_max,
        worker_shards_max: policy.worker_shards_max.unwrap_or(0),
        required_labels: policy.required_labels.clone().into_iter().collect(),
        preferred_labels: policy.preferred_labels.clone().into_iter().collect(),
        zone_label: policy.zone_label.clone(),
        balance_by: plan::balance_by(policy.balance_by).into(),
        imbalance_tolerated_permille: policy.imbalance_tolerated_permille,
        moves_per_minute_max: policy.moves_per_minute_max.unwrap_or(0),
        crashes_max: policy.crashes_max,
    }
}

/// A group with the number of its shards in each phase.
pub(super) fn group(state: &State, group: &Group) -> pb::Group {
    let mut message = pb::Group {
        name: group.header.name.to_string(),
        shard_count: group.header.shard_count,
        deleting: group.header.phase == GroupPhase::Deleting,
        policy: Some(policy(&group.header.policy)),
        policy_revision: group.header.policy_revision.0,
        checkpoint_bytes: state.checkpoint_bytes(group.header.id),
        frozen: group.header.frozen.as_ref().map(freeze),
        ..pb::Group::default()
    };
    for shard in group.shards.iter() {
        let counter = match shard.state {
            ShardState::Unowned(_) => &mut message.unowned,
            ShardState::Opening(_) => &mut message.opening,
            ShardState::Serving(_) => &mut message.serving,
            ShardState::Revoking(_) => &mut message.revoking,
        };
        *counter += 1;
    }
    let live = group
        .workers
        .values()
        .filter(|worker| worker.session.is_some())
        .count();
    message.workers = u32::try_from(live).unwrap_or(u32::MAX);
    for placement in group.placements.values() {
        message.quarantined += u32::from(placement.quarantine.is_some());
        let pinned = placement.pinned_to.is_some() || !placement.kept_off.is_empty();
        message.pinned += u32::from(pinned);
    }
    message
}

fn freeze(freeze: &Freeze) -> pb::Freeze {
    pb::Freeze {
        reason: freeze.reason.clone(),
        since_revision: freeze.since.0,
    }
}

/// A worker of a group. `waiting` are the unowned shards that wait for it.
pub(super) fn worker(
    state: &State,
    cluster: ClusterId,
    name: &WorkerName,
    worker: &Worker,
    waiting: u32,
) -> pb::Worker {
    let message = pb::Worker {
        name: name.to_string(),
        mode: worker_mode(worker.mode).into(),
        waiting,
        pause_timeout_ms: worker.pause.map_or(0, |pause| millis(pause.timeout)),
        ..pb::Worker::default()
    };
    let live = worker.session.and_then(|id| Some((id, state.session(id)?)));
    let Some((id, live)) = live else {
        return message;
    };
    pb::Worker {
        session: Some(session(cluster, id)),
        weight: live.weight,
        labels: live.labels.clone().into_iter().collect(),
        address: live.address.clone(),
        shards: u32::try_from(state.owned(id).len()).unwrap_or(u32::MAX),
        ttl_ms: millis(live.ttl),
        window_ms: millis(live.window),
        ..message
    }
}

/// A checkpoint: what the state knows of it, and its bytes.
pub(super) fn checkpoint(written: &Written, data: bytes::Bytes) -> pb::Checkpoint {
    let cluster = ClusterId(written.owner.cluster);
    pb::Checkpoint {
        epoch: written.epoch.get(),
        owner: Some(session(cluster, SessionId(written.owner.session))),
        sequence: written.sequence.get(),
        write_id: bytes::Bytes::copy_from_slice(&written.write_id.get().to_be_bytes()),
        data,
    }
}

/// A shard in a watched state.
pub(super) fn watch_shard(index: ShardIndex, shard: &Shard) -> pb::WatchShard {
    pb::WatchShard {
        index: index.0,
        phase: phase(shard).into(),
        epoch: shard.epoch.map_or(0, |epoch| epoch.get()),
        owner: shard.owner().map_or(0, |owner| owner.0),
    }
}

fn session_end(end: SessionEnd) -> pb::SessionEnd {
    match end {
        SessionEnd::Left => pb::SessionEnd::Left,
        SessionEnd::Expired => pb::SessionEnd::Expired,
        SessionEnd::Replaced => pb::SessionEnd::Replaced,
        SessionEnd::GroupDeleted => pb::SessionEnd::GroupDeleted,
    }
}

fn end_cause(cause: &EndCause) -> (pb::EndCause, String) {
    match cause {
        EndCause::Released => (pb::EndCause::Released, String::new()),
        EndCause::OpenFailed(detail) => (pb::EndCause::OpenFailed, detail.clone()),
        EndCause::Lost => (pb::EndCause::Lost, String::new()),
        EndCause::Forced => (pb::EndCause::Forced, String::new()),
        EndCause::SessionEnded(_) => (pb::EndCause::SessionEnded, String::new()),
    }
}

/// An event as watchers of its group see it; `None` for an event of the cluster, which they do not.
/// `address` gives the address of a worker that registered.
pub(super) fn event(
    at: Cursor,
    event: &Event,
    address: impl FnOnce(SessionId) -> String,
) -> Option<pb::Event> {
    use pb::event::Event as Kind;

    let changed = |change: pb::GroupChange| {
        Kind::GroupChanged(pb::GroupChanged {
            change: change.into(),
            reason: String::new(),
        })
    };
    let kind = match event {
        Event::ClusterInitialized { .. }
        | Event::FeatureEnabled { .. }
        | Event::ClusterRestored { .. }
        | Event::ClusterSettled => return None,
        Event::GroupCreated { .. } => changed(pb::GroupChange::Created),
        Event::PolicySet { .. } => changed(pb::GroupChange::PolicySet),
        Event::GroupDeleting { .. } => changed(pb::GroupChange::Deleting),
        Event::GroupRemoved { .. } => changed(pb::GroupChange::Removed),
        Event::Registered {
            worker, session, ..
        } => Kind::Registered(pb::WorkerRegistered {
            session: session.0,
            worker: worker.to_string(),
            address: address(*session),
        }),
        Event::SessionEnded {
            worker,
            session,
            end,
            ..
        } => Kind::SessionEnded(pb::SessionEnded {
            session: session.0,
            worker: worker.to_string(),
            end: session_end(*end).into(),
        }),
        Event::WorkerModeSet { worker, mode, .. } => Kind::WorkerModeSet(pb::WorkerModeSet {
            worker: worker.to_string(),
            mode: worker_mode(*mode).into(),
        }),
        Event::FreezeSet { reason, .. } => Kind::GroupChanged(pb::GroupChanged {
            change: match reason {
                Some(_) => pb::GroupChange::Frozen.into(),
                None => pb::GroupChange::Unfrozen.into(),
            },
            reason: reason.clone().unwrap_or_default(),
        }),
        Event::Granted {
            shard,
            epoch,
            owner,
            ..
        } => Kind::Granted(pb::ShardGranted {
            shard: shard.0,
            epoch: epoch.get(),
            owner: owner.0,
        }),
        Event::Serving {
            shard,
            epoch,
            owner,
            ..
        } => Kind::Serving(pb::ShardServing {
            shard: shard.0,
            epoch: epoch.get(),
            owner: owner.0,
        }),
        Event::Revoking {
            shard,
            epoch,
            owner,
            next,
            reason,
            ..
        } => Kind::Revoking(pb::ShardRevoking {
            shard: shard.0,
            epoch: epoch.get(),
            owner: owner.0,
            next: next.map_or(0, |next| next.0),
            reason: revoke_reason(*reason).into(),
        }),
        Event::TenureEnded {
            shard,
            epoch,
            owner,
            cause,
            ..
        } => {
            let (cause, detail) = end_cause(cause);
            Kind::TenureEnded(pb::TenureEnded {
                shard: shard.0,
                epoch: epoch.get(),
                owner: owner.0,
                cause: cause.into(),
                detail,
            })
        }
        Event::FloorRaised { shard, floor, .. } => Kind::FloorRaised(pb::FloorRaised {
            shard: shard.0,
            floor: *floor,
        }),
        Event::ShardPinned {
            shard,
            to,
            kept_off,
            ..
        } => Kind::ShardPinned(pb::ShardPinned {
            shard: shard.0,
            to: to.as_ref().map(ToString::to_string).unwrap_or_default(),
            kept_off: kept_off.iter().map(ToString::to_string).collect(),
        }),
        Event::ShardQuarantined { shard, crashes, .. } => {
            Kind::ShardQuarantined(pb::ShardQuarantined {
                shard: shard.0,
                crashes: *crashes,
            })
        }
        Event::QuarantineEnded { shard, .. } => {
            Kind::QuarantineEnded(pb::QuarantineEnded { shard: shard.0 })
        }
    };
    Some(pb::Event {
        cursor: Some(cursor(at)),
        event: Some(kind),
    })
}
