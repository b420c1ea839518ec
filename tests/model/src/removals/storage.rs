//! Rules of the store, and of who uses it.

use crate::bounds::Budget;
use crate::properties::FENCED;
use crate::properties::NOTHING_LOST;
use crate::properties::ONE_WRITER;
use crate::removals::NONE;
use crate::removals::Removal;
use crate::removals::alone;
use crate::removals::within;

/// Each, taken away.
pub(super) fn removals() -> Vec<Removal> {
    let handoff = Budget {
        revokes: 1,
        writes: 1,
        ..NONE
    };
    vec![
        Removal {
            rule: "seal_before_read",
            remove: |rules| rules.seal_before_read = false,
            bounds: within(handoff),
            violates: Some(NOTHING_LOST),
        },
        Removal {
            rule: "seal_refused_below_the_fence",
            remove: |rules| rules.seal_refused_below_the_fence = false,
            bounds: within(Budget {
                returns: 1,
                grants: 2,
                cuts: 1,
                writes: 1,
                ..NONE
            }),
            violates: Some(FENCED),
        },
        Removal {
            rule: "write_refused_below_the_fence",
            remove: |rules| rules.write_refused_below_the_fence = false,
            bounds: within(handoff),
            violates: Some(FENCED),
        },
        Removal {
            rule: "write_refused_above_the_fence",
            remove: |rules| rules.write_refused_above_the_fence = false,
            bounds: within(Budget {
                unsealed_reads: 1,
                writes: 2,
                ..handoff
            }),
            violates: Some(NOTHING_LOST),
        },
        // While epochs are not repeated, none has two owners.
        Removal {
            rule: "equal_epoch_needs_the_same_owner",
            remove: |rules| rules.equal_epoch_needs_the_same_owner = false,
            bounds: within(Budget {
                lost_answers: 1,
                ..handoff
            }),
            violates: None,
        },
        // The rule before is the second line behind this one: without either, an owner of the group that
        // was deleted writes beside the owner of the same epoch in the new one.
        Removal {
            rule: "equal_epoch_needs_the_same_owner, epochs_outlive_the_group",
            remove: |rules| {
                rules.equal_epoch_needs_the_same_owner = false;
                rules.epochs_outlive_the_group = false;
            },
            bounds: alone(Budget {
                ticks: 0,
                deletions: 1,
                streams: 1,
                grants: 1,
                writes: 1,
                ..NONE
            }),
            violates: Some(ONE_WRITER),
        },
    ]
}
