//! The model as the checker takes it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;
use std::time::Instant;

use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use stateright::Path;
use stateright::Property;

use crate::action::Action;
use crate::bounds::Bounds;
use crate::bounds::Start;
use crate::properties;
use crate::properties::HANDED_OVER;
use crate::recovery;
use crate::rules::Rules;
use crate::state::State;

/// The protocol under some rules, within some bounds.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The rules that are kept.
    pub rules: Rules,
    /// How far the check goes.
    pub bounds: Bounds,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let cold = State::cold(self.bounds.names, self.bounds.budget);
        vec![match self.bounds.start {
            Start::Cold => cold,
            Start::Warm => recovery::warm(&self.bounds, cold, 2),
            Start::Alone => recovery::warm(&self.bounds, cold, 1),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.steps(&self.rules, &self.bounds, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.take(&self.rules, &self.bounds, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties(self.bounds.with_recovery)
    }
}

/// A violation: what was violated, and the shortest way there.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The property.
    pub property: &'static str,
    /// The steps, from the first.
    pub steps: Vec<Action>,
    /// Where they lead.
    pub end: State,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  violated: {}", self.property)?;
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>3}. {step}", at + 1)?;
        }
        let shard = self.end.committed.shard;
        writeln!(
            f,
            "  then the shard is {shard:?} at epoch {}",
            self.end.committed.epoch
        )?;
        for (id, process) in self.end.processes.iter().enumerate() {
            let (phase, session, held) = (process.phase, process.session, process.held);
            writeln!(
                f,
                "  process {id}: {phase:?}, session {session}, holds {held:?}"
            )?;
        }
        Ok(())
    }
}

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first violation found; `None` if there is none within the bounds.
    pub violation: Option<Violation>,
    /// Whether a tenure after the first of the check was served: otherwise it has shown little.
    pub handed_over: bool,
    /// States that differ.
    pub states: usize,
    /// Steps of the longest path.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
}

impl Protocol {
    /// Checks every state within the bounds, nearest first, and stops at the first violation.
    pub fn check(self) -> Outcome {
        self.check_for(None)
    }

    /// As [`Protocol::check`], but goes on until that property is violated, if one is named.
    pub fn check_for(self, wanted: Option<&'static str>) -> Outcome {
        let begun = Instant::now();
        let finish = match wanted {
            Some(property) => HasDiscoveries::AnyOf(BTreeSet::from([property])),
            None => HasDiscoveries::AnyFailures,
        };
        let mut checker = self.clone().checker().finish_when(finish);
        if let Some(depth) = self.bounds.depth {
            // The checker counts states, not steps, and does not look at the last.
            checker = checker.target_max_depth(depth + 2);
        }
        let checker = checker.spawn_bfs().join();
        let found = checker.discoveries();
        let handed_over = found.contains_key(HANDED_OVER);
        let shortest = found
            .into_iter()
            .filter(|(property, _)| *property != HANDED_OVER)
            .filter(|(property, _)| wanted.is_none_or(|wanted| wanted == *property))
            .min_by_key(|(property, path)| (path.clone().into_actions().len(), *property));
        // A state beyond the bound is seen, but not looked at.
        let deepest = self.bounds.depth.unwrap_or(usize::MAX);
        Outcome {
            violation: shortest.map(|(property, path)| violation(property, path)),
            handed_over,
            states: checker.unique_state_count(),
            depth: checker.max_depth().saturating_sub(1).min(deepest),
            took: begun.elapsed(),
        }
    }
}

fn violation(property: &'static str, path: Path<State, Action>) -> Violation {
    Violation {
        property,
        end: path.last_state().clone(),
        steps: path.into_actions(),
    }
}
