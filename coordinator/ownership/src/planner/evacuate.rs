//! First phase: shards that must leave their owner.

use crate::planner::candidate::{Candidate, Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::shard::{RevokeReason, ShardState};

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

/// Moves shards off workers that are drained, or that stop.
///
/// A shard that fits nowhere else stays: served by a draining worker is better than served by nobody. A
/// worker that stops is told that it waits for nothing. So is one that is paused: what it gives back
/// waits for it.
pub(super) fn draining_workers(draft: &mut Draft<'_>) {
    let leaving = |worker: &Candidate<'_>| {
        matches!(worker.standing, Standing::Draining | Standing::Stopping) && worker.load > 0
    };
    let draining: Vec<WorkerOrdinal> = draft
        .workers()
        .filter(|(_, worker)| leaving(worker))
        .map(|(ordinal, _)| ordinal)
        .collect();
    if draining.is_empty() {
        return;
    }
    // Room that unowned shards need is not spent on shards that are served.
    let unowned = u64::from(draft.group.unowned_count());
    let mut spare = draft.room().saturating_sub(unowned);
    for worker in draining {
        spare = drain(draft, worker, spare);
    }
}

/// Moves the shards of one worker into spare room and returns what is left of it.
fn drain(draft: &mut Draft<'_>, worker: WorkerOrdinal, mut spare: u64) -> u64 {
    let (state, group, session) = (draft.state, draft.group, draft.worker(worker).session);
    let (is_paused, standing) = (
        draft.worker(worker).is_paused,
        draft.worker(worker).standing,
    );
    let is_frozen = group.header.frozen.is_some();
    let why = match standing {
        Standing::Stopping => RevokeReason::Stopping,
        _ => RevokeReason::Draining,
    };
    // A worker without a stream cannot be asked, and it is about to resume or to expire.
    let disconnected = draft.observed.is_disconnected(session);
    for index in state.owned(session) {
        let Some(shard) = group.shard(index) else {
            continue;
        };
        if matches!(shard.state, ShardState::Revoking(_)) || draft.is_revoked(index) {
            continue;
        }
        let next = if is_paused {
            Err(Reason::WorkerPaused)
        } else if is_frozen {
            Err(Reason::Frozen)
        } else if disconnected {
            Err(Reason::OwnerDisconnected)
        } else if draft.observed.backing_off.contains(&index) {
            Err(Reason::BackingOff)
        } else if draft.budget.left() == 0 {
            Err(Reason::Throttled)
        } else if spare == 0 {
            Err(draft.no_room())
        } else {
            score::most_suitable(draft, index, shard, None)
        };
        match next {
            Ok(next) => {
                spare -= 1;
                draft.revoke(index, Some(next), why);
            }
            Err(reason) => {
                draft.report.note(reason, index);
                if standing == Standing::Stopping && !passes_soon(reason) {
                    draft.strand(worker);
                }
            }
        }
    }
    spare
}

/// Whether what keeps a shard where it is is over in a moment, by itself.
fn passes_soon(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Throttled | Reason::BackingOff | Reason::OwnerDisconnected
    )
}
