//! The planner: which moves to propose, and what it leaves undone and why.
//!
//! [`plan`] is a pure function. Equal inputs give equal plans, on every machine and in every build:
//! there is no clock, no randomness and no float in it, and workers are taken in the order of their
//! names. Plans are made outside the log; the log carries the decision, so a change of the hash or of
//! these rules can never make replicas disagree.
//!
//! What a plan keeps:
//!
//! * **Caps.** No worker is given a shard at or above its cap, `max(floor(load_factor × share),
//!   ceil(share))`, where the share is the fair part of the group by weight, and never more than
//!   `policy.worker_shards_max`. Zones have caps as workers do. What is pinned to a worker comes on top of its
//!   share.
//! * **Places.** No shard is given to a worker without the required labels, or that it is kept off. One that is
//!   pinned goes home whenever its worker takes shards. One in quarantine goes nowhere.
//! * **Stillness.** An owner keeps its shards unless it drains, may not have them, cannot open them, is above its
//!   cap, or another worker is below the whole part of its share. When a worker leaves, its shards
//!   move and no others; when one joins, about its share moves. Where load is balanced, nothing moves that
//!   the tolerated imbalance leaves alone.
//! * **Stability.** Planning again after a plan was carried out yields no moves.
//! * **Bounds.** No more owned shards are asked back than `policy.handoffs_in_flight` allows, and to
//!   even workers out no more in a minute than `policy.moves_per_minute_max`. Granting unowned shards is not
//!   limited: nobody loses anything by it.
//!
//! What it is not for: anything that needs the time. Delays, deadlines and measured loads are kept by the leader
//! and handed in as [`Observed`].

mod candidate;
mod draft;
mod evacuate;
mod load;
mod observed;
mod pins;
mod place;
mod proposal;
mod rebalance;
mod report;
mod ring;
mod score;
mod share;
mod suspects;
mod throttle;
mod transfer;
mod zone;

pub use observed::{Observed, PauseReason};
pub use proposal::Plan;
pub use report::{NotDone, Reason, Report};

use crate::ids::GroupId;
use crate::planner::draft::Draft;
use crate::state::State;

/// Computes the next moves of one group.
///
/// Deterministic: equal inputs give equal plans. Bounded: at most `policy.handoffs_in_flight` owned
/// shards are on the move at any time. Stable: planning again after the plan is carried out yields no
/// moves; where pins, labels and limits leave little room, that takes up to three plans. A group that is
/// unknown or being deleted gets a plan without moves.
pub fn plan(state: &State, group: GroupId, observed: &Observed) -> Plan {
    let mut draft = match Draft::new(state, group, observed) {
        Ok(draft) => draft,
        Err(report) => return Plan::without_moves(group, report),
    };

    // Every phase spends the budget of handoffs (see `throttle`), so urgent moves come first. Nobody
    // is served by an opening that hangs, so these come before shards that still work.
    evacuate::overdue_openings(&mut draft);
    let mut stuck = evacuate::draining_workers(&mut draft);
    stuck.extend(evacuate::shards_kept_off(&mut draft));
    pins::make_room(&mut draft);
    pins::bring_home(&mut draft);
    // Before rebalance, so that an unowned shard is never passed over for a nicer layout.
    let unplaced = place::unowned_shards(&mut draft);
    rebalance::misplaced_shards(&mut draft);
    load::uneven_workers(&mut draft);
    // What is taken from full workers has made room.
    place::what_found_no_room(&mut draft, unplaced);
    evacuate::what_found_no_room(&mut draft, stuck);

    report::zones(&mut draft);
    draft.finish()
}
