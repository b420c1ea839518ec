//! Rules of streams and of what is said on them, and the worker's half.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::properties::ONE_BELIEVES;
use crate::removals::CUT;
use crate::removals::NONE;
use crate::removals::Removal;
use crate::removals::cold;
use crate::removals::living;
use crate::removals::within;

/// Each, taken away.
pub(super) fn removals() -> Vec<Removal> {
    vec![
        Removal {
            rule: "break_names_its_stream",
            remove: |rules| rules.break_names_its_stream = false,
            bounds: within(Budget { ticks: 1, ..CUT }),
            violates: Some(ONE_BELIEVES),
        },
        // A stream that is not the session's is not acknowledged, so a worker that loses its place to an older stream
        // of its own has to come back, and no more.
        Removal {
            rule: "highest_attempt_wins",
            remove: |rules| rules.highest_attempt_wins = false,
            bounds: Bounds {
                with_recovery: true,
                ..within(Budget {
                    ticks: 1,
                    cuts: 2,
                    streams: 2,
                    ..CUT
                })
            },
            violates: None,
        },
        Removal {
            rule: "answer_names_its_set",
            remove: |rules| rules.answer_names_its_set = false,
            bounds: cold(Budget {
                ticks: 0,
                streams: 2,
                grants: 2,
                ..NONE
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "belief_counts_from_sending",
            remove: |rules| rules.belief_counts_from_sending = false,
            bounds: living(
                3,
                within(Budget {
                    ticks: 2,
                    starts: 1,
                    streams: 1,
                    ..NONE
                }),
            ),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "drain_counts_from_the_acknowledged",
            remove: |rules| rules.drain_counts_from_the_acknowledged = false,
            bounds: within(Budget { revokes: 1, ..NONE }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "closed_tenure_stays_closed",
            remove: |rules| rules.closed_tenure_stays_closed = false,
            bounds: within(Budget {
                ticks: 0,
                returns: 1,
                ..CUT
            }),
            violates: Some(ONE_BELIEVES),
        },
    ]
}
