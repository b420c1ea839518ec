//! Where single shards belong.

use std::collections::BTreeSet;

use tenure_ownership::command::{OneShard, PinShard, PinTo};
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::placement::KEPT_OFF_MAX;
use tenure_proto::v1 as pb;

use super::{Invalid, count, shard_ref, worker_name};

/// The shard of a request that names nothing else.
pub(crate) fn one_shard(shard: Option<pb::ShardRef>) -> Result<OneShard, Invalid> {
    let shard = shard_ref("shard", shard)?;
    Ok(OneShard {
        group: shard.group,
        shard: ShardIndex(shard.index),
    })
}

/// Where a shard belongs: on one worker, or off some.
pub(crate) fn pin_shard(request: pb::PinShardRequest) -> Result<PinShard, Invalid> {
    let OneShard { group, shard } = one_shard(request.shard)?;
    count("kept_off", request.kept_off.len(), KEPT_OFF_MAX)?;
    let to = match (request.to.as_str(), request.kept_off.as_slice()) {
        ("", []) => return Err(Invalid::missing("to")),
        (to, []) => PinTo::Worker(worker_name("to", to)?),
        ("", workers) => {
            let names = workers.iter().map(|name| worker_name("kept_off", name));
            PinTo::AnyBut(names.collect::<Result<BTreeSet<_>, _>>()?)
        }
        _ => {
            let problem = "a shard is pinned to one worker or kept off some, not both";
            return Err(Invalid::new("kept_off", problem));
        }
    };
    Ok(PinShard { group, shard, to })
}
