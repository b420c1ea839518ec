//! Ends of tenures that leave the session alive: releases, and deadlines that are over.

use tenure_fence::Epoch;

use super::entry::Entry;
use super::handoff::{at_epoch, live, owned_by};
use super::tenures::{self, Ending, Held};
use crate::command::{Force, Release, ReleaseCause, Released, Tenure};
use crate::event::{EndCause, Event};
use crate::ids::{GroupId, WorkerName};
use crate::rejection::Rejection;
use crate::shard::{OpenFailure, ShardState};

/// Takes shards back from a worker that has stopped working on them.
pub(super) fn release(entry: &mut Entry<'_>, command: Release) -> Result<(), Rejection> {
    let (group, session) = live(entry.state(), command.session)?;
    let worker = session.worker.clone();
    for item in command.releases {
        let shard = item.tenure.shard;
        match owned_by(entry.state(), group, command.session, item.tenure) {
            Ok(held) => take_back(entry, held, &worker, item),
            Err(rejection) => entry.refuse(shard, rejection),
        }
    }
    Ok(())
}

fn take_back(entry: &mut Entry<'_>, held: Held, worker: &WorkerName, item: Released) {
    let cause = match item.cause {
        ReleaseCause::Finished => EndCause::Released,
        // The handle is gone, so nothing writes any more: as clean as any other release.
        ReleaseCause::Lost => EndCause::Lost,
        ReleaseCause::OpenFailed(reason) => EndCause::OpenFailed(cut(reason)),
        ReleaseCause::StoreAhead(fence) => {
            // Before the end, which may grant the shard again: that grant must be above the fence.
            raise_floor(entry, held, fence);
            EndCause::OpenFailed(format!("a store is ahead: its fence is at {fence}"))
        }
    };
    if let EndCause::OpenFailed(reason) = &cause {
        tenures::note_open_failure(entry, held, worker, reason);
    }
    let ending = Ending {
        worker,
        cause,
        clean: true,
        heir: None,
    };
    tenures::end(entry, held, ending);
}

fn raise_floor(entry: &mut Entry<'_>, held: Held, fence: Epoch) {
    let Held { group, shard, .. } = held;
    let floor = fence.get();
    let before = entry
        .state()
        .shard(group, shard)
        .map_or(0, |shard| shard.floor);
    if before >= floor {
        return;
    }
    entry.shard_mut(group, shard).floor = floor;
    entry.record(Event::FloorRaised {
        group,
        shard,
        floor,
    });
}

/// Cuts a worker's reason at the last whole character that fits.
fn cut(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(OpenFailure::REASON_BYTES_MAX));
    reason
}

/// Ends tenures whose owners did not release them in time. Storage fences, so it is safe.
pub(super) fn force(entry: &mut Entry<'_>, command: &Force) -> Result<(), Rejection> {
    let group = command.group;
    if entry.state().group(group).is_none() {
        return Err(Rejection::GroupGone { group });
    }
    for tenure in &command.tenures {
        if let Err(rejection) = force_off(entry, group, *tenure) {
            entry.refuse(tenure.shard, rejection);
        }
    }
    Ok(())
}

fn force_off(entry: &mut Entry<'_>, group: GroupId, tenure: Tenure) -> Result<(), Rejection> {
    let shard = at_epoch(entry.state(), group, tenure.shard, Some(tenure.epoch))?;
    let ShardState::Revoking(revocation) = &shard.state else {
        return Err(Rejection::NotRevoking {
            shard: tenure.shard,
        });
    };
    let owner = revocation.owner;
    let (_, session) = live(entry.state(), owner)?;
    let worker = session.worker.clone();
    let held = Held {
        group,
        shard: tenure.shard,
        epoch: tenure.epoch,
        owner,
    };
    let ending = Ending {
        worker: &worker,
        cause: EndCause::Forced,
        clean: false,
        heir: None,
    };
    tenures::end(entry, held, ending);
    Ok(())
}
