//! Last phase, where the policy balances by load: the fullest workers give what brings them near the mean.
//!
//! ```text
//!            mean
//!   ──┬────┬──┼──┬────┬──▶ load for its weight
//!    −t  −t/2   +t/2  +t          t = policy.imbalance_tolerated_permille
//! ```
//!
//! A worker above `+t` gives until it is at most at `+t/2`, to workers that are not above `+t/2` with what
//! they get. A worker below `−t`, such as one that has just joined, gets until it is at least at `−t/2`, from workers that
//! stay above the mean. In between nothing moves: the distance of `t/2` from where a worker stops to where it
//! starts again is what keeps noise from moving anything, and every move brings the loads nearer to each other,
//! so that it ends. Caps on the number of shards, labels, zones and pins hold as everywhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ShardIndex;
use crate::planner::candidate::{Standing, WorkerOrdinal};
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::throttle;
use crate::policy::BalanceBy;
use crate::shard::{RevokeReason, ShardState};

/// Highest load of a shard that counts: those of a million shards add up in 64 bits.
const LOAD_MAX: u64 = 1 << 40;

/// Evens out the loads of workers, if the policy says so.
pub(super) fn uneven_workers(draft: &mut Draft<'_>) {
    if draft.group.header.policy.balance_by != BalanceBy::Load {
        return;
    }
    let mut balance = Balance::new(draft);
    if balance.weights == 0 || balance.total == 0 {
        return;
    }
    balance.grants_only = true;
    balance.even_out(draft);
    balance.grants_only = false;
    balance.movable.clear();
    let reason = balance.even_out(draft);
    let above = balance.above_tolerance(draft).len();
    // As far as it goes was all that was asked.
    if reason != Reason::Indivisible || draft.observed.evened_out_by.is_none() {
        draft.report.note_moves(reason, above);
    }
}

/// Loads as they will be, and what they should be.
struct Balance {
    /// Of workers that count in the shares.
    loads: BTreeMap<WorkerOrdinal, u64>,
    total: u64,
    weights: u64,
    tolerated_permille: u64,
    /// Load of a shard of which nothing is known.
    usual: u64,
    /// Grants of this plan that may go to another worker, by worker.
    granted: BTreeMap<WorkerOrdinal, BTreeSet<ShardIndex>>,
    /// Whether nothing but such grants is moved.
    grants_only: bool,
    /// What a worker could give, by load; made when first asked for.
    movable: BTreeMap<WorkerOrdinal, BTreeSet<(u64, ShardIndex)>>,
}

impl Balance {
    fn new(draft: &Draft<'_>) -> Self {
        let known = &draft.observed.loads;
        let sum: u64 = known.values().map(|load| (*load).min(LOAD_MAX)).sum();
        let count = u64::try_from(known.len()).unwrap_or(u64::MAX);
        let usual = sum.checked_div(count).map_or(1, |mean| mean.max(1));
        let sharing = || draft.workers().filter(|(_, of)| of.standing.shares());
        let policy = &draft.group.header.policy;
        let tolerated = match draft.observed.evened_out_by {
            Some(_) => 0,
            None => policy.imbalance_tolerated_permille,
        };
        let mut balance = Self {
            loads: sharing().map(|(ordinal, _)| (ordinal, 0)).collect(),
            total: 0,
            weights: sharing().map(|(_, worker)| u64::from(worker.weight)).sum(),
            tolerated_permille: tolerated.into(),
            usual,
            granted: BTreeMap::new(),
            grants_only: false,
            movable: BTreeMap::new(),
        };
        for grant in draft.grants().iter().filter(|grant| !grant.fixed) {
            let of_worker = balance.granted.entry(grant.to).or_default();
            of_worker.insert(grant.shard());
        }
        for (index, holder) in draft.holders() {
            let load = balance.load_of(draft, index);
            if let Some(of_worker) = balance.loads.get_mut(&holder) {
                *of_worker += load;
                balance.total += load;
            }
        }
        balance
    }

    fn load_of(&self, draft: &Draft<'_>, index: ShardIndex) -> u64 {
        let known = draft.observed.loads.get(&index).copied();
        known.map_or(self.usual, |load| load.min(LOAD_MAX))
    }

    fn load(&self, worker: WorkerOrdinal) -> u64 {
        self.loads.get(&worker).copied().unwrap_or(0)
    }

    /// So many thousandths of what a worker should have by its weight.
    fn mark(&self, draft: &Draft<'_>, worker: WorkerOrdinal, permille: u64) -> u64 {
        let weight = u128::from(draft.worker(worker).weight);
        // At most 2^60 × 10^4 × 2 × 10^4.
        let exact = u128::from(self.total) * weight * u128::from(permille);
        u64::try_from(exact / (u128::from(self.weights) * 1_000)).unwrap_or(u64::MAX)
    }

    /// Where a worker that gives stops, and what one that takes must not exceed.
    fn high(&self, draft: &Draft<'_>, worker: WorkerOrdinal) -> u64 {
        self.mark(draft, worker, 1_000 + self.tolerated_permille / 2)
    }

    fn low(&self, draft: &Draft<'_>, worker: WorkerOrdinal) -> u64 {
        let permille = 1_000_u64.saturating_sub(self.tolerated_permille / 2);
        self.mark(draft, worker, permille)
    }

    /// Workers that take shards, the fullest for its weight first.
    fn by_fullness(&self, draft: &Draft<'_>) -> Vec<WorkerOrdinal> {
        let open = draft
            .workers()
            .filter(|(_, of)| of.standing == Standing::Open);
        let mut open: Vec<_> = open
            .map(|(ordinal, of)| {
                let fullness = (u128::from(self.load(ordinal)) << 32) / u128::from(of.weight);
                (std::cmp::Reverse(fullness), ordinal)
            })
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, ordinal)| ordinal).collect()
    }

    /// Workers above the mean by more than is tolerated, the fullest first.
    fn above_tolerance(&self, draft: &Draft<'_>) -> Vec<WorkerOrdinal> {
        let permille = 1_000 + self.tolerated_permille;
        let mut workers = self.by_fullness(draft);
        workers.retain(|worker| self.load(*worker) > self.mark(draft, *worker, permille));
        workers
    }

    /// Workers below the mean by more than is tolerated, the emptiest first.
    fn below_tolerance(&self, draft: &Draft<'_>) -> Vec<WorkerOrdinal> {
        let permille = 1_000_u64.saturating_sub(self.tolerated_permille);
        let mut workers = self.by_fullness(draft);
        workers.retain(|worker| self.load(*worker) < self.mark(draft, *worker, permille));
        workers.reverse();
        workers
    }

    /// Plans moves until none brings anything. Returns why workers are above what is tolerated, if any are.
    fn even_out(&mut self, draft: &mut Draft<'_>) -> Reason {
        loop {
            let mut moved = false;
            for giver in self.above_tolerance(draft) {
                while self.load(giver) > self.high(draft, giver) {
                    let (left, reason) = throttle::planned_moves(draft);
                    if left == 0 && !self.grants_only {
                        return reason;
                    }
                    let Some((shard, taker)) = self.relief(draft, giver) else {
                        break;
                    };
                    self.transfer(draft, shard, giver, taker);
                    moved = true;
                }
            }
            for taker in self.below_tolerance(draft) {
                while self.load(taker) < self.low(draft, taker) && draft.has_room(taker) {
                    let (left, reason) = throttle::planned_moves(draft);
                    if left == 0 && !self.grants_only {
                        return reason;
                    }
                    let Some((shard, giver)) = self.supply(draft, taker) else {
                        break;
                    };
                    self.transfer(draft, shard, giver, taker);
                    moved = true;
                }
            }
            if !moved {
                return Reason::Indivisible;
            }
        }
    }

    fn transfer(
        &mut self,
        draft: &mut Draft<'_>,
        (load, shard): (u64, ShardIndex),
        giver: WorkerOrdinal,
        taker: WorkerOrdinal,
    ) {
        let granted = self.granted.get_mut(&giver);
        if granted.is_some_and(|granted| granted.remove(&shard)) {
            draft.redirect(shard, taker);
            self.granted.entry(taker).or_default().insert(shard);
            if let Some(movable) = self.movable.get_mut(&taker) {
                movable.insert((load, shard));
            }
        } else {
            draft.revoke(shard, Some(taker), RevokeReason::Rebalance);
        }
        for (worker, change) in [(giver, load.wrapping_neg()), (taker, load)] {
            if let Some(of_worker) = self.loads.get_mut(&worker) {
                *of_worker = of_worker.wrapping_add(change);
            }
        }
        if let Some(movable) = self.movable.get_mut(&giver) {
            movable.remove(&(load, shard));
        }
    }

    /// The shard that a worker above the tolerance gives next, and to whom, so that few moves suffice: the
    /// smallest that is enough alone, or else the largest that is not. If either would take it below the mean by
    /// more than half of the tolerance, any that leaves the other less full than it is.
    fn relief(
        &mut self,
        draft: &Draft<'_>,
        giver: WorkerOrdinal,
    ) -> Option<((u64, ShardIndex), WorkerOrdinal)> {
        let load = self.load(giver);
        let excess = load - self.high(draft, giver);
        let spared = load.saturating_sub(self.low(draft, giver)).max(excess);
        let takers = self.takers(draft, giver);
        let most = takers.first()?.0;
        self.list(draft, giver);
        let movable = self.movable.get(&giver)?;
        let enough = between(movable, excess, spared.min(most));
        let less = between(movable, 1, (excess - 1).min(most)).rev();
        let last = between(movable, spared.saturating_add(1), most);
        let mut ordered = enough.chain(less).chain(last);
        ordered.find_map(|(load, index)| {
            let mut fitting = takers.iter().take_while(|(slack, _)| slack >= load);
            let taker = fitting.find(|(_, taker)| suits(draft, *index, *taker))?;
            Some(((*load, *index), taker.1))
        })
    }

    /// Who takes how much, the emptiest first.
    fn takers(&self, draft: &Draft<'_>, giver: WorkerOrdinal) -> Vec<(u64, WorkerOrdinal)> {
        let open = draft.workers().map(|(ordinal, _)| ordinal);
        let open = open.filter(|taker| *taker != giver && draft.has_room(*taker));
        let slack = |taker| {
            let below = self.high(draft, taker).saturating_sub(self.load(taker));
            // As far as it goes: until the one who gives is no fuller than the one who takes.
            let asked = draft.observed.evened_out_by.is_some();
            below.max(if asked {
                self.difference(draft, giver, taker)
            } else {
                0
            })
        };
        let mut takers: Vec<_> = open
            .map(|taker| (slack(taker), taker))
            .filter(|(slack, _)| *slack > 0)
            .collect();
        let order = |(slack, taker): &(u64, WorkerOrdinal)| {
            (
                std::cmp::Reverse(*slack),
                draft.worker(*taker).unpreferred,
                *taker,
            )
        };
        takers.sort_unstable_by_key(order);
        takers
    }

    /// The load that makes two workers equally full when the first gives it to the second; 0 if the second is
    /// the fuller.
    fn difference(&self, draft: &Draft<'_>, giver: WorkerOrdinal, taker: WorkerOrdinal) -> u64 {
        let weight = |worker| u128::from(draft.worker(worker).weight);
        let of_giver = u128::from(self.load(giver)) * weight(taker);
        let of_taker = u128::from(self.load(taker)) * weight(giver);
        let difference = of_giver.saturating_sub(of_taker) / (weight(giver) + weight(taker));
        u64::try_from(difference).unwrap_or(u64::MAX)
    }

    /// The shard that a worker below the tolerance is given next, and by whom: the largest that leaves
    /// either on its side of the mean.
    fn supply(
        &mut self,
        draft: &Draft<'_>,
        taker: WorkerOrdinal,
    ) -> Option<((u64, ShardIndex), WorkerOrdinal)> {
        let missing = self
            .mark(draft, taker, 1_000)
            .saturating_sub(self.load(taker));
        for giver in self.by_fullness(draft) {
            let surplus = self
                .load(giver)
                .saturating_sub(self.mark(draft, giver, 1_000));
            if surplus == 0 {
                // Nor has anybody after it.
                return None;
            }
            if giver == taker {
                continue;
            }
            self.list(draft, giver);
            let most = surplus.min(missing);
            let movable = self.movable.get(&giver)?;
            let fitting = between(movable, 1, most);
            let suiting = |(_, index): &&(u64, ShardIndex)| suits(draft, *index, taker);
            if let Some(shard) = fitting.rev().find(suiting) {
                return Some((*shard, giver));
            }
        }
        None
    }

    /// Lists what a worker could give.
    fn list(&mut self, draft: &Draft<'_>, giver: WorkerOrdinal) {
        if self.movable.contains_key(&giver) {
            return;
        }
        let granted = self.granted.get(&giver).into_iter().flatten();
        let mut movable: BTreeSet<_> = granted
            .map(|index| (self.load_of(draft, *index), *index))
            .collect();
        let owned = draft.state.owned(draft.worker(giver).session);
        for index in owned.filter(|_| !self.grants_only) {
            let state = draft.group.shard(index).map(|shard| &shard.state);
            let owned = matches!(state, Some(ShardState::Opening(_) | ShardState::Serving(_)));
            let rests = draft.is_revoked(index)
                || draft.observed.backing_off.contains(&index)
                || draft.is_fixed(index, giver);
            if owned && !rests {
                movable.insert((self.load_of(draft, index), index));
            }
        }
        self.movable.insert(giver, movable);
    }
}

/// Shards with loads between two, inclusive. None if the first is the higher.
fn between(
    movable: &BTreeSet<(u64, ShardIndex)>,
    from: u64,
    to: u64,
) -> impl DoubleEndedIterator<Item = &(u64, ShardIndex)> {
    let range =
        (from <= to).then(|| movable.range((from, ShardIndex(0))..=(to, ShardIndex(u32::MAX))));
    range.into_iter().flatten()
}

fn suits(draft: &Draft<'_>, index: ShardIndex, taker: WorkerOrdinal) -> bool {
    let shard = draft.group.shard(index);
    let failed = shard.is_some_and(|shard| draft.worker(taker).has_failed(shard));
    !failed && draft.has_room(taker) && draft.may_have(index, taker)
}
