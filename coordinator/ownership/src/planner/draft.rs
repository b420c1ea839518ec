//! A plan in the making: the workers with their loads as they will be, and the moves so far.
//!
//! Every phase reads loads that include the moves of the phases before it. Loads change only in
//! `grant`, `redirect` and `revoke`, and [`Draft::finish`] checks what came of them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Grant, Revoke};
use crate::group::{Group, GroupPhase};
use crate::ids::{GroupId, SessionId, ShardIndex, WorkerName};
use crate::planner::candidate::{Candidate, Standing, WorkerOrdinal, candidates, share_out};
use crate::planner::observed::Observed;
use crate::planner::proposal::Plan;
use crate::planner::report::{Reason, Report};
use crate::planner::ring::{Member, Ring};
use crate::planner::share::Level;
use crate::planner::throttle::Budget;
use crate::planner::zone::{Zone, Zones};
use crate::shard::{Revocation, RevokeReason, Shard, ShardState};
use crate::state::State;

/// A grant of this plan.
pub(super) struct PlannedGrant {
    grant: Grant,
    pub(super) to: WorkerOrdinal,
    /// Whether the worker held the shard before.
    pub(super) returning: bool,
    /// Whether the shard must go there and nowhere else.
    pub(super) fixed: bool,
}

impl PlannedGrant {
    pub(super) fn shard(&self) -> ShardIndex {
        self.grant.shard
    }
}

/// A revocation of this plan.
struct PlannedRevoke {
    revoke: Revoke,
    next: Option<WorkerOrdinal>,
    /// Whether the shard goes where it is pinned.
    home: bool,
}

/// Workers with room in one zone, the least loaded for their weight first, of equal ones those with the
/// labels that are preferred.
type Roomy = BTreeSet<(Level, bool, WorkerOrdinal)>;

/// Why a shard is given to the worker it is given to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantTo {
    /// It suits best.
    Suitable,
    /// It held the shard before.
    Former,
    /// The shard is pinned to it.
    Home,
    /// It has the fewest shards that may be what crashes their owners.
    Apart,
}

/// See the module.
pub(super) struct Draft<'a> {
    pub(super) state: &'a State,
    pub(super) group: &'a Group,
    pub(super) observed: &'a Observed,
    pub(super) report: Report,
    pub(super) budget: Budget,
    /// In order of name.
    workers: Vec<Candidate<'a>>,
    ordinals: BTreeMap<SessionId, WorkerOrdinal>,
    /// In order of the shard once all are placed.
    grants: Vec<PlannedGrant>,
    /// The most urgent first.
    revokes: Vec<PlannedRevoke>,
    /// Which of them is of a shard.
    revoked: BTreeMap<ShardIndex, usize>,
    stranded: BTreeSet<SessionId>,
    /// Built when first asked: a plan that moves nothing needs none.
    ring: OnceCell<Ring>,
    /// By zone; `None` until first asked.
    roomy: Option<Vec<Roomy>>,
    zones: Zones,
    /// How many suspects each worker has; `None` until first asked.
    suspects: Option<BTreeMap<WorkerOrdinal, u32>>,
    /// What all workers have room for together.
    room: u64,
    any_open: bool,
    /// Owned shards that are moved to even workers out.
    evened_out: u32,
}

impl<'a> Draft<'a> {
    /// Starts a plan; the error is the report of a group that gets no moves at all.
    pub(super) fn new(
        state: &'a State,
        id: GroupId,
        observed: &'a Observed,
    ) -> Result<Self, Report> {
        let mut report = Report::default();
        let Some(group) = state.group(id) else {
            return Err(report);
        };
        let moveless = match group.header.phase {
            GroupPhase::Deleting => Some(Reason::GroupDeleting),
            GroupPhase::Active => state.restored().map(|_| Reason::Restored),
        };
        if let Some(reason) = moveless {
            group
                .unowned()
                .for_each(|(shard, _)| report.note(reason, shard));
            return Err(report);
        }
        report.in_flight = group.revoking_count();
        let policy = &group.header.policy;
        let handoffs_in_flight_max = policy.handoffs_in_flight(group.header.shard_count);
        let workers = candidates(state, group, observed);
        let ordinals = (0..)
            .map(WorkerOrdinal)
            .zip(&workers)
            .map(|(at, worker)| (worker.session, at))
            .collect();
        let mut draft = Self {
            state,
            group,
            observed,
            budget: Budget::new(handoffs_in_flight_max, report.in_flight),
            report,
            workers,
            ordinals,
            grants: Vec::new(),
            revokes: Vec::new(),
            revoked: BTreeMap::new(),
            stranded: BTreeSet::new(),
            ring: OnceCell::new(),
            roomy: None,
            zones: Zones::default(),
            suspects: None,
            room: 0,
            any_open: false,
            evened_out: 0,
        };
        draft.count_handoffs();
        draft.reserve_for_pins();
        draft.zones = share_out(state, &mut draft.workers, group, observed);
        draft.room = draft.zones.iter().map(Zone::room).sum();
        draft.any_open = draft
            .workers
            .iter()
            .any(|worker| worker.standing == Standing::Open);
        Ok(draft)
    }

    /// A shard that is being revoked counts for the worker it goes to, and no longer for its owner.
    fn count_handoffs(&mut self) {
        let group = self.group;
        for (_, revocation) in group.revoking() {
            if let Some(owner) = self.ordinal_of(revocation.owner) {
                self.worker_mut(owner).load -= 1;
            }
            if let Some(next) = self.heir(revocation) {
                self.worker_mut(next).load += 1;
            }
        }
    }

    /// Keeps room for shards that are pinned to workers that may take them, and are not there.
    fn reserve_for_pins(&mut self) {
        for (index, placement) in self.group.placements.iter() {
            let Some(home) = placement.pinned_to.as_ref().and_then(|to| self.home(to)) else {
                continue;
            };
            if placement.quarantine.is_none() && self.holder_to_be(*index) != Some(home) {
                self.worker_mut(home).reserved += 1;
            }
        }
    }

    /// The worker of a name, if it takes shards.
    pub(super) fn home(&self, name: &WorkerName) -> Option<WorkerOrdinal> {
        let worker = self.group.workers.get(name)?;
        let home = self.ordinal_of(worker.session?)?;
        (self.worker(home).standing == Standing::Open).then_some(home)
    }

    /// How many suspects each worker has that has any.
    pub(super) fn suspects(&mut self) -> &BTreeMap<WorkerOrdinal, u32> {
        let counts = self.suspects.take().unwrap_or_else(|| {
            let mut counts = BTreeMap::new();
            let held = self.observed.suspects.iter();
            for holder in held.filter_map(|index| self.holder_to_be(*index)) {
                *counts.entry(holder).or_default() += 1;
            }
            for grant in &self.grants {
                if self.observed.suspects.contains(&grant.shard()) {
                    *counts.entry(grant.to).or_default() += 1;
                }
            }
            counts
        });
        self.suspects.insert(counts)
    }

    /// Who has a shard once its handoff, if there is one, is over.
    fn holder_to_be(&self, index: ShardIndex) -> Option<WorkerOrdinal> {
        match &self.group.shard(index)?.state {
            ShardState::Unowned(_) => None,
            ShardState::Opening(owner) | ShardState::Serving(owner) => self.ordinal_of(*owner),
            ShardState::Revoking(revocation) => self.heir(revocation),
        }
    }

    /// Whether a shard will be a worker's by what is in flight already.
    pub(super) fn will_have(&self, index: ShardIndex, worker: WorkerOrdinal) -> bool {
        self.holder_to_be(index) == Some(worker)
    }

    /// Who has which shard once this plan and the handoffs before it are carried out.
    pub(super) fn holders(&self) -> impl Iterator<Item = (ShardIndex, WorkerOrdinal)> + '_ {
        let next = self.revokes.iter();
        let next: BTreeMap<_, _> = next.map(|of| (of.revoke.shard, of.next)).collect();
        let granted = self.grants.iter().map(|grant| (grant.shard(), grant.to));
        let owned = self.group.indexed_shards().filter_map(move |(index, _)| {
            let holder = match next.get(&index) {
                Some(next) => *next,
                None => self.holder_to_be(index),
            };
            Some((index, holder?))
        });
        granted.chain(owned)
    }

    /// Who gets a shard that is being revoked, if the tenure ended now.
    fn heir(&self, revocation: &Revocation) -> Option<WorkerOrdinal> {
        let next = self.ordinal_of(revocation.next?)?;
        // The entry that ends the tenure passes over a worker that takes nothing.
        self.worker(next).may_follow().then_some(next)
    }

    /// The workers that shards which are owned by others are on their way to, one for each shard.
    pub(super) fn incoming(&self) -> impl Iterator<Item = WorkerOrdinal> + '_ {
        let in_flight = self
            .group
            .revoking()
            .filter_map(|(_, revocation)| self.heir(revocation));
        in_flight.chain(self.revokes.iter().filter_map(|planned| planned.next))
    }

    /// The registered workers with their ordinals.
    pub(super) fn workers(&self) -> impl Iterator<Item = (WorkerOrdinal, &Candidate<'a>)> {
        (0..).map(WorkerOrdinal).zip(&self.workers)
    }

    pub(super) fn worker(&self, ordinal: WorkerOrdinal) -> &Candidate<'a> {
        match self.workers.get(position(ordinal)) {
            Some(worker) => worker,
            None => unreachable!("ordinals are made here, from the list of workers"),
        }
    }

    fn worker_mut(&mut self, ordinal: WorkerOrdinal) -> &mut Candidate<'a> {
        match self.workers.get_mut(position(ordinal)) {
            Some(worker) => worker,
            None => unreachable!("ordinals are made here, from the list of workers"),
        }
    }

    /// The worker of a session, if the session is live.
    pub(super) fn ordinal_of(&self, session: SessionId) -> Option<WorkerOrdinal> {
        self.ordinals.get(&session).copied()
    }

    /// The worker from which a shard was moved because it drained, if it is registered.
    pub(super) fn home_of(&self, shard: ShardIndex) -> Option<WorkerOrdinal> {
        let name = self.observed.homes.get(&shard)?;
        self.ordinal_of(self.group.workers.get(name)?.session?)
    }

    /// How many shards can be given away in all.
    pub(super) fn room(&self) -> u64 {
        self.room
    }

    /// The preference order of shards among the workers that take any.
    pub(super) fn ring(&self) -> &Ring {
        self.ring.get_or_init(|| {
            let open = self
                .workers()
                .filter(|(_, worker)| worker.standing == Standing::Open);
            let members: Vec<Member<'_>> = open
                .map(|(ordinal, worker)| Member {
                    name: worker.name.as_str(),
                    weight: worker.weight,
                    ordinal,
                })
                .collect();
            Ring::new(self.group.header.name.as_str(), &members)
        })
    }

    /// Whether a worker may be given one more shard.
    pub(super) fn has_room(&self, ordinal: WorkerOrdinal) -> bool {
        let worker = self.worker(ordinal);
        worker.has_room() && self.zones.get(worker.zone).room() > 0
    }

    pub(super) fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The least loaded workers with room, for their weights, of each zone at most so many.
    pub(super) fn least_loaded(&mut self, most: usize) -> Vec<WorkerOrdinal> {
        let roomy = self.roomy.take().unwrap_or_else(|| {
            let mut roomy = vec![Roomy::new(); self.zones.len()];
            for (ordinal, worker) in self.workers().filter(|(_, worker)| worker.has_room()) {
                if let Some(zone) = roomy.get_mut(worker.zone) {
                    zone.insert(key(worker, ordinal));
                }
            }
            roomy
        });
        let of_zones = self.roomy.insert(roomy).iter().zip(self.zones.iter());
        let with_room = of_zones.filter(|(_, zone)| zone.room() > 0);
        let mut found: Vec<_> = with_room
            .flat_map(|(roomy, _)| roomy.iter().take(most))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(.., ordinal)| *ordinal).collect()
    }

    /// Whether a shard may be placed on a worker: it is not kept off it.
    pub(super) fn may_have(&self, index: ShardIndex, worker: WorkerOrdinal) -> bool {
        let placement = self.group.placements.get(&index);
        placement.is_none_or(|placement| !placement.kept_off.contains(self.worker(worker).name))
    }

    /// Whether a shard stays where it is, on this worker, whatever the others have.
    pub(super) fn is_fixed(&self, index: ShardIndex, worker: WorkerOrdinal) -> bool {
        self.observed.suspects.contains(&index) || self.is_pinned_to(index, worker)
    }

    /// Why a shard finds no worker when none has room.
    pub(super) fn no_room(&self) -> Reason {
        if !self.any_open {
            let unfit = |worker: &Candidate<'_>| worker.standing == Standing::Unfit;
            return if self.workers.iter().any(unfit) {
                Reason::LabelsMissing
            } else {
                Reason::NoWorker
            };
        }
        let header = &self.group.header;
        let sharing = self
            .workers
            .iter()
            .filter(|worker| worker.standing.shares());
        let all = u64::try_from(sharing.count()).unwrap_or(u64::MAX);
        match header.policy.worker_shards_max {
            Some(most) if all * u64::from(most) < header.shard_count.into() => Reason::WorkersFull,
            _ => Reason::AllAtCap,
        }
    }

    /// Plans to give an unowned shard to a worker.
    pub(super) fn grant(&mut self, index: ShardIndex, to: WorkerOrdinal, why: GrantTo) {
        let seen = self.group.shard(index).and_then(|shard| shard.epoch);
        let grant = Grant {
            shard: index,
            seen,
            to: self.worker(to).session,
        };
        self.grants.push(PlannedGrant {
            grant,
            to,
            returning: why == GrantTo::Former,
            fixed: matches!(why, GrantTo::Home | GrantTo::Apart),
        });
        if let Some(suspects) = self.suspects.as_mut()
            && self.observed.suspects.contains(&index)
        {
            *suspects.entry(to).or_default() += 1;
        }
        let taken = u32::from(why == GrantTo::Home);
        self.set_load(
            to,
            self.worker(to).load + 1,
            self.worker(to).reserved - taken,
        );
    }

    /// Puts the grants in order: choosy shards were placed first.
    pub(super) fn sort_grants(&mut self) {
        self.grants.sort_by_key(PlannedGrant::shard);
    }

    /// The grants of this plan, in order of the shard.
    pub(super) fn grants(&self) -> &[PlannedGrant] {
        &self.grants
    }

    /// Whether this plan asks the shard back.
    pub(super) fn is_revoked(&self, shard: ShardIndex) -> bool {
        self.revoked.contains_key(&shard)
    }

    /// The shards that this plan takes from owners who are to lose all, or those shards, and who gets each.
    /// Not what goes where it must.
    pub(super) fn evacuated(&self) -> impl Iterator<Item = (ShardIndex, WorkerOrdinal)> + '_ {
        let evacuated = self.revokes.iter().filter(|planned| {
            let reason = planned.revoke.reason;
            !planned.home
                && matches!(
                    reason,
                    RevokeReason::Draining | RevokeReason::Stopping | RevokeReason::Placement
                )
        });
        let next = evacuated.filter_map(|planned| Some((planned.revoke.shard, planned.next?)));
        next.filter(|(index, next)| !self.is_fixed(*index, *next))
    }

    /// Plans to give a shard to another worker than planned before.
    pub(super) fn redirect(&mut self, shard: ShardIndex, to: WorkerOrdinal) {
        let session = self.worker(to).session;
        let revoke = self.revoked.get(&shard);
        let before = match revoke.and_then(|at| self.revokes.get_mut(*at)) {
            Some(planned) => {
                planned.revoke.next = Some(session);
                planned.next.replace(to)
            }
            None => self.redirect_grant(shard, to, session),
        };
        let Some(before) = before else {
            unreachable!("only what this plan gives to somebody is redirected")
        };
        self.change_load(before, -1);
        self.change_load(to, 1);
    }

    /// Returns to whom the shard was to be granted.
    fn redirect_grant(
        &mut self,
        shard: ShardIndex,
        to: WorkerOrdinal,
        session: SessionId,
    ) -> Option<WorkerOrdinal> {
        let at = self
            .grants
            .binary_search_by_key(&shard, |planned| planned.grant.shard);
        let planned = self.grants.get_mut(at.ok()?)?;
        planned.grant.to = session;
        planned.returning = false;
        Some(std::mem::replace(&mut planned.to, to))
    }

    /// Plans to ask a shard back; its next owner is chosen by the entry that ends the tenure if
    /// `next` is given and still live then, and by a later plan otherwise.
    pub(super) fn revoke(
        &mut self,
        shard: ShardIndex,
        next: Option<WorkerOrdinal>,
        reason: RevokeReason,
    ) {
        let seen = self.group.shard(shard);
        let owner = seen
            .and_then(Shard::owner)
            .and_then(|owner| self.ordinal_of(owner));
        let (Some(epoch), Some(owner)) = (seen.and_then(|seen| seen.epoch), owner) else {
            unreachable!("only an owned shard is revoked, and its owner is live")
        };
        let next_session = next.map(|next| self.worker(next).session);
        let revoke = Revoke {
            shard,
            seen: epoch,
            next: next_session,
            reason,
        };
        let home = next.is_some_and(|next| self.is_pinned_to(shard, next));
        self.revoked.insert(shard, self.revokes.len());
        self.revokes.push(PlannedRevoke { revoke, next, home });
        self.budget.spend();
        self.evened_out += u32::from(reason == RevokeReason::Rebalance);
        self.change_load(owner, -1);
        if let Some(next) = next {
            let worker = self.worker(next);
            self.set_load(next, worker.load + 1, worker.reserved - u32::from(home));
        }
    }

    /// Notes that a worker that stops need not wait: nobody else takes what it has.
    pub(super) fn strand(&mut self, worker: WorkerOrdinal) {
        let session = self.worker(worker).session;
        self.stranded.insert(session);
    }

    /// How many owned shards are moved to even workers out.
    pub(super) fn evened_out(&self) -> u32 {
        self.evened_out
    }

    /// How many shards each worker owns that stay where they are, of those that have any.
    pub(super) fn fixed(&self) -> BTreeMap<WorkerOrdinal, usize> {
        let pinned = self.group.placements.iter();
        let pinned = pinned.filter(|(_, placement)| placement.pinned_to.is_some());
        let suspects = self.observed.suspects.iter();
        let indices: BTreeSet<ShardIndex> = pinned
            .map(|(index, _)| index)
            .chain(suspects)
            .copied()
            .collect();
        let mut fixed = BTreeMap::new();
        for index in indices {
            let state = self.group.shard(index).map(|shard| &shard.state);
            let Some(ShardState::Opening(owner) | ShardState::Serving(owner)) = state else {
                continue;
            };
            let owner = self.ordinal_of(*owner).filter(|_| !self.is_revoked(index));
            if let Some(owner) = owner.filter(|owner| self.is_fixed(index, *owner)) {
                *fixed.entry(owner).or_default() += 1;
            }
        }
        fixed
    }

    /// Whether a shard is pinned to a worker.
    pub(super) fn is_pinned_to(&self, index: ShardIndex, worker: WorkerOrdinal) -> bool {
        let placement = self.group.placements.get(&index);
        placement.is_some_and(|of| of.pinned_to.as_ref() == Some(self.worker(worker).name))
    }

    fn change_load(&mut self, ordinal: WorkerOrdinal, by: i32) {
        let worker = self.worker(ordinal);
        self.set_load(
            ordinal,
            worker.load.saturating_add_signed(by),
            worker.reserved,
        );
    }

    fn set_load(&mut self, ordinal: WorkerOrdinal, load: u32, reserved: u32) {
        let worker = self.worker_mut(ordinal);
        let (key_before, before, room_before) =
            (key(worker, ordinal), worker.expected(), worker.room());
        (worker.load, worker.reserved) = (load, reserved);
        let (key, expected, room) = (key(worker, ordinal), worker.expected(), worker.room());
        let (zone, shares) = (worker.zone, worker.standing.shares());
        if shares {
            let of_zone = self
                .zones
                .change(zone, (before, expected), (room_before, room));
            self.room = self.room - of_zone.0 + of_zone.1;
        }
        if let Some(roomy) = self.roomy.as_mut().and_then(|roomy| roomy.get_mut(zone)) {
            roomy.remove(&key_before);
            roomy.extend((room > 0).then_some(key));
        }
    }

    /// Ends the draft. The promises of a plan are checked here whatever the phases did.
    pub(super) fn finish(self) -> Plan {
        self.assert_caps_kept();
        Plan {
            group: self.group.header.id,
            grants: self
                .grants
                .into_iter()
                .map(|planned| planned.grant)
                .collect(),
            revokes: self
                .revokes
                .into_iter()
                .map(|planned| planned.revoke)
                .collect(),
            stranded: self.stranded,
            report: self.report,
        }
    }

    /// No worker that is given a shard ends above its cap, and loads are what the moves make of them.
    /// A shard that goes where it is pinned may go above it.
    fn assert_caps_kept(&self) {
        let mut gained = vec![0_u32; self.workers.len()];
        let given = self.grants.iter().filter(|planned| {
            !(planned.fixed && self.is_pinned_to(planned.grant.shard, planned.to))
        });
        let next = self.revokes.iter().filter(|planned| !planned.home);
        let given = given.map(|planned| planned.to);
        for ordinal in given.chain(next.filter_map(|planned| planned.next)) {
            gained
                .get_mut(position(ordinal))
                .into_iter()
                .for_each(|gained| *gained += 1);
        }
        for (worker, gained) in self.workers.iter().zip(gained) {
            let kept = match worker.standing {
                Standing::Open => gained == 0 || worker.expected() <= worker.share.cap,
                // What was its own comes home, and was counted out of the others' shares.
                Standing::Paused => true,
                _ => gained == 0,
            };
            assert!(
                kept,
                "{} gets {gained} shards to a load of {} beyond its cap",
                worker.name, worker.load
            );
        }
    }
}

/// The order of workers with room.
fn key(worker: &Candidate<'_>, ordinal: WorkerOrdinal) -> (Level, bool, WorkerOrdinal) {
    (worker.level(), worker.unpreferred, ordinal)
}

fn position(ordinal: WorkerOrdinal) -> usize {
    usize::try_from(ordinal.0).unwrap_or(usize::MAX)
}
