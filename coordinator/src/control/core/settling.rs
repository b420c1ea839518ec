//! The wait after a restore from a backup.
//!
//! The sessions of the backup have ended in the state. The processes that had them do not know yet: one
//! that is cut off may believe in its shards until its ttl is over. A node of the old cluster may have
//! acknowledged it until it was stopped, which was before this leader accepted streams. So the longest
//! ttl is counted from there, in full by every leader.

use std::time::Duration;

use tenure_ownership::Command;
use tenure_ownership::State;
use tenure_ownership::ids::Revision;
use tenure_ownership::restored::Restored;

use super::Awaited;
use super::Core;
use super::Decision;
use crate::clock::Moment;

/// Pause before the end of the wait is proposed again.
const RETRY: Duration = Duration::from_millis(100);

/// When a restored cluster may grant shards.
#[derive(Debug)]
pub(super) struct Settling {
    restored_at: Revision,
    over_at: Moment,
    /// The end of the wait is proposed.
    proposed: bool,
}

impl Settling {
    /// Begins the wait.
    pub(super) fn new(restored: Restored, now: Moment) -> Self {
        tracing::warn!(
            from = %restored.from,
            quiet_ms = restored.quiet.as_millis(),
            "this cluster was restored from a backup: nothing is granted until workers of before must \
             have stopped"
        );
        Self {
            restored_at: restored.at,
            over_at: now + restored.quiet,
            proposed: false,
        }
    }

    /// When something is to be done; `None` while a decision is awaited.
    pub(super) fn due_at(&self) -> Option<Moment> {
        (!self.proposed).then_some(self.over_at)
    }

    /// Moves the end of the wait by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        self.over_at = self.over_at + gap;
    }
}

impl Core {
    /// Proposes the end of the wait when it is over.
    pub(super) fn settle(&mut self, now: Moment) {
        let Some(settling) = &mut self.settling else {
            return;
        };
        if settling.due_at().is_none_or(|due| now < due) {
            return;
        }
        settling.proposed = true;
        let command = Command::Settle(settling.restored_at);
        self.propose(command, Awaited::Settlement);
    }

    /// After an unknown outcome it is proposed again, which changes nothing if it was applied.
    pub(super) fn settlement_decided(&mut self, now: Moment, decision: &Decision, state: &State) {
        if matches!(decision, Decision::Applied(..)) {
            self.settling = None;
            tracing::info!("the wait after the restore is over, shards are granted");
            for group in state.groups() {
                self.planning.touch(group.header.id);
            }
            return;
        }
        if let Some(settling) = &mut self.settling {
            settling.over_at = now + RETRY;
            settling.proposed = false;
        }
    }
}
