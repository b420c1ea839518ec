//! Names of the groups and workers in events, which know only numbers. They are looked up when the events
//! happen: later the session has ended, or the group is gone.

use std::collections::BTreeMap;

use tenure_fence::GroupName;
use tenure_ownership::ids::{GroupId, SessionId, WorkerName};
use tenure_ownership::{Event, State};

/// Names for the events of one entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    groups: BTreeMap<GroupId, GroupName>,
    workers: BTreeMap<SessionId, WorkerName>,
}

impl Names {
    /// Looks names up in the events, and in the state after them.
    pub(crate) fn of(events: &[Event], state: &State) -> Self {
        let mut names = Self::default();
        for event in events {
            names.learn(event);
        }
        for event in events {
            let subject = event.subject();
            if let Some(id) = subject.group
                && let Some(group) = state.group(id)
            {
                names
                    .groups
                    .entry(id)
                    .or_insert_with(|| group.header.name.clone());
            }
            for id in subject.sessions.into_iter().flatten() {
                if names.workers.contains_key(&id) {
                    continue;
                }
                if let Some(session) = state.session(id) {
                    names.workers.insert(id, session.worker.clone());
                }
            }
        }
        names
    }

    /// Learns what an event names itself: what has ended is not in the state any more.
    fn learn(&mut self, event: &Event) {
        if let Event::GroupRemoved { group, name } = event {
            self.groups.insert(*group, name.clone());
        }
        let subject = event.subject();
        if let ([Some(session), _], Some(worker)) = (subject.sessions, subject.worker) {
            self.workers.insert(session, worker.clone());
        }
    }

    pub(super) fn group(&self, id: GroupId) -> Option<&str> {
        self.groups.get(&id).map(GroupName::as_str)
    }

    pub(super) fn worker(&self, id: SessionId) -> Option<&str> {
        self.workers.get(&id).map(WorkerName::as_str)
    }
}
