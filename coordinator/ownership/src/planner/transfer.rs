//! Who gives how many shards to whom: the fullest to the emptiest, as far as an aim goes.
//!
//! Zones come first, then the workers. Between workers of two zones a shard moves only if that keeps
//! either zone where it should be.

use std::collections::{BTreeMap, BTreeSet};

use crate::planner::candidate::{Candidate, Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::share::{Level, Share};
use crate::planner::zone::Zone;

/// Takes from workers above one mark, gives to workers below another; and the same for zones.
pub(super) struct Aim {
    above: fn(&Share) -> u32,
    below: fn(&Share) -> u32,
}

/// A worker below its share is filled by those that have more than theirs. The shares rounded down do
/// not add up to more than all shards, so this ends with nobody below.
pub(super) const FILL: Aim = Aim {
    above: |share| share.floor,
    below: |share| share.floor,
};

/// What is free to move is laid out as evenly as whole shards allow. That keeps later plans still:
/// while nobody is above the share rounded up, a worker that leaves makes nobody else's shards move.
pub(super) const LEVEL: Aim = Aim {
    above: |share| share.ceil,
    below: |share| share.ceil,
};

/// Owned shards stay unless the cap says otherwise.
pub(super) const RELIEVE: Aim = Aim {
    above: |share| share.cap,
    below: |share| share.cap,
};

/// How many shards each worker takes.
pub(super) type Takers = BTreeMap<WorkerOrdinal, usize>;

/// Emptiest first; of equal ones those with preferred labels, then in order of name.
type Order = (Level, bool, WorkerOrdinal);

/// See the module.
#[derive(Default)]
pub(super) struct Transfers {
    pub(super) wanted: BTreeMap<WorkerOrdinal, Takers>,
    /// Moves that the limit left undone.
    pub(super) withheld: usize,
}

impl Transfers {
    /// Pairs the fullest workers with the emptiest, aim by aim, up to `limit` moves in all. Nobody
    /// gives more than its `supply`, and only workers that take shards give any: draining ones are
    /// emptied by another phase, and disconnected ones cannot be asked.
    pub(super) fn new(
        draft: &Draft<'_>,
        supply: impl Fn(WorkerOrdinal) -> usize,
        limit: usize,
        aims: &[&Aim],
    ) -> Self {
        let open = draft
            .workers()
            .filter(|(_, worker)| worker.standing == Standing::Open);
        let sides = open
            .map(|(ordinal, worker)| (ordinal, Side::new(worker, supply(ordinal))))
            .collect();
        let mut pool = Pool {
            sides,
            zones: draft.zones().all(),
            left: limit,
            transfers: Self::default(),
        };
        for aim in aims {
            if pool.zones.len() > 1 {
                pool.even_out_zones(aim);
            }
            pool.even_out_workers(aim);
        }
        pool.transfers
    }
}

/// The workers that give or take, and what they have given and taken.
struct Pool {
    sides: BTreeMap<WorkerOrdinal, Side>,
    zones: Vec<Zone>,
    /// Moves that may still be made.
    left: usize,
    transfers: Transfers,
}

/// Those of each zone who give or take.
type ByZone = Vec<BTreeSet<Order>>;

impl Pool {
    /// Those for whom something holds, by zone.
    fn by_zone(&self, is: impl Fn(&Side) -> bool) -> ByZone {
        let mut by_zone = vec![BTreeSet::new(); self.zones.len()];
        for (ordinal, side) in self.sides.iter().filter(|(_, side)| is(side)) {
            if let Some(zone) = by_zone.get_mut(side.zone) {
                zone.insert(side.order(*ordinal));
            }
        }
        by_zone
    }

    /// Moves shards from zones above a mark to zones below one, whatever marks their workers are at.
    fn even_out_zones(&mut self, aim: &Aim) {
        let mut givers = self.by_zone(|side| side.supply > 0);
        let mut takers = self.by_zone(|side| side.room() > 0 && !side.has_given);
        loop {
            let zones = || self.zones.iter().zip(givers.iter().zip(&takers));
            let above = zones().filter(|(zone, (givers, _))| {
                zone.load > (aim.above)(&zone.share) && !givers.is_empty()
            });
            let fullest = above.max_by_key(|(zone, (givers, _))| (zone.level(), givers.last()));
            let below = zones().filter(|(zone, (_, takers))| {
                zone.load < (aim.below)(&zone.share) && !takers.is_empty()
            });
            let emptiest = below.min_by_key(|(zone, (_, takers))| (zone.level(), takers.first()));
            let from = fullest.and_then(|(_, (givers, _))| givers.last().copied());
            let to = emptiest.and_then(|(_, (_, takers))| takers.first().copied());
            let (Some(from), Some(to)) = (from, to) else {
                return;
            };
            if self.left == 0 {
                let below = self.zones.iter();
                let below = below
                    .map(|zone| (aim.below)(&zone.share).saturating_sub(zone.load))
                    .sum::<u32>();
                self.transfers.withheld = usize::try_from(below).unwrap_or(usize::MAX);
                return;
            }
            let (giver, taker) = self.transfer(from, to, &mut givers, &mut takers);
            insert(&mut givers, giver, |side| side.supply > 0);
            // Who gives takes no more.
            insert(&mut takers, taker, |side| side.room() > 0);
        }
    }

    /// Moves shards from workers above a mark to workers below one.
    fn even_out_workers(&mut self, aim: &Aim) {
        let mut givers = self.by_zone(|side| side.gives(aim) > 0);
        let takes = |side: &Side| side.gives(aim) == 0 && !side.has_given && side.takes(aim) > 0;
        let mut takers = self.by_zone(takes);
        while self.left > 0 {
            let Some((from, to)) = self.pair(aim, &givers, &takers) else {
                break;
            };
            let (giver, taker) = self.transfer(from, to, &mut givers, &mut takers);
            insert(&mut givers, giver, |side| side.gives(aim) > 0);
            insert(&mut takers, taker, |side| side.takes(aim) > 0);
        }
        if self.left == 0 && self.transfers.withheld == 0 {
            let sum = |of: &ByZone, moves: fn(&Side, &Aim) -> usize| {
                let sides = of.iter().flatten().filter_map(|at| self.sides.get(&at.2));
                sides.map(|side| moves(side, aim)).sum::<usize>()
            };
            let (surplus, demand) = (sum(&givers, Side::gives), sum(&takers, Side::takes));
            self.transfers.withheld = surplus.min(demand);
        }
    }

    /// The fullest giver and the emptiest taker that a shard may move between.
    fn pair(&self, aim: &Aim, givers: &ByZone, takers: &ByZone) -> Option<(Order, Order)> {
        let zones = || self.zones.iter().zip(givers.iter().zip(takers));
        let spared = zones().filter(|(zone, _)| zone.load > zone.share.floor);
        let from_elsewhere = spared.filter_map(|(_, (givers, _))| givers.last()).max();
        let pairs = zones().filter_map(|(zone, (givers, takers))| {
            let to = takers.first()?;
            let takes_more = zone.load < (aim.below)(&zone.share);
            let elsewhere = from_elsewhere.filter(|_| takes_more);
            let from = elsewhere.into_iter().chain(givers.last()).max()?;
            Some((to, from))
        });
        let (to, from) = pairs.min_by_key(|(to, _)| **to)?;
        Some((*from, *to))
    }

    /// Lets one shard go from a worker to another. Both are taken out of the sets.
    fn transfer(
        &mut self,
        from: Order,
        to: Order,
        givers: &mut ByZone,
        takers: &mut ByZone,
    ) -> (Moved, Moved) {
        self.left -= 1;
        let wanted = self.transfers.wanted.entry(from.2).or_default();
        *wanted.entry(to.2).or_default() += 1;
        let giver = self.change(from.2, |side| {
            side.load -= 1;
            side.supply -= 1;
            side.has_given = true;
        });
        let taker = self.change(to.2, |side| side.load += 1);
        for (zone, change) in [(giver.side.zone, -1), (taker.side.zone, 1)] {
            if let Some(zone) = self.zones.get_mut(zone) {
                zone.load = zone.load.saturating_add_signed(change);
            }
        }
        // While zones are evened out, a worker may be in both sets.
        for set in [givers, takers] {
            for (order, zone) in [(from, giver.side.zone), (to, taker.side.zone)] {
                if let Some(zone) = set.get_mut(zone) {
                    zone.remove(&order);
                }
            }
        }
        (giver, taker)
    }

    fn change(&mut self, ordinal: WorkerOrdinal, change: impl FnOnce(&mut Side)) -> Moved {
        let Some(side) = self.sides.get_mut(&ordinal) else {
            unreachable!("whoever gives or takes is in the pool")
        };
        change(side);
        Moved {
            ordinal,
            side: *side,
        }
    }
}

/// A worker after it has given or taken.
struct Moved {
    ordinal: WorkerOrdinal,
    side: Side,
}

fn insert(set: &mut ByZone, moved: Moved, is: impl Fn(&Side) -> bool) {
    if is(&moved.side)
        && let Some(zone) = set.get_mut(moved.side.zone)
    {
        zone.insert(moved.side.order(moved.ordinal));
    }
}

/// A worker that gives or takes.
#[derive(Clone, Copy)]
struct Side {
    weight: u32,
    share: Share,
    zone: usize,
    unpreferred: bool,
    load: u32,
    supply: usize,
    /// Whether it gives for an aim. Then it takes for none: what it gives may turn out to be fewer,
    /// because all that take have failed to open its shards, and there is no room then for what it takes.
    has_given: bool,
}

impl Side {
    fn new(worker: &Candidate<'_>, supply: usize) -> Self {
        Self {
            weight: worker.weight,
            share: worker.share,
            zone: worker.zone,
            unpreferred: worker.unpreferred,
            load: worker.expected(),
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

    /// How many shards it takes at most.
    fn room(&self) -> u32 {
        self.share.cap.saturating_sub(self.load)
    }

    fn order(&self, ordinal: WorkerOrdinal) -> Order {
        (
            Level::new(self.load, self.weight),
            self.unpreferred,
            ordinal,
        )
    }
}
