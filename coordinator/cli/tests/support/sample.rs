//! The one group that every fake node knows, "orders", and its shards.

use tenure_proto::v1;

use super::{CLUSTER, LARGEST};

pub(super) fn policy() -> v1::Policy {
    v1::Policy {
        ttl_ms: 10_000,
        disconnect_grace_ms: 750,
        restart_grace_ms: 0,
        lock_delay_ms: 0,
        drain_timeout_ms: 30_000,
        opening_deadline_ms: 60_000,
        handoffs_in_flight_max: 0,
        load_factor_permille: 1_100,
        checkpoint_bytes_max: 1_048_576,
        checkpoint_total_bytes_max: 16 << 30,
        worker_shards_max: 20,
        required_labels: [("disk", "ssd"), ("site", "a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        preferred_labels: [].into(),
        zone_label: "zone".to_owned(),
        balance_by: v1::BalanceBy::Load.into(),
        imbalance_tolerated_permille: 200,
        moves_per_minute_max: 0,
        crashes_max: 3,
    }
}

pub(super) fn group(name: &str) -> v1::Group {
    v1::Group {
        name: name.to_owned(),
        shard_count: 64,
        deleting: name == "retired",
        policy: Some(policy()),
        policy_revision: 12,
        unowned: 1,
        opening: 2,
        serving: 60,
        revoking: 1,
        workers: 4,
        checkpoint_bytes: 2_097_152,
        frozen: (name == "retired").then(|| v1::Freeze {
            reason: "release day".to_owned(),
            since_revision: 39,
        }),
        pinned: 2,
        quarantined: 1,
    }
}

pub(super) fn session(number: u64) -> v1::Session {
    v1::Session {
        cluster_id: CLUSTER.to_vec().into(),
        number,
    }
}

pub(super) fn shard(index: u32) -> v1::Shard {
    let at = v1::ShardRef {
        group: "orders".to_owned(),
        index,
    };
    let phase = [
        v1::ShardPhase::Serving,
        v1::ShardPhase::Revoking,
        v1::ShardPhase::Opening,
        v1::ShardPhase::Unowned,
    ][index as usize % 4];
    let mut shard = v1::Shard {
        shard: Some(at),
        phase: phase.into(),
        epoch: LARGEST - u64::from(index),
        owner: Some(session(917)),
        worker: "counter-1".to_owned(),
        address: "10.0.0.11:9000".to_owned(),
        checkpoint_bytes: 32_768,
        ..Default::default()
    };
    match phase {
        v1::ShardPhase::Revoking => {
            shard.revoke_reason = v1::RevokeReason::Rebalance.into();
            shard.next_worker = "counter-2".to_owned();
        }
        v1::ShardPhase::Unowned => {
            shard.epoch = 0;
            shard.owner = None;
            shard.worker.clear();
            shard.address.clear();
            shard.open_failure = Some(v1::OpenFailure {
                count: 3,
                worker: "counter-3".to_owned(),
                reason: "seal failed".to_owned(),
            });
            if index == 7 {
                shard.kept_off = vec!["counter-1".to_owned(), "counter-2".to_owned()];
                shard.quarantine = Some(v1::Quarantine {
                    crashes: 3,
                    since: LARGEST,
                });
            }
        }
        _ => {}
    }
    shard
}

pub(super) fn plan(moves: usize) -> v1::Plan {
    let planned = |shard, from: &str, reason: v1::RevokeReason| v1::PlannedMove {
        shard,
        from: from.to_owned(),
        to: "counter-2".to_owned(),
        reason: reason.into(),
    };
    let mut all = vec![planned(3, "", v1::RevokeReason::Unspecified)];
    all.extend((8..20).map(|shard| planned(shard, "counter-1", v1::RevokeReason::Rebalance)));
    all.truncate(moves);
    let not_moved = [("all at cap", 2, vec![5, 6]), ("indivisible", 1, vec![])];
    v1::Plan {
        moves_total: u32::try_from(all.len()).unwrap(),
        moves: all,
        not_moved: not_moved
            .map(|(reason, moves, shards)| v1::NotMoved {
                reason: reason.to_owned(),
                moves,
                shards,
            })
            .into(),
        in_flight: 1,
    }
}
