//! What happens without a rule: for each, bounds in which the checker finds what it prevents.
//!
//! With all rules the same bounds hold no violation: the tests check that as well.

mod commands;
mod convergence;
mod leases;
mod storage;
mod streams;

use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::bounds::Start;
use crate::bounds::Timing;
use crate::model::Outcome;
use crate::model::Protocol;
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
    let mut all = leases::removals();
    all.extend(streams::removals());
    all.extend(convergence::removals());
    all.extend(commands::removals());
    all.extend(storage::removals());
    all
}

/// The removal of a rule.
pub fn removal(rule: &str) -> Option<Removal> {
    removals().into_iter().find(|removal| removal.rule == rule)
}
