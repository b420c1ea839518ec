//! Who owned a shard from when to when, and why it moved.

use std::sync::Arc;

use tenure_fence::Epoch;
use tenure_ownership::Event;
use tenure_ownership::event::EndCause;
use tenure_ownership::ids::{GroupId, Revision, SessionId, ShardIndex};
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;

use super::part::Fact;
use super::query::{Gap, Happened, Query};
use super::reader::Reader;
use super::{Position, keys};
use crate::consensus::Origin;
use crate::storage::StorageError;

/// Events of a shard that one answer is made of, at most: a tenure has four or five.
const EVENTS_PER_TENURE: usize = 8;

/// How far back is looked for the operator who drained a worker, in events of the whole group.
const REASONS_MAX: usize = 200;

/// A moment of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it is among all that happened.
    pub at: Position,
    /// Milliseconds since 1970 on the proposer's wall clock; 0 if not known.
    pub at_ms: u64,
}

/// One tenure of a shard. What happened before history begins, or in a gap, is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Its epoch.
    pub epoch: Epoch,
    /// The session that held it.
    pub session: SessionId,
    /// Its worker, if that is known.
    pub worker: Option<String>,
    /// When it was granted.
    pub granted: Option<Mark>,
    /// When its owner served; `None` if it never did.
    pub serving: Option<Mark>,
    /// When its owner was asked to stop, and why.
    pub revoked: Option<(Mark, RevokeReason)>,
    /// When and how it ended; `None` if it goes on.
    pub ended: Option<(Mark, EndCause)>,
    /// Who asked for what ended it, and why.
    pub origin: Option<Arc<Origin>>,
    /// It has ended, and nothing is known of how: that lies in a gap.
    pub end_is_unknown: bool,
}

/// The tenures of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardHistory {
    /// The tenures, the newest first.
    pub tenures: Vec<Tenure>,
    /// There are older ones than these.
    pub more: bool,
    /// The first revision whose events are kept on this node.
    pub since: Revision,
    /// Stretches after that of which nothing is known on this node.
    pub gaps: Vec<Gap>,
}

impl Reader<'_> {
    /// Returns the latest tenures of a shard, up to a limit.
    pub(crate) fn tenures(
        &self,
        shard: (GroupId, ShardIndex),
        limit: usize,
    ) -> Result<ShardHistory, StorageError> {
        let query = Query {
            shard: Some(shard),
            newest_first: true,
            limit: limit.saturating_add(1).saturating_mul(EVENTS_PER_TENURE),
            ..Query::default()
        };
        let page = self.page(&query)?;
        let mut tenures = Vec::new();
        for happened in page.events.iter().rev() {
            add(&mut tenures, happened);
        }
        close(&mut tenures);
        tenures.reverse();
        let more = page.next.is_some() || tenures.len() > limit;
        tenures.truncate(limit);
        for tenure in &mut tenures {
            if tenure.origin.is_none() {
                tenure.origin = self.origin_of(shard.0, tenure)?;
            }
        }
        Ok(ShardHistory {
            tenures,
            more,
            since: page.since,
            gaps: page.gaps,
        })
    }

    /// Looks for the operator behind a revocation that the leader made: who drained the worker, or deleted
    /// the group.
    fn origin_of(
        &self,
        group: GroupId,
        tenure: &Tenure,
    ) -> Result<Option<Arc<Origin>>, StorageError> {
        let Some((mark, reason)) = tenure.revoked else {
            return Ok(None);
        };
        let query = Query {
            shard: Some((group, keys::WHOLE_GROUP)),
            from: Some(mark.at),
            newest_first: true,
            limit: REASONS_MAX,
            ..Query::default()
        };
        let is_it = |happened: &Happened| match (&happened.fact, reason) {
            (Fact::Event(Event::WorkerModeSet { worker, mode, .. }), RevokeReason::Draining) => {
                *mode == WorkerMode::Draining && tenure.worker.as_deref() == Some(worker.as_str())
            }
            (Fact::Event(Event::GroupDeleting { .. }), RevokeReason::GroupDeleted) => true,
            _ => false,
        };
        let found = self.page(&query)?.events.into_iter().find(is_it);
        Ok(found.and_then(|happened| happened.envelope.origin))
    }
}

/// Adds what happened next to the tenures, the oldest first.
fn add(tenures: &mut Vec<Tenure>, happened: &Happened) {
    let Fact::Event(event) = &happened.fact else {
        return;
    };
    let mark = Mark {
        at: happened.at,
        at_ms: happened.envelope.at_ms,
    };
    match event {
        Event::Granted { epoch, owner, .. } => {
            of(tenures, *epoch, *owner, happened).granted = Some(mark);
        }
        Event::Serving { epoch, owner, .. } => {
            of(tenures, *epoch, *owner, happened).serving = Some(mark);
        }
        Event::Revoking {
            epoch,
            owner,
            reason,
            ..
        } => {
            let tenure = of(tenures, *epoch, *owner, happened);
            tenure.revoked = Some((mark, *reason));
            tenure.origin.clone_from(&happened.envelope.origin);
        }
        Event::TenureEnded {
            epoch,
            owner,
            cause,
            ..
        } => {
            let tenure = of(tenures, *epoch, *owner, happened);
            tenure.ended = Some((mark, cause.clone()));
            if happened.envelope.origin.is_some() {
                tenure.origin.clone_from(&happened.envelope.origin);
            }
        }
        _ => {}
    }
}

/// Returns the tenure of an epoch: the last one, or a new one.
fn of<'a>(
    tenures: &'a mut Vec<Tenure>,
    epoch: Epoch,
    session: SessionId,
    happened: &Happened,
) -> &'a mut Tenure {
    let known = tenures.iter().rposition(|tenure| tenure.epoch == epoch);
    let index = known.unwrap_or_else(|| {
        tenures.push(Tenure {
            epoch,
            session,
            worker: happened.workers.get(&session).cloned(),
            granted: None,
            serving: None,
            revoked: None,
            ended: None,
            origin: None,
            end_is_unknown: false,
        });
        tenures.len() - 1
    });
    &mut tenures[index]
}

/// A tenure that another followed has ended, whether or not that is known.
fn close(tenures: &mut [Tenure]) {
    let count = tenures.len();
    for tenure in tenures.iter_mut().take(count.saturating_sub(1)) {
        tenure.end_is_unknown = tenure.ended.is_none();
    }
}
