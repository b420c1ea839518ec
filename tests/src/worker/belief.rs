//! Watching what a worker believes, to find two that believe at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{HandleState, HeldShard};

use super::report::{Report, Reports, now_ns};

/// How often belief is looked at. Short against the shortest window of belief, 100 ms.
const INTERVAL: Duration = Duration::from_millis(1);

/// A span in which a worker was seen to believe that nobody else owned a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Believed {
    /// Who believed.
    pub worker: String,
    /// The shard.
    pub shard: u32,
    /// The tenure.
    pub epoch: u64,
    /// Nanoseconds of `CLOCK_BOOTTIME` at which it believed already.
    pub from_ns: u64,
    /// Nanoseconds of `CLOCK_BOOTTIME` at which it believed still.
    pub until_ns: u64,
}

/// Returns the pairs that believed in the same shard at once, at different epochs. Of the spans of one epoch
/// only that which lasts longest is paired, so that many spans are compared in little time.
#[must_use]
pub fn overlaps(spans: &[Believed]) -> Vec<(Believed, Believed)> {
    let mut shards: BTreeMap<u32, Vec<&Believed>> = BTreeMap::new();
    for span in spans {
        shards.entry(span.shard).or_default().push(span);
    }
    let mut found = Vec::new();
    for spans in shards.values_mut() {
        spans.sort_by_key(|span| span.from_ns);
        // Of each epoch, of those that began already.
        let mut longest: BTreeMap<u64, &Believed> = BTreeMap::new();
        for &span in spans.iter() {
            // What is over is no one's rival any more.
            longest.retain(|_, before| before.until_ns >= span.from_ns);
            for &before in longest.values().filter(|before| before.epoch != span.epoch) {
                found.push((before.clone(), span.clone()));
            }
            let known = longest.entry(span.epoch).or_insert(span);
            if known.until_ns < span.until_ns {
                *known = span;
            }
        }
    }
    found
}

/// The handles whose belief is watched.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    // Never held across an await.
    handles: Arc<Mutex<BTreeMap<(u32, u64), Handle>>>,
    /// A longer span is reported in pieces.
    span_max_ns: u64,
}

impl Default for Watched {
    /// Every span is reported as one, when it ends.
    fn default() -> Self {
        Self {
            handles: Arc::default(),
            span_max_ns: u64::MAX,
        }
    }
}

#[derive(Debug)]
struct Handle {
    shard: HeldShard,
    /// The first and the last moment of the span that is open.
    span: Option<(u64, u64)>,
    lost: bool,
}

impl Watched {
    /// Watches nothing yet, and reports a span after `span_max` and goes on with the next: a process that
    /// is killed takes the open one with it.
    pub(super) fn in_pieces(span_max: Duration) -> Self {
        Self {
            span_max_ns: u64::try_from(span_max.as_nanos()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// Begins to watch a handle, until it is lost.
    pub(super) fn add(&self, shard: &HeldShard) {
        let key = (shard.id().index, shard.epoch().get());
        let handle = Handle {
            shard: shard.clone(),
            span: None,
            lost: false,
        };
        self.handles().insert(key, handle);
    }

    /// Looks at all handles until it is dropped, and reports every span of belief when it ends.
    pub(super) async fn run(self, reports: Reports) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(reports);
        }
    }

    fn look(&self, reports: Reports) {
        self.handles().retain(|&(shard, epoch), handle| {
            let before = now_ns();
            let current = handle.shard.is_current();
            let after = now_ns();
            // It was true at some moment from `before` to `after`. So a span begins no earlier than
            // `after` and ends no later than `before`: two that overlap really did.
            handle.span = match (current, handle.span.take()) {
                (true, None) => Some((after, after)),
                (true, Some((from, until))) if until - from < self.span_max_ns => {
                    Some((from, until.max(before)))
                }
                (_, Some((from_ns, until_ns))) => {
                    reports.send(&Report::Believed {
                        shard,
                        epoch,
                        from_ns,
                        until_ns,
                    });
                    current.then_some((after, after))
                }
                (false, None) => None,
            };
            if let HandleState::Lost(reason) = handle.shard.state() {
                if !handle.lost {
                    let reason = reason.to_string();
                    reports.send(&Report::Lost {
                        shard,
                        epoch,
                        reason,
                    });
                }
                handle.lost = true;
            }
            !handle.lost || handle.span.is_some()
        });
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<(u32, u64), Handle>> {
        // Every change is whole before the lock is given back.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn two_tenures_of_one_shard_at_once_are_found() {
        let apart = [
            span(0, 1, 0, 10),
            span(0, 2, 11, 20),
            span(1, 1, 5, 15),
            span(0, 1, 9, 10),
            span(0, 3, 21, 21),
        ];
        assert_eq!(overlaps(&apart), []);
        let both = [span(0, 1, 0, 10), span(0, 2, 10, 20)];
        assert_eq!(overlaps(&both), [(both[0].clone(), both[1].clone())]);
        // Also when shorter spans of the same epochs lie between.
        let nested = [span(0, 1, 0, 100), span(0, 1, 5, 10), span(0, 2, 50, 60)];
        assert_eq!(overlaps(&nested).len(), 1);
    }
}
