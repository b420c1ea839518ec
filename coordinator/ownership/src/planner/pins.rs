//! Shards that are pinned: they go where they belong, whatever share their worker has.
//!
//! A pin wins over shares and over rebalancing. It does not win over a drain, a missing label, or a worker
//! that is away: then the shard is placed like any other, and goes home when its worker is back. While
//! it is elsewhere the report says so.

use std::collections::BTreeMap;

use crate::ids::ShardIndex;
use crate::planner::candidate::{Candidate, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::shard::{RevokeReason, ShardState};

/// The worker that a shard is pinned to, if it may take it now.
pub(super) fn home_with_room(draft: &Draft<'_>, index: ShardIndex) -> Option<WorkerOrdinal> {
    let pinned_to = draft.group.placements.get(&index)?.pinned_to.as_ref()?;
    let home = draft.home(pinned_to)?;
    has_room(draft, home).then_some(home)
}

/// Whether a worker takes one more shard that is pinned to it: only the hard limit counts.
fn has_room(draft: &Draft<'_>, home: WorkerOrdinal) -> bool {
    let most = draft.group.header.policy.worker_shards_max;
    draft.worker(home).load < most.unwrap_or(u32::MAX)
}

/// Moves shards that are not pinned off workers that have as many as they may have, for as many as are to
/// come home there. Before anything is placed, so that those come home in the same plan.
pub(super) fn make_room(draft: &mut Draft<'_>) {
    let Some(most) = draft.group.header.policy.worker_shards_max else {
        return;
    };
    let mut coming: BTreeMap<WorkerOrdinal, u32> = BTreeMap::new();
    for (index, placement) in draft.group.placements.iter() {
        let home = placement.pinned_to.as_ref().and_then(|to| draft.home(to));
        let rests = placement.quarantine.is_some() || draft.observed.backing_off.contains(index);
        if let Some(home) = home.filter(|home| !rests && !draft.will_have(*index, *home)) {
            *coming.entry(home).or_default() += 1;
        }
    }
    let (state, group) = (draft.state, draft.group);
    for (home, coming) in coming {
        for index in state.owned(draft.worker(home).session) {
            let full = draft.worker(home).load + coming > most;
            if !full || may_move(draft) == 0 {
                break;
            }
            let shard = group.shard(index);
            let owned = shard.filter(|shard| {
                matches!(shard.state, ShardState::Opening(_) | ShardState::Serving(_))
            });
            let rests = draft.is_revoked(index)
                || draft.observed.backing_off.contains(&index)
                || draft.is_fixed(index, home);
            let Some(shard) = owned.filter(|_| !rests) else {
                continue;
            };
            if let Ok(next) = score::most_suitable(draft, index, shard, Some(home)) {
                draft.revoke(index, Some(next), RevokeReason::Placement);
            }
        }
    }
}

/// How many served shards may be asked back for the sake of others.
fn may_move(draft: &Draft<'_>) -> u32 {
    match draft.observed.rebalance_paused {
        None if draft.group.header.frozen.is_none() => draft.budget.left(),
        _ => 0,
    }
}

/// Asks for shards that are elsewhere than where they are pinned, unless moves rest.
pub(super) fn bring_home(draft: &mut Draft<'_>) {
    let group = draft.group;
    for (index, placement) in group.placements.iter() {
        let Some(pinned_to) = &placement.pinned_to else {
            continue;
        };
        let Some(home) = draft.home(pinned_to) else {
            let known = group.workers.get(pinned_to);
            let owner = group.shard(*index).and_then(|shard| shard.owner());
            if owner.is_none() || owner != known.and_then(|worker| worker.session) {
                draft.report.note(Reason::PinnedWorkerAway, *index);
            }
            continue;
        };
        let owner = match group.shard(*index).map(|shard| &shard.state) {
            Some(ShardState::Opening(owner) | ShardState::Serving(owner)) => *owner,
            _ => continue,
        };
        if draft.worker(home).session == owner || draft.is_revoked(*index) {
            continue;
        }
        match may_come(draft, *index, home) {
            Ok(()) => draft.revoke(*index, Some(home), RevokeReason::Placement),
            Err(reason) => draft.report.note(reason, *index),
        }
    }
}

/// Whether an owned shard may be asked back to go home.
fn may_come(draft: &Draft<'_>, index: ShardIndex, home: WorkerOrdinal) -> Result<(), Reason> {
    let observed = draft.observed;
    let shard = draft.group.shard(index);
    let owner = shard.and_then(|shard| shard.owner());
    let holder = owner.and_then(|owner| draft.ordinal_of(owner));
    let holder = holder.map(|holder| draft.worker(holder));
    if holder.is_some_and(|holder| holder.is_paused) {
        return Err(Reason::WorkerPaused);
    }
    if holder.is_some_and(Candidate::keeps_all) {
        return Err(Reason::WorkerCordoned);
    }
    if draft.group.header.frozen.is_some() {
        return Err(Reason::Frozen);
    }
    if let Some(paused) = observed.rebalance_paused {
        return Err(Reason::Paused(paused));
    }
    if observed.backing_off.contains(&index) {
        return Err(Reason::BackingOff);
    }
    if shard.is_some_and(|shard| draft.worker(home).has_failed(shard)) {
        return Err(Reason::AvoidedWorker);
    }
    if owner.is_some_and(|owner| observed.is_disconnected(owner)) {
        return Err(Reason::OwnerDisconnected);
    }
    if !has_room(draft, home) {
        return Err(Reason::PinnedWorkerFull);
    }
    if draft.budget.left() == 0 {
        return Err(Reason::Throttled);
    }
    Ok(())
}
