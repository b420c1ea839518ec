//! First phase: shards that must leave their owner.

use crate::ids::ShardIndex;
use crate::planner::candidate::{Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::pins;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::shard::{RevokeReason, Shard, ShardState};

/// A shard that must leave its owner, and has found no room elsewhere so far.
pub(super) struct Stuck {
    index: ShardIndex,
    reason: RevokeReason,
}

/// Revokes openings past their deadline.
///
/// The shard goes to another worker. If there is none it is revoked all the same: the next grant,
/// maybe to the same worker, is a fresh try at a new epoch, and no shard is held for ever by an
/// opening that hangs.
pub(super) fn overdue_openings(draft: &mut Draft<'_>) {
    let (group, observed) = (draft.group, draft.observed);
    for tenure in &observed.opening_overdue {
        let Some(shard) = group.shard(tenure.shard) else {
            continue;
        };
        let ShardState::Opening(owner) = shard.state else {
            continue;
        };
        if shard.epoch != Some(tenure.epoch) {
            continue;
        }
        if observed.backing_off.contains(&tenure.shard) {
            draft.report.note(Reason::BackingOff, tenure.shard);
            continue;
        }
        if draft.budget.left() == 0 {
            draft.report.note(Reason::Throttled, tenure.shard);
            continue;
        }
        let owner = draft.ordinal_of(owner);
        let next = score::most_suitable(draft, tenure.shard, shard, owner).ok();
        draft.revoke(tenure.shard, next, RevokeReason::OpeningDeadline);
    }
}

/// Moves shards off workers that are drained, that stop, or that lack a label that the policy requires.
///
/// A shard that fits nowhere else stays: served by a draining worker is better than served by nobody. A
/// worker that stops is told that it waits for nothing. So is one that is paused: what it gives back
/// waits for it.
///
/// Returns what found no room.
pub(super) fn draining_workers(draft: &mut Draft<'_>) -> Vec<Stuck> {
    let mut stuck = Vec::new();
    let emptied: Vec<(WorkerOrdinal, RevokeReason)> = draft
        .workers()
        .filter(|(_, worker)| worker.load > 0)
        .filter_map(|(ordinal, worker)| match worker.standing {
            Standing::Draining => Some((ordinal, RevokeReason::Draining)),
            Standing::Stopping => Some((ordinal, RevokeReason::Stopping)),
            Standing::Unfit => Some((ordinal, RevokeReason::Placement)),
            Standing::Open | Standing::Disconnected | Standing::Cordoned | Standing::Paused => None,
        })
        .collect();
    if emptied.is_empty() {
        return stuck;
    }
    let mut spare = spare(draft);
    let state = draft.state;
    for (worker, reason) in emptied {
        for index in state.owned(draft.worker(worker).session) {
            stuck.extend(evacuate(draft, index, reason, &mut spare));
        }
    }
    stuck
}

/// Moves shards off workers that they are kept off. Returns what found no room.
pub(super) fn shards_kept_off(draft: &mut Draft<'_>) -> Vec<Stuck> {
    let mut stuck = Vec::new();
    let group = draft.group;
    let mut left = None;
    for (index, placement) in group.placements.iter() {
        if placement.kept_off.is_empty() {
            continue;
        }
        let owner = group.shard(*index).and_then(Shard::owner);
        let owner = owner.and_then(|owner| draft.ordinal_of(owner));
        if owner.is_some_and(|owner| !draft.may_have(*index, owner)) {
            let mut spare_left = left.unwrap_or_else(|| spare(draft));
            let reason = RevokeReason::Placement;
            stuck.extend(evacuate(draft, *index, reason, &mut spare_left));
            left = Some(spare_left);
        }
    }
    stuck
}

/// Room that unowned shards do not need: it may be spent on shards that are served.
fn spare(draft: &Draft<'_>) -> u64 {
    let unowned = u64::from(draft.group.unowned_count());
    draft.room().saturating_sub(unowned)
}

/// Moves an owned shard into spare room, unless it is on the move already. Returns it if there is none.
fn evacuate(
    draft: &mut Draft<'_>,
    index: ShardIndex,
    reason: RevokeReason,
    spare: &mut u64,
) -> Option<Stuck> {
    let shard = draft.group.shard(index)?;
    let (ShardState::Opening(owner) | ShardState::Serving(owner)) = shard.state else {
        return None;
    };
    if draft.is_revoked(index) {
        return None;
    }
    let worker = draft.ordinal_of(owner)?;
    let (is_paused, standing) = (
        draft.worker(worker).is_paused,
        draft.worker(worker).standing,
    );
    // A worker without a stream cannot be asked, and it is about to resume or to expire.
    let kept = if is_paused {
        Some(Reason::WorkerPaused)
    } else if standing == Standing::Cordoned {
        Some(Reason::WorkerCordoned)
    } else if draft.group.header.frozen.is_some() {
        Some(Reason::Frozen)
    } else if draft.observed.is_disconnected(owner) {
        Some(Reason::OwnerDisconnected)
    } else if draft.observed.backing_off.contains(&index) {
        Some(Reason::BackingOff)
    } else if draft.budget.left() == 0 {
        Some(Reason::Throttled)
    } else {
        None
    };
    if let Some(kept) = kept {
        stays(draft, index, worker, kept);
        return None;
    }
    if let Some(home) = pins::home_with_room(draft, index) {
        // Its room was kept for it.
        draft.revoke(index, Some(home), reason);
        return None;
    }
    let stuck = Some(Stuck { index, reason });
    if *spare == 0 {
        return stuck;
    }
    let Ok(next) = score::most_suitable(draft, index, shard, Some(worker)) else {
        return stuck;
    };
    *spare -= 1;
    draft.revoke(index, Some(next), reason);
    None
}

/// Moves what had no room to go to, if there is some now because shards are taken from others.
pub(super) fn what_found_no_room(draft: &mut Draft<'_>, stuck: Vec<Stuck>) {
    let group = draft.group;
    for Stuck { index, reason } in stuck {
        let Some(shard) = group.shard(index) else {
            continue;
        };
        let owner = shard.owner().and_then(|owner| draft.ordinal_of(owner));
        let Some(owner) = owner.filter(|_| !draft.is_revoked(index)) else {
            continue;
        };
        let next = if draft.budget.left() == 0 {
            Err(Reason::Throttled)
        } else {
            score::most_suitable(draft, index, shard, Some(owner))
        };
        match next {
            Ok(next) => draft.revoke(index, Some(next), reason),
            Err(reason) => stays(draft, index, owner, reason),
        }
    }
}

/// Notes that a shard stays with a worker that should not have it.
fn stays(draft: &mut Draft<'_>, index: ShardIndex, worker: WorkerOrdinal, reason: Reason) {
    draft.report.note(reason, index);
    if draft.worker(worker).standing == Standing::Stopping && !passes_soon(reason) {
        draft.strand(worker);
    }
}

/// Whether what keeps a shard where it is is over in a moment, by itself.
fn passes_soon(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Throttled | Reason::BackingOff | Reason::OwnerDisconnected
    )
}
