//! What a node has measured of itself, for `tenure doctor`.

use std::path::Path;
use std::time::Duration;

use tenure_ownership::ids::Revision;
use tenure_proto::v1 as pb;

use super::context::RpcContext;
use super::features;
use crate::consensus::{LogSyncs, NodeAddresses, PeerAnswer, blocking};

/// How long another node may take to answer.
const PEER_MAX: Duration = Duration::from_secs(1);

/// Measures and tells.
pub(super) async fn diagnose(context: &RpcContext) -> pb::DiagnoseResponse {
    let consensus = &context.consensus;
    let about = &context.about;
    let status = consensus.status();
    let peers = consensus.ask_peers(PEER_MAX).await;
    let folder = about.data_dir.clone();
    let disk = blocking(move || disk(&folder)).await.ok().flatten();
    let (compared, wall_faster_ppm) = about
        .comparison
        .read(about.clock.as_ref(), about.wall_clock.as_ref());
    let index = |revision: Option<Revision>| revision.map_or(0, |revision| revision.0);
    let node_id = status.identity.map_or(0, |identity| identity.node.0);
    pb::DiagnoseResponse {
        node_id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        addresses: Some(node(node_id, &about.addresses)),
        heartbeat_interval_ms: millis(about.raft.heartbeat_interval),
        election_timeout_min_ms: millis(about.raft.election_timeout_min),
        election_timeout_max_ms: millis(about.raft.election_timeout_max),
        snapshot_entries: about.raft.snapshot_entries,
        log_syncs: Some(log_syncs(consensus.log_syncs())),
        disk,
        clock: Some(pb::ClockReading {
            compared_ms: millis(compared),
            wall_faster_ppm,
        }),
        last_log_index: index(status.last_log),
        purged_index: index(status.purged),
        snapshot_index: index(status.snapshot),
        peers: peers.into_iter().map(peer).collect(),
        features: features::readings(consensus),
    }
}

fn node(id: u64, addresses: &NodeAddresses) -> pb::Node {
    pb::Node {
        id,
        peer_address: addresses.raft.clone(),
        client_address: addresses.client.clone(),
        http_address: addresses.http.clone(),
    }
}

fn peer(asked: PeerAnswer) -> pb::PeerReading {
    let (round_trip, features) = asked.answered.unzip();
    pb::PeerReading {
        node_id: asked.member.id.0,
        round_trip_us: round_trip.map(micros),
        features: features.unwrap_or_default(),
    }
}

fn log_syncs(syncs: LogSyncs) -> pb::LogSyncs {
    pb::LogSyncs {
        count: syncs.count as u64,
        p50_us: micros(syncs.p50),
        p99_us: micros(syncs.p99),
        max_us: micros(syncs.max),
    }
}

/// Room on the disk of a folder; `None` for a node that keeps its data elsewhere. Blocks.
fn disk(folder: &Path) -> Option<pb::Disk> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(pb::Disk {
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
        total_bytes: room.f_blocks.saturating_mul(room.f_frsize),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
