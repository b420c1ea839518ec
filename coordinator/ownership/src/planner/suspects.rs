//! Shards that may be what crashes their owners: several of them on one worker would hide which it is.

use crate::ids::ShardIndex;
use crate::placement::KEPT_OFF_MAX;
use crate::planner::Observed;
use crate::planner::candidate::WorkerOrdinal;
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::score;
use crate::shard::Shard;

/// Finds the worker with room that has the fewest suspects, of equal ones the least loaded.
///
/// # Errors
/// The [`Reason`] why there is none.
pub(super) fn apart(
    draft: &mut Draft<'_>,
    index: ShardIndex,
    shard: &Shard,
) -> Result<WorkerOrdinal, Reason> {
    if draft.observed.suspects.len() > Observed::SUSPECTS_MAX {
        return score::most_suitable(draft, index, shard, None);
    }
    // Who has the fewest is among the least loaded: of these, one more than there are with suspects.
    let most = draft.suspects().len() + KEPT_OFF_MAX + 2;
    let roomy = draft.least_loaded(most);
    let counts = draft.suspects().clone();
    let suitable = roomy.into_iter().enumerate();
    let suitable = suitable.filter(|(_, worker)| draft.may_have(index, *worker));
    let best = suitable.min_by_key(|(position, worker)| {
        let failed = draft.worker(*worker).has_failed(shard);
        let count = counts.get(worker).copied().unwrap_or(0);
        (count, failed, *position)
    });
    best.map(|(_, worker)| worker)
        .ok_or_else(|| draft.no_room())
}
