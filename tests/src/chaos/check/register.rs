//! Each shard of each store is a register whose calls have one order.
//!
//! The calls must have the answers of calls made one after the other, each at one moment between its
//! begin and its end (linearizability: Herlihy and Wing, TOPLAS 1990). The search is Wing and Gong's
//! (JPDC 1993), made to go through a long history once (as in Lowe, "Testing for linearizability", 2017):
//! it keeps all states in which the store may be, and when a call ends, only those are left in which it
//! has happened, with the answer it had. The rules of the store are those of `tenure-fence` itself.

use std::collections::{BTreeMap, HashSet};

use super::Violation;
use super::calls::{Call, Calls, Register};
use super::model::{Deed, KNOWS_GRANTS, Model, Outcome, Version, version, written};
use crate::worker::{Answer, Asked};

const LINEAR: &str = "the calls on a register have one order";

/// States that are searched when one call ends. Beyond it the check gives up, which is no success.
const STATES_MAX: usize = 100_000;

/// Calls that are shown before the one that has no place.
const SHOWN: usize = 15;

/// Checks that the calls on each register have an order that explains their answers.
pub(super) fn check(calls: &Calls) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (register, calls) in calls.registers() {
        if let Err(seen) = explain(register, calls) {
            violations.push(Violation::new(LINEAR, format!("{register}: {seen}")));
        }
    }
    violations
}

/// Looks for an order.
fn explain(register: &Register, calls: &[Call]) -> Result<(), String> {
    same_data(calls)?;
    let mut deeds = Vec::new();
    let mut moments = Vec::new();
    for call in calls {
        let Some(deed) = Deed::of(register, call)? else {
            continue;
        };
        let index = deeds.len();
        // A call that ends as another begins may have happened after it.
        moments.push((call.began, 0, index));
        if deed.outcome() != Outcome::Unknown {
            moments.push((call.ended, 1, index));
        }
        deeds.push((deed, call));
    }
    moments.sort_unstable();
    let mut search = Search::new(register, &deeds);
    for (_, ends, index) in moments {
        if ends == 0 {
            search.begin(index);
            continue;
        }
        search.end(index).map_err(|why| {
            let call = deeds[index].1;
            let mut before: Vec<&Call> = deeds
                .iter()
                .map(|(_, other)| *other)
                .filter(|other| other.began <= call.ended)
                .collect();
            before.sort_by_key(|other| other.ended.min(call.ended));
            let shown = before.split_off(before.len().saturating_sub(SHOWN));
            let shown: Vec<String> = shown.iter().map(|call| format!("\n    {call}")).collect();
            format!("{why} for {call}, after{}", shown.concat())
        })?;
    }
    Ok(())
}

/// Checks that what is found is what was written under its name.
fn same_data(calls: &[Call]) -> Result<(), String> {
    let mut data: BTreeMap<Version, &str> = BTreeMap::new();
    for call in calls {
        if let (Some(version), Asked::Write { data: text, .. }) = (written(call), &call.asked) {
            data.insert(version, text);
        }
    }
    for call in calls {
        if let Some(Answer::Found {
            content: Some(found),
        }) = &call.answer
            && version(found).and_then(|version| data.get(&version).copied()) != Some(&found.data)
        {
            return Err(format!("{call} is not what was written"));
        }
    }
    Ok(())
}

/// A state in which the store may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    model: Model,
    /// Calls that have happened and not ended, in order.
    happened: Vec<usize>,
    /// Seals that have raised the fence, and have not read yet.
    raised: Vec<usize>,
}

impl State {
    fn with(mut self, index: usize) -> Self {
        self.raised.retain(|&other| other != index);
        self.happened.push(index);
        self.happened.sort_unstable();
        self
    }
}

struct Search<'d> {
    deeds: &'d [(Deed, &'d Call)],
    /// Whether a seal raises the fence at one moment and reads at a later one.
    seals_in_two_steps: bool,
    states: HashSet<State>,
    /// Calls that have begun and will end.
    open: Vec<usize>,
    /// Calls that have begun and may happen at any time, or never.
    unknown: Vec<usize>,
}

impl<'d> Search<'d> {
    fn new(register: &Register, deeds: &'d [(Deed, &'d Call)]) -> Self {
        Self {
            deeds,
            seals_in_two_steps: register.store == KNOWS_GRANTS,
            states: HashSet::from([State::default()]),
            open: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn begin(&mut self, index: usize) {
        if self.deeds[index].0.outcome() == Outcome::Unknown {
            self.unknown.push(index);
        } else {
            self.open.push(index);
        }
    }

    /// Leaves only states in which the call has happened.
    fn end(&mut self, index: usize) -> Result<(), &'static str> {
        let mut ahead: Vec<State> = self.states.drain().collect();
        let mut seen: HashSet<State> = HashSet::new();
        while let Some(mut state) = ahead.pop() {
            if let Some(position) = state.happened.iter().position(|&other| other == index) {
                state.happened.remove(position);
                self.states.insert(state);
                continue;
            }
            if seen.insert(state.clone()) {
                self.next(&state, &mut ahead);
            }
            if seen.len() > STATES_MAX {
                return Err("too many orders to search");
            }
        }
        if self.states.is_empty() {
            return Err("there is no order");
        }
        self.open.retain(|&other| other != index);
        let (deeds, states) = (self.deeds, &self.states);
        self.unknown.retain(|&index| {
            let past = |state: &State| state.model.is_past(&deeds[index].0);
            !states.iter().all(past)
        });
        Ok(())
    }

    /// Adds the states that may follow one.
    fn next(&self, state: &State, ahead: &mut Vec<State>) {
        for &index in &self.unknown {
            let mut next = state.clone();
            next.model.does(&self.deeds[index].0);
            if next.model != state.model {
                ahead.push(next);
            }
        }
        for &index in &self.open {
            if state.happened.contains(&index) {
                continue;
            }
            let deed = &self.deeds[index].0;
            let mut next = state.clone();
            if state.raised.contains(&index) {
                if deed.outcome() == Outcome::Found(state.model.content) {
                    ahead.push(next.with(index));
                }
                continue;
            }
            let answer = next.model.does(deed);
            if answer == deed.outcome() {
                ahead.push(next.clone().with(index));
            }
            let raises = matches!((deed, answer), (Deed::Seal(..), Outcome::Found(_)));
            if raises && self.seals_in_two_steps {
                next.raised.push(index);
                next.raised.sort_unstable();
                ahead.push(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::made::{NOTHING, calls, content, read, seal, write};
    use super::*;

    fn is_linear(made: Vec<Call>) -> bool {
        check(&calls(made)).is_empty()
    }

    fn in_replicated(made: Vec<Call>) -> Vec<Call> {
        let register = Register {
            store: KNOWS_GRANTS.to_owned(),
            shard: 7,
        };
        made.into_iter()
            .map(|call| Call {
                register: register.clone(),
                ..call
            })
            .collect()
    }

    #[test]
    fn a_write_beside_a_seal_lands_before_it_or_is_refused() {
        let sealed = || seal(7, NOTHING, (1, 2));
        let landed = || write(7, 1, Answer::Done, (11, 19));
        assert!(is_linear(vec![
            sealed(),
            landed(),
            seal(8, content(7, 1), (10, 20))
        ]));
        assert!(!is_linear(vec![
            sealed(),
            landed(),
            seal(8, NOTHING, (10, 20))
        ]));
        let fenced = write(7, 1, Answer::Fenced, (11, 19));
        assert!(is_linear(vec![
            sealed(),
            fenced,
            seal(8, NOTHING, (10, 20))
        ]));
    }

    #[test]
    fn a_write_after_a_seal_has_no_place() {
        let made = vec![
            seal(7, NOTHING, (1, 2)),
            seal(8, NOTHING, (10, 20)),
            write(7, 1, Answer::Done, (21, 22)),
        ];
        assert!(!is_linear(made));
    }

    #[test]
    fn an_acknowledged_write_that_is_gone_is_noticed() {
        let written = || {
            vec![
                seal(7, NOTHING, (1, 2)),
                write(7, 1, Answer::Done, (3, 4)),
                write(7, 2, Answer::Done, (5, 6)),
            ]
        };
        for (found, right) in [
            (content(7, 2), true),
            (content(7, 1), false),
            (NOTHING, false),
        ] {
            let mut made = written();
            made.push(read(found, (7, 8)));
            assert_eq!(is_linear(made), right);
        }
    }

    #[test]
    fn a_refusal_that_nothing_explains_is_noticed() {
        let refused = || {
            vec![
                seal(7, NOTHING, (1, 2)),
                write(7, 1, Answer::Fenced, (3, 4)),
            ]
        };
        assert!(!is_linear(refused()));
        // It knows that the tenure is over before anybody has sealed.
        assert!(is_linear(in_replicated(refused())));
    }

    #[test]
    fn an_unknown_write_may_land_late_or_never_and_once() {
        let unknown = || {
            vec![
                seal(7, NOTHING, (1, 2)),
                write(7, 1, Answer::Unknown, (3, 4)),
            ]
        };
        let reads = |found: [Answer; 3]| {
            let mut made = unknown();
            for (answer, at) in found.into_iter().zip([5, 7, 9]) {
                made.push(read(answer, (at, at + 1)));
            }
            made
        };
        assert!(is_linear(reads([NOTHING, NOTHING, NOTHING])));
        assert!(is_linear(reads([NOTHING, content(7, 1), content(7, 1)])));
        assert!(!is_linear(reads([NOTHING, content(7, 1), NOTHING])));
        let mut fenced = unknown();
        fenced.push(seal(8, NOTHING, (5, 6)));
        fenced.push(read(content(7, 1), (7, 8)));
        assert!(!is_linear(fenced));
    }

    #[test]
    fn a_write_that_did_not_happen_is_never_found() {
        let made = vec![
            seal(7, NOTHING, (1, 2)),
            write(7, 1, Answer::Unavailable, (3, 4)),
            read(content(7, 1), (5, 6)),
        ];
        assert!(!is_linear(made));
    }

    #[test]
    fn data_under_the_name_of_another_write_is_noticed() {
        let mut found = content(7, 1);
        if let Answer::Found {
            content: Some(content),
        } = &mut found
        {
            content.data = "other".to_owned();
        }
        let made = vec![
            seal(7, NOTHING, (1, 2)),
            write(7, 1, Answer::Done, (3, 4)),
            read(found, (5, 6)),
        ];
        assert!(!is_linear(made));
    }

    #[test]
    fn a_seal_of_two_steps_may_read_what_its_owner_wrote_beside_it_and_nothing_less() {
        let beside = |found| {
            vec![
                seal(7, NOTHING, (1, 2)),
                seal(7, found, (3, 20)),
                write(7, 1, Answer::Done, (4, 5)),
                seal(8, content(7, 1), (21, 22)),
                write(8, 2, Answer::Done, (23, 24)),
            ]
        };
        assert!(is_linear(in_replicated(beside(content(7, 1)))));
        assert!(is_linear(in_replicated(beside(NOTHING))));
        assert!(!is_linear(in_replicated(beside(content(8, 2)))));
    }

    #[test]
    fn a_long_history_with_many_unknown_writes_is_searched_in_time() {
        let mut made = vec![seal(1, NOTHING, (1, 2))];
        let mut at = 10;
        for epoch in 1..=20 {
            for number in 1..=100 {
                let answer = if number % 5 == 0 {
                    Answer::Unknown
                } else {
                    Answer::Done
                };
                made.push(write(epoch, number, answer, (at, at + 9)));
                at += 10;
            }
            // The last one of each epoch is unknown and never lands.
            made.push(seal(epoch + 1, content(epoch, 99), (at, at + 1)));
            at += 10;
        }
        assert!(is_linear(made));
    }
}
