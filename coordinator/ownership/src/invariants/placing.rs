//! Invariants of what is said of the place of single shards.

use super::Finding;
use crate::placement::KEPT_OFF_MAX;
use crate::shard::ShardState;
use crate::state::State;

pub(super) fn placements_say_something(state: &State, mut finding: Finding<'_>) {
    for group in state.groups() {
        let name = &group.header.name;
        for (index, placement) in group.placements.iter() {
            let says = !placement.is_empty() && group.shard(*index).is_some();
            finding.require(says, || {
                format!("the place of {name}/{index} is kept for nothing")
            });
            let kept_off = placement.kept_off.len();
            let one = placement.pinned_to.is_none() || kept_off == 0;
            finding.require(one && kept_off <= KEPT_OFF_MAX, || {
                format!("{name}/{index} is pinned and kept off {kept_off} workers")
            });
            let since = placement.quarantine.map(|quarantine| quarantine.since);
            finding.require(since <= Some(state.revision()), || {
                format!("{name}/{index} is in quarantine from a later revision on")
            });
        }
    }
}

pub(super) fn quarantine_grants_nothing(state: &State, mut finding: Finding<'_>) {
    for group in state.groups() {
        let quarantined = group.placements.iter();
        let quarantined = quarantined.filter(|(_, placement)| placement.quarantine.is_some());
        for (index, _) in quarantined {
            let resting = match group.shard(*index).map(|shard| &shard.state) {
                Some(ShardState::Unowned(_)) | None => true,
                Some(ShardState::Revoking(revocation)) => revocation.next.is_none(),
                Some(ShardState::Opening(_) | ShardState::Serving(_)) => false,
            };
            finding.require(resting, || {
                format!("{}/{index} is granted in quarantine", group.header.name)
            });
        }
    }
}
