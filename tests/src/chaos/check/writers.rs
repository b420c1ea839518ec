//! One writer in an epoch, and epochs rise.

use std::collections::BTreeMap;

use tenure::Owner;

use super::Violation;
use super::calls::{Call, Calls, Register};

const ONE_WRITER: &str = "one writer in an epoch";
const RISE: &str = "epochs rise";

/// The sessions to which tenures were granted, by shard and epoch.
pub(super) type Grants = BTreeMap<(u32, u64), u64>;

/// Checks that nobody writes in an epoch but the one session to which it was granted, and that seals
/// which follow each other have epochs that do not fall.
pub(super) fn check(calls: &Calls, grants: &Grants) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (register, calls) in calls.registers() {
        one_writer(register, calls, grants, &mut violations);
        rising(register, calls, &mut violations);
    }
    violations
}

fn one_writer(
    register: &Register,
    calls: &[Call],
    grants: &Grants,
    violations: &mut Vec<Violation>,
) {
    let mut owners: BTreeMap<u64, Owner> = BTreeMap::new();
    for call in calls {
        let Some(token) = &call.token else { continue };
        if !call.is_seal() && !call.is_accepted_write() {
            continue;
        }
        let first = *owners.entry(call.epoch()).or_insert(token.owner);
        if first != token.owner {
            let seen = format!("{register}: {call}, but the epoch is that of {first}");
            violations.push(Violation::new(ONE_WRITER, seen));
        }
        let granted = grants.get(&(register.shard, call.epoch()));
        if granted.is_some_and(|&session| session != token.owner.session) {
            let seen = format!("{register}: {call}, but it was granted to {granted:?}");
            violations.push(Violation::new(ONE_WRITER, seen));
        }
    }
}

fn rising(register: &Register, calls: &[Call], violations: &mut Vec<Violation>) {
    let mut began: Vec<&Call> = calls.iter().filter(|call| call.is_seal()).collect();
    let mut ended = began.clone();
    began.sort_by_key(|call| call.began);
    ended.sort_by_key(|call| call.ended);
    let mut ended = ended.into_iter().peekable();
    let mut highest: Option<&Call> = None;
    for call in began {
        while let Some(before) = ended.next_if(|before| before.ended < call.began) {
            if highest.is_none_or(|highest| highest.epoch() < before.epoch()) {
                highest = Some(before);
            }
        }
        if let Some(before) = highest.filter(|before| before.epoch() > call.epoch()) {
            let seen = format!("{register}: {call} after {before}");
            violations.push(Violation::new(RISE, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::made::{NOTHING, calls, seal, token, write};
    use super::*;
    use crate::worker::Answer;

    fn rules(made: Vec<Call>, grants: &Grants) -> Vec<&'static str> {
        check(&calls(made), grants)
            .iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[test]
    fn tenures_that_follow_each_other_are_right() {
        let made = vec![
            seal(7, NOTHING, (1, 2)),
            write(7, 1, Answer::Done, (3, 4)),
            // It began when the first was not over.
            seal(8, NOTHING, (2, 6)),
            seal(7, NOTHING, (5, 7)),
        ];
        let grants = Grants::from([((7, 7), 7), ((7, 8), 8)]);
        assert_eq!(rules(made, &grants), [""; 0]);
    }

    #[test]
    fn two_writers_of_one_epoch_are_noticed() {
        let other = Call {
            token: Some(token(7, 9)),
            ..write(7, 2, Answer::Done, (5, 6))
        };
        let made = vec![seal(7, NOTHING, (1, 2)), other.clone()];
        assert_eq!(rules(made, &Grants::new()), [ONE_WRITER]);
        let grants = Grants::from([((7, 7), 7)]);
        assert_eq!(rules(vec![other.clone()], &grants), [ONE_WRITER]);
        let refused = Call {
            answer: Some(Answer::EpochConflict),
            ..other
        };
        assert_eq!(rules(vec![refused], &grants), [""; 0]);
    }

    #[test]
    fn an_epoch_that_falls_is_noticed() {
        let made = vec![seal(8, NOTHING, (1, 2)), seal(7, NOTHING, (3, 4))];
        assert_eq!(rules(made, &Grants::new()), [RISE]);
    }
}
