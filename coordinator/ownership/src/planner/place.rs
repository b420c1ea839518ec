//! Second phase: shards that nobody owns.

use crate::ids::ShardIndex;
use crate::planner::candidate::{Standing, WorkerOrdinal};
use crate::planner::draft::{Draft, GrantTo};
use crate::planner::pins;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::planner::suspects;
use crate::session::WorkerMode;
use crate::shard::{Shard, ShardState, TenureEnd};

/// Gives every unowned shard to a worker, unless something speaks against it now.
///
/// Those that are kept off some come first: the others may take what is left, and not the other way round.
/// Returns those that found no room.
pub(super) fn unowned_shards(draft: &mut Draft<'_>) -> Vec<ShardIndex> {
    let group = draft.group;
    let is_choosy = |index| {
        let placement = group.placements.get(&index);
        placement.is_some_and(|placement| !placement.kept_off.is_empty())
    };
    let choosy = group.unowned().filter(|(index, _)| is_choosy(*index));
    let others = group.unowned().filter(|(index, _)| !is_choosy(*index));
    let mut unplaced = Vec::new();
    for (index, shard) in choosy.chain(others) {
        match destination(draft, index, shard) {
            Ok((worker, why)) => draft.grant(index, worker, why),
            Err(Reason::AllAtCap | Reason::WorkersFull | Reason::KeptOff) => unplaced.push(index),
            Err(reason) => draft.report.note(reason, index),
        }
    }
    draft.sort_grants();
    unplaced
}

/// Gives shards that found no room to workers that have some now, because shards are taken from them.
pub(super) fn what_found_no_room(draft: &mut Draft<'_>, unplaced: Vec<ShardIndex>) {
    let group = draft.group;
    for index in unplaced {
        let Some(shard) = group.shard(index) else {
            continue;
        };
        match destination(draft, index, shard) {
            Ok((worker, why)) => draft.grant(index, worker, why),
            Err(reason) => draft.report.note(reason, index),
        }
    }
    draft.sort_grants();
}

fn destination(
    draft: &mut Draft<'_>,
    index: ShardIndex,
    shard: &Shard,
) -> Result<(WorkerOrdinal, GrantTo), Reason> {
    if draft.group.quarantine(index).is_some() {
        return Err(Reason::Quarantined);
    }
    if shard.next_epoch().is_none() {
        return Err(Reason::EpochExhausted);
    }
    if draft.observed.backing_off.contains(&index) {
        return Err(Reason::BackingOff);
    }
    if let ShardState::Unowned(Some(end)) = &shard.state {
        if draft.observed.seen.is_some_and(|seen| end.at > seen) {
            return Err(Reason::NotSeenYet);
        }
        if !end.clean && draft.observed.lock_delays.contains(&end.at) {
            return Err(Reason::LockDelay);
        }
        if shard.waits_for_paused(draft.group).is_some() {
            let former = former_worker(draft, end);
            let unwelcome =
                |former| draft.worker(former).has_failed(shard) || !draft.may_have(index, former);
            match former {
                Some(former) if unwelcome(former) => {}
                Some(former) if may_come_home(draft, former) => {
                    return Ok((former, GrantTo::Former));
                }
                _ => return Err(Reason::WorkerPaused),
            }
        }
    }
    if let Some(home) = pins::home_with_room(draft, index) {
        return Ok((home, GrantTo::Home));
    }
    if draft.observed.suspects.contains(&index) {
        return suspects::apart(draft, index, shard).map(|worker| (worker, GrantTo::Apart));
    }
    if let ShardState::Unowned(Some(end)) = &shard.state {
        // A worker that is registered again finds what it had: caches, local state, warm stores.
        let former = former_worker(draft, end);
        if let Some(former) = former
            && draft.has_room(former)
            && draft.may_have(index, former)
            && !draft.worker(former).has_failed(shard)
        {
            return Ok((former, GrantTo::Former));
        }
        if draft.observed.restart_graces.contains(&end.at) && may_return(draft, end, former) {
            return Err(Reason::RestartGrace);
        }
    }
    let suitable = score::most_suitable(draft, index, shard, None)?;
    Ok((suitable, GrantTo::Suitable))
}

/// The worker that held the shard, if it is registered.
fn former_worker(draft: &Draft<'_>, end: &TenureEnd) -> Option<WorkerOrdinal> {
    let worker = draft.group.workers.get(&end.worker)?;
    draft.ordinal_of(worker.session?)
}

/// Whether a paused worker is back and can be told of what was its own.
fn may_come_home(draft: &Draft<'_>, worker: WorkerOrdinal) -> bool {
    let candidate = draft.worker(worker);
    candidate.standing == Standing::Paused && !draft.observed.is_disconnected(candidate.session)
}

/// Whether it makes sense to wait for a worker: it is away and not being emptied. One that is back
/// and did not take the shard has no room for it.
fn may_return(draft: &Draft<'_>, end: &TenureEnd, former: Option<WorkerOrdinal>) -> bool {
    match former {
        Some(former) => draft.worker(former).standing == Standing::Disconnected,
        None => {
            let known = draft.group.workers.get(&end.worker);
            known.is_none_or(|worker| worker.mode == WorkerMode::Active)
        }
    }
}
