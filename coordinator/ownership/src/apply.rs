//! Applying commands: dispatch only. The rules are in the modules below, one per subject.

mod checkpoints;
mod cluster;
mod entry;
mod groups;
mod handoff;
mod modes;
mod placing;
mod release;
mod restore;
mod sessions;
mod tenures;

use crate::command::Command;
use crate::event::Event;
use crate::ids::{Revision, ShardIndex};
use crate::record::RecordWrite;
use crate::rejection::Rejection;
use crate::state::State;
use entry::Entry;

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Facts in order; empty if the command repeated what was so already. Seals and checkpoints
    /// have none: watchers follow owners, not data.
    pub events: Vec<Event>,
    /// Shards of the command for which it came too late, in the order of the command; the others
    /// were changed. A command all of whose shards are refused is a success without events: it was
    /// judged, and it did nothing.
    pub refused: Vec<(ShardIndex, Rejection)>,
}

/// The outcome of a command and what to write to disk for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The effect, or why the whole command was refused. A refused command changed nothing (P10).
    pub outcome: Result<Effect, Rejection>,
    /// The records touched, and blobs. Empty for a command that changed nothing.
    pub writes: Vec<RecordWrite>,
}

/// Applies one command at its log index: the sole function that changes a [`State`].
///
/// The revision of the state becomes `revision` if the command changed anything, and stays otherwise.
///
/// # Panics
/// If `revision` is not above the state's, or if a rule has broken its own promise (a refused command
/// that changed something). A node must stop rather than go on from a state the others may not have.
pub fn apply(state: &mut State, revision: Revision, command: Command) -> Applied {
    assert!(
        revision > state.revision,
        "revision {revision} is not above {}",
        state.revision
    );
    assert!(
        state.touched.is_empty(),
        "the command before revision {revision} left changes behind"
    );
    let mut entry = Entry::new(state, revision);
    let judged = dispatch(&mut entry, command);
    let effect = entry.into_effect();
    let unchanged = state.touched.is_empty();
    let outcome = match judged {
        Ok(()) => {
            assert!(
                !unchanged || effect.events.is_empty(),
                "events at revision {revision} without a change"
            );
            Ok(effect)
        }
        Err(rejection) => {
            assert!(
                unchanged && effect.events.is_empty(),
                "the command refused at revision {revision} changed the state: {rejection}"
            );
            Err(rejection)
        }
    };
    if !unchanged {
        state.advance(revision);
    }
    Applied {
        outcome,
        writes: state.take_writes(),
    }
}

fn dispatch(entry: &mut Entry<'_>, command: Command) -> Result<(), Rejection> {
    let initialized = entry.state().cluster().is_some();
    if !initialized && !matches!(command, Command::InitCluster(_)) {
        return Err(Rejection::NotInitialized);
    }
    match command {
        Command::InitCluster(cluster) => cluster::init(entry, cluster),
        Command::EnableFeature(feature) => cluster::enable(entry, feature),
        Command::Restore(command) => restore::restore(entry, command),
        Command::Settle(restored_at) => restore::settle(entry, restored_at),
        Command::CreateGroup(command) => groups::create(entry, command),
        Command::SetPolicy(command) => groups::set_policy(entry, command),
        Command::DeleteGroup(name) => groups::delete(entry, &name),
        Command::RemoveGroup(group) => groups::remove(entry, group),
        Command::Register(command) => sessions::register(entry, *command),
        Command::Expire(sessions) => sessions::expire(entry, &sessions),
        Command::Leave(session) => sessions::leave(entry, session),
        Command::SetWorkerMode(command) => modes::set_worker_mode(entry, command),
        Command::EndPause(command) => modes::end_pause(entry, command),
        Command::SetFreeze(command) => groups::set_freeze(entry, command),
        Command::Assign(command) => handoff::assign(entry, command),
        Command::Ready(command) => handoff::ready(entry, &command),
        Command::Release(command) => release::release(entry, command),
        Command::Force(command) => release::force(entry, &command),
        Command::Seal(command) => checkpoints::seal(entry, &command),
        Command::WriteCheckpoint(command) => checkpoints::write(entry, command),
        Command::DeleteCheckpoint(command) => checkpoints::delete(entry, &command),
        Command::PinShard(command) => placing::pin(entry, command),
        Command::UnpinShard(command) => placing::unpin(entry, &command),
        Command::Quarantine(command) => placing::quarantine(entry, command),
        Command::RetryShard(command) => placing::retry(entry, &command),
    }
}
