//! What the leader measures: loads of shards, moves in a minute, crashes of owners.

use std::collections::BTreeMap;

use tenure_ownership::Command;
use tenure_ownership::Event;
use tenure_ownership::State;
use tenure_ownership::command::Quarantine;
use tenure_ownership::event::EndCause;
use tenure_ownership::group::Group;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::policy::BalanceBy;
use tenure_ownership::session::SessionEnd;
use tenure_ownership::shard::RevokeReason;

use super::Awaited;
use super::Core;
use crate::clock::Moment;

/// Of fewer workers than these, one that dies is not most of them.
const MOST_OF: usize = 3;

impl Core {
    /// Takes the loads that a worker reports for its shards, where its group balances by them.
    pub(super) fn take_loads(
        &mut self,
        now: Moment,
        session: SessionId,
        loads: &[(ShardIndex, u64)],
        state: &State,
    ) {
        let group = state.session(session).map(|session| session.group);
        let Some(group) = group.and_then(|group| state.group(group)) else {
            return;
        };
        if group.header.policy.balance_by != BalanceBy::Load {
            return;
        }
        for (index, load) in loads {
            // Of a shard that is not its own any more it knows nothing.
            let owner = group.shard(*index).and_then(|shard| shard.owner());
            if owner == Some(session) {
                self.loads.report(group.header.id, *index, *load, now);
            }
        }
    }

    /// Touches the groups that are to be planned for what was measured.
    pub(super) fn plan_measured(&mut self, now: Moment) {
        let mut due = self.loads.take_due(now);
        due.extend(self.churn.take_due(now));
        for group in due {
            self.planning.touch(group);
        }
    }

    /// Measures what an event tells of a group that is there.
    pub(super) fn measure(&mut self, now: Moment, event: &Event, group: &Group) {
        let (id, policy) = (group.header.id, &group.header.policy);
        match event {
            Event::Revoking {
                reason: RevokeReason::Rebalance,
                ..
            } if policy.moves_per_minute_max.is_some() => self.churn.moved(id, now),
            Event::PolicySet { .. } if policy.balance_by != BalanceBy::Load => {
                self.loads.forget(id);
            }
            Event::QuarantineEnded { shard, .. } => self.crashes.retried(id, *shard),
            _ => {}
        }
    }

    /// Forgets what was measured of a group that is gone.
    pub(super) fn forget_measured(&mut self, group: GroupId) {
        self.loads.forget(group);
        self.churn.forget(group);
        self.crashes.forget(group);
        self.answer_none(group);
    }

    /// Blames the shards of workers that died, and proposes to put one into quarantine if it was there
    /// too often.
    ///
    /// A worker that said it stops did not crash, and neither did most workers of a group at once, whether their
    /// streams broke or they fell silent together: then the network is the likelier cause.
    pub(super) fn blame(&mut self, now: Moment, events: &[Event], state: &State) {
        let mut died: BTreeMap<(GroupId, SessionId), Vec<ShardIndex>> = BTreeMap::new();
        for event in events {
            if let Event::TenureEnded {
                group,
                shard,
                owner,
                cause: EndCause::SessionEnded(SessionEnd::Expired),
                ..
            } = event
            {
                died.entry((*group, *owner)).or_default().push(*shard);
            }
        }
        let mut at_once: BTreeMap<GroupId, usize> = BTreeMap::new();
        for (id, _) in died.keys() {
            *at_once.entry(*id).or_default() += 1;
        }
        for ((id, session), shards) in died {
            // Their leases are still there.
            let all = self.leases.of_group(id).count();
            if all >= MOST_OF && 2 * at_once.get(&id).copied().unwrap_or(0) > all {
                continue;
            }
            let stopping = self
                .leases
                .get(session)
                .is_some_and(|lease| lease.is_stopping());
            let Some(group) = state.group(id).filter(|_| !stopping) else {
                continue;
            };
            if self.leases.in_mass_failure(id) {
                continue;
            }
            let crashes_max = group.header.policy.crashes_max;
            if crashes_max == 0 {
                // Nobody is a suspect either: their places would cost moves of others.
                self.crashes.forget(id);
                continue;
            }
            let Some((shard, crashes)) = self.crashes.died(id, &shards, crashes_max, now) else {
                continue;
            };
            let Some(seen) = group.shard(shard).and_then(|shard| shard.epoch) else {
                continue;
            };
            tracing::warn!(group = %id, %shard, crashes, "one owner after the other crashed with a shard");
            let quarantine = Quarantine {
                group: id,
                shard,
                seen,
                crashes,
            };
            // Before any plan that would grant it: what is proposed first is applied first.
            self.propose(
                Command::Quarantine(quarantine),
                Awaited::Quarantine { group: id },
            );
        }
    }
}
