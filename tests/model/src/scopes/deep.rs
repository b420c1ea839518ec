//! What is checked when there is time.

use crate::bounds::Budget;
use crate::bounds::Start;
use crate::scopes::CUT;
use crate::scopes::ELECTION;
use crate::scopes::HANDOFF;
use crate::scopes::REPLACEMENT;
use crate::scopes::Scope;
use crate::scopes::delayed;
use crate::scopes::everything_to;
use crate::scopes::longer;
use crate::scopes::scope;
use crate::scopes::with_recovery;

/// What is checked when there is time: minutes and gigabytes for some.
pub(super) fn scopes() -> Vec<Scope> {
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
