//! How tenures begin and end. Every grant goes through [`begin`], every end through [`end`]: a
//! release, a deadline, the end of a session and a replacement differ in their cause alone.

use tenure_fence::Epoch;

use super::entry::Entry;
use crate::event::{EndCause, Event};
use crate::group::GroupPhase;
use crate::ids::{GroupId, SessionId, ShardIndex, WorkerName};
use crate::rejection::Rejection;
use crate::session::WorkerMode;
use crate::shard::{OpenFailure, RevokeReason, Shard, ShardState, TenureEnd};
use crate::state::State;

/// A tenure that is found in the state.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) group: GroupId,
    pub(super) shard: ShardIndex,
    pub(super) epoch: Epoch,
    pub(super) owner: SessionId,
}

/// How a tenure ends.
pub(super) struct Ending<'a> {
    /// The worker that held the shard; its session may be gone already.
    pub(super) worker: &'a WorkerName,
    pub(super) cause: EndCause,
    /// Whether the owner is known to have stopped.
    pub(super) clean: bool,
    /// The session that takes over a shard that was not being revoked.
    pub(super) heir: Option<SessionId>,
}

/// The reason that is kept when a worker was too slow and gave none of its own.
const NOT_READY_IN_TIME: &str = "was not ready before the opening deadline";

/// The current tenure of a shard; `None` if nobody owns it.
pub(super) fn held(state: &State, group: GroupId, shard: ShardIndex) -> Option<Held> {
    let found = state.shard(group, shard)?;
    let owner = found.owner()?;
    let Some(epoch) = found.epoch else {
        unreachable!("shard {shard} of group #{group} is owned without an epoch");
    };
    Some(Held {
        group,
        shard,
        epoch,
        owner,
    })
}

/// Whether new shards may go to a session: it is live, of the group, and its worker takes shards.
/// See [`require_home`] for those that were its own.
pub(super) fn require_receiver(
    state: &State,
    group: GroupId,
    session: SessionId,
) -> Result<(), Rejection> {
    let Some(record) = state.session(session) else {
        return Err(Rejection::SessionEnded { session });
    };
    if record.group != group {
        return Err(Rejection::WrongGroup { session });
    }
    let worker = state
        .group(group)
        .and_then(|group| group.workers.get(&record.worker));
    match worker.map(|worker| worker.mode) {
        Some(WorkerMode::Active) => Ok(()),
        Some(mode) => Err(Rejection::WorkerTakesNone { session, mode }),
        None => Err(Rejection::SessionEnded { session }),
    }
}

/// Whether an unowned shard may go to a session: new ones are welcome there, or it comes home to a
/// worker that was paused for a restart.
pub(super) fn require_home(
    state: &State,
    group: GroupId,
    shard: &Shard,
    session: SessionId,
) -> Result<(), Rejection> {
    match require_receiver(state, group, session) {
        Err(Rejection::WorkerTakesNone {
            mode: WorkerMode::Paused,
            ..
        }) if was_held_by(state, shard, session) => Ok(()),
        judged => judged,
    }
}

/// Whether the latest tenure of an unowned shard was of the session's worker.
fn was_held_by(state: &State, shard: &Shard, session: SessionId) -> bool {
    let ShardState::Unowned(Some(end)) = &shard.state else {
        return false;
    };
    state
        .session(session)
        .is_some_and(|record| record.worker == end.worker)
}

/// Grants an unowned shard at its next epoch.
///
/// Nothing changes when it is refused because the epochs are used up. The group must be active: under
/// deletion no shard has a successor and no session registers, so none can be granted.
pub(super) fn begin(
    entry: &mut Entry<'_>,
    group: GroupId,
    shard: ShardIndex,
    owner: SessionId,
) -> Result<(), Rejection> {
    let found = entry.state().group(group);
    assert!(
        found.is_some_and(|group| group.header.phase == GroupPhase::Active),
        "shard {shard} of group #{group} is granted under deletion"
    );
    let record = found.and_then(|group| group.shard(shard));
    let Some(epoch) = record.and_then(Shard::next_epoch) else {
        return Err(Rejection::EpochExhausted { shard });
    };
    entry.shard_mut(group, shard).epoch = Some(epoch);
    entry.set_shard_state(group, shard, ShardState::Opening(owner));
    entry.record(Event::Granted {
        group,
        shard,
        epoch,
        owner,
    });
    Ok(())
}

/// Ends a tenure, and begins the next one in the same entry if it is known who follows.
pub(super) fn end(entry: &mut Entry<'_>, held: Held, ending: Ending<'_>) {
    let Held {
        group,
        shard,
        epoch,
        owner,
    } = held;
    let successor = successor(entry.state(), held, &ending);
    note_missed_deadline(entry, held, &ending);
    entry.record(Event::TenureEnded {
        group,
        shard,
        epoch,
        owner,
        cause: ending.cause,
    });
    let end = TenureEnd {
        at: entry.revision(),
        worker: ending.worker.clone(),
        clean: ending.clean,
    };
    entry.set_shard_state(group, shard, ShardState::Unowned(Some(Box::new(end))));
    if let Some(successor) = successor {
        // The only refusal is that the epochs are used up: then the shard stays unowned, and the
        // next plan is told why.
        let _exhausted = begin(entry, group, shard, successor);
    }
}

/// Who is granted the shard in the entry that ends its tenure.
fn successor(state: &State, held: Held, ending: &Ending<'_>) -> Option<SessionId> {
    let group = state.group(held.group)?;
    // A store that cannot check a token is protected by time alone once an owner has not said that
    // it stopped, and that time has not begun yet.
    if !ending.clean && !group.header.policy.lock_delay.is_zero() {
        return None;
    }
    match &group.shard(held.shard)?.state {
        ShardState::Unowned(_) => None,
        // A worker that restarts in place keeps its shards also while it is drained: the planner
        // moves them away from its new session as it did from the old one.
        ShardState::Opening(_) | ShardState::Serving(_) => ending.heir,
        ShardState::Revoking(revocation) => revocation
            .next
            .filter(|next| require_receiver(state, held.group, *next).is_ok()),
    }
}

/// Counts a tenure that was revoked because it did not open in time as a failure to open, unless
/// the worker gave a reason of its own.
fn note_missed_deadline(entry: &mut Entry<'_>, held: Held, ending: &Ending<'_>) {
    let shard = entry.state().shard(held.group, held.shard);
    let missed = matches!(
        shard.map(|shard| &shard.state),
        Some(ShardState::Revoking(revocation)) if revocation.reason == RevokeReason::OpeningDeadline
    );
    if missed && !matches!(ending.cause, EndCause::OpenFailed(_)) {
        note_open_failure(entry, held, ending.worker, NOT_READY_IN_TIME);
    }
}

/// Keeps the latest failure to open a shard, for the planner and for people.
pub(super) fn note_open_failure(
    entry: &mut Entry<'_>,
    held: Held,
    worker: &WorkerName,
    reason: &str,
) {
    let at = entry.revision();
    let shard = entry.shard_mut(held.group, held.shard);
    let before = shard
        .open_failure
        .as_ref()
        .map_or(0, |failure| failure.count);
    shard.open_failure = Some(Box::new(OpenFailure {
        count: before.saturating_add(1),
        worker: worker.clone(),
        reason: reason.to_owned(),
        at,
    }));
}
