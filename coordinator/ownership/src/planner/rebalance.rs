//! Third phase: workers above their cap lose shards, workers below their share get some.
//!
//! A shard never moves merely because the ring prefers another worker. What counts is how full
//! workers are; the ring only says which shards of a full worker to take. So nothing can move back
//! and forth: every move takes from a worker above the whole part of its share and gives to one below
//! its own, or takes from one above its cap and gives to one below.
//!
//! Grants of this plan have not happened yet, and what drained workers lose moves anyway. These are evened
//! out first, as far as they go, because that disturbs nobody; only what is left is taken from owners.

use std::collections::BTreeMap;

use crate::ids::ShardIndex;
use crate::planner::candidate::WorkerOrdinal;
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::throttle;
use crate::planner::transfer::{Aim, FILL, LEVEL, RELIEVE, Takers, Transfers};
use crate::policy::BalanceBy;
use crate::shard::{RevokeReason, ShardState};

/// Evens out loads, first with the grants of this plan, then with owned shards.
pub(super) fn misplaced_shards(draft: &mut Draft<'_>) {
    even_out_moves(draft, &FILL, Disturbance::Return);
    even_out_moves(draft, &LEVEL, Disturbance::Nobody);
    even_out_owned(draft);
}

/// Whom a move disturbs. The less the better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    /// The shard is unowned, or on its way, and new to every worker.
    Nobody,
    /// The shard is unowned, and about to go back to the worker that held it.
    Return,
    /// The owner is opening the shard: its work is lost, but nobody is served yet.
    Opening,
    /// The shard is served.
    Serving,
}

/// A shard that a worker could give away. The first in order goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Movable {
    disturbance: Disturbance,
    /// Whether it does not go home: to a worker that had it and lost it only because it was drained.
    abroad: bool,
    /// Whether the ring prefers none of those who take: a shard that goes where it is preferred is
    /// the better choice.
    unwanted: bool,
    shard: ShardIndex,
    /// The taker that the ring prefers.
    preferred: Option<WorkerOrdinal>,
}

impl Movable {
    fn new(shard: ShardIndex, disturbance: Disturbance, preferred: Option<WorkerOrdinal>) -> Self {
        Self {
            disturbance,
            abroad: true,
            unwanted: preferred.is_none(),
            shard,
            preferred,
        }
    }
}

/// Sends what moves by this plan elsewhere, those that disturb at most as much as said.
fn even_out_moves(draft: &mut Draft<'_>, aim: &Aim, most: Disturbance) {
    let mut movable: BTreeMap<WorkerOrdinal, Vec<Movable>> = BTreeMap::new();
    for grant in draft.grants() {
        let disturbance = if grant.returning {
            Disturbance::Return
        } else {
            Disturbance::Nobody
        };
        if disturbance <= most && !grant.fixed {
            // The ring is not asked again: whoever takes had room, so a shard that prefers it is
            // planned for it already.
            let shard = Movable::new(grant.shard(), disturbance, None);
            movable.entry(grant.to).or_default().push(shard);
        }
    }
    for (shard, to) in draft.evacuated() {
        let shard = Movable::new(shard, Disturbance::Nobody, None);
        movable.entry(to).or_default().push(shard);
    }
    if movable.is_empty() {
        return;
    }
    let supply = |worker| movable.get(&worker).map_or(0, Vec::len);
    let transfers = Transfers::new(draft, supply, usize::MAX, &[aim]);
    for (giver, takers) in transfers.wanted {
        let shards = movable.remove(&giver).unwrap_or_default();
        for (shard, taker) in choose(draft, shards, takers) {
            draft.redirect(shard, taker);
        }
    }
}

/// Plans to take shards from their owners, unless the phase rests.
fn even_out_owned(draft: &mut Draft<'_>) {
    let mut away: BTreeMap<WorkerOrdinal, usize> = BTreeMap::new();
    for worker in draft
        .grants()
        .iter()
        .map(|grant| grant.to)
        .chain(draft.incoming())
    {
        *away.entry(worker).or_default() += 1;
    }
    for (worker, fixed) in draft.fixed() {
        *away.entry(worker).or_default() += fixed;
    }
    // Loads include shards that are not there yet, and what is not there cannot be asked back.
    let supply = |worker| {
        let load = usize::try_from(draft.worker(worker).load).unwrap_or(usize::MAX);
        load.saturating_sub(away.get(&worker).copied().unwrap_or(0))
    };
    let (limit, withheld) = throttle::planned_moves(draft);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let aims: &[&Aim] = match draft.group.header.policy.balance_by {
        // Fewer shards than others have may be as much load.
        BalanceBy::Load => &[&RELIEVE],
        BalanceBy::Shards if draft.observed.evened_out_by.is_some() => &[&FILL, &LEVEL],
        BalanceBy::Shards => &[&FILL, &RELIEVE],
    };
    let transfers = Transfers::new(draft, supply, limit, aims);
    draft.report.note_moves(withheld, transfers.withheld);
    for (giver, takers) in transfers.wanted {
        let wanted: usize = takers.values().sum();
        let chosen = choose(draft, owned_shards(draft, giver, &takers), takers);
        draft
            .report
            .note_moves(Reason::AvoidedWorker, wanted - chosen.len());
        for (shard, taker) in chosen {
            draft.revoke(shard, Some(taker), RevokeReason::Rebalance);
        }
    }
}

/// The shards that a worker owns and is not asked to give up.
fn owned_shards(draft: &Draft<'_>, worker: WorkerOrdinal, takers: &Takers) -> Vec<Movable> {
    let mut movable = Vec::new();
    for index in draft.state.owned(draft.worker(worker).session) {
        let disturbance = match draft.group.shard(index).map(|shard| &shard.state) {
            Some(ShardState::Opening(_)) => Disturbance::Opening,
            Some(ShardState::Serving(_)) => Disturbance::Serving,
            Some(ShardState::Revoking(_) | ShardState::Unowned(_)) | None => continue,
        };
        let rests = draft.observed.backing_off.contains(&index) || draft.is_fixed(index, worker);
        if !draft.is_revoked(index) && !rests {
            let takes = |worker: &WorkerOrdinal| takers.contains_key(worker);
            let home = draft.home_of(index).filter(takes);
            let preferred = home.or_else(|| draft.ring().get(index, 0).filter(takes));
            movable.push(Movable {
                abroad: home.is_none(),
                ..Movable::new(index, disturbance, preferred)
            });
        }
    }
    movable
}

/// Chooses which shards of one worker go to those who take, so many each, and to whom.
///
/// Fewer are chosen if a shard has just failed to open on the only worker that would still take it.
fn choose(
    draft: &Draft<'_>,
    mut movable: Vec<Movable>,
    mut takers: Takers,
) -> Vec<(ShardIndex, WorkerOrdinal)> {
    movable.sort_unstable();
    let mut chosen = Vec::new();
    for Movable {
        shard, preferred, ..
    } in movable
    {
        let record = draft.group.shard(shard);
        let failed = |worker| record.is_some_and(|record| draft.worker(worker).has_failed(record));
        let preferred = preferred.filter(|worker| takers.contains_key(worker));
        let mut candidates = preferred.into_iter().chain(takers.keys().copied());
        let suits = |worker: &WorkerOrdinal| !failed(*worker) && draft.may_have(shard, *worker);
        let Some(taker) = candidates.find(suits) else {
            continue;
        };
        chosen.push((shard, taker));
        match takers.get_mut(&taker) {
            Some(wanted) if *wanted > 1 => *wanted -= 1,
            _ => drop(takers.remove(&taker)),
        }
        if takers.is_empty() {
            break;
        }
    }
    chosen
}
