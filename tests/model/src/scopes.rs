//! The checks with all rules: each looks at one part of the protocol, and at every state of it.
//!
//! One check of everything at once would have to stop after a few steps. Several, each of which lets a few kinds
//! of faults happen and follows every path to its end, see the long and tangled stories.

mod deep;
mod shallow;

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

/// A third worker of its own, instead of a new process of the first.
fn three_workers(scope: Scope) -> Scope {
    let bounds = Bounds {
        names: [0, 1, 2],
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

/// What is checked on every change: a minute.
pub fn shallow() -> Vec<Scope> {
    shallow::scopes()
}

/// What is checked when there is time: minutes and gigabytes for some.
pub fn deep() -> Vec<Scope> {
    deep::scopes()
}
