//! Handoffs: grants, revocations and readiness.
//!
//! Each command names the epochs it was decided on and is judged shard by shard, so a late one is
//! refused for the shards that have moved on and carried out for the others.

use tenure_fence::Epoch;

use super::entry::Entry;
use super::tenures::{self, Held};
use crate::command::{Assign, Grant, Ready, Revoke, Tenure};
use crate::event::Event;
use crate::group::GroupPhase;
use crate::ids::{GroupId, SessionId, ShardIndex, StoreName};
use crate::quota;
use crate::rejection::Rejection;
use crate::session::Session;
use crate::shard::{Revocation, RevokeReason, Shard, ShardState, StoreReady};
use crate::state::State;

/// Carries out a plan.
pub(super) fn assign(entry: &mut Entry<'_>, command: Assign) -> Result<(), Rejection> {
    let id = command.group;
    let Some(group) = entry.state().group(id) else {
        return Err(Rejection::GroupGone { group: id });
    };
    if group.header.phase == GroupPhase::Deleting {
        let name = group.header.name.clone();
        return Err(Rejection::GroupDeleting { name });
    }
    if entry.state().restored().is_some() {
        return Err(Rejection::Unsettled);
    }
    for item in command.grants {
        if let Err(rejection) = grant(entry, id, item) {
            entry.refuse(item.shard, rejection);
        }
    }
    for item in command.revokes {
        if let Err(rejection) = revoke(entry, id, item) {
            entry.refuse(item.shard, rejection);
        }
    }
    Ok(())
}

/// Grants an unowned shard to a worker at the next epoch.
///
/// The proposer planned against `seen`. If the shard has moved since, the grant is refused, so a slow
/// or deposed leader cannot undo a newer handoff.
fn grant(entry: &mut Entry<'_>, group: GroupId, item: Grant) -> Result<(), Rejection> {
    let shard = at_epoch(entry.state(), group, item.shard, item.seen)?;
    if let Some(owner) = shard.owner() {
        return Err(Rejection::Owned {
            shard: item.shard,
            owner,
        });
    }
    tenures::require_home(entry.state(), group, shard, item.to)?;
    let quarantine = entry.state().group(group);
    let quarantine = quarantine.and_then(|group| group.quarantine(item.shard));
    if let Some(quarantine) = quarantine {
        return Err(Rejection::Quarantined {
            shard: item.shard,
            crashes: quarantine.crashes,
        });
    }
    tenures::begin(entry, group, item.shard, item.to)
}

/// Asks an owner to stop. It goes on owning the shard until the tenure ends.
fn revoke(entry: &mut Entry<'_>, group: GroupId, item: Revoke) -> Result<(), Rejection> {
    let shard = at_epoch(entry.state(), group, item.shard, Some(item.seen))?;
    let owner = match &shard.state {
        ShardState::Unowned(_) => {
            return Err(Rejection::Unowned { shard: item.shard });
        }
        ShardState::Revoking(_) => {
            return Err(Rejection::BeingRevoked { shard: item.shard });
        }
        // The worker became ready while the decision was on its way.
        ShardState::Serving(_) if item.reason == RevokeReason::OpeningDeadline => {
            return Err(Rejection::AlreadyServing { shard: item.shard });
        }
        ShardState::Opening(owner) | ShardState::Serving(owner) => *owner,
    };
    // The revocation itself is not in doubt when who was to follow is gone: the next plan decides.
    let next = item.next.filter(|next| {
        *next != owner && tenures::require_receiver(entry.state(), group, *next).is_ok()
    });
    let held = Held {
        group,
        shard: item.shard,
        epoch: item.seen,
        owner,
    };
    begin_revocation(entry, held, next, item.reason);
    Ok(())
}

/// Moves an owned shard to `Revoking`.
pub(super) fn begin_revocation(
    entry: &mut Entry<'_>,
    held: Held,
    next: Option<SessionId>,
    reason: RevokeReason,
) {
    let Held {
        group,
        shard,
        epoch,
        owner,
    } = held;
    let since = entry.revision();
    let revocation = Revocation {
        owner,
        next,
        reason,
        since,
    };
    entry.set_shard_state(group, shard, ShardState::Revoking(Box::new(revocation)));
    entry.record(Event::Revoking {
        group,
        shard,
        epoch,
        owner,
        next,
        reason,
    });
}

/// Lets nobody follow in the entry that ends a tenure which is being revoked; its deadline goes on.
pub(super) fn cancel_successor(entry: &mut Entry<'_>, held: Held) {
    let Held { group, shard, .. } = held;
    let state = entry.state().shard(group, shard).map(|shard| &shard.state);
    let Some(ShardState::Revoking(revocation)) = state else {
        return;
    };
    if revocation.next.is_none() {
        return;
    }
    let mut revocation = **revocation;
    revocation.next = None;
    entry.set_shard_state(group, shard, ShardState::Revoking(Box::new(revocation)));
    entry.record(Event::Revoking {
        group,
        shard,
        epoch: held.epoch,
        owner: held.owner,
        next: None,
        reason: revocation.reason,
    });
}

/// Marks shards as served: their owner has sealed and read all its stores.
pub(super) fn ready(entry: &mut Entry<'_>, command: &Ready) -> Result<(), Rejection> {
    if command.stores.len() > quota::STORES_PER_SHARD_MAX {
        return Err(Rejection::OutOfBounds {
            field: "stores",
            allowed: format!("at most {} names", quota::STORES_PER_SHARD_MAX),
        });
    }
    let (group, _) = live(entry.state(), command.session)?;
    for tenure in &command.tenures {
        if let Err(rejection) = serve(entry, group, command, *tenure) {
            entry.refuse(tenure.shard, rejection);
        }
    }
    Ok(())
}

fn serve(
    entry: &mut Entry<'_>,
    group: GroupId,
    command: &Ready,
    tenure: Tenure,
) -> Result<(), Rejection> {
    let Held {
        shard,
        epoch,
        owner,
        ..
    } = owned_by(entry.state(), group, command.session, tenure)?;
    match entry.state().shard(group, shard).map(|shard| &shard.state) {
        Some(ShardState::Opening(_)) => {}
        Some(ShardState::Revoking(_)) => return Err(Rejection::BeingRevoked { shard }),
        // A repeated report.
        Some(ShardState::Serving(_)) | Some(ShardState::Unowned(_)) | None => return Ok(()),
    }
    entry.change_stores(group, shard, |record| {
        record.open_failure = None;
        for store in &command.stores {
            remember_ready(record, store, epoch);
        }
    });
    entry.set_shard_state(group, shard, ShardState::Serving(owner));
    entry.record(Event::Serving {
        group,
        shard,
        epoch,
        owner,
    });
    Ok(())
}

/// Keeps the highest epoch at which a store was ready. Of too many names the one that was ready
/// longest ago is forgotten: it is most likely no longer attached.
fn remember_ready(record: &mut Shard, store: &StoreName, epoch: Epoch) {
    let found = record
        .stores
        .binary_search_by(|known| known.store.cmp(store));
    let position = match found {
        Ok(position) => {
            if let Some(known) = record.stores.get_mut(position) {
                known.epoch = known.epoch.max(epoch);
            }
            return;
        }
        Err(position) => position,
    };
    let mut stores = std::mem::take(&mut record.stores).into_vec();
    stores.reserve_exact(1);
    let store = store.clone();
    stores.insert(position, StoreReady { store, epoch });
    if stores.len() > quota::STORES_PER_SHARD_MAX
        && let Some(oldest) = stores.iter().map(|known| known.epoch).min()
        && let Some(position) = stores.iter().position(|known| known.epoch == oldest)
    {
        stores.remove(position);
    }
    record.stores = stores.into();
}

pub(super) fn live(state: &State, id: SessionId) -> Result<(GroupId, &Session), Rejection> {
    match state.session(id) {
        Some(session) => Ok((session.group, session)),
        None => Err(Rejection::SessionEnded { session: id }),
    }
}

/// The shard, if it is at the epoch that the command was decided on.
pub(super) fn at_epoch(
    state: &State,
    group: GroupId,
    index: ShardIndex,
    expected: Option<Epoch>,
) -> Result<&Shard, Rejection> {
    let Some(shard) = state.shard(group, index) else {
        return Err(Rejection::UnknownShard { shard: index });
    };
    if shard.epoch != expected {
        return Err(Rejection::StaleEpoch {
            shard: index,
            current: shard.epoch,
            expected,
        });
    }
    Ok(shard)
}

/// The tenure, if it is the session's and goes on.
pub(super) fn owned_by(
    state: &State,
    group: GroupId,
    session: SessionId,
    tenure: Tenure,
) -> Result<Held, Rejection> {
    let Tenure { shard, epoch } = tenure;
    let found = at_epoch(state, group, shard, Some(epoch))?;
    if found.owner() != Some(session) {
        return Err(Rejection::NotOwner { shard, session });
    }
    Ok(Held {
        group,
        shard,
        epoch,
        owner: session,
    })
}
