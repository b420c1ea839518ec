//! Nobody believes to be the only owner of a shard beside another who does (P11).

use super::Violation;
use crate::worker::{Believed, overlaps};

const ALONE: &str = "is_current() is never true on two workers (P11)";

/// Checks that spans of belief in one shard, of different epochs, never overlap.
pub(super) fn check(spans: &[Believed]) -> Vec<Violation> {
    overlaps(spans)
        .into_iter()
        .map(|(before, span)| Violation::new(ALONE, format!("{before:?} and {span:?}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_believe_at_once_are_noticed() {
        let span = |epoch| Believed {
            worker: format!("w{epoch}"),
            shard: 0,
            epoch,
            from_ns: epoch,
            until_ns: 10,
        };
        assert_eq!(check(&[span(1)]), []);
        assert_eq!(check(&[span(1), span(2)]).len(), 1);
    }
}
