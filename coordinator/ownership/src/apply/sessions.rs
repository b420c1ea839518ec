//! Sessions: how they begin and end.

use super::entry::{Entry, active_group};
use super::tenures::{self, Ending};
use crate::command::Register;
use crate::event::{EndCause, Event};
use crate::group::{Group, GroupHeader};
use crate::ids::{SessionId, WorkerName};
use crate::policy::bounds;
use crate::quota;
use crate::rejection::Rejection;
use crate::session::{self, Session, SessionEnd};
use crate::state::State;

/// Registers a worker process, and ends the session of the process it replaces.
pub(super) fn register(entry: &mut Entry<'_>, command: Register) -> Result<(), Rejection> {
    let found = active_group(entry.state(), &command.group)?;
    judge_holder(entry.state(), found, &command)?;
    check_bounds(&command)?;
    require_room(found, &command.worker)?;

    let group = found.header.id;
    let id = SessionId(entry.revision().0);
    let (worker, replaces) = (command.worker.clone(), command.replaces);
    let session = new_session(id, &found.header, command);
    // Out of its worker's record before the new one goes in.
    let old = replaces.and_then(|old| Some((old, entry.remove_session(old)?)));
    entry.insert_session(id, session);
    if let Some((old, _)) = &old {
        entry.record(Event::SessionEnded {
            group,
            worker: worker.clone(),
            session: *old,
            end: SessionEnd::Replaced,
        });
    }
    // Before the grants of a restart in place, so that nobody hears of a grant to an unknown session.
    entry.record(Event::Registered {
        group,
        worker,
        session: id,
    });
    if let Some((old_id, old)) = old {
        end_tenures(entry, old_id, &old, SessionEnd::Replaced, Some(id));
    }
    Ok(())
}

/// Decides who may have a worker's name, from the most telling reason to the least.
fn judge_holder(state: &State, group: &Group, command: &Register) -> Result<(), Rejection> {
    let worker = group.workers.get(&command.worker);
    let holder = worker.and_then(|worker| worker.session);
    let Some(by) = holder else {
        return require_holder(None, command.replaces);
    };
    let live = state.session(by);
    if live.is_some_and(|session| session.nonce == command.nonce) {
        return Err(Rejection::AlreadyRegistered { session: by });
    }
    if live.is_some_and(|session| session.is_newer_than(command.first)) {
        return Err(Rejection::Replaced { by });
    }
    require_holder(Some(by), command.replaces)
}

/// The proposer waited for the belief of the session it saw to end, not of any other.
fn require_holder(holder: Option<SessionId>, expected: Option<SessionId>) -> Result<(), Rejection> {
    if holder == expected {
        return Ok(());
    }
    Err(Rejection::HolderChanged { holder, expected })
}

fn check_bounds(command: &Register) -> Result<(), Rejection> {
    let out = |field, allowed| Err(Rejection::OutOfBounds { field, allowed });
    if !session::WEIGHT.contains(&command.weight) {
        let (least, most) = session::WEIGHT.into_inner();
        return out("weight", format!("{least} to {most}"));
    }
    if command.ttl.is_some_and(|ttl| !bounds::TTL.contains(&ttl)) {
        let (least, most) = bounds::TTL.into_inner();
        return out("ttl", format!("{least:?} to {most:?}"));
    }
    if command.address.len() > session::ADDRESS_BYTES_MAX {
        return out(
            "address",
            format!("at most {} bytes", session::ADDRESS_BYTES_MAX),
        );
    }
    if command.labels.len() > session::LABELS_MAX {
        return out("labels", format!("at most {}", session::LABELS_MAX));
    }
    let fits = |key: &String, value: &String| {
        session::LABEL_KEY_BYTES.contains(&key.len()) && value.len() <= session::LABEL_BYTES_MAX
    };
    if !command.labels.iter().all(|(key, value)| fits(key, value)) {
        let (least, most) = session::LABEL_KEY_BYTES.into_inner();
        let longest = session::LABEL_BYTES_MAX;
        let allowed = format!("keys of {least} to {most} and values of at most {longest} bytes");
        return out("labels", allowed);
    }
    Ok(())
}

/// Refuses a new worker name above the quota; a known name takes no more room.
pub(super) fn require_room(group: &Group, worker: &WorkerName) -> Result<(), Rejection> {
    let full = group.workers.len() >= quota::WORKERS_PER_GROUP_MAX;
    if full && !group.workers.contains_key(worker) {
        return Err(Rejection::TooMany {
            what: "workers of a group",
            limit: quota::WORKERS_PER_GROUP_MAX as u64,
        });
    }
    Ok(())
}

/// The session of a registration. Its times are fixed for its life: `W = min(ttl, disconnect_grace)`.
fn new_session(id: SessionId, header: &GroupHeader, command: Register) -> Session {
    let ttl = command.ttl.unwrap_or(header.policy.ttl);
    Session {
        group: header.id,
        worker: command.worker,
        nonce: command.nonce,
        ttl,
        window: ttl.min(header.policy.disconnect_grace),
        weight: command.weight,
        labels: command.labels,
        address: command.address,
        first: command.first.map_or(id, |first| first.min(id)),
    }
}

/// Ends sessions that were silent for too long. Those that have ended already are passed over; when
/// that is all of them, the command is refused.
pub(super) fn expire(entry: &mut Entry<'_>, sessions: &[SessionId]) -> Result<(), Rejection> {
    let mut ended = Vec::with_capacity(sessions.len());
    // All of them before the first tenure ends: no shard goes on to a session that ends as well.
    for id in sessions {
        if let Some(session) = entry.remove_session(*id) {
            ended.push((*id, session));
        }
    }
    if let (true, Some(session)) = (ended.is_empty(), sessions.first()) {
        return Err(Rejection::SessionEnded { session: *session });
    }
    for (id, session) in &ended {
        end_session(entry, *id, session, SessionEnd::Expired);
    }
    Ok(())
}

/// Ends the session of a worker that stops. The worker has given up its shards, so the ends are clean.
pub(super) fn leave(entry: &mut Entry<'_>, id: SessionId) -> Result<(), Rejection> {
    let Some(session) = entry.remove_session(id) else {
        return Err(Rejection::SessionEnded { session: id });
    };
    end_session(entry, id, &session, SessionEnd::Left);
    Ok(())
}

/// Says that a session, which is no longer among the live ones, has ended, and ends its tenures.
pub(super) fn end_session(
    entry: &mut Entry<'_>,
    id: SessionId,
    session: &Session,
    end: SessionEnd,
) {
    entry.record(Event::SessionEnded {
        group: session.group,
        worker: session.worker.clone(),
        session: id,
        end,
    });
    end_tenures(entry, id, session, end, None);
}

fn end_tenures(
    entry: &mut Entry<'_>,
    id: SessionId,
    session: &Session,
    end: SessionEnd,
    heir: Option<SessionId>,
) {
    let owned: Vec<_> = entry.state().owned(id).collect();
    for shard in owned {
        let Some(held) = tenures::held(entry.state(), session.group, shard) else {
            unreachable!("shard {shard} is owned by session {id} in the index alone");
        };
        let ending = Ending {
            worker: &session.worker,
            cause: EndCause::SessionEnded(end),
            clean: end == SessionEnd::Left,
            heir,
        };
        tenures::end(entry, held, ending);
    }
    entry.forget_owned(id);
}
