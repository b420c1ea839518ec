//! What is asked of the history, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_fence::GroupName;
use tenure_ownership::ids::{GroupId, Revision, SessionId, ShardIndex, WorkerName};

use super::part::Fact;
use super::{Position, keys};
use crate::consensus::Envelope;

/// Which events, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only of groups of that name, in whatever life of theirs.
    pub group: Option<GroupName>,
    /// Only of that shard, in that life of its group.
    pub shard: Option<(GroupId, ShardIndex)>,
    /// Only about a worker of that name: its sessions and its tenures.
    pub worker: Option<WorkerName>,
    /// Only of these kinds; empty for all.
    pub kinds: Vec<String>,
    /// Only what somebody asked for.
    pub asked_for: bool,
    /// Only from this time on, in milliseconds since 1970; 0 for all.
    pub since_ms: u64,
    /// Where to go on: events before it if the newest come first, after it otherwise.
    pub from: Option<Position>,
    /// The newest first.
    pub newest_first: bool,
    /// Most events of an answer, at least 1.
    pub limit: usize,
}

/// Events, and what is known at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The events, in the order that was asked for.
    pub events: Vec<Happened>,
    /// Where to go on; `None` if there is no more.
    pub next: Option<Position>,
    /// The first revision whose events are kept on this node.
    pub since: Revision,
    /// Stretches after that of which nothing is known on this node.
    pub gaps: Vec<Gap>,
}

/// A stretch of which nothing is known: the state was replaced by a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last revision before it.
    pub after: Revision,
    /// The last revision in it.
    pub until: Revision,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Where it is among all that happened.
    pub at: Position,
    /// When it was proposed, by whom and why.
    pub envelope: Envelope,
    /// Name of its group; `None` for what is of the cluster.
    pub group: Option<String>,
    /// What happened.
    pub fact: Fact,
    /// Names of the workers whose sessions it names.
    pub workers: Arc<BTreeMap<SessionId, String>>,
}

impl Fact {
    /// Name of its kind, as operators write it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Event(event) => event.subject().kind,
            Self::Operation(_) => "operation",
            Self::Members(_) => "members-changed",
            Self::Unknown => "unknown",
        }
    }
}

impl Happened {
    /// Tells whether it is asked for.
    pub(super) fn is_wanted(&self, query: &Query) -> bool {
        self.envelope.at_ms >= query.since_ms
            && (!query.asked_for || self.envelope.origin.is_some())
            && (query.kinds.is_empty() || query.kinds.iter().any(|kind| kind == self.fact.kind()))
            && self.is_of(query)
    }

    fn is_of(&self, query: &Query) -> bool {
        let Fact::Event(event) = &self.fact else {
            return query.group.is_none() && query.shard.is_none() && query.worker.is_none();
        };
        let subject = event.subject();
        if let Some(name) = &query.group
            && self.group.as_deref() != Some(name.as_str())
        {
            return false;
        }
        if let Some((group, shard)) = query.shard {
            let filed_under = subject.shard.unwrap_or(keys::WHOLE_GROUP);
            if subject.group != Some(group) || filed_under != shard {
                return false;
            }
        }
        query.worker.as_ref().is_none_or(|name| {
            let mut sessions = subject.sessions.into_iter().flatten();
            subject.worker == Some(name)
                || sessions.any(|session| {
                    self.workers.get(&session).map(String::as_str) == Some(name.as_str())
                })
        })
    }
}
