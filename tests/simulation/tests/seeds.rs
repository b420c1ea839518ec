//! A handful of seeds, as a test: the rest is run by the binary. Each has a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use simulation::regressions::REGRESSIONS;
use simulation::run::Scenario;
use simulation::seed::{SeedError, run_seed};

fn simulate(scenario: Scenario, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(["--scenario", &scenario.to_string(), "--verbose"])
        .args(arguments)
        .output()
        .unwrap()
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a seed, and returns everything that happened.
fn traced(seed: u64, scenario: Scenario, name: &str) -> String {
    let file = file(&format!("{scenario}-{seed}-{name}.txt"));
    let arguments = ["--seed", &seed.to_string(), "--trace"];
    let arguments = [&arguments[..], &[file.to_str().unwrap()]].concat();
    let output = simulate(scenario, &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{scenario} seed {seed}: {said}");
    fs::read_to_string(file).unwrap()
}

/// Returns what is said of each seed, in a line that ends with the digest of its trace.
fn digests(scenario: Scenario, arguments: &[&str]) -> BTreeMap<u64, String> {
    let said = String::from_utf8(simulate(scenario, arguments).stdout).unwrap();
    let begin = format!("{scenario} seed ");
    let lines = said.lines().filter_map(|line| line.strip_prefix(&begin));
    let lines = lines
        .filter_map(|line| line.split_once(": "))
        .filter(|(_, said)| said.contains(", trace "));
    lines
        .map(|(seed, said)| (seed.parse().unwrap(), said.to_owned()))
        .collect()
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for (scenario, seed) in [
        (Scenario::Storm, 1),
        (Scenario::Leaders, 2),
        (Scenario::Zombies, 3),
        (Scenario::Members, 4),
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
fn a_seed_of_a_batch_has_the_same_trace_digest_as_alone() {
    for scenario in [Scenario::Storm, Scenario::Zombies] {
        let batch = digests(scenario, &["--seeds", "20..26", "--jobs", "2"]);
        assert_eq!(batch.len(), 6, "{batch:?}");
        for (seed, digest) in &batch {
            let alone = digests(scenario, &["--seed", &seed.to_string()]);
            assert_eq!(alone.get(seed), Some(digest), "{scenario} seed {seed}");
        }
        let mut different: Vec<&String> = batch.values().collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), batch.len(), "the digest shows nothing");
    }
}

#[test]
fn a_process_runs_one_seed() {
    let first = run_seed(1, Scenario::Zombies).unwrap();
    assert_eq!(first.report.violations, Vec::<String>::new());
    let second = run_seed(1, Scenario::Zombies);
    assert!(matches!(second, Err(SeedError::SecondSeed)), "{second:?}");
}

#[test]
fn clocks_that_are_worse_than_allowed_break_what_rests_on_clocks_and_nothing_else() {
    let folder = file("kept");
    let _absent = fs::remove_dir_all(&folder);
    let kept = folder.to_str().unwrap();
    let output = simulate(Scenario::Skewed, &["--seeds", "0..12", "--keep", kept]);
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("skewed seed "));
    let lines = lines.filter_map(|line| line.split_once(": "));
    let broken: Vec<_> = lines
        .filter(|(_, said)| !said.contains(", trace "))
        .collect();
    assert!(!broken.is_empty(), "the check of P11 has not seen anything");
    let others = broken.iter().filter(|(_, said)| !said.starts_with("P11: "));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());

    // A batch names each seed that fails, keeps its trace, and runs all the others.
    assert!(!output.status.success(), "{said}");
    let failed: BTreeSet<u64> = broken
        .iter()
        .map(|(seed, _)| seed.parse().unwrap())
        .collect();
    for seed in &failed {
        let again = format!("--scenario skewed --seed {seed} --trace");
        assert!(said.contains(&again), "{said}");
        let trace = fs::read_to_string(folder.join(format!("skewed-{seed}.txt"))).unwrap();
        assert!(trace.contains("P11: "), "the trace does not show it");
    }
    let named = format!("seeds of skewed that failed: {:?}", Vec::from_iter(&failed));
    assert!(said.contains(&named), "{said}");
    let summary = format!(
        "simulate: FAILED scenario=skewed seeds=12 failed={} ",
        failed.len()
    );
    assert!(said.contains(&summary), "{said}");
}

#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    for regression in REGRESSIONS {
        let output = simulate(
            regression.scenario,
            &["--seed", &regression.seed.to_string()],
        );
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}", regression.name);
    }
}
