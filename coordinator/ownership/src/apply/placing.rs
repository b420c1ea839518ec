//! Where single shards belong: pins, anti-pins and quarantine.

use std::collections::BTreeSet;

use super::entry::{Entry, active_group};
use super::handoff::{at_epoch, begin_revocation, cancel_successor};
use super::tenures;
use crate::command::{OneShard, PinShard, PinTo, Quarantine};
use crate::event::Event;
use crate::group::{Group, GroupPhase};
use crate::ids::{GroupId, ShardIndex, WorkerName};
use crate::placement::{self, KEPT_OFF_MAX, Placement};
use crate::quota;
use crate::rejection::Rejection;
use crate::shard::{RevokeReason, ShardState};

/// Says where a shard belongs. Nothing moves in this entry: the planner sees to it.
pub(super) fn pin(entry: &mut Entry<'_>, command: PinShard) -> Result<(), Rejection> {
    let group = active_group(entry.state(), &command.group)?;
    require_shard(group, command.shard)?;
    let (to, kept_off) = match command.to {
        PinTo::Worker(worker) => (Some(worker), BTreeSet::new()),
        PinTo::AnyBut(workers) => (None, workers),
    };
    if (to.is_none() && kept_off.is_empty()) || kept_off.len() > KEPT_OFF_MAX {
        return Err(Rejection::OutOfBounds {
            field: "kept_off",
            allowed: format!("1 to {KEPT_OFF_MAX} workers"),
        });
    }
    require_room(group, command.shard)?;
    set_pin(entry, group.header.id, command.shard, to, kept_off);
    Ok(())
}

/// Lets a shard be anywhere again; nothing happens if it may already.
pub(super) fn unpin(entry: &mut Entry<'_>, command: &OneShard) -> Result<(), Rejection> {
    let group = active_group(entry.state(), &command.group)?;
    require_shard(group, command.shard)?;
    set_pin(entry, group.header.id, command.shard, None, BTreeSet::new());
    Ok(())
}

fn set_pin(
    entry: &mut Entry<'_>,
    group: GroupId,
    shard: ShardIndex,
    to: Option<WorkerName>,
    kept_off: BTreeSet<WorkerName>,
) {
    let said = entry
        .state()
        .group(group)
        .and_then(|group| group.placements.get(&shard));
    let is_same = |said: &Placement| said.pinned_to == to && said.kept_off == kept_off;
    if is_same(said.unwrap_or(&Placement::default())) {
        return;
    }
    entry.change_placement(group, shard, |placement| {
        placement.pinned_to.clone_from(&to);
        placement.kept_off.clone_from(&kept_off);
    });
    entry.record(Event::ShardPinned {
        group,
        shard,
        to,
        kept_off,
    });
}

/// Puts a shard into quarantine. If it went on to another worker meanwhile, it is asked back.
///
/// The proposer saw the shard at an epoch at which one more owner crashed. If it has moved since, the
/// command is refused: that owner is fine so far, and its crash would be counted anew.
pub(super) fn quarantine(entry: &mut Entry<'_>, command: Quarantine) -> Result<(), Rejection> {
    let Quarantine {
        group,
        shard,
        seen,
        crashes,
    } = command;
    let Some(found) = entry.state().group(group) else {
        return Err(Rejection::GroupGone { group });
    };
    if found.header.phase == GroupPhase::Deleting {
        let name = found.header.name.clone();
        return Err(Rejection::GroupDeleting { name });
    }
    at_epoch(entry.state(), group, shard, Some(seen))?;
    if found.quarantine(shard).is_some() {
        return Ok(());
    }
    require_room(found, shard)?;
    let since = entry.revision();
    entry.change_placement(group, shard, |placement| {
        placement.quarantine = Some(placement::Quarantine { crashes, since });
    });
    entry.record(Event::ShardQuarantined {
        group,
        shard,
        crashes,
    });
    let Some(held) = tenures::held(entry.state(), group, shard) else {
        return Ok(());
    };
    let state = entry.state().shard(group, shard).map(|shard| &shard.state);
    match state {
        Some(ShardState::Revoking(_)) => cancel_successor(entry, held),
        _ => begin_revocation(entry, held, None, RevokeReason::Placement),
    }
    Ok(())
}

/// Ends a quarantine; nothing happens if there is none.
pub(super) fn retry(entry: &mut Entry<'_>, command: &OneShard) -> Result<(), Rejection> {
    let group = active_group(entry.state(), &command.group)?;
    require_shard(group, command.shard)?;
    if group.quarantine(command.shard).is_none() {
        return Ok(());
    }
    let (group, shard) = (group.header.id, command.shard);
    entry.change_placement(group, shard, |placement| placement.quarantine = None);
    entry.record(Event::QuarantineEnded { group, shard });
    Ok(())
}

fn require_shard(group: &Group, shard: ShardIndex) -> Result<(), Rejection> {
    match group.shard(shard) {
        Some(_) => Ok(()),
        None => Err(Rejection::UnknownShard { shard }),
    }
}

/// Refuses to say something of one more shard above the quota.
fn require_room(group: &Group, shard: ShardIndex) -> Result<(), Rejection> {
    let full = group.placements.len() >= quota::PLACEMENTS_PER_GROUP_MAX;
    if full && !group.placements.contains_key(&shard) {
        return Err(Rejection::TooMany {
            what: "shards of a group that are pinned or in quarantine",
            limit: quota::PLACEMENTS_PER_GROUP_MAX as u64,
        });
    }
    Ok(())
}
