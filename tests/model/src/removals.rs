//! What happens without a rule: for each, bounds in which the checker finds what it prevents.
//!
//! With all rules the same bounds hold no violation: the tests check that as well.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Start;
use crate::bounds::Timing;
use crate::model::Outcome;
use crate::model::Protocol;
use crate::properties::EPOCHS_RISE;
use crate::properties::FENCED;
use crate::properties::NAMES_STAY;
use crate::properties::NOTHING_LOST;
use crate::properties::ONE_BELIEVES;
use crate::properties::ONE_WRITER;
use crate::properties::OWNERS_LIVE;
use crate::properties::SERVED_IN_THE_END;
use crate::properties::SERVED_IS_SEALED;
use crate::properties::TOKENS_TRUE;
use crate::properties::WAKING_ENDS_NOBODY;
use crate::rules::Rules;

/// A rule that is taken away.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    /// The rule, as its field in [`Rules`] is called.
    pub rule: &'static str,
    /// Takes it away.
    pub remove: fn(&mut Rules),
    /// Where to look for what it prevents.
    pub bounds: Bounds,
    /// What is violated without it; `None` if nothing is, because other rules prevent the same.
    pub violates: Option<&'static str>,
}

impl Removal {
    /// Checks the protocol without the rule.
    pub fn check(&self) -> Outcome {
        let mut rules = Rules::default();
        (self.remove)(&mut rules);
        Protocol {
            rules,
            bounds: self.bounds,
        }
        .check_for(self.violates)
    }

    /// Checks the protocol with all rules, in the same bounds and no further than the violation was.
    pub fn check_with_the_rule(&self, steps: usize) -> Outcome {
        let bounds = Bounds {
            depth: Some(steps),
            ..self.bounds
        };
        Protocol {
            rules: Rules::default(),
            bounds,
        }
        .check()
    }
}

/// Two workers, the first of which serves, within a budget.
fn within(budget: Budget) -> Bounds {
    Bounds {
        budget,
        ..Bounds::default()
    }
}

/// As [`within`], with another drain time.
fn draining(drain: u8, budget: Budget) -> Bounds {
    let timing = Bounds::default().timing;
    Bounds {
        timing: Timing { drain, ..timing },
        ..within(budget)
    }
}

/// As `bounds`, with another ttl.
fn living(ttl: u8, bounds: Bounds) -> Bounds {
    let timing = Timing {
        ttl,
        ..bounds.timing
    };
    Bounds { timing, ..bounds }
}

/// As [`within`], but the second worker has not registered yet.
fn alone(budget: Budget) -> Bounds {
    Bounds {
        start: Start::Alone,
        ..within(budget)
    }
}

/// As [`within`], from where nobody has registered.
fn cold(budget: Budget) -> Bounds {
    Bounds {
        start: Start::Cold,
        ..within(budget)
    }
}

const NONE: Budget = Budget::NONE;

/// Another leader, to whom the second worker goes.
const ELECTION: Budget = Budget {
    ticks: 3,
    elections: 1,
    streams: 1,
    grants: 1,
    ..NONE
};

/// A stream that is cut, and resumed.
const CUT: Budget = Budget {
    cuts: 1,
    streams: 1,
    grants: 1,
    ..NONE
};

/// All rules, each taken away.
pub fn removals() -> Vec<Removal> {
    let mut all = leases();
    all.extend(streams());
    all.extend(convergence());
    all.extend(commands());
    all.extend(storage());
    all
}

/// The removal of a rule.
pub fn removal(rule: &str) -> Option<Removal> {
    removals().into_iter().find(|removal| removal.rule == rule)
}

/// Rules of leases and of leaders.
fn leases() -> Vec<Removal> {
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

/// Rules of streams and of what is said on them, and the worker's half.
fn streams() -> Vec<Removal> {
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

/// What makes up for lost messages.
fn convergence() -> Vec<Removal> {
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

/// Preconditions of commands.
fn commands() -> Vec<Removal> {
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

/// Rules of the store, and of who uses it.
fn storage() -> Vec<Removal> {
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
