//! Checks the model of the protocol, and prints what it saw.
//!
//! * `protocol-model check`: every scope of the short check, or the one that is named.
//! * `protocol-model deep`: likewise the wider ones: minutes, and some gigabytes of memory.
//! * `protocol-model rules`: each rule taken away, and what is violated then.
//! * `protocol-model trace RULE`: how, step by step.
//!
//! The exit status is 0 if all is as it should be.

use std::process::ExitCode;
use std::time::Instant;

use protocol_model::model::Outcome;
use protocol_model::model::Violation;
use protocol_model::removals;
use protocol_model::removals::Removal;
use protocol_model::scopes;
use protocol_model::scopes::Scope;

const USAGE: &str = "usage: protocol-model check [SCOPE] | deep [SCOPE] | rules | trace RULE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let good = match arguments.as_slice() {
        ["check"] => check(scopes::shallow()),
        ["deep"] => check(scopes::deep()),
        ["check", scope] => check(named(scopes::shallow(), scope)),
        ["deep", scope] => check(named(scopes::deep(), scope)),
        ["rules"] => rules(),
        ["trace", rule] => trace(rule),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Checks scopes one after the other. Returns whether all promises held in all of them.
fn check(scopes: Vec<Scope>) -> bool {
    let begun = Instant::now();
    println!(
        "{:<42} {:>10} {:>6} {:>8}  result",
        "scope", "states", "steps", "seconds"
    );
    let (mut states, mut bad) = (0, 0);
    for scope in &scopes {
        let outcome = scope.check();
        states += outcome.states;
        let verdict = verdict(scope, &outcome);
        println!("{:<42} {}  {verdict}", scope.name, figures(&outcome));
        if let Some(violation) = &outcome.violation {
            tell(violation);
        }
        let short = scope.hands_over && !outcome.handed_over;
        bad += usize::from(outcome.violation.is_some() || short);
    }
    let seconds = begun.elapsed().as_secs_f32();
    println!(
        "{} scopes, {states} states, {seconds:.1} s, {bad} bad",
        scopes.len()
    );
    bad == 0 && !scopes.is_empty()
}

/// Only the scopes of a name.
fn named(mut scopes: Vec<Scope>, name: &str) -> Vec<Scope> {
    scopes.retain(|scope| scope.name == name);
    scopes
}

fn verdict(scope: &Scope, outcome: &Outcome) -> String {
    match &outcome.violation {
        Some(violation) => format!("VIOLATED: {}", violation.property),
        None if scope.hands_over && !outcome.handed_over => {
            "TOO NARROW: no second tenure was served".to_owned()
        }
        None => {
            let depth = if scope.bounds.depth.is_some() {
                "to that depth"
            } else {
                "every path"
            };
            let recovery = if scope.bounds.with_recovery {
                ", served in the end"
            } else {
                ""
            };
            format!("holds: {depth}{recovery}")
        }
    }
}

/// Takes each rule away. Returns whether the same was found as ever.
fn rules() -> bool {
    let begun = Instant::now();
    println!(
        "{:<66} {:>10} {:>6} {:>8}  what is violated",
        "without", "states", "steps", "seconds"
    );
    let removals = removals::removals();
    let mut bad = 0;
    for removal in &removals {
        let outcome = removal.check();
        let found = outcome
            .violation
            .as_ref()
            .map(|violation| violation.property);
        let steps = outcome
            .violation
            .as_ref()
            .map_or(outcome.depth, |violation| violation.steps.len());
        let shown = Outcome {
            depth: steps,
            ..outcome
        };
        let found_text = found.unwrap_or("nothing: another rule prevents the same");
        let mark = if found == removal.violates {
            ""
        } else {
            " (UNEXPECTED)"
        };
        println!(
            "{:<66} {}  {found_text}{mark}",
            removal.rule,
            figures(&shown)
        );
        bad += usize::from(found != removal.violates);
    }
    let seconds = begun.elapsed().as_secs_f32();
    println!(
        "{} removals, {seconds:.1} s, {bad} unexpected",
        removals.len()
    );
    bad == 0
}

/// Shows what happens without a rule. Returns whether something does.
fn trace(rule: &str) -> bool {
    let Some(removal) = removals::removal(rule) else {
        eprintln!("no rule is called {rule}; `rules` lists them");
        return false;
    };
    let Removal { bounds, .. } = removal;
    println!("without {rule}, within {:?}", bounds.budget);
    match removal.check().violation {
        Some(violation) => {
            tell(&violation);
            true
        }
        None => {
            println!("nothing is violated");
            false
        }
    }
}

fn figures(outcome: &Outcome) -> String {
    let seconds = outcome.took.as_secs_f32();
    format!("{:>10} {:>6} {seconds:>8.1}", outcome.states, outcome.depth)
}

fn tell(violation: &Violation) {
    println!("{violation}");
}
