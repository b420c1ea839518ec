//! What is checked on every change: a minute.

use crate::bounds::Budget;
use crate::bounds::Start;
use crate::scopes::CUT;
use crate::scopes::ELECTION;
use crate::scopes::HANDOFF;
use crate::scopes::NONE;
use crate::scopes::REPLACEMENT;
use crate::scopes::Scope;
use crate::scopes::TICKS;
use crate::scopes::delayed;
use crate::scopes::everything_to;
use crate::scopes::longer;
use crate::scopes::scope;
use crate::scopes::three_workers;
use crate::scopes::with_recovery;

/// What is checked on every change: some minutes at most.
pub(super) fn scopes() -> Vec<Scope> {
    let mut scopes = leaders();
    scopes.extend(handoffs());
    scopes.extend(processes());
    scopes.push(everything_to(6));
    scopes
}

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
    let three = Budget {
        ticks: 2,
        starts: 1,
        streams: 2,
        grants: 1,
        ..NONE
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
        three_workers(scope("three workers", Start::Alone, three)),
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
