//! Random commands one after another: the invariants hold after each, a refused one changes nothing,
//! and what was written is the state.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use tenure_ownership::ids::Revision;
use tenure_ownership::{State, apply, invariants};

#[path = "../../../coordinator/ownership/tests/random/mod.rs"]
mod random;

/// Commands of one history, at most: more add nothing that fewer do not reach.
const COMMANDS_MAX: usize = 64;

fuzz_target!(|throws: Vec<random::Throw>| {
    let mut state = State::default();
    let mut disk = BTreeMap::new();
    for (index, throw) in (1..).zip(throws.iter().take(COMMANDS_MAX)) {
        let before = state.clone();
        let command = random::command(&state, throw);
        let applied = apply(&mut state, Revision(index), command.clone());
        if applied.outcome.is_err() {
            assert_eq!(
                state, before,
                "refused, and yet it changed something: {command}"
            );
        }
        for write in applied.writes {
            match write.value {
                Some(value) => disk.insert(write.key, value.to_vec()),
                None => disk.remove(&write.key),
            };
        }
        let violations = invariants::check(&state);
        assert!(violations.is_empty(), "{violations:?} after {command}");
    }
    let read_back = State::from_records(disk.into_iter()).expect("what was written is read");
    assert_eq!(read_back, state);
});
