//! Plans, and what was said of the place of shards, as messages.

use tenure_ownership::State;
use tenure_ownership::ids::SessionId;
use tenure_ownership::placement::Placement;
use tenure_ownership::planner::Plan;
use tenure_ownership::policy::BalanceBy;
use tenure_proto::v1 as pb;

/// Most moves of one answer: with the longest names they stay below the 4 MiB that a client takes by default.
const MOVES_MAX: usize = 10_000;

pub(super) fn balance_by(by: BalanceBy) -> pb::BalanceBy {
    match by {
        BalanceBy::Shards => pb::BalanceBy::Shards,
        BalanceBy::Load => pb::BalanceBy::Load,
    }
}

pub(super) fn pinned_to(placement: &Placement) -> String {
    let worker = placement.pinned_to.as_ref();
    worker.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn kept_off(placement: &Placement) -> Vec<String> {
    placement.kept_off.iter().map(ToString::to_string).collect()
}

pub(super) fn quarantine(placement: &Placement) -> Option<pb::Quarantine> {
    let quarantine = placement.quarantine?;
    Some(pb::Quarantine {
        crashes: quarantine.crashes,
        since: quarantine.since.0,
    })
}

/// A plan with the names of workers as they are in a state.
pub(crate) fn plan(state: &State, plan: &Plan) -> pb::Plan {
    let name = |session: Option<SessionId>| {
        let session = session.and_then(|session| state.session(session));
        session.map_or_else(String::new, |session| session.worker.to_string())
    };
    let granted = plan.grants.iter().map(|grant| pb::PlannedMove {
        shard: grant.shard.0,
        from: String::new(),
        to: name(Some(grant.to)),
        reason: pb::RevokeReason::Unspecified.into(),
    });
    let revoked = plan.revokes.iter().map(|revoke| {
        let owner = state.shard(plan.group, revoke.shard);
        pb::PlannedMove {
            shard: revoke.shard.0,
            from: name(owner.and_then(|shard| shard.owner())),
            to: name(revoke.next),
            reason: super::revoke_reason(revoke.reason).into(),
        }
    });
    let not_moved = plan.report.not_done.iter();
    pb::Plan {
        moves: granted.chain(revoked).take(MOVES_MAX).collect(),
        moves_total: u32::try_from(plan.grants.len() + plan.revokes.len()).unwrap_or(u32::MAX),
        not_moved: not_moved
            .map(|(reason, left)| pb::NotMoved {
                reason: reason.to_string(),
                moves: left.moves,
                shards: left.sample.iter().map(|shard| shard.0).collect(),
            })
            .collect(),
        in_flight: plan.report.in_flight,
    }
}
