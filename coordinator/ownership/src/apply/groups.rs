//! Groups: how they come, change and go, and what remains of them.

use tenure_fence::GroupName;

use super::entry::{Entry, active_group};
use super::handoff::{begin_revocation, cancel_successor};
use super::sessions::end_session;
use super::tenures;
use crate::command::{CreateGroup, SetFreeze, SetPolicy};
use crate::event::Event;
use crate::group::{Freeze, GroupHeader, GroupPhase, Tombstone};
use crate::ids::{GroupId, ShardIndex};
use crate::policy::bounds;
use crate::quota;
use crate::rejection::Rejection;
use crate::session::SessionEnd;
use crate::shard::{RevokeReason, Shard, ShardState};
use crate::state::State;

/// Creates a group. Its epochs go on above those of a deleted group of the same name.
pub(super) fn create(entry: &mut Entry<'_>, command: CreateGroup) -> Result<(), Rejection> {
    let CreateGroup {
        name,
        shard_count,
        policy,
    } = command;
    if entry.state().group_named(&name).is_some() {
        return Err(Rejection::GroupExists { name });
    }
    if !bounds::SHARDS.contains(&shard_count) {
        let (least, most) = bounds::SHARDS.into_inner();
        return Err(Rejection::OutOfBounds {
            field: "shard_count",
            allowed: format!("{least} to {most}"),
        });
    }
    policy.validate(shard_count).map_err(Rejection::Policy)?;
    check_room(entry.state(), &name, shard_count)?;

    let group = GroupId(entry.revision().0);
    let floor = entry.take_tombstone(&name);
    let header = GroupHeader {
        id: group,
        name: name.clone(),
        shard_count,
        phase: GroupPhase::Active,
        policy,
        policy_revision: entry.revision(),
        frozen: None,
    };
    entry.insert_group(header, floor);
    entry.record(Event::GroupCreated {
        group,
        name,
        shard_count,
    });
    Ok(())
}

fn check_room(state: &State, name: &GroupName, shard_count: u32) -> Result<(), Rejection> {
    let too_many = |what, limit| Err(Rejection::TooMany { what, limit });
    if state.groups.len() >= quota::GROUPS_MAX {
        return too_many("groups", quota::GROUPS_MAX as u64);
    }
    let names = state.groups.len() + state.tombstones.len();
    if names >= quota::GROUP_NAMES_MAX && !state.tombstones.contains_key(name) {
        return too_many("names of groups ever used", quota::GROUP_NAMES_MAX as u64);
    }
    let shards: u64 = state
        .groups()
        .map(|group| u64::from(group.header.shard_count))
        .sum();
    if shards + u64::from(shard_count) > quota::SHARDS_MAX {
        return too_many("shards of the cluster", quota::SHARDS_MAX);
    }
    Ok(())
}

/// Replaces a group's policy; nothing happens if it is the same.
pub(super) fn set_policy(entry: &mut Entry<'_>, command: SetPolicy) -> Result<(), Rejection> {
    let header = &active_group(entry.state(), &command.group)?.header;
    let id = header.id;
    let current = header.policy_revision;
    if let Some(seen) = command.seen.filter(|seen| *seen != current) {
        return Err(Rejection::PolicyChanged {
            seen: seen.0,
            current: current.0,
        });
    }
    command
        .policy
        .validate(header.shard_count)
        .map_err(Rejection::Policy)?;
    if header.policy == command.policy {
        return Ok(());
    }
    let revision = entry.revision();
    let header = entry.header_mut(id);
    header.policy = command.policy;
    header.policy_revision = revision;
    entry.record(Event::PolicySet { group: id });
    Ok(())
}

/// Stops the planned moves of a group, or lets them go on; nothing happens if it is so already.
pub(super) fn set_freeze(entry: &mut Entry<'_>, command: SetFreeze) -> Result<(), Rejection> {
    let SetFreeze { group, reason } = command;
    let header = &active_group(entry.state(), &group)?.header;
    let fits = |reason: &String| (1..=Freeze::REASON_BYTES_MAX).contains(&reason.len());
    if !reason.as_ref().is_none_or(fits) {
        return Err(Rejection::OutOfBounds {
            field: "reason",
            allowed: format!("1 to {} bytes", Freeze::REASON_BYTES_MAX),
        });
    }
    if header.frozen.as_ref().map(|freeze| &freeze.reason) == reason.as_ref() {
        return Ok(());
    }
    let (id, since) = (header.id, entry.revision());
    entry.header_mut(id).frozen = reason.clone().map(|reason| Freeze { since, reason });
    entry.record(Event::FreezeSet { group: id, reason });
    Ok(())
}

/// Starts the deletion of a group: every owner is asked to stop, and nobody follows.
pub(super) fn delete(entry: &mut Entry<'_>, name: &GroupName) -> Result<(), Rejection> {
    let group = active_group(entry.state(), name)?;
    let id = group.header.id;
    let owned: Vec<_> = group
        .indexed_shards()
        .filter(|(_, shard)| shard.owner().is_some())
        .map(|(index, _)| index)
        .collect();
    entry.header_mut(id).phase = GroupPhase::Deleting;
    entry.record(Event::GroupDeleting { group: id });
    for index in owned {
        revoke_for_deletion(entry, id, index);
    }
    Ok(())
}

fn revoke_for_deletion(entry: &mut Entry<'_>, group: GroupId, shard: ShardIndex) {
    let Some(held) = tenures::held(entry.state(), group, shard) else {
        return;
    };
    let state = entry.state().shard(group, shard).map(|shard| &shard.state);
    // Of one whose owner was asked to stop before, the deadline goes on; only the successor is cancelled.
    match state {
        Some(ShardState::Revoking(_)) => cancel_successor(entry, held),
        _ => begin_revocation(entry, held, None, RevokeReason::GroupDeleted),
    }
}

/// Removes a group under deletion when nobody owns any of its shards; the tombstone keeps the epochs.
pub(super) fn remove(entry: &mut Entry<'_>, id: GroupId) -> Result<(), Rejection> {
    let Some(group) = entry.state().group(id) else {
        return Err(Rejection::GroupGone { group: id });
    };
    let name = group.header.name.clone();
    if group.header.phase == GroupPhase::Active {
        return Err(Rejection::GroupActive { name });
    }
    let owned = group
        .shards
        .iter()
        .filter(|shard| shard.owner().is_some())
        .count();
    if owned > 0 {
        let owned = u32::try_from(owned).unwrap_or(u32::MAX);
        return Err(Rejection::GroupInUse { name, owned });
    }
    let highest = group.shards.iter().map(Shard::highest_epoch).max();
    let tombstone = Tombstone {
        floor: highest.unwrap_or(0),
        removed_at: entry.revision(),
    };
    let sessions: Vec<_> = group
        .workers
        .values()
        .filter_map(|worker| worker.session)
        .collect();
    for session in sessions {
        if let Some(ended) = entry.remove_session(session) {
            end_session(entry, session, &ended, SessionEnd::GroupDeleted);
        }
    }
    entry.remove_group(id);
    entry.put_tombstone(name.clone(), tombstone);
    entry.record(Event::GroupRemoved { group: id, name });
    Ok(())
}
