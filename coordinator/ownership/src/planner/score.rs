//! Which worker suits a shard best.

use crate::ids::ShardIndex;
use crate::planner::candidate::WorkerOrdinal;
use crate::planner::draft::Draft;
use crate::planner::report::Reason;
use crate::planner::share::Level;
use crate::shard::Shard;

/// How suitable a worker below its cap is for a shard. Lower is better; fields compare top to bottom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// A worker on which the shard has just failed to open comes last.
    failed_recently: bool,
    /// Which probe of the ring named the worker: equal states choose alike, and the shards of a lost
    /// worker spread. [`PROBES_MAX`] for a worker found by its load.
    probe: u32,
    /// How full it is for its weight.
    level: Level,
    /// Whether it lacks a label that is preferred.
    unpreferred: bool,
    /// Makes ties deterministic; in order of name.
    worker: WorkerOrdinal,
}

/// Probes before the least loaded worker is taken. At the default load factor nine workers in ten have
/// room until the end, so a shard rarely needs three; the bound is for tight factors.
const PROBES_MAX: u32 = 16;

/// Finds the best worker with room for a shard, other than `except`.
///
/// # Errors
/// The [`Reason`] why there is none.
pub(super) fn most_suitable(
    draft: &mut Draft<'_>,
    index: ShardIndex,
    shard: &Shard,
    except: Option<WorkerOrdinal>,
) -> Result<WorkerOrdinal, Reason> {
    if draft.room() == 0 {
        // Known at once, however many shards find it so.
        return Err(draft.no_room());
    }
    let mut best: Option<Score> = None;
    for probe in 0..PROBES_MAX {
        let Some(worker) = draft.ring().get(index, probe) else {
            break;
        };
        if Some(worker) != except && draft.has_room(worker) && draft.may_have(index, worker) {
            let score = scored(draft, shard, probe, worker);
            best = best.into_iter().chain([score]).min();
            if !score.failed_recently {
                // A later probe is never better.
                break;
            }
        }
    }
    if best.is_none_or(|score| score.failed_recently) {
        // Past the one excluded, the one that failed and those that the shard is kept off, the next is as
        // good as any later one.
        let emptiest = draft.least_loaded(3 + kept_off(draft, index));
        let others = emptiest
            .into_iter()
            .filter(|worker| Some(*worker) != except && draft.may_have(index, *worker));
        let others = others.map(|worker| scored(draft, shard, PROBES_MAX, worker));
        best = best.into_iter().chain(others).min();
    }
    best.map(|score| score.worker)
        .ok_or_else(|| match kept_off(draft, index) {
            0 => draft.no_room(),
            _ => Reason::KeptOff,
        })
}

/// How many workers a shard is kept off.
fn kept_off(draft: &Draft<'_>, index: ShardIndex) -> usize {
    let placement = draft.group.placements.get(&index);
    placement.map_or(0, |placement| placement.kept_off.len())
}

fn scored(draft: &Draft<'_>, shard: &Shard, probe: u32, worker: WorkerOrdinal) -> Score {
    let candidate = draft.worker(worker);
    Score {
        failed_recently: candidate.has_failed(shard),
        probe,
        level: candidate.level(),
        unpreferred: candidate.unpreferred,
        worker,
    }
}
