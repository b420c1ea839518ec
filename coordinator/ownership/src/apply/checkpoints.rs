//! The replicated store: seals, writes and deletions of checkpoints.
//!
//! A token must be the shard's current tenure, so a grant fences the old owner at once, before the
//! new one has sealed. On top of that the one admission rule of `tenure-fence` applies, as in every
//! other store.

use tenure_fence::{
    Epoch, Fence, FencingToken, GroupName, Owner, SealAdmission, Sequence, SequenceAdmission,
    ShardRef, WriteId, admit_seal, admit_sequence, admit_write,
};

use super::entry::Entry;
use crate::command::{DeleteCheckpoint, Seal, Tenure, WriteCheckpoint};
use crate::group::Group;
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
    let (group, shard) = entry.state().current_tenure(name, owner, tenure)?;
    let token = token(name, owner, tenure);
    match admit_seal(fence(shard).as_ref(), &token).map_err(Rejection::Fence)? {
        SealAdmission::Same => return Ok(()),
        SealAdmission::Raise => {}
    }
    let group = group.header.id;
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
    let (group, shard) = entry.state().current_tenure(&name, owner, tenure)?;
    match admit(shard, &token(&name, owner, tenure), (sequence, write_id))? {
        // Before any other check: it landed, whatever the limits have become since.
        SequenceAdmission::AlreadyWritten => return Ok(()),
        SequenceAdmission::New => {}
    }
    let (length, total) = fit(entry.state(), group, shard, data.len())?;

    let group = group.header.id;
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

/// Deletes a checkpoint: a write whose content is nothing. The retry of a deletion that landed changes
/// nothing. The fence stays and the sequence is used, so neither an older epoch nor an older write can
/// come back, and a later write is not removed by a deletion that comes late.
pub(super) fn delete(entry: &mut Entry<'_>, command: &DeleteCheckpoint) -> Result<(), Rejection> {
    let DeleteCheckpoint {
        group: ref name,
        owner,
        tenure,
        sequence,
        write_id,
    } = *command;
    let (group, shard) = entry.state().current_tenure(name, owner, tenure)?;
    match admit(shard, &token(name, owner, tenure), (sequence, write_id))? {
        SequenceAdmission::AlreadyWritten => return Ok(()),
        SequenceAdmission::New => {}
    }
    let group = group.header.id;
    let deleted = shard.content();
    let total = entry.state().checkpoint_bytes(group) - shard.checkpoint_bytes();

    set_latest(
        entry,
        group,
        tenure,
        Written {
            epoch: tenure.epoch,
            owner,
            sequence,
            write_id,
            content: None,
        },
    );
    // Where there is nothing, the sequence is all that is taken.
    if deleted.is_some() {
        entry.set_checkpoint_bytes(group, total);
        entry.put_blob(group, tenure.shard, None);
    }
    Ok(())
}

/// Admits a write or deletion by the one rule: first the fence, then the sequence.
fn admit(
    shard: &Shard,
    token: &FencingToken,
    presented: (Sequence, WriteId),
) -> Result<SequenceAdmission, Rejection> {
    admit_write(fence(shard).as_ref(), token).map_err(Rejection::Fence)?;
    admit_sequence(latest_of(shard, token.epoch), presented).map_err(Rejection::Fence)
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

/// The latest write or deletion of an epoch: each epoch starts its sequences afresh.
fn latest_of(shard: &Shard, epoch: Epoch) -> Option<(Sequence, WriteId)> {
    let latest = shard.replicated.as_ref()?.latest.as_ref()?;
    (latest.epoch == epoch).then_some((latest.sequence, latest.write_id))
}

/// The length of a checkpoint, and the bytes of its group once it replaced the one before.
///
/// A checkpoint no longer than the one it replaces always fits into the total, so that a lowered
/// limit stops growth and not work.
fn fit(
    state: &State,
    group: &Group,
    shard: &Shard,
    length: usize,
) -> Result<(u32, u64), Rejection> {
    let policy = &group.header.policy;
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
    let before = state.checkpoint_bytes(group.header.id);
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
