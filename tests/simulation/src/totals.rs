//! Counts of a run, or of many.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Least of a seed: simulated time, handoffs and faults. One in which less happens proves too little.
pub const SIMULATED_MIN: Duration = Duration::from_secs(60);
/// Handoffs a seed must have at least.
pub const HANDOFFS_MIN: u64 = 20;
const FAULTS_MIN: u64 = 5;

/// How often what happened, by its kind.
pub type Counts = BTreeMap<Cow<'static, str>, u64>;

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Steps, each of which every promise is checked after.
    pub steps: u64,
    /// Grants committed.
    pub grants: u64,
    /// Grants of a shard that had an owner before.
    pub handoffs: u64,
    /// Leaders that were elected.
    pub leaders: u64,
    /// Faults injected, by kind.
    pub faults: Counts,
    /// What operators asked for, by kind.
    pub orders: Counts,
    /// Writes that a store has acknowledged.
    pub accepted: u64,
    /// Writes that a store has refused because their tenure was over.
    pub refused: u64,
    /// Reads that an owner has made as the only one.
    pub reads: u64,
    /// Answers of coordinators whether a tenure is current.
    pub verified: u64,
    /// Tenures of processes that were stopped and outlived.
    pub zombies: u64,
    /// States checked.
    pub states: u64,
    /// States found equal to another node's at their revision.
    pub compared: u64,
    /// Events checked that watchers were sent.
    pub watched: u64,
    /// Promises broken.
    pub violations: u64,
}

impl Totals {
    /// Counts a fault.
    pub fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind.into()).or_default() += 1;
    }

    /// Counts an order of an operator.
    pub fn order(&mut self, kind: &'static str) {
        *self.orders.entry(kind.into()).or_default() += 1;
    }

    /// Returns how many faults were injected.
    #[must_use]
    pub fn faults_injected(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns what a single seed has too little of, if it has.
    #[must_use]
    pub fn too_little(&self) -> Option<String> {
        let (simulated, handoffs, faults) = (self.simulated, self.handoffs, self.faults_injected());
        let enough = simulated >= SIMULATED_MIN && handoffs >= HANDOFFS_MIN && faults >= FAULTS_MIN;
        (!enough).then(|| {
            format!(
                "did too little: {} s of {}, {handoffs} handoffs of {HANDOFFS_MIN}, \
                 {faults} faults of {FAULTS_MIN}",
                simulated.as_secs(),
                SIMULATED_MIN.as_secs(),
            )
        })
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.grants += other.grants;
        self.handoffs += other.handoffs;
        self.leaders += other.leaders;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for (kind, count) in &other.orders {
            *self.orders.entry(kind.clone()).or_default() += count;
        }
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.reads += other.reads;
        self.verified += other.verified;
        self.zombies += other.zombies;
        self.states += other.states;
        self.compared += other.compared;
        self.watched += other.watched;
        self.violations += other.violations;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seeds {}, simulated {} s, steps {}, handoffs {}, leaders {}",
            self.seeds,
            self.simulated.as_secs(),
            self.steps,
            self.handoffs,
            self.leaders,
        )?;
        writeln!(
            f,
            "faults {}: {}",
            self.faults_injected(),
            list(&self.faults)
        )?;
        writeln!(f, "orders {}", list(&self.orders))?;
        writeln!(
            f,
            "writes accepted {}, refused {}, exclusive reads {}, verifications {}, zombies {}",
            self.accepted, self.refused, self.reads, self.verified, self.zombies,
        )?;
        writeln!(
            f,
            "states checked {}, compared with another node's {}, events watched {}",
            self.states, self.compared, self.watched,
        )?;
        write!(f, "violations {}", self.violations)
    }
}

fn list(counts: &Counts) -> String {
    let parts: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    parts.join(", ")
}
