//! A handful of seeds, as a test: the rest is run by the binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use simulation::regressions::REGRESSIONS;
use simulation::run::Scenario;
use simulation::seed::run_seed;

/// Runs a seed in a process of its own, and returns everything that happened.
fn traced(seed: u64, scenario: Scenario, name: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{scenario}-{seed}-{name}.txt"));
    let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(["--scenario", &scenario.to_string()])
        .args(["--seed", &seed.to_string()])
        .arg("--trace")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{scenario} seed {seed}: {said}");
    fs::read_to_string(file).unwrap()
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for (scenario, seed) in [
        (Scenario::Storm, 1),
        (Scenario::Leaders, 2),
        (Scenario::Zombies, 3),
    ] {
        let first = traced(seed, scenario, "first");
        let again = traced(seed, scenario, "again");
        assert!(first.lines().count() > 1_000, "the trace is nearly empty");
        for (number, (one, other)) in first.lines().zip(again.lines()).enumerate() {
            assert_eq!(one, other, "{scenario} seed {seed}: line {number} differs");
        }
        assert!(first == again, "one trace goes on");
        let other = traced(seed + 1_000, scenario, "other");
        assert!(other != first, "the seed decides nothing");
    }
}

#[test]
fn clocks_that_are_worse_than_allowed_break_what_rests_on_clocks_and_nothing_else() {
    // Few seeds show it: a worker must be cut off at the right moment.
    let mut broken = Vec::new();
    for seed in ["27", "57"] {
        let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
            .args(["--scenario", "skewed", "--seed", seed])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let lines = said.lines();
        let violations = lines.filter_map(|line| line.strip_prefix(&format!("seed {seed}: ")));
        broken.extend(violations.map(str::to_owned));
    }
    assert!(!broken.is_empty(), "the check of P11 has not seen anything");
    let others = broken.iter().filter(|broken| !broken.starts_with("P11: "));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    for regression in REGRESSIONS {
        let outcome = run_seed(regression.seed, regression.scenario, false).unwrap();
        let violations = outcome.report.violations;
        assert!(violations.is_empty(), "{}: {violations:?}", regression.name);
    }
}
