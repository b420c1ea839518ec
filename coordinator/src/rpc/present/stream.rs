//! Messages of the leader to a worker.

use std::time::Duration;

use tenure_ownership::command::Tenure;
use tenure_ownership::ids::ClusterId;
use tenure_ownership::shard::StoreReady;
use tenure_proto::v1 as pb;
use tenure_proto::v1::attach_response::Message;

use crate::control::message::{Down, Duty, SetShard};

/// A message of the worker stream.
pub(in crate::rpc) fn down(down: Down) -> pb::AttachResponse {
    let message = match down {
        Down::Registered {
            session,
            ttl,
            window,
            shard_count,
        } => Message::Registered(pb::Registered {
            session: Some(pb::Session {
                cluster_id: super::cluster_id(ClusterId(session.cluster)),
                number: session.session,
            }),
            ttl_ms: super::millis(ttl),
            window_ms: super::millis(window),
            shard_count,
        }),
        Down::Set { revision, shards } => Message::Set(pb::Set {
            revision: revision.0,
            shards: shards.into_iter().map(set_shard).collect(),
        }),
        Down::Ack { sequence } => Message::HeartbeatAck(pb::HeartbeatAck { sequence }),
        Down::Granted { revision, grants } => {
            let grant = |(granted, stores): (Tenure, Vec<StoreReady>)| pb::Grant {
                tenure: Some(tenure(granted)),
                stores: stores.into_iter().map(store).collect(),
            };
            Message::Granted(pb::Granted {
                revision: revision.0,
                grants: grants.into_iter().map(grant).collect(),
            })
        }
        Down::Revoke {
            revision,
            tenures,
            drain,
            reason,
        } => Message::Revoke(pb::Revoke {
            revision: revision.0,
            tenures: tenures.into_iter().map(tenure).collect(),
            drain_ms: super::millis(drain),
            reason: super::revoke_reason(reason).into(),
        }),
        Down::Dismissed => Message::Dismissed(pb::Dismissed {}),
        Down::Lost { revision, tenures } => Message::Lost(pb::Lost {
            revision: revision.0,
            tenures: tenures.into_iter().map(tenure).collect(),
        }),
    };
    pb::AttachResponse {
        message: Some(message),
    }
}

fn set_shard(shard: SetShard) -> pb::SetShard {
    let (phase, drain) = match shard.duty {
        Duty::Open => (pb::ShardPhase::Opening, Duration::ZERO),
        Duty::Serve => (pb::ShardPhase::Serving, Duration::ZERO),
        Duty::Drain(left) => (pb::ShardPhase::Revoking, left),
    };
    pb::SetShard {
        tenure: Some(tenure(shard.tenure)),
        phase: phase.into(),
        drain_ms: super::millis(drain),
        stores: shard.stores.into_iter().map(store).collect(),
    }
}

fn tenure(tenure: Tenure) -> pb::Tenure {
    pb::Tenure {
        shard: tenure.shard.0,
        epoch: tenure.epoch.get(),
    }
}

fn store(ready: StoreReady) -> pb::StoreEpoch {
    pb::StoreEpoch {
        store: ready.store.to_string(),
        epoch: ready.epoch.get(),
    }
}
