//! A handful of seeds, as a test: the rest is run by the binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use simulation::regressions::REGRESSIONS;
use simulation::run::Scenario;
use simulation::seed::run_seed;

/// One test for all: runs share what answers for the operating system's randomness, and threads of a
/// test harness would ask it in between.
#[test]
fn seeds_replay_byte_for_byte_and_keep_every_promise() {
    for (scenario, seed) in [
        (Scenario::Storm, 1),
        (Scenario::Leaders, 2),
        (Scenario::Zombies, 3),
    ] {
        let first = run_seed(seed, scenario, true).unwrap();
        let again = run_seed(seed, scenario, true).unwrap();
        assert!(
            first.trace.lines().count() > 1_000,
            "the trace is nearly empty"
        );
        for (number, (one, other)) in first.trace.lines().zip(again.trace.lines()).enumerate() {
            assert_eq!(one, other, "{scenario} seed {seed}: line {number} differs");
        }
        assert!(first.trace == again.trace, "one trace goes on");
        assert_eq!(first.report, again.report);
        assert_eq!(first.report.violations, Vec::<String>::new());

        let other = run_seed(seed + 1_000, scenario, true).unwrap();
        assert!(other.trace != first.trace, "the seed decides nothing");
    }
    // Clocks that differ by more than P11 allows break it, and nothing that does not rest on clocks.
    let skewed: Vec<String> = (0..4)
        .flat_map(|seed| {
            run_seed(seed, Scenario::Skewed, false)
                .unwrap()
                .report
                .violations
        })
        .collect();
    assert!(!skewed.is_empty(), "the check of P11 has not seen anything");
    let others = skewed.iter().filter(|broken| !broken.starts_with("P11: "));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());

    for regression in REGRESSIONS {
        let outcome = run_seed(regression.seed, regression.scenario, false).unwrap();
        assert!(
            outcome.report.violations.is_empty(),
            "{}: {:?}",
            regression.name,
            outcome.report.violations
        );
    }
}
