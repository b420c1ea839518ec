//! Applying commands: dispatch only. The rules are in the modules below, one per subject.

use crate::command::Command;
use crate::event::Event;
use crate::ids::{Revision, ShardIndex};
use crate::record::RecordWrite;
use crate::rejection::Rejection;
use crate::state::State;

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Facts in order; empty if the command repeated what was so already.
    pub events: Vec<Event>,
    /// Shards of the command for which it came too late; the others were changed.
    pub refused: Vec<(ShardIndex, Rejection)>,
}

/// The outcome of a command and what to write to disk for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The effect, or why the whole command was refused. A refused command changed nothing (P10).
    pub outcome: Result<Effect, Rejection>,
    /// The records touched, and blobs. Empty for a refused command.
    pub writes: Vec<RecordWrite>,
}

/// Applies one command at its log index: the sole function that changes a [`State`].
///
/// `revision` must be above that of every command applied before.
pub fn apply(state: &mut State, revision: Revision, command: Command) -> Applied {
    assert!(
        revision > state.revision,
        "revision {revision} is not above {}",
        state.revision
    );
    let _ = command;
    Applied {
        outcome: Err(Rejection::NotInitialized),
        writes: state.take_writes(),
    }
}
