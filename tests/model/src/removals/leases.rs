//! Rules of leases and of leaders.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Start;
use crate::properties::ONE_BELIEVES;
use crate::properties::TOKENS_TRUE;
use crate::properties::WAKING_ENDS_NOBODY;
use crate::removals::CUT;
use crate::removals::ELECTION;
use crate::removals::NONE;
use crate::removals::Removal;
use crate::removals::alone;
use crate::removals::draining;
use crate::removals::living;
use crate::removals::within;

/// Each, taken away.
pub(super) fn removals() -> Vec<Removal> {
    vec![
        Removal {
            rule: "acknowledgement_needs_a_round",
            remove: |rules| rules.acknowledgement_needs_a_round = false,
            bounds: alone(ELECTION),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "acknowledgement_needs_a_later_round",
            remove: |rules| rules.acknowledgement_needs_a_later_round = false,
            bounds: living(
                3,
                alone(Budget {
                    ticks: 2,
                    elections: 1,
                    starts: 1,
                    streams: 1,
                    ..NONE
                }),
            ),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "undecided_is_not_acknowledged",
            remove: |rules| rules.undecided_is_not_acknowledged = false,
            bounds: within(Budget {
                starts: 1,
                streams: 1,
                ..NONE
            }),
            violates: Some(ONE_BELIEVES),
        },
        // Who is resumed is still not acknowledged, so nothing comes of it unless that rule is gone as well.
        Removal {
            rule: "undecided_is_not_resumed",
            remove: |rules| rules.undecided_is_not_resumed = false,
            bounds: within(CUT),
            violates: None,
        },
        Removal {
            rule: "undecided_is_not_resumed, undecided_is_not_acknowledged",
            remove: |rules| {
                rules.undecided_is_not_resumed = false;
                rules.undecided_is_not_acknowledged = false;
            },
            bounds: within(CUT),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "expiry_waits_for_belief",
            remove: |rules| rules.expiry_waits_for_belief = false,
            bounds: within(CUT),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "force_waits_for_belief",
            remove: |rules| rules.force_waits_for_belief = false,
            bounds: draining(0, Budget { revokes: 1, ..NONE }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "force_waits_for_belief, of a deleted group",
            remove: |rules| rules.force_waits_for_belief = false,
            bounds: Bounds {
                start: Start::Alone,
                ..draining(
                    0,
                    Budget {
                        ticks: 0,
                        deletions: 1,
                        streams: 1,
                        grants: 1,
                        ..NONE
                    },
                )
            },
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "replacement_waits_for_belief",
            remove: |rules| rules.replacement_waits_for_belief = false,
            bounds: within(Budget {
                starts: 1,
                streams: 1,
                ..NONE
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "new_leader_gives_a_fresh_ttl",
            remove: |rules| rules.new_leader_gives_a_fresh_ttl = false,
            bounds: alone(ELECTION),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "new_leader_gives_a_fresh_ttl, to a process that is replaced",
            remove: |rules| rules.new_leader_gives_a_fresh_ttl = false,
            bounds: alone(Budget {
                ticks: 2,
                elections: 1,
                starts: 1,
                streams: 1,
                ..NONE
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "new_leader_restarts_drains",
            remove: |rules| rules.new_leader_restarts_drains = false,
            bounds: within(Budget {
                ticks: 0,
                grants: 0,
                revokes: 1,
                cuts: 1,
                ..ELECTION
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "woken_leader_moves_its_deadlines",
            remove: |rules| rules.woken_leader_moves_its_deadlines = false,
            bounds: within(Budget { pauses: 1, ..CUT }),
            violates: Some(WAKING_ENDS_NOBODY),
        },
        Removal {
            rule: "leader_settles_before_it_serves",
            remove: |rules| rules.leader_settles_before_it_serves = false,
            bounds: alone(Budget {
                ticks: 1,
                cuts: 1,
                streams: 2,
                ..ELECTION
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "token_check_needs_a_quorum",
            remove: |rules| rules.token_check_needs_a_quorum = false,
            bounds: within(Budget {
                elections: 1,
                token_checks: 1,
                ..NONE
            }),
            violates: Some(TOKENS_TRUE),
        },
    ]
}
