//! A plan in the making: the workers with their loads as they will be, and the moves so far.
//!
//! Every phase reads loads that include the moves of the phases before it. Loads change only in
//! `grant`, `redirect` and `revoke`, and [`Draft::finish`] checks what came of them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Grant, Revoke};
use crate::group::{Group, GroupPhase};
use crate::ids::{GroupId, SessionId, ShardIndex};
use crate::planner::candidate::{Candidate, Standing, WorkerOrdinal, candidates, share_out};
use crate::planner::observed::Observed;
use crate::planner::proposal::Plan;
use crate::planner::report::{Reason, Report};
use crate::planner::ring::{Member, Ring};
use crate::planner::share::Level;
use crate::planner::throttle::Budget;
use crate::shard::{Revocation, RevokeReason, Shard};
use crate::state::State;

/// A grant of this plan.
pub(super) struct PlannedGrant {
    grant: Grant,
    pub(super) to: WorkerOrdinal,
    /// Whether the worker held the shard before.
    pub(super) returning: bool,
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
    /// In order of the shard, because placement goes through the shards in order.
    grants: Vec<PlannedGrant>,
    /// The most urgent first.
    revokes: Vec<PlannedRevoke>,
    revoked: BTreeSet<ShardIndex>,
    stranded: BTreeSet<SessionId>,
    /// Built when first asked: a plan that moves nothing needs none.
    ring: OnceCell<Ring>,
    /// Workers with room by level; `None` until first asked.
    by_level: Option<BTreeSet<(Level, WorkerOrdinal)>>,
    /// What all workers have room for together.
    room: u64,
    any_open: bool,
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
            revoked: BTreeSet::new(),
            stranded: BTreeSet::new(),
            ring: OnceCell::new(),
            by_level: None,
            room: 0,
            any_open: false,
        };
        draft.count_handoffs();
        share_out(&mut draft.workers, group);
        draft.room = draft
            .workers
            .iter()
            .map(|worker| u64::from(worker.room()))
            .sum();
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

    /// The workers with room, the least loaded relative to their weights first.
    pub(super) fn least_loaded(&mut self) -> impl Iterator<Item = WorkerOrdinal> + '_ {
        let by_level = self.by_level.take().unwrap_or_else(|| {
            let roomy = self.workers().filter(|(_, worker)| worker.has_room());
            roomy
                .map(|(ordinal, worker)| (worker.level(), ordinal))
                .collect()
        });
        self.by_level
            .insert(by_level)
            .iter()
            .map(|(_, ordinal)| *ordinal)
    }

    /// Why a shard finds no worker when none has room.
    pub(super) fn no_room(&self) -> Reason {
        if self.any_open {
            Reason::AllAtCap
        } else {
            Reason::NoWorker
        }
    }

    /// Plans to give an unowned shard to a worker, for `returning` to one that held it before.
    pub(super) fn grant(&mut self, index: ShardIndex, to: WorkerOrdinal, returning: bool) {
        let seen = self.group.shard(index).and_then(|shard| shard.epoch);
        let grant = Grant {
            shard: index,
            seen,
            to: self.worker(to).session,
        };
        self.grants.push(PlannedGrant {
            grant,
            to,
            returning,
        });
        self.set_load(to, self.worker(to).load + 1);
    }

    /// The grants of this plan, in order of the shard.
    pub(super) fn grants(&self) -> &[PlannedGrant] {
        &self.grants
    }

    /// Whether this plan asks the shard back.
    pub(super) fn is_revoked(&self, shard: ShardIndex) -> bool {
        self.revoked.contains(&shard)
    }

    /// Plans to give a shard to another worker than planned before.
    pub(super) fn redirect(&mut self, shard: ShardIndex, to: WorkerOrdinal) {
        let session = self.worker(to).session;
        let found = self
            .grants
            .binary_search_by_key(&shard, |planned| planned.grant.shard);
        let Some(planned) = found.ok().and_then(|at| self.grants.get_mut(at)) else {
            unreachable!("only a grant of this plan is redirected")
        };
        let before = std::mem::replace(&mut planned.to, to);
        planned.grant.to = session;
        planned.returning = false;
        self.set_load(before, self.worker(before).load - 1);
        self.set_load(to, self.worker(to).load + 1);
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
        self.revokes.push(PlannedRevoke { revoke, next });
        self.revoked.insert(shard);
        self.budget.spend();
        self.set_load(owner, self.worker(owner).load - 1);
        if let Some(next) = next {
            self.set_load(next, self.worker(next).load + 1);
        }
    }

    /// Notes that a worker that stops need not wait: nobody else takes what it has.
    pub(super) fn strand(&mut self, worker: WorkerOrdinal) {
        let session = self.worker(worker).session;
        self.stranded.insert(session);
    }

    fn set_load(&mut self, ordinal: WorkerOrdinal, load: u32) {
        let worker = self.worker_mut(ordinal);
        let (level_before, room_before) = (worker.level(), worker.room());
        worker.load = load;
        let (level, room) = (worker.level(), worker.room());
        self.room = self.room - u64::from(room_before) + u64::from(room);
        if let Some(by_level) = &mut self.by_level {
            by_level.remove(&(level_before, ordinal));
            by_level.extend((room > 0).then_some((level, ordinal)));
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
    fn assert_caps_kept(&self) {
        let mut gained = vec![0_u32; self.workers.len()];
        let given = self.grants.iter().map(|planned| planned.to);
        let next = self.revokes.iter().filter_map(|planned| planned.next);
        for ordinal in given.chain(next) {
            gained
                .get_mut(position(ordinal))
                .into_iter()
                .for_each(|gained| *gained += 1);
        }
        for (worker, gained) in self.workers.iter().zip(gained) {
            let kept = match worker.standing {
                Standing::Open => gained == 0 || worker.load <= worker.share.cap,
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

fn position(ordinal: WorkerOrdinal) -> usize {
    usize::try_from(ordinal.0).unwrap_or(usize::MAX)
}
