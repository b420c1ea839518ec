//! The replicated store: seals, writes and deletions of checkpoints.
//!
//! A token must be the shard's current tenure, so a grant fences the old owner at once, before the
//! new one has sealed. On top of that the one admission rule of `tenure-fence` applies, as in every
//! other store.

use std::cmp::Ordering;

use tenure_fence::{
    Epoch, Fence, FencingToken, GroupName, Owner, Refusal, SealAdmission, SequenceAdmission,
    ShardRef, admit_seal, admit_sequence, admit_write,
};

use super::entry::Entry;
use crate::command::{DeleteCheckpoint, Seal, Tenure, WriteCheckpoint};
use crate::ids::GroupId;
use crate::rejection::Rejection;
use crate::shard::{Content, Replicated, Shard, Written};
use crate::state::State;

/// Raises fences to the epochs of their owner. A repeated seal changes nothing.
pub(super) fn seal(entry: &mut Entry<'_>, command: &Seal) -> Result<(), Rejection> {
    for tenure in &command.tenures {
        if let Err(rejection) = seal_one(entry, &command.group, command.owner, *tenure) {
            entry.refuse(tenure.shard, rejection);
        }
    }
    Ok(())
}

fn seal_one(
    entry: &mut Entry<'_>,
    name: &GroupName,
    owner: Owner,
    tenure: Tenure,
) -> Result<(), Rejection> {
    let (group, shard) = current(entry.state(), name, owner, tenure)?;
    let token = token(name, owner, tenure);
    match admit_seal(fence(shard).as_ref(), &token).map_err(Rejection::Fence)? {
        SealAdmission::Same => return Ok(()),
        SealAdmission::Raise => {}
    }
    let shard = entry.shard_mut(group, tenure.shard);
    let latest = shard
        .replicated
        .take()
        .and_then(|replicated| replicated.latest);
    shard.replicated = Some(Box::new(Replicated {
        epoch: token.epoch,
        owner: token.owner,
        latest,
    }));
    Ok(())
}

/// Writes one checkpoint. The retry of a write that landed changes nothing.
pub(super) fn write(entry: &mut Entry<'_>, command: WriteCheckpoint) -> Result<(), Rejection> {
    let WriteCheckpoint {
        group: name,
        owner,
        tenure,
        sequence,
        write_id,
        crc32c,
        data,
    } = command;
    let (group, shard) = current(entry.state(), &name, owner, tenure)?;
    admit_write(fence(shard).as_ref(), &token(&name, owner, tenure)).map_err(Rejection::Fence)?;
    let admission = admit_sequence(latest_of(shard, tenure.epoch), (sequence, write_id));
    match admission.map_err(Rejection::Fence)? {
        // Before any other check: it landed, whatever the limits have become since.
        SequenceAdmission::AlreadyWritten => return Ok(()),
        SequenceAdmission::New => {}
    }
    let (length, total) = fit(entry.state(), group, shard, data.len())?;

    entry.set_checkpoint_bytes(group, total);
    set_latest(
        entry,
        group,
        tenure,
        Written {
            epoch: tenure.epoch,
            owner,
            sequence,
            write_id,
            content: Some(Content { length, crc32c }),
        },
    );
    entry.put_blob(group, tenure.shard, Some(data));
    Ok(())
}

/// Deletes the bytes of a checkpoint. Its fence and the sequence of its last write stay, so neither
/// an older epoch nor an older write can come back.
pub(super) fn delete(entry: &mut Entry<'_>, command: &DeleteCheckpoint) -> Result<(), Rejection> {
    let DeleteCheckpoint {
        group: name,
        owner,
        tenure,
    } = command;
    let (group, shard) = current(entry.state(), name, *owner, *tenure)?;
    admit_write(fence(shard).as_ref(), &token(name, *owner, *tenure)).map_err(Rejection::Fence)?;
    let latest = shard
        .replicated
        .as_ref()
        .and_then(|replicated| replicated.latest.clone());
    let Some(latest) = latest.filter(|latest| latest.content.is_some()) else {
        return Ok(());
    };
    let total = entry.state().checkpoint_bytes(group) - shard.checkpoint_bytes();

    entry.set_checkpoint_bytes(group, total);
    set_latest(
        entry,
        group,
        *tenure,
        Written {
            content: None,
            ..latest
        },
    );
    entry.put_blob(group, tenure.shard, None);
    Ok(())
}

/// The shard, if the token is its current tenure.
///
/// An epoch below the shard's, and any epoch of a shard that nobody owns, is `Fenced`: with the
/// shard's own epoch as `current`, also when that is the epoch presented, for that tenure is over.
/// Epochs up to the floor were, or may have been, granted in an earlier life of the group.
fn current<'a>(
    state: &'a State,
    name: &GroupName,
    owner: Owner,
    tenure: Tenure,
) -> Result<(GroupId, &'a Shard), Rejection> {
    let Tenure {
        shard: index,
        epoch: presented,
    } = tenure;
    let never_granted = || Rejection::NeverGranted {
        shard: index,
        presented,
    };
    let fenced = |current| Rejection::Fence(Refusal::Fenced { presented, current });

    let Some(group) = state.group_named(name) else {
        let Some(tombstone) = state.tombstone(name) else {
            return Err(Rejection::UnknownGroup { name: name.clone() });
        };
        return Err(at_or_below(tombstone.floor, presented).map_or_else(never_granted, fenced));
    };
    let Some(shard) = group.shard(index) else {
        return Err(Rejection::UnknownShard { shard: index });
    };
    let Some(epoch) = shard.epoch.filter(|epoch| presented <= *epoch) else {
        return Err(at_or_below(shard.floor, presented).map_or_else(never_granted, fenced));
    };
    match presented.cmp(&epoch) {
        Ordering::Less => Err(fenced(epoch)),
        Ordering::Equal | Ordering::Greater => match shard.owner() {
            None => Err(fenced(epoch)),
            Some(session) if is_session(state, owner, session.0) => Ok((group.header.id, shard)),
            Some(_) => Err(Rejection::Fence(Refusal::EpochConflict)),
        },
    }
}

/// The floor as an epoch, if the presented one is not above it.
fn at_or_below(floor: u64, presented: Epoch) -> Option<Epoch> {
    Epoch::new(floor).filter(|floor| presented <= *floor)
}

fn is_session(state: &State, owner: Owner, session: u64) -> bool {
    let cluster = state.cluster().map(|cluster| cluster.0);
    cluster == Some(owner.cluster) && owner.session == session
}

fn token(group: &GroupName, owner: Owner, tenure: Tenure) -> FencingToken {
    let shard = ShardRef {
        group: group.clone(),
        index: tenure.shard.0,
    };
    FencingToken {
        resource: shard.into(),
        epoch: tenure.epoch,
        owner,
    }
}

fn fence(shard: &Shard) -> Option<Fence> {
    shard
        .replicated
        .as_ref()
        .map(|replicated| replicated.fence())
}

/// The latest write of an epoch: each epoch starts its sequences afresh.
fn latest_of(
    shard: &Shard,
    epoch: Epoch,
) -> Option<(tenure_fence::Sequence, tenure_fence::WriteId)> {
    let latest = shard.replicated.as_ref()?.latest.as_ref()?;
    (latest.epoch == epoch).then_some((latest.sequence, latest.write_id))
}

/// The length of a checkpoint, and the bytes of its group once it replaced the one before.
///
/// A checkpoint no longer than the one it replaces always fits into the total, so that a lowered
/// limit stops growth and not work.
fn fit(
    state: &State,
    group: GroupId,
    shard: &Shard,
    length: usize,
) -> Result<(u32, u64), Rejection> {
    let Some(policy) = state.group(group).map(|group| &group.header.policy) else {
        return Err(Rejection::GroupGone { group });
    };
    let too_large = |bytes, limit, field| {
        Err(Rejection::CheckpointTooLarge {
            bytes,
            limit,
            field,
        })
    };
    let bytes = length as u64;
    let limit = policy.checkpoint_bytes_max;
    let Some(length) = u32::try_from(length).ok().filter(|length| *length <= limit) else {
        return too_large(bytes, u64::from(limit), "checkpoint_bytes_max");
    };
    let before = state.checkpoint_bytes(group);
    let total = before - shard.checkpoint_bytes() + bytes;
    if total > policy.checkpoint_total_bytes_max && total > before {
        let limit = policy.checkpoint_total_bytes_max;
        return too_large(total, limit, "checkpoint_total_bytes_max");
    }
    Ok((length, total))
}

fn set_latest(entry: &mut Entry<'_>, group: GroupId, tenure: Tenure, written: Written) {
    match &mut entry.shard_mut(group, tenure.shard).replicated {
        Some(replicated) => replicated.latest = Some(written),
        None => unreachable!("shard {} is written without a seal", tenure.shard),
    }
}
