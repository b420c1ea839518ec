//! Requests for what happened.

use tenure_fence::ShardRef;
use tenure_ownership::ids::{Revision, ShardIndex};
use tenure_proto::v1 as pb;

use super::{Invalid, Page, count, group_name, page_size, shard_ref, text, worker_name};
use crate::history::{Position, Query};

/// Events listed by one request.
const EVENTS_PAGE: Page = Page {
    max: 1_000,
    default: 100,
};

/// Tenures listed by one request.
const TENURES_PAGE: Page = Page {
    max: 1_000,
    default: 20,
};

/// Kinds that one request may name, and the length of a name.
const KINDS_MAX: usize = 64;
const KIND_BYTES_MAX: usize = 64;

/// What to list, and the shard of it, whose group is still to be found.
pub(in crate::rpc) fn list_events(
    request: pb::ListEventsRequest,
) -> Result<(Query, Option<ShardIndex>), Invalid> {
    let group = match request.group.as_str() {
        "" => None,
        name => Some(group_name("group", name)?),
    };
    if request.shard.is_some() && group.is_none() {
        return Err(Invalid::missing("group"));
    }
    let worker = match request.worker.as_str() {
        "" => None,
        name => Some(worker_name("worker", name)?),
    };
    count("kinds", request.kinds.len(), KINDS_MAX)?;
    for (at, kind) in request.kinds.iter().enumerate() {
        text(&format!("kinds[{at}]"), kind, KIND_BYTES_MAX)?;
    }
    let query = Query {
        group,
        shard: None,
        worker,
        kinds: request.kinds,
        asked_for: request.asked_for,
        since_ms: request.since_ms,
        from: request.from.map(|cursor| Position {
            revision: Revision(cursor.revision),
            ordinal: cursor.ordinal,
        }),
        newest_first: request.newest_first,
        limit: page_size(request.page_size, &EVENTS_PAGE)?,
    };
    Ok((query, request.shard.map(ShardIndex)))
}

/// The shard, and how many tenures of it.
pub(in crate::rpc) fn shard_history(
    request: pb::ShardHistoryRequest,
) -> Result<(ShardRef, usize), Invalid> {
    let shard = shard_ref("shard", request.shard)?;
    let limit = match request.limit {
        0 => page_size(0, &TENURES_PAGE)?,
        given => page_size(given, &TENURES_PAGE)
            .map_err(|invalid| Invalid::new("limit", invalid.problem))?,
    };
    Ok((shard, limit))
}
