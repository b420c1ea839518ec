//! The result: a plan, and its form as commands.

use std::collections::BTreeSet;

use crate::command::{Assign, Command, Grant, Revoke};
use crate::ids::{GroupId, SessionId};
use crate::planner::report::Report;

/// The moves of one group. A plain value: nothing has happened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The group planned for.
    pub group: GroupId,
    /// Unowned shards to give away, in order of the shard.
    pub grants: Vec<Grant>,
    /// Owned shards to ask back, the most urgent first.
    pub revokes: Vec<Revoke>,
    /// Sessions of workers that stop and keep shards which nobody else takes: they need not wait.
    pub stranded: BTreeSet<SessionId>,
    /// What was not done, and why.
    pub report: Report,
}

impl Plan {
    pub(super) fn without_moves(group: GroupId, report: Report) -> Self {
        Self {
            group,
            grants: Vec::new(),
            revokes: Vec::new(),
            stranded: BTreeSet::new(),
            report,
        }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.revokes.is_empty()
    }

    /// The plan as commands of at most `moves_max` moves each (at least one), grants first: they
    /// bring back shards that nobody serves.
    pub fn into_commands(self, moves_max: usize) -> impl Iterator<Item = Command> {
        let group = self.group;
        let mut grants = self.grants.into_iter();
        let mut revokes = self.revokes.into_iter();
        std::iter::from_fn(move || {
            let moves_max = moves_max.max(1);
            let grants: Vec<Grant> = grants.by_ref().take(moves_max).collect();
            let revokes: Vec<Revoke> = revokes.by_ref().take(moves_max - grants.len()).collect();
            let any = !grants.is_empty() || !revokes.is_empty();
            any.then(|| {
                Command::Assign(Assign {
                    group,
                    grants,
                    revokes,
                })
            })
        })
    }
}
