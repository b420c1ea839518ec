//! Nothing is accepted below a seal (P2).

use super::Violation;
use super::calls::{Call, Calls, Register};

const BELOW: &str = "no accepted write below a seal";

/// Checks that no write which began after a seal had been answered was accepted with a lower epoch.
///
/// The check of the whole order says so as well, but less plainly, and it could be wrong.
pub(super) fn check(calls: &Calls) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (register, calls) in calls.registers() {
        below_a_seal(register, calls, &mut violations);
    }
    violations
}

fn below_a_seal(register: &Register, calls: &[Call], violations: &mut Vec<Violation>) {
    let mut seals: Vec<&Call> = calls.iter().filter(|call| call.is_seal()).collect();
    seals.sort_by_key(|seal| seal.ended);
    let mut writes: Vec<&Call> = calls
        .iter()
        .filter(|call| call.is_accepted_write())
        .collect();
    writes.sort_by_key(|write| write.began);
    let mut seals = seals.into_iter().peekable();
    let mut highest: Option<&Call> = None;
    for write in writes {
        while let Some(seal) = seals.next_if(|seal| seal.ended < write.began) {
            if highest.is_none_or(|highest| highest.epoch() < seal.epoch()) {
                highest = Some(seal);
            }
        }
        if let Some(seal) = highest.filter(|seal| seal.epoch() > write.epoch()) {
            let seen = format!("{register}: {write} after {seal}");
            violations.push(Violation::new(BELOW, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::made::{NOTHING, calls, seal, write};
    use super::*;
    use crate::worker::Answer;

    fn violations(made: Vec<Call>) -> usize {
        check(&calls(made)).len()
    }

    #[test]
    fn a_write_below_a_seal_may_be_refused_or_have_begun_before() {
        let sealed = || seal(8, NOTHING, (10, 20));
        let refused = write(7, 1, Answer::Fenced, (30, 31));
        assert_eq!(violations(vec![sealed(), refused]), 0);
        let before = write(7, 1, Answer::Done, (15, 31));
        assert_eq!(violations(vec![sealed(), before]), 0);
        let own = write(8, 1, Answer::Done, (30, 31));
        assert_eq!(violations(vec![sealed(), own]), 0);
    }

    #[test]
    fn an_accepted_write_below_a_seal_is_noticed() {
        let late = write(7, 1, Answer::Done, (21, 22));
        assert_eq!(violations(vec![late, seal(8, NOTHING, (10, 20))]), 1);
    }
}
