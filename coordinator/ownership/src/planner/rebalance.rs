//! Third phase: workers above their cap lose shards, workers below their share get some.
//!
//! A shard never moves merely because the ring prefers another worker. What counts is how full
//! workers are; the ring only says which shards of a full worker to take. So nothing can move back
//! and forth: every move takes from a worker above the whole part of its share and gives to one below
//! its own, or takes from one above its cap and gives to one below.
//!
//! Grants of this plan have not happened yet. They are evened out first, as far as they go, because
//! that disturbs nobody; only what is left is taken from owners.

use std::collections::BTreeMap;

use crate::ids::ShardIndex;
use crate::planner::candidate::{Candidate, Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::share::{Level, Share};
use crate::shard::{RevokeReason, ShardState};

/// Evens out loads, first with the grants of this plan, then with owned shards.
pub(super) fn misplaced_shards(draft: &mut Draft<'_>) {
    even_out_grants(draft, &FILL, Disturbance::Return);
    even_out_grants(draft, &LEVEL, Disturbance::Nobody);
    even_out_owned(draft);
}

/// Takes from workers above one mark, gives to workers below another.
struct Aim {
    above: fn(&Share) -> u32,
    below: fn(&Share) -> u32,
}

/// A worker below its share is filled by those that have more than theirs. The shares rounded down do
/// not add up to more than all shards, so this ends with nobody below.
const FILL: Aim = Aim {
    above: |share| share.floor,
    below: |share| share.floor,
};

/// What is free to move is laid out as evenly as whole shards allow. That keeps later plans still:
/// while nobody is above the share rounded up, a worker that leaves makes nobody else's shards move.
const LEVEL: Aim = Aim {
    above: |share| share.ceil,
    below: |share| share.ceil,
};

/// Owned shards stay unless the cap says otherwise.
const RELIEVE: Aim = Aim {
    above: |share| share.cap,
    below: |share| share.cap,
};

/// Whom a move disturbs. The less the better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    /// The shard is unowned and new to every worker.
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

/// How many shards each worker takes.
type Takers = BTreeMap<WorkerOrdinal, usize>;

/// Sends grants of this plan elsewhere, those that disturb at most as much as said.
fn even_out_grants(draft: &mut Draft<'_>, aim: &Aim, most: Disturbance) {
    let mut movable: BTreeMap<WorkerOrdinal, Vec<Movable>> = BTreeMap::new();
    for grant in draft.grants() {
        let disturbance = if grant.returning {
            Disturbance::Return
        } else {
            Disturbance::Nobody
        };
        if disturbance <= most {
            // The ring is not asked again: whoever takes had room, so a shard that prefers it is
            // planned for it already.
            let shard = Movable::new(grant.shard(), disturbance, None);
            movable.entry(grant.to).or_default().push(shard);
        }
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
    // Loads include shards that are not there yet, and what is not there cannot be asked back.
    let supply = |worker| {
        let load = usize::try_from(draft.worker(worker).load).unwrap_or(usize::MAX);
        load.saturating_sub(away.get(&worker).copied().unwrap_or(0))
    };
    let is_frozen = draft.group.header.frozen.is_some();
    let (limit, withheld) = match draft.observed.rebalance_paused {
        _ if is_frozen => (0, Reason::Frozen),
        Some(reason) => (0, Reason::Paused(reason)),
        None => (draft.budget.left(), Reason::Throttled),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let transfers = Transfers::new(draft, supply, limit, &[&FILL, &RELIEVE]);
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
        if !draft.is_revoked(index) && !draft.observed.backing_off.contains(&index) {
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
        let Some(taker) = candidates.find(|worker| !failed(*worker)) else {
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

/// Who gives how many shards to whom.
#[derive(Default)]
struct Transfers {
    wanted: BTreeMap<WorkerOrdinal, Takers>,
    /// Moves that the limit left undone.
    withheld: usize,
}

impl Transfers {
    /// Pairs the fullest workers with the emptiest, aim by aim, up to `limit` moves in all. Nobody
    /// gives more than its `supply`, and only workers that take shards give any: draining ones are
    /// emptied by another phase, and disconnected ones cannot be asked.
    fn new(
        draft: &Draft<'_>,
        supply: impl Fn(WorkerOrdinal) -> usize,
        limit: usize,
        aims: &[&Aim],
    ) -> Self {
        let open = draft
            .workers()
            .filter(|(_, worker)| worker.standing == Standing::Open);
        let mut pool: Vec<Side> = open
            .map(|(ordinal, worker)| Side::new(ordinal, worker, supply(ordinal)))
            .collect();
        let mut transfers = Self::default();
        let mut left = limit;
        for aim in aims {
            pool = transfers.pair(pool, aim, &mut left);
        }
        transfers
    }

    /// Pairs workers for one aim and returns all of them with their loads afterwards.
    fn pair(&mut self, pool: Vec<Side>, aim: &Aim, left: &mut usize) -> Vec<Side> {
        let (mut givers, mut takers, mut done) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for side in pool {
            match side {
                side if side.gives(aim) > 0 => drop(givers.insert(side.order(), side)),
                side if side.has_given || side.takes(aim) == 0 => done.push(side),
                side => drop(takers.insert(side.order(), side)),
            }
        }
        while *left > 0 && !givers.is_empty() && !takers.is_empty() {
            let (Some((_, mut giver)), Some((_, mut taker))) =
                (givers.pop_last(), takers.pop_first())
            else {
                unreachable!("neither side is empty")
            };
            *left -= 1;
            giver.load -= 1;
            giver.supply -= 1;
            giver.has_given = true;
            taker.load += 1;
            *self
                .wanted
                .entry(giver.ordinal)
                .or_default()
                .entry(taker.ordinal)
                .or_default() += 1;
            match giver.gives(aim) {
                0 => done.push(giver),
                _ => drop(givers.insert(giver.order(), giver)),
            }
            match taker.takes(aim) {
                0 => done.push(taker),
                _ => drop(takers.insert(taker.order(), taker)),
            }
        }
        if self.withheld == 0 {
            let surplus: usize = givers.values().map(|giver| giver.gives(aim)).sum();
            let demand: usize = takers.values().map(|taker| taker.takes(aim)).sum();
            self.withheld = surplus.min(demand);
        }
        done.extend(givers.into_values().chain(takers.into_values()));
        done
    }
}

/// A worker that gives or takes.
struct Side {
    ordinal: WorkerOrdinal,
    weight: u32,
    share: Share,
    load: u32,
    supply: usize,
    /// Whether it gives for an aim. Then it takes for none: what it gives may turn out to be fewer,
    /// because all that take have failed to open its shards, and there is no room then for what it takes.
    has_given: bool,
}

impl Side {
    fn new(ordinal: WorkerOrdinal, worker: &Candidate<'_>, supply: usize) -> Self {
        Self {
            ordinal,
            weight: worker.weight,
            share: worker.share,
            load: worker.load,
            supply,
            has_given: false,
        }
    }

    /// How many shards it gives towards an aim.
    fn gives(&self, aim: &Aim) -> usize {
        let surplus = self.load.saturating_sub((aim.above)(&self.share));
        usize::try_from(surplus)
            .unwrap_or(usize::MAX)
            .min(self.supply)
    }

    /// How many shards it takes towards an aim.
    fn takes(&self, aim: &Aim) -> usize {
        let room = (aim.below)(&self.share).saturating_sub(self.load);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Emptiest first; ties in order of name.
    fn order(&self) -> (Level, WorkerOrdinal) {
        (Level::new(self.load, self.weight), self.ordinal)
    }
}
