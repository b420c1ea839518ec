//! What makes up for lost messages.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::properties::SERVED_IN_THE_END;
use crate::removals::CUT;
use crate::removals::NONE;
use crate::removals::Removal;
use crate::removals::cold;
use crate::removals::within;

/// Each, taken away.
pub(super) fn removals() -> Vec<Removal> {
    let lost = Bounds {
        with_recovery: true,
        ..within(Budget {
            ticks: 1,
            returns: 1,
            ..CUT
        })
    };
    vec![
        Removal {
            rule: "ready_is_said_again",
            remove: |rules| rules.ready_is_said_again = false,
            bounds: Bounds {
                with_recovery: true,
                ..cold(Budget {
                    ticks: 0,
                    cuts: 1,
                    streams: 2,
                    grants: 1,
                    ..NONE
                })
            },
            violates: Some(SERVED_IN_THE_END),
        },
        // Either of the next two is enough for a shard that was given up and whose release was lost.
        Removal {
            rule: "release_is_said_again",
            remove: |rules| rules.release_is_said_again = false,
            bounds: lost,
            violates: None,
        },
        Removal {
            rule: "what_is_not_held_is_taken_back",
            remove: |rules| rules.what_is_not_held_is_taken_back = false,
            bounds: lost,
            violates: None,
        },
        Removal {
            rule: "release_is_said_again, what_is_not_held_is_taken_back",
            remove: |rules| {
                rules.release_is_said_again = false;
                rules.what_is_not_held_is_taken_back = false;
            },
            bounds: lost,
            violates: Some(SERVED_IN_THE_END),
        },
    ]
}
