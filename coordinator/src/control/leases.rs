//! Leases of sessions in the leader's memory: who was heard when, and when belief is over.
//!
//! Renewals are not log entries; they live here. Everything is measured on this leader's clock, and
//! nothing here compares it with a worker's. The rules are those of `docs/architecture.md` §3.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::session::Session;

use super::message::StreamId;
use crate::clock::Moment;

/// Smallest group to which the mass-failure guard applies: of two workers, one is always half.
const MASS_FAILURE_GROUP_MIN: usize = 3;

/// The leader's view of one session.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) group: GroupId,
    pub(super) ttl: Duration,
    pub(super) window: Duration,
    /// Arrival of the last heartbeat that may be acknowledged, or the start of this leadership.
    heard_at: Moment,
    /// When the current stream broke; none while one is open, and before the first one.
    broken_at: Option<Moment>,
    /// The stream broke together with most of the group's: silence is measured by the full ttl.
    mass_failure: bool,
    stream: Option<StreamId>,
    /// The highest attempt seen: only its stream counts.
    attempt: u64,
    /// Decisions to end a tenure of this session whose outcome is not known yet. While there is one
    /// the session is neither acknowledged nor resumed: its belief must not grow past the decision.
    undecided: u32,
}

impl Lease {
    fn new(session: &Session, now: Moment) -> Self {
        Self {
            group: session.group,
            ttl: session.ttl,
            window: session.window,
            heard_at: now,
            broken_at: None,
            mass_failure: false,
            stream: None,
            attempt: 0,
            undecided: 0,
        }
    }

    /// When the session may be expired.
    pub(super) fn deadline(&self) -> Moment {
        let silence = self.heard_at + self.ttl;
        match self.broken_at {
            Some(broken_at) if !self.mass_failure => silence.min(broken_at + self.window),
            _ => silence,
        }
    }

    /// When the worker can no longer believe that it owns anything: W after its last heartbeat
    /// arrived. It was sent no later, and the worker counts from there.
    pub(super) fn belief_over_at(&self) -> Moment {
        self.heard_at + self.window
    }

    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    /// Whether this leader has ever heard from the worker.
    pub(super) fn was_attached(&self) -> bool {
        self.attempt > 0
    }

    pub(super) fn is_undecided(&self) -> bool {
        self.undecided > 0
    }

    fn shift(&mut self, gap: Duration) {
        self.heard_at = self.heard_at + gap;
        self.broken_at = self.broken_at.map(|at| at + gap);
    }
}

/// What came of attaching a stream to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attached {
    /// It is the session's stream now; the one it took over from, if any, must be closed.
    Current { superseded: Option<StreamId> },
    /// A stream with a higher attempt was there first.
    Outdated,
    /// An end of the session is on its way.
    Undecided,
}

/// All leases of one leadership.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_session: BTreeMap<SessionId, Lease>,
    by_group: BTreeMap<GroupId, BTreeSet<SessionId>>,
    /// Deadlines in order; each session stands here once, with its deadline.
    queue: BTreeSet<(Moment, SessionId)>,
    /// How many sessions have which window. Asked for the shortest at every heartbeat.
    windows: BTreeMap<Duration, usize>,
}

impl Leases {
    /// Starts a lease with a full fresh ttl.
    pub(super) fn start(&mut self, id: SessionId, session: &Session, now: Moment) {
        if self.by_session.contains_key(&id) {
            return;
        }
        let lease = Lease::new(session, now);
        self.queue.insert((lease.deadline(), id));
        self.by_group.entry(lease.group).or_default().insert(id);
        *self.windows.entry(lease.window).or_default() += 1;
        self.by_session.insert(id, lease);
    }

    /// Forgets a session that has ended.
    pub(super) fn end(&mut self, id: SessionId) -> Option<Lease> {
        let lease = self.by_session.remove(&id)?;
        self.queue.remove(&(lease.deadline(), id));
        if let Some(count) = self.windows.get_mut(&lease.window) {
            *count -= 1;
            if *count == 0 {
                self.windows.remove(&lease.window);
            }
        }
        if let Some(members) = self.by_group.get_mut(&lease.group) {
            members.remove(&id);
            if members.is_empty() {
                self.by_group.remove(&lease.group);
            }
        }
        Some(lease)
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Lease> {
        self.by_session.get(&id)
    }

    /// Makes a stream the session's only one, if its attempt is the highest. The message that opened
    /// it counts as a heartbeat that arrived now.
    pub(super) fn attach(
        &mut self,
        id: SessionId,
        stream: StreamId,
        attempt: u64,
        now: Moment,
    ) -> Attached {
        let Some(lease) = self.by_session.get(&id) else {
            return Attached::Outdated;
        };
        if lease.is_undecided() {
            return Attached::Undecided;
        }
        if attempt <= lease.attempt {
            return Attached::Outdated;
        }
        let superseded = lease.stream;
        self.update(id, |lease| {
            lease.attempt = attempt;
            lease.stream = Some(stream);
            lease.heard_at = now;
            lease.broken_at = None;
            lease.mass_failure = false;
        });
        Attached::Current { superseded }
    }

    /// Notes a heartbeat. Returns whether it counts: only on the current stream, and not while an end
    /// of the session is on its way.
    pub(super) fn heard(&mut self, id: SessionId, stream: StreamId, now: Moment) -> bool {
        let counts = self
            .by_session
            .get(&id)
            .is_some_and(|lease| lease.stream == Some(stream) && !lease.is_undecided());
        if counts {
            self.update(id, |lease| lease.heard_at = now);
        }
        counts
    }

    /// Notes that a stream broke. A break of any stream but the current one means nothing.
    ///
    /// When more than half of the group's sessions break within one grace, the likelier cause is the
    /// network or this coordinator: all of those get the full ttl. Returns whether that is so now.
    pub(super) fn broke(&mut self, id: SessionId, stream: StreamId, now: Moment) -> bool {
        let Some(lease) = self
            .by_session
            .get(&id)
            .filter(|lease| lease.stream == Some(stream))
        else {
            return false;
        };
        let group = lease.group;
        self.detach(id, stream, now);
        let members = self.by_group.get(&group).cloned().unwrap_or_default();
        let broken: Vec<SessionId> = members
            .iter()
            .copied()
            .filter(|member| self.broke_within_grace(*member, now))
            .collect();
        if members.len() < MASS_FAILURE_GROUP_MIN || broken.len() * 2 <= members.len() {
            return false;
        }
        for member in broken {
            self.update(member, |lease| lease.mass_failure = true);
        }
        true
    }

    /// Takes the session's current stream from it.
    pub(super) fn detach(&mut self, id: SessionId, stream: StreamId, now: Moment) {
        if self
            .by_session
            .get(&id)
            .is_some_and(|lease| lease.stream == Some(stream))
        {
            self.update(id, |lease| {
                lease.stream = None;
                lease.broken_at = Some(now);
            });
        }
    }

    fn broke_within_grace(&self, id: SessionId, now: Moment) -> bool {
        self.by_session.get(&id).is_some_and(|lease| {
            lease
                .broken_at
                .is_some_and(|broken_at| now.since(broken_at) <= lease.window)
        })
    }

    /// Notes that an end of a tenure of the session was decided on and is not known to have happened.
    pub(super) fn hold(&mut self, id: SessionId) {
        self.update(id, |lease| lease.undecided += 1);
    }

    /// Takes one [`Leases::hold`] back.
    pub(super) fn release(&mut self, id: SessionId) {
        self.update(id, |lease| {
            lease.undecided = lease.undecided.saturating_sub(1)
        });
    }

    /// Sessions whose deadline has passed and whose end was not decided on already.
    pub(super) fn overdue(&self, now: Moment) -> Vec<SessionId> {
        self.queue
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .filter(|(_, id)| {
                self.by_session
                    .get(id)
                    .is_some_and(|lease| !lease.is_undecided())
            })
            .map(|(_, id)| *id)
            .collect()
    }

    /// The next deadline of any session.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        // A held session's deadline passes without a decision; it must not make the leader spin.
        let open = |id: &SessionId| {
            self.by_session
                .get(id)
                .is_some_and(|lease| !lease.is_undecided())
        };
        self.queue
            .iter()
            .find(|(_, id)| open(id))
            .map(|(deadline, _)| *deadline)
    }

    /// Moves every deadline by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for lease in self.by_session.values_mut() {
            lease.shift(gap);
        }
        self.queue = self
            .by_session
            .iter()
            .map(|(id, lease)| (lease.deadline(), *id))
            .collect();
    }

    /// The shortest belief window in use.
    pub(super) fn window_min(&self) -> Option<Duration> {
        self.windows.keys().next().copied()
    }

    pub(super) fn of_group(&self, group: GroupId) -> impl Iterator<Item = (SessionId, &Lease)> {
        let members = self.by_group.get(&group).into_iter().flatten();
        members.filter_map(|id| Some((*id, self.by_session.get(id)?)))
    }

    /// Whether a mass failure of the group is not over: a session of it has neither resumed nor ended.
    pub(super) fn in_mass_failure(&self, group: GroupId) -> bool {
        self.of_group(group).any(|(_, lease)| lease.mass_failure)
    }

    /// Changes a lease and keeps the queue of deadlines in step.
    fn update(&mut self, id: SessionId, change: impl FnOnce(&mut Lease)) {
        let Some(lease) = self.by_session.get_mut(&id) else {
            return;
        };
        let before = lease.deadline();
        change(lease);
        let after = lease.deadline();
        if before != after {
            self.queue.remove(&(before, id));
            self.queue.insert((after, id));
        }
    }
}
