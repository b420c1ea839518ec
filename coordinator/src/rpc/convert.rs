//! All validation of input: protocol messages become words of the domain, or a named field is refused.
//!
//! Nothing here reads state. What depends on it (does the group have such a shard, is the token
//! current) is judged by the rules when the command is applied.

mod cluster;
mod history;
mod modes;
mod placing;
mod policy;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use tenure_fence::{Epoch, FencingToken, GroupName, Owner, Resource, Sequence, ShardRef, WriteId};
use tenure_ownership::command::{CreateGroup, DeleteCheckpoint, Seal, Tenure, WriteCheckpoint};
use tenure_ownership::ids::{Revision, ShardIndex, WorkerName};
use tenure_ownership::policy::bounds;
use tenure_proto::v1 as pb;

pub(super) use self::cluster::{init, node};
pub(super) use self::history::{list_events, shard_history};
pub(super) use self::modes::{set_freeze, set_worker_mode};
pub(super) use self::placing::{one_shard, pin_shard};
pub(super) use self::policy::{PolicyEdit, TtlBounds, policy_field_on_wire};
pub(crate) use self::worker::{holding, loads, ready, register, releases, resume};
use crate::watch::Cursor;

/// Longest key that is looked up, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 64 << 10;

/// Largest checkpoint of the replicated store, in bytes; a policy may allow less.
pub(super) const CHECKPOINT_BYTES_MAX: usize = 1 << 20;

/// Most shards sealed by one request.
const SEAL_TENURES_MAX: usize = 1_000;

/// Most checkpoints written by one request, and their bytes together.
const WRITES_MAX: usize = 256;
const WRITES_BYTES_MAX: usize = CHECKPOINT_BYTES_MAX;

/// Shards listed by one request: at most, and if it names no number.
const SHARDS_PAGE: Page = Page {
    max: 10_000,
    default: 1_000,
};

/// Groups listed by one request.
const GROUPS_PAGE: Page = Page {
    max: 1_000,
    default: 100,
};

struct Page {
    max: u32,
    default: u32,
}

/// A field that breaks a rule of its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct Invalid {
    /// Path of the field as clients write it, such as `policy.ttl_ms`.
    pub(crate) field: String,
    /// What is wrong with its value.
    pub(crate) problem: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, problem: impl ToString) -> Self {
        Self {
            field: field.into(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn missing(field: impl Into<String>) -> Self {
        Self::new(field, "is required")
    }
}

fn group_name(field: &str, name: &str) -> Result<GroupName, Invalid> {
    GroupName::try_from(name).map_err(|error| Invalid::new(field, error))
}

fn worker_name(field: &str, name: &str) -> Result<WorkerName, Invalid> {
    WorkerName::new(name).map_err(|error| Invalid::new(field, error))
}

fn epoch(field: &str, number: u64) -> Result<Epoch, Invalid> {
    Epoch::try_from(number).map_err(|error| Invalid::new(field, error))
}

/// Reads an id of 128 bits: 16 big-endian bytes.
fn wide(field: &str, bytes: &[u8]) -> Result<u128, Invalid> {
    let bytes: [u8; 16] = bytes
        .try_into()
        .map_err(|_| Invalid::new(field, format!("has {} bytes, an id has 16", bytes.len())))?;
    Ok(u128::from_be_bytes(bytes))
}

fn sequence(field: &str, number: u64) -> Result<Sequence, Invalid> {
    Sequence::try_from(number).map_err(|error| Invalid::new(field, error))
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &str,
    number: T,
    allowed: &RangeInclusive<T>,
) -> Result<T, Invalid> {
    if allowed.contains(&number) {
        return Ok(number);
    }
    let (min, max) = (allowed.start(), allowed.end());
    Err(Invalid::new(
        field,
        format!("is {number}, allowed is {min} to {max}"),
    ))
}

fn count(field: &str, number: usize, max: usize) -> Result<(), Invalid> {
    if number <= max {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        format!("has {number} entries, at most {max} are accepted"),
    ))
}

fn text(field: &str, text: &str, bytes_max: usize) -> Result<(), Invalid> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        format!("has {} bytes, at most {bytes_max} are accepted", text.len()),
    ))
}

/// A session as the domain names it.
pub(crate) fn owner(field: &str, session: Option<&pb::Session>) -> Result<Owner, Invalid> {
    let session = session.ok_or_else(|| Invalid::missing(field))?;
    let cluster = wide(&format!("{field}.cluster_id"), &session.cluster_id)?;
    Ok(Owner {
        cluster,
        session: session.number,
    })
}

fn shard_ref(field: &str, shard: Option<pb::ShardRef>) -> Result<ShardRef, Invalid> {
    let shard = shard.ok_or_else(|| Invalid::missing(field))?;
    let group = group_name(&format!("{field}.group"), &shard.group)?;
    let highest = bounds::SHARDS.end() - 1;
    let index = within(&format!("{field}.index"), shard.index, &(0..=highest))?;
    Ok(ShardRef { group, index })
}

/// A fencing token.
pub(super) fn token(token: Option<pb::FencingToken>) -> Result<FencingToken, Invalid> {
    let token = token.ok_or_else(|| Invalid::missing("token"))?;
    let resource: Resource = token
        .resource
        .parse()
        .map_err(|error| Invalid::new("token.resource", error))?;
    let epoch = epoch("token.epoch", token.epoch)?;
    let owner = owner("token.owner", token.owner.as_ref())?;
    Ok(FencingToken {
        resource,
        epoch,
        owner,
    })
}

/// The parts of a token for a shard: its group, its tenure and its owner.
fn shard_token(given: Option<pb::FencingToken>) -> Result<(GroupName, Tenure, Owner), Invalid> {
    let token = token(given)?;
    let Resource::Shard(shard) = token.resource else {
        return Err(Invalid::new(
            "token.resource",
            "only shards have checkpoints",
        ));
    };
    let tenure = Tenure {
        shard: ShardIndex(shard.index),
        epoch: token.epoch,
    };
    Ok((shard.group, tenure, token.owner))
}

/// A tenure on a stream or in a request whose group is known.
fn tenure(field: &str, shard: u32, number: u64) -> Result<Tenure, Invalid> {
    let epoch = epoch(&format!("{field}.epoch"), number)?;
    Ok(Tenure {
        shard: ShardIndex(shard),
        epoch,
    })
}

/// The shard of a request for one.
pub(super) fn get_shard(request: pb::GetShardRequest) -> Result<(ShardRef, bool), Invalid> {
    Ok((shard_ref("shard", request.shard)?, request.linearizable))
}

/// Which shards to list.
pub(super) struct ShardQuery {
    pub(super) group: GroupName,
    pub(super) from: ShardIndex,
    pub(super) page_size: usize,
    pub(super) worker: Option<WorkerName>,
    /// `UNSPECIFIED` for all.
    pub(super) phase: pb::ShardPhase,
}

pub(super) fn shard_query(request: pb::ListShardsRequest) -> Result<ShardQuery, Invalid> {
    let worker = match request.worker.as_str() {
        "" => None,
        name => Some(worker_name("worker", name)?),
    };
    let phase = pb::ShardPhase::try_from(request.phase)
        .map_err(|_| Invalid::new("phase", format!("{} is no phase", request.phase)))?;
    Ok(ShardQuery {
        group: group_name("group", &request.group)?,
        from: ShardIndex(request.from_index),
        page_size: page_size(request.page_size, &SHARDS_PAGE)?,
        worker,
        phase,
    })
}

fn page_size(given: u32, page: &Page) -> Result<usize, Invalid> {
    let size = match given {
        0 => page.default,
        given => within("page_size", given, &(1..=page.max))?,
    };
    usize::try_from(size).map_err(|error| Invalid::new("page_size", error))
}

pub(super) fn lookup_key(request: &pb::LookupKeyRequest) -> Result<GroupName, Invalid> {
    if request.key.len() > KEY_BYTES_MAX {
        let bytes = request.key.len();
        let problem = format!("has {bytes} bytes, at most {KEY_BYTES_MAX} are accepted");
        return Err(Invalid::new("key", problem));
    }
    group_name("group", &request.group)
}

/// What to watch: the group, and the last cursor seen.
pub(super) fn watch(request: &pb::WatchRequest) -> Result<(GroupName, Option<Cursor>), Invalid> {
    let after = request.after.as_ref().map(|cursor| Cursor {
        revision: Revision(cursor.revision),
        ordinal: cursor.ordinal,
    });
    Ok((group_name("group", &request.group)?, after))
}

pub(super) fn seal(request: pb::SealRequest) -> Result<Seal, Invalid> {
    count("tenures", request.tenures.len(), SEAL_TENURES_MAX)?;
    if request.tenures.is_empty() {
        return Err(Invalid::missing("tenures"));
    }
    let mut tenures = Vec::with_capacity(request.tenures.len());
    let mut shards = BTreeSet::new();
    for (at, given) in request.tenures.iter().enumerate() {
        let tenure = tenure(&format!("tenures[{at}]"), given.shard, given.epoch)?;
        if !shards.insert(tenure.shard) {
            let problem = format!("shard {} is named twice", tenure.shard);
            return Err(Invalid::new(format!("tenures[{at}].shard"), problem));
        }
        tenures.push(tenure);
    }
    Ok(Seal {
        group: group_name("group", &request.group)?,
        owner: owner("owner", request.owner.as_ref())?,
        tenures,
    })
}

/// A write, except for the size of its data, which is answered by another reason.
pub(super) fn write(request: pb::WriteRequest) -> Result<WriteCheckpoint, Invalid> {
    let (group, tenure, owner) = shard_token(request.token)?;
    let sequence = sequence("sequence", request.sequence)?;
    let write_id = WriteId::new(wide("write_id", &request.write_id)?);
    let crc32c = crc32c::crc32c(&request.data);
    Ok(WriteCheckpoint {
        group,
        owner,
        tenure,
        sequence,
        write_id,
        crc32c,
        data: request.data,
    })
}

/// Bounds the writes of one request. Each is judged by itself.
pub(super) fn write_many(request: pb::WriteManyRequest) -> Result<Vec<pb::WriteRequest>, Invalid> {
    let bytes: usize = request.writes.iter().map(|write| write.data.len()).sum();
    if request.writes.len() > WRITES_MAX || bytes > WRITES_BYTES_MAX {
        return Err(Invalid::new(
            "writes",
            format!("at most {WRITES_MAX} with {WRITES_BYTES_MAX} bytes together are allowed"),
        ));
    }
    Ok(request.writes)
}

pub(super) fn read(request: pb::ReadRequest) -> Result<(ShardRef, bool), Invalid> {
    Ok((shard_ref("shard", request.shard)?, request.linearizable))
}

pub(super) fn delete_checkpoint(request: pb::DeleteRequest) -> Result<DeleteCheckpoint, Invalid> {
    let (group, tenure, owner) = shard_token(request.token)?;
    Ok(DeleteCheckpoint {
        group,
        owner,
        tenure,
        sequence: sequence("sequence", request.sequence)?,
        write_id: WriteId::new(wide("write_id", &request.write_id)?),
    })
}

pub(super) fn create_group(
    request: pb::CreateGroupRequest,
    ttl: &TtlBounds,
) -> Result<CreateGroup, Invalid> {
    let name = group_name("name", &request.name)?;
    let shard_count = within("shard_count", request.shard_count, &bounds::SHARDS)?;
    let edit = PolicyEdit::new(request.policy, request.policy_mask)?;
    let policy = edit.apply_to(
        tenure_ownership::policy::Policy::default(),
        shard_count,
        ttl,
    )?;
    Ok(CreateGroup {
        name,
        shard_count,
        policy,
    })
}

/// Which groups to list: those after a name, and how many.
pub(super) fn group_query(
    request: &pb::ListGroupsRequest,
) -> Result<(Option<GroupName>, usize), Invalid> {
    let after = match request.after.as_str() {
        "" => None,
        name => Some(group_name("after", name)?),
    };
    Ok((after, page_size(request.page_size, &GROUPS_PAGE)?))
}

/// A change of policy: the group, the edit, and the revision it was made from.
pub(super) fn set_policy(
    request: pb::SetPolicyRequest,
) -> Result<(GroupName, PolicyEdit, Option<Revision>), Invalid> {
    let group = group_name("group", &request.group)?;
    let edit = PolicyEdit::new(request.policy, request.policy_mask)?;
    if edit.is_empty() {
        return Err(Invalid::new(
            "policy_mask",
            "names no field, so nothing would change",
        ));
    }
    let seen = (request.seen_revision > 0).then_some(Revision(request.seen_revision));
    Ok((group, edit, seen))
}

/// The group of a request that names nothing else.
pub(super) fn group(field: &str, name: &str) -> Result<GroupName, Invalid> {
    group_name(field, name)
}
