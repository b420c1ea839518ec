//! The limit of handoffs in flight: the budget that all phases spend, the most urgent first.
//!
//! What counts is owned shards that are asked back, by this plan and by earlier ones whose revocation
//! has not ended. Grants of unowned shards do not: nobody serves those, so waiting would help nobody.
//! A shard that its next owner is opening does not count either. How many open at once is for the
//! worker to say, and one opening that hangs must not hold up a drain.
//!
//! A budget that is spent, and not a last phase that drops moves: by then the room that a dropped
//! move would have made is given away already, and its worker would end above the cap.

use crate::planner::draft::Draft;
use crate::planner::report::Reason;

/// How many owned shards a plan may ask back.
pub(super) struct Budget {
    left: u32,
}

impl Budget {
    /// What earlier plans have left of the limit.
    pub(super) fn new(handoffs_in_flight_max: u32, in_flight: u32) -> Self {
        Self {
            left: handoffs_in_flight_max.saturating_sub(in_flight),
        }
    }

    /// How many more shards may be asked back.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Accounts for one more shard.
    ///
    /// # Panics
    /// If nothing is left: a phase did not look.
    pub(super) fn spend(&mut self) {
        assert!(self.left > 0, "more handoffs than the policy allows");
        self.left -= 1;
    }
}

/// How many served shards may be moved to even workers out, beside those of this plan, and why no more.
pub(super) fn planned_moves(draft: &Draft<'_>) -> (u32, Reason) {
    let observed = draft.observed;
    if draft.group.header.frozen.is_some() {
        return (0, Reason::Frozen);
    }
    if let Some(reason) = observed.rebalance_paused {
        return (0, Reason::Paused(reason));
    }
    let in_flight = (draft.budget.left(), Reason::Throttled);
    let made = draft.evened_out();
    // Who wants it now knows how much is moved.
    let churn = match observed.evened_out_by {
        Some(most) => (most.saturating_sub(made), Reason::Throttled),
        None => {
            let left = observed.churn_left.unwrap_or(u32::MAX);
            (left.saturating_sub(made), Reason::ChurnSpent)
        }
    };
    if churn.0 < in_flight.0 {
        return churn;
    }
    in_flight
}
