//! Nobody believes to be the only owner of a shard beside another who does (P11).

use std::collections::BTreeMap;

use super::Violation;
use crate::worker::Believed;

const ALONE: &str = "is_current() is never true on two workers (P11)";

/// Checks that spans of belief in one shard, of different epochs, never overlap.
///
/// What [`overlaps`](crate::worker::overlaps) finds too, in a time that does not grow with the square of
/// the spans.
pub(super) fn check(spans: &[Believed]) -> Vec<Violation> {
    let mut shards: BTreeMap<u32, Vec<&Believed>> = BTreeMap::new();
    for span in spans {
        shards.entry(span.shard).or_default().push(span);
    }
    let mut violations = Vec::new();
    for spans in shards.values_mut() {
        spans.sort_by_key(|span| span.from_ns);
        // The span of each epoch that lasts longest, of those that began already.
        let mut longest: BTreeMap<u64, &Believed> = BTreeMap::new();
        for &span in spans.iter() {
            // What is over is no one's rival any more.
            longest.retain(|_, before| before.until_ns >= span.from_ns);
            for before in longest.values().filter(|before| before.epoch != span.epoch) {
                let seen = format!("{before:?} and {span:?}");
                violations.push(Violation::new(ALONE, seen));
            }
            let known = longest.entry(span.epoch).or_insert(span);
            if known.until_ns < span.until_ns {
                *known = span;
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(shard: u32, epoch: u64, from_ns: u64, until_ns: u64) -> Believed {
        Believed {
            worker: format!("w{epoch}"),
            shard,
            epoch,
            from_ns,
            until_ns,
        }
    }

    #[test]
    fn beliefs_that_follow_each_other_are_right() {
        let apart = [
            span(0, 2, 11, 20),
            span(0, 1, 0, 10),
            span(1, 1, 5, 15),
            span(0, 1, 9, 10),
            span(0, 3, 21, 21),
        ];
        assert_eq!(check(&apart), []);
    }

    #[test]
    fn two_that_believe_at_once_are_noticed() {
        assert_eq!(check(&[span(0, 1, 0, 10), span(0, 2, 10, 20)]).len(), 1);
        // Also when shorter spans of the same epochs lie between.
        let nested = [span(0, 1, 0, 100), span(0, 1, 5, 10), span(0, 2, 50, 60)];
        assert_eq!(check(&nested).len(), 1);
    }
}
