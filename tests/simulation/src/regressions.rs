//! Seeds that once found something, each with what it was. They go on to be run: what the seed does
//! changes with the code, but none of them may ever fail again.

use crate::run::Scenario;

/// A seed that found a mistake.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// What was wrong, as what is right now.
    pub name: &'static str,
    /// The kind of run.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
}

/// All of them.
pub const REGRESSIONS: &[Regression] = &[
    Regression {
        name: "an owner reads at least what it has written itself, also from a node that is behind",
        scenario: Scenario::Storm,
        seed: 8,
    },
    Regression {
        name: "what was acknowledged is read back, also from a node that is behind",
        scenario: Scenario::Storm,
        seed: 82,
    },
    Regression {
        name: "a claim that is answered late is not held against what its successor has written",
        scenario: Scenario::Storm,
        seed: 1_359,
    },
    Regression {
        name: "a storm with few handoffs goes on until there are enough",
        scenario: Scenario::Storm,
        seed: 2_292,
    },
];
