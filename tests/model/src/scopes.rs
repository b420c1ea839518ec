//! The checks with all rules: each looks at one part of the protocol, and at every state of it.
//!
//! One check of everything at once would have to stop after a few steps. Several, each of which lets a few kinds
//! of faults happen and follows every path to its end, see the long and tangled stories.

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Heartbeats;
use crate::bounds::Start;
use crate::bounds::Timing;
use crate::model::Outcome;
use crate::model::Protocol;
use crate::rules::Rules;

/// A check with all rules.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// What it looks at.
    pub name: &'static str,
    /// How far it goes.
    pub bounds: Bounds,
    /// Whether a second tenure must have been served in it, so that it is known to have looked far enough.
    pub hands_over: bool,
}

impl Scope {
    /// Checks it.
    pub fn check(&self) -> Outcome {
        Protocol {
            rules: Rules::default(),
            bounds: self.bounds,
        }
        .check()
    }
}

const NONE: Budget = Budget::NONE;

/// Ticks enough for two ends of a session, one after the other, or for four windows.
const TICKS: Budget = Budget { ticks: 4, ..NONE };

/// All at once.
const EVERYTHING: Budget = Budget {
    ticks: Budget::ENDLESS,
    elections: 1,
    pauses: 1,
    cuts: 1,
    streams: 1,
    crashes: 1,
    starts: 1,
    grants: 1,
    revokes: 1,
    deletions: 1,
    returns: 1,
    writes: 1,
    lost_answers: 1,
    ..NONE
};

fn scope(name: &'static str, start: Start, budget: Budget) -> Scope {
    Scope {
        name,
        bounds: Bounds {
            start,
            budget,
            ..Bounds::default()
        },
        hands_over: true,
    }
}

/// Asks for each state whether the shard is served in the end.
fn with_recovery(scope: Scope) -> Scope {
    let bounds = Bounds {
        with_recovery: true,
        ..scope.bounds
    };
    Scope { bounds, ..scope }
}

/// Heartbeats take their time.
fn delayed(scope: Scope) -> Scope {
    let bounds = Bounds {
        heartbeats: Heartbeats::Delayed,
        ..scope.bounds
    };
    Scope { bounds, ..scope }
}

/// Longer times, so that a window is more than one tick.
fn longer(scope: Scope) -> Scope {
    let timing = Timing {
        window: 2,
        ttl: 3,
        drain: 1,
    };
    let bounds = Bounds {
        timing,
        ..scope.bounds
    };
    Scope { bounds, ..scope }
}

/// What is checked on every change: some minutes at most.
pub fn shallow() -> Vec<Scope> {
    let mut scopes = leaders();
    scopes.extend(handoffs());
    scopes.extend(processes());
    scopes.push(everything_to(6));
    scopes
}

/// Another leader, to whom a worker goes.
const ELECTION: Budget = Budget {
    elections: 1,
    streams: 1,
    grants: 1,
    ..TICKS
};

/// A shard that is asked back for another.
const HANDOFF: Budget = Budget {
    revokes: 1,
    ..TICKS
};

/// A new process under the name of the owner.
const REPLACEMENT: Budget = Budget {
    starts: 1,
    streams: 1,
    ..TICKS
};

/// A stream that is cut and may be resumed.
const CUT: Budget = Budget {
    cuts: 1,
    streams: 1,
    grants: 1,
    ..TICKS
};

fn leaders() -> Vec<Scope> {
    let cut = Budget {
        cuts: 1,
        ..ELECTION
    };
    let twice = Budget {
        elections: 2,
        ..ELECTION
    };
    let during_a_handoff = Budget {
        elections: 1,
        ticks: 2,
        streams: 1,
        ..HANDOFF
    };
    let still = Budget {
        pauses: 1,
        streams: 0,
        ..CUT
    };
    vec![
        with_recovery(scope("a leader is replaced", Start::Alone, ELECTION)),
        scope("two leaders are replaced", Start::Alone, twice),
        scope("a leader is replaced, a stream is cut", Start::Alone, cut),
        scope(
            "a leader is replaced during a handoff",
            Start::Alone,
            during_a_handoff,
        ),
        scope("a leader stands still", Start::Warm, still),
        delayed(scope(
            "a leader is replaced, slow heartbeats",
            Start::Alone,
            ELECTION,
        )),
        longer(scope(
            "a leader is replaced, longer times",
            Start::Alone,
            ELECTION,
        )),
    ]
}

fn handoffs() -> Vec<Scope> {
    let writes = Budget {
        writes: 2,
        lost_answers: 1,
        ..HANDOFF
    };
    let cut = Budget {
        ticks: 2,
        cuts: 1,
        streams: 1,
        ..HANDOFF
    };
    let returned = Budget {
        ticks: 2,
        returns: 1,
        grants: 2,
        ..CUT
    };
    vec![
        with_recovery(scope("a handoff", Start::Warm, HANDOFF)),
        scope("a handoff, writes under way", Start::Warm, writes),
        scope("a handoff, a stream is cut", Start::Warm, cut),
        delayed(scope("a handoff, slow heartbeats", Start::Warm, HANDOFF)),
        longer(scope("a handoff, longer times", Start::Warm, HANDOFF)),
        with_recovery(scope(
            "a shard is given back, a stream is cut",
            Start::Alone,
            returned,
        )),
    ]
}

fn processes() -> Vec<Scope> {
    let cold = Budget {
        ticks: 1,
        streams: 2,
        grants: 2,
        returns: 1,
        ..NONE
    };
    let crash = Budget {
        crashes: 1,
        ..REPLACEMENT
    };
    let twice = Budget {
        streams: 2,
        ..REPLACEMENT
    };
    let elected = Budget {
        elections: 1,
        ..REPLACEMENT
    };
    let deleted = Budget {
        deletions: 1,
        streams: 1,
        grants: 1,
        ..TICKS
    };
    vec![
        with_recovery(scope("a cold start", Start::Cold, cold)),
        with_recovery(scope(
            "a stream is cut",
            Start::Warm,
            Budget { ticks: 2, ..CUT },
        )),
        delayed(scope(
            "a stream is cut, slow heartbeats",
            Start::Warm,
            Budget { ticks: 2, ..CUT },
        )),
        scope("a process is replaced", Start::Warm, REPLACEMENT),
        scope("a replaced process comes back", Start::Alone, twice),
        with_recovery(scope(
            "a process crashes and is restarted",
            Start::Alone,
            crash,
        )),
        scope("a process is replaced, and a leader", Start::Alone, elected),
        with_recovery(scope(
            "a group is deleted and created again",
            Start::Alone,
            deleted,
        )),
    ]
}

/// What is checked when there is time: minutes and gigabytes for some.
pub fn deep() -> Vec<Scope> {
    let endless = |budget: Budget| Budget {
        ticks: Budget::ENDLESS,
        ..budget
    };
    let long = |budget: Budget| Budget { ticks: 6, ..budget };
    let cut = |budget: Budget| Budget {
        cuts: 1,
        streams: budget.streams + 1,
        ..budget
    };
    let elected = |budget: Budget| Budget {
        elections: 1,
        ..budget
    };
    vec![
        with_recovery(scope(
            "a leader is replaced, endless time",
            Start::Alone,
            endless(ELECTION),
        )),
        scope(
            "three leaders are replaced",
            Start::Alone,
            Budget {
                elections: 3,
                ..ELECTION
            },
        ),
        scope(
            "a handoff, a stream is cut",
            Start::Warm,
            Budget {
                ticks: 3,
                ..cut(HANDOFF)
            },
        ),
        scope(
            "a handoff, writes under way, endless time",
            Start::Warm,
            endless(Budget {
                writes: 2,
                lost_answers: 1,
                ..HANDOFF
            }),
        ),
        scope(
            "a leader is replaced during a handoff",
            Start::Warm,
            elected(Budget {
                ticks: 1,
                ..cut(HANDOFF)
            }),
        ),
        with_recovery(scope(
            "a handoff and a new process, endless time",
            Start::Warm,
            endless(Budget {
                starts: 1,
                streams: 1,
                ..HANDOFF
            }),
        )),
        scope(
            "a process is replaced, a stream is cut",
            Start::Alone,
            Budget {
                ticks: 3,
                ..cut(REPLACEMENT)
            },
        ),
        with_recovery(scope(
            "a stream is cut, endless time",
            Start::Warm,
            endless(CUT),
        )),
        delayed(scope(
            "a stream is cut, slow heartbeats",
            Start::Warm,
            Budget { ticks: 3, ..CUT },
        )),
        longer(scope(
            "a leader is replaced, longer times",
            Start::Alone,
            long(ELECTION),
        )),
        longer(scope(
            "a process is replaced, longer times",
            Start::Alone,
            long(elected(REPLACEMENT)),
        )),
        everything_to(8),
    ]
}

/// Everything, from where the first owner serves, to so many steps.
fn everything_to(depth: usize) -> Scope {
    let everything = scope("everything may happen", Start::Warm, EVERYTHING);
    let bounds = Bounds {
        depth: Some(depth),
        ..everything.bounds
    };
    Scope {
        bounds,
        hands_over: false,
        ..everything
    }
}
