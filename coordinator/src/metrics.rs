//! The metrics of a node: every name in one place.
//!
//! Names are `tenure_<noun>_<unit>`, counters end in `_total`. Labels are bounded: never a shard, a
//! worker or a group, of which there may be a million. Counters of events count what this node
//! applied, so every node of a cluster shows the same rates.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

/// Shards granted.
pub const GRANTS: &str = "tenure_grants_total";
/// Shards whose owners began to serve.
pub const SHARDS_SERVING: &str = "tenure_shards_serving_total";
/// Shards asked back from their owners.
pub const REVOCATIONS: &str = "tenure_revocations_total";
/// Tenures that ended, however.
pub const TENURES_ENDED: &str = "tenure_tenures_ended_total";
/// Worker processes that registered.
pub const SESSIONS_REGISTERED: &str = "tenure_sessions_registered_total";
/// Sessions that ended, however.
pub const SESSIONS_ENDED: &str = "tenure_sessions_ended_total";
/// Requests for a change that this node proposed.
pub const PROPOSALS: &str = "tenure_proposals_total";
/// Proposals that were committed and refused by the rules. Label `reason`.
pub const REJECTIONS: &str = "tenure_rejections_total";
/// Watchers connected to this node.
pub const WATCHERS: &str = "tenure_watchers_count";
/// Watchers that were told to start again from the state.
pub const RESYNCS: &str = "tenure_watcher_resyncs_total";
/// Heartbeats that arrived from workers.
pub const HEARTBEATS: &str = "tenure_heartbeats_total";
/// Registrations that waited because two processes fight over one name.
pub const REPLACEMENTS_DAMPED: &str = "tenure_replacements_damped_total";
/// Times at which more than half of a group's workers lost their streams at once.
pub const MASS_FAILURES: &str = "tenure_mass_failures_total";
/// Moves that were refused several times since the shard last moved.
pub const MOVES_REFUSED_REPEATEDLY: &str = "tenure_moves_refused_repeatedly_total";
/// The last log index applied on this node.
pub const APPLIED_REVISION: &str = "tenure_raft_applied_revision";
/// The Raft term this node is in.
pub const RAFT_TERM: &str = "tenure_raft_term";
/// 1 while this node leads, 0 otherwise.
pub const RAFT_IS_LEADER: &str = "tenure_raft_is_leader";
/// Time of one sync of the log.
pub const LOG_SYNC: &str = "tenure_log_sync_seconds";
/// Time to write one snapshot.
pub const SNAPSHOT_BUILD: &str = "tenure_snapshot_build_seconds";

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric with its kind and what the page of metrics says about it.
const ALL: &[(&str, Kind, &str)] = &[
    (
        GRANTS,
        Kind::Counter,
        "Shards granted, as applied on this node",
    ),
    (
        SHARDS_SERVING,
        Kind::Counter,
        "Shards whose owners began to serve, as applied on this node",
    ),
    (
        REVOCATIONS,
        Kind::Counter,
        "Shards asked back from their owners, as applied on this node",
    ),
    (
        TENURES_ENDED,
        Kind::Counter,
        "Tenures that ended, as applied on this node",
    ),
    (
        SESSIONS_REGISTERED,
        Kind::Counter,
        "Worker processes registered, as applied on this node",
    ),
    (
        SESSIONS_ENDED,
        Kind::Counter,
        "Sessions that ended, as applied on this node",
    ),
    (
        PROPOSALS,
        Kind::Counter,
        "Changes proposed by this node for clients",
    ),
    (
        REJECTIONS,
        Kind::Counter,
        "Proposals of this node that the rules refused, by reason",
    ),
    (WATCHERS, Kind::Gauge, "Watchers connected to this node"),
    (
        RESYNCS,
        Kind::Counter,
        "Watchers of this node that were told to start again from the state",
    ),
    (
        HEARTBEATS,
        Kind::Counter,
        "Heartbeats that arrived from workers",
    ),
    (
        REPLACEMENTS_DAMPED,
        Kind::Counter,
        "Registrations that waited: two processes, one name",
    ),
    (
        MASS_FAILURES,
        Kind::Counter,
        "Times that most workers of a group lost their streams at once",
    ),
    (
        MOVES_REFUSED_REPEATEDLY,
        Kind::Counter,
        "Moves refused several times since the shard last moved",
    ),
    (
        APPLIED_REVISION,
        Kind::Gauge,
        "Last log index applied on this node",
    ),
    (RAFT_TERM, Kind::Gauge, "Raft term of this node"),
    (
        RAFT_IS_LEADER,
        Kind::Gauge,
        "1 while this node leads, 0 otherwise",
    ),
    (LOG_SYNC, Kind::Histogram, "Time of one sync of the log"),
    (
        SNAPSHOT_BUILD,
        Kind::Histogram,
        "Time to write one snapshot",
    ),
];

/// Bounds of the buckets of every histogram, in seconds: a log sync takes a fraction of a millisecond
/// to some tens, a snapshot of a million shards takes seconds.
const BUCKETS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// Time between two upkeeps of the recorder, which moves what histograms gathered into their buckets.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Starts recording in this process and describes every metric. Repeated calls return the same recorder:
/// the nodes of one process, as in tests, share one.
///
/// # Errors
///
/// The recorder's own, if its settings were wrong.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&BUCKETS)?
        .build_recorder();
    let handle = RECORDER.get_or_init(|| {
        let handle = recorder.handle();
        // Another recorder can only be that of a program which embeds the node: it then has the metrics.
        if ::metrics::set_global_recorder(recorder).is_ok() {
            describe();
        }
        handle
    });
    Ok(handle.clone())
}

fn describe() {
    for (name, kind, text) in ALL.iter().copied() {
        match kind {
            Kind::Counter => ::metrics::describe_counter!(name, text),
            Kind::Gauge => ::metrics::describe_gauge!(name, text),
            Kind::Histogram => ::metrics::describe_histogram!(name, text),
        }
        // A counter that nothing has raised yet is shown as 0, so that its rate is known from the start.
        if kind == Kind::Counter && name != REJECTIONS {
            ::metrics::counter!(name).absolute(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_say_their_unit() {
        let names: BTreeSet<&str> = ALL.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names.len(), ALL.len());
        for (name, kind, text) in ALL.iter().copied() {
            assert!(name.starts_with("tenure_"), "{name}");
            assert!(!text.is_empty(), "{name}");
            let unit = name.rsplit('_').next().unwrap();
            assert_eq!(kind == Kind::Counter, unit == "total", "{name}");
            assert_eq!(kind == Kind::Histogram, unit == "seconds", "{name}");
        }
    }

    #[test]
    fn the_page_of_metrics_shows_every_counter_from_the_start() {
        let recorder = install().unwrap();
        ::metrics::counter!(GRANTS).increment(2);
        let page = recorder.render();
        assert!(
            page.contains("# HELP tenure_grants_total Shards granted"),
            "{page}"
        );
        assert!(page.contains("tenure_revocations_total 0"), "{page}");
        assert!(install().unwrap().render().contains("tenure_grants_total"));
    }
}
