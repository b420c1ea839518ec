//! Second phase: shards that nobody owns.

use crate::ids::ShardIndex;
use crate::planner::candidate::{Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::session::WorkerMode;
use crate::shard::{Shard, ShardState, TenureEnd};

/// Gives every unowned shard to a worker, unless something speaks against it now.
pub(super) fn unowned_shards(draft: &mut Draft<'_>) {
    let group = draft.group;
    for (index, shard) in group.unowned() {
        match destination(draft, index, shard) {
            Ok(Destination::Former(worker)) => draft.grant(index, worker, true),
            Ok(Destination::Suitable(worker)) => draft.grant(index, worker, false),
            Err(reason) => draft.report.note(reason, index),
        }
    }
}

enum Destination {
    /// Back to the worker that held it.
    Former(WorkerOrdinal),
    Suitable(WorkerOrdinal),
}

fn destination(
    draft: &mut Draft<'_>,
    index: ShardIndex,
    shard: &Shard,
) -> Result<Destination, Reason> {
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
        // A worker that is registered again finds what it had: caches, local state, warm stores.
        let former = former_worker(draft, end);
        if shard.waits_for_paused(draft.group).is_some() {
            match former {
                Some(former) if draft.worker(former).has_failed(shard) => {}
                Some(former) if may_come_home(draft, former) => {
                    return Ok(Destination::Former(former));
                }
                _ => return Err(Reason::WorkerPaused),
            }
        }
        if let Some(former) = former
            && draft.worker(former).has_room()
            && !draft.worker(former).has_failed(shard)
        {
            return Ok(Destination::Former(former));
        }
        if draft.observed.restart_graces.contains(&end.at) && may_return(draft, end, former) {
            return Err(Reason::RestartGrace);
        }
    }
    score::most_suitable(draft, index, shard, None).map(Destination::Suitable)
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
