//! Preconditions of commands.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::properties::EPOCHS_RISE;
use crate::properties::NAMES_STAY;
use crate::properties::ONE_BELIEVES;
use crate::properties::OWNERS_LIVE;
use crate::properties::SERVED_IS_SEALED;
use crate::removals::CUT;
use crate::removals::NONE;
use crate::removals::Removal;
use crate::removals::alone;
use crate::removals::within;

/// Each, taken away.
pub(super) fn removals() -> Vec<Removal> {
    vec![
        // Every grant takes an unowned shard, so the worst that a late plan can do is to place it badly.
        Removal {
            rule: "grant_names_its_epoch",
            remove: |rules| rules.grant_names_its_epoch = false,
            bounds: within(Budget {
                returns: 1,
                grants: 2,
                ..NONE
            }),
            violates: None,
        },
        Removal {
            rule: "grant_names_its_epoch, grant_takes_unowned_shards",
            remove: |rules| {
                rules.grant_names_its_epoch = false;
                rules.grant_takes_unowned_shards = false;
            },
            bounds: within(Budget {
                returns: 1,
                grants: 2,
                ..NONE
            }),
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "grant_needs_a_live_session",
            remove: |rules| rules.grant_needs_a_live_session = false,
            bounds: within(Budget {
                returns: 1,
                grants: 1,
                ..NONE
            }),
            violates: Some(OWNERS_LIVE),
        },
        Removal {
            rule: "release_names_its_epoch",
            remove: |rules| rules.release_names_its_epoch = false,
            bounds: within(Budget {
                ticks: 0,
                returns: 1,
                grants: 2,
                ..CUT
            }),
            violates: Some(ONE_BELIEVES),
        },
        // What one leader proposes commits in its order, so that the tenure it meant is the one that it ends, unless
        // the group is deleted meanwhile: that asks back whatever is owned.
        Removal {
            rule: "force_names_its_epoch",
            remove: |rules| rules.force_names_its_epoch = false,
            bounds: within(Budget {
                revokes: 2,
                grants: 1,
                ..NONE
            }),
            violates: None,
        },
        Removal {
            rule: "force_names_its_epoch, of a deleted group",
            remove: |rules| rules.force_names_its_epoch = false,
            bounds: Bounds {
                pending: 3,
                ..within(Budget {
                    ticks: 1,
                    revokes: 1,
                    deletions: 1,
                    streams: 1,
                    grants: 1,
                    ..NONE
                })
            },
            violates: Some(ONE_BELIEVES),
        },
        Removal {
            rule: "ready_names_its_epoch",
            remove: |rules| rules.ready_names_its_epoch = false,
            bounds: within(Budget {
                returns: 1,
                grants: 2,
                revokes: 1,
                ..NONE
            }),
            violates: Some(SERVED_IS_SEALED),
        },
        Removal {
            rule: "registration_names_the_holder",
            remove: |rules| rules.registration_names_the_holder = false,
            bounds: within(Budget {
                ticks: 2,
                starts: 1,
                streams: 2,
                ..NONE
            }),
            violates: Some(OWNERS_LIVE),
        },
        Removal {
            rule: "only_a_new_process_replaces",
            remove: |rules| rules.only_a_new_process_replaces = false,
            bounds: alone(Budget {
                ticks: 2,
                starts: 1,
                cuts: 1,
                streams: 3,
                ..NONE
            }),
            violates: Some(NAMES_STAY),
        },
        Removal {
            rule: "epochs_outlive_the_group",
            remove: |rules| rules.epochs_outlive_the_group = false,
            bounds: within(Budget {
                deletions: 1,
                streams: 1,
                grants: 1,
                ..NONE
            }),
            violates: Some(EPOCHS_RISE),
        },
    ]
}
