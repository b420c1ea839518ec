//! Leases of sessions in the leader's memory: who was heard when, and when belief is over.
//!
//! Renewals are not log entries; they live here. Everything is measured on this leader's clock, and
//! nothing here compares it with a worker's. The rules are those of `docs/architecture.md` §3.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::session::Session;

use super::message::StreamId;
use crate::clock::Moment;

/// Smallest group to which the mass-failure guard applies: of two workers, one is always half.
const MASS_FAILURE_GROUP_MIN: usize = 3;

/// The leader's view of one session.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) group: GroupId,
    /// Kept here because the session may have ended by the time that its last events are looked at.
    pub(super) worker: WorkerName,
    pub(super) ttl: Duration,
    pub(super) window: Duration,
    /// Arrival of the last heartbeat that may be acknowledged, or the start of this leadership:
    /// belief counts from here.
    heard_at: Moment,
    /// The last sign of life, also one that may not be acknowledged: silence counts from here.
    alive_at: Moment,
    /// When the current stream broke; none while one is open, and before the first one.
    broken_at: Option<Moment>,
    /// The stream broke in a mass failure of the group: only silence counts.
    mass_failure: bool,
    stream: Option<StreamId>,
    /// The worker has said that it stops. Known to this leader alone: the worker says it on every stream.
    stopping: bool,
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
            worker: session.worker.clone(),
            ttl: session.ttl,
            window: session.window,
            heard_at: now,
            alive_at: now,
            broken_at: None,
            mass_failure: false,
            stream: None,
            stopping: false,
            attempt: 0,
            undecided: 0,
        }
    }

    /// When the session may be expired.
    fn deadline(&self) -> Moment {
        let silence = self.alive_at + self.ttl;
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

    /// Whether the worker stops: it is to be emptied, and takes nothing.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
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
        self.alive_at = self.alive_at + gap;
        self.broken_at = self.broken_at.map(|at| at + gap);
    }
}

/// The sessions of one group.
#[derive(Debug, Default)]
struct Members {
    all: BTreeSet<SessionId>,
    /// Those whose stream broke and that have neither resumed nor ended.
    broken: BTreeSet<SessionId>,
    /// More than half broke within one grace. It is over when each has resumed or ended.
    mass_failure: bool,
}

impl Members {
    fn mended(&mut self, id: SessionId) {
        self.broken.remove(&id);
        if self.broken.is_empty() {
            self.mass_failure = false;
        }
    }

    /// Whether so many are broken that the network or this coordinator is the likelier cause. Outside
    /// of a mass failure a broken session ends after its grace, so these all broke within about one.
    fn is_mass_failure(&self) -> bool {
        self.all.len() >= MASS_FAILURE_GROUP_MIN && self.broken.len() * 2 > self.all.len()
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
    by_group: BTreeMap<GroupId, Members>,
    /// Deadlines in order. A session stands here with its deadline, unless it is held.
    queue: BTreeSet<(Moment, SessionId)>,
    /// How many sessions have which window. Asked for the shortest at every heartbeat.
    windows: BTreeMap<Duration, usize>,
    /// Nobody is overdue before this: ends could not be proposed.
    pause: Option<Moment>,
}

impl Leases {
    /// Starts a lease with a full fresh ttl.
    pub(super) fn start(&mut self, id: SessionId, session: &Session, now: Moment) {
        if self.by_session.contains_key(&id) {
            return;
        }
        let lease = Lease::new(session, now);
        self.queue.insert((lease.deadline(), id));
        self.by_group.entry(lease.group).or_default().all.insert(id);
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
            members.all.remove(&id);
            members.mended(id);
            if members.all.is_empty() {
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
        if attempt <= lease.attempt {
            return Attached::Outdated;
        }
        if lease.is_undecided() {
            self.update(id, |lease| lease.alive_at = now);
            return Attached::Undecided;
        }
        let (superseded, group) = (lease.stream, lease.group);
        self.update(id, |lease| {
            lease.attempt = attempt;
            lease.stream = Some(stream);
            lease.heard_at = now;
            lease.alive_at = now;
            lease.broken_at = None;
            lease.mass_failure = false;
        });
        if let Some(members) = self.by_group.get_mut(&group) {
            members.mended(id);
        }
        Attached::Current { superseded }
    }

    /// Notes a heartbeat. Returns whether it may be acknowledged: only on the current stream, and not
    /// while an end of a tenure of the session is on its way.
    pub(super) fn heard(&mut self, id: SessionId, stream: StreamId, now: Moment) -> bool {
        let Some(lease) = self
            .by_session
            .get(&id)
            .filter(|lease| lease.stream == Some(stream))
        else {
            return false;
        };
        let counts = !lease.is_undecided();
        self.update(id, |lease| {
            lease.alive_at = now;
            if counts {
                lease.heard_at = now;
            }
        });
        counts
    }

    /// Notes that the worker of a session stops.
    pub(super) fn stopping(&mut self, id: SessionId) {
        self.update(id, |lease| lease.stopping = true);
    }

    /// Notes that a stream broke. A break of any stream but the current one means nothing.
    ///
    /// When more than half of the group's sessions break within one grace, the likelier cause is the
    /// network or this coordinator: until each of those has resumed or ended, silence alone ends a
    /// session of the group. Returns whether that began now.
    pub(super) fn broke(&mut self, id: SessionId, stream: StreamId, now: Moment) -> bool {
        if !self.detach(id, stream, now) {
            return false;
        }
        let Some(group) = self.by_session.get(&id).map(|lease| lease.group) else {
            return false;
        };
        let Some(members) = self.by_group.get_mut(&group) else {
            return false;
        };
        if members.mass_failure || !members.is_mass_failure() {
            return false;
        }
        members.mass_failure = true;
        for member in members.broken.clone() {
            self.update(member, |lease| lease.mass_failure = true);
        }
        true
    }

    /// Takes the session's current stream from it. Returns whether it was that.
    pub(super) fn detach(&mut self, id: SessionId, stream: StreamId, now: Moment) -> bool {
        let Some(lease) = self
            .by_session
            .get(&id)
            .filter(|lease| lease.stream == Some(stream))
        else {
            return false;
        };
        let members = self.by_group.entry(lease.group).or_default();
        members.broken.insert(id);
        let mass_failure = members.mass_failure;
        self.update(id, |lease| {
            lease.stream = None;
            lease.broken_at = Some(now);
            lease.mass_failure = mass_failure;
        });
        true
    }

    /// Notes that an end of a tenure of the session was decided on and is not known to have happened.
    pub(super) fn hold(&mut self, id: SessionId) {
        self.update(id, |lease| lease.undecided += 1);
    }

    /// Takes one [`Leases::hold`] back. A worker that was turned away meanwhile gets its grace anew.
    pub(super) fn release(&mut self, id: SessionId, now: Moment) {
        self.update(id, |lease| {
            lease.undecided = lease.undecided.saturating_sub(1);
            if lease.undecided == 0 && lease.broken_at.is_some() {
                lease.broken_at = Some(now);
            }
        });
    }

    /// Sessions whose deadline has passed and whose end was not decided on already.
    pub(super) fn overdue(&mut self, now: Moment) -> Vec<SessionId> {
        if self.pause.is_some_and(|until| until > now) {
            return Vec::new();
        }
        self.pause = None;
        self.queue
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| *id)
            .collect()
    }

    /// Lets nobody be overdue for a while: ends cannot be proposed now.
    pub(super) fn pause_until(&mut self, until: Moment) {
        self.pause = Some(until);
    }

    /// The next deadline of any session whose end was not decided on already.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let deadline = self.queue.first().map(|(deadline, _)| *deadline);
        deadline.map(|deadline| self.pause.map_or(deadline, |until| deadline.max(until)))
    }

    /// Moves every deadline by the time this process was stopped.
    pub(super) fn shift(&mut self, gap: Duration) {
        for lease in self.by_session.values_mut() {
            lease.shift(gap);
        }
        self.queue = self
            .by_session
            .iter()
            .filter(|(_, lease)| !lease.is_undecided())
            .map(|(id, lease)| (lease.deadline(), *id))
            .collect();
    }

    /// The shortest belief window in use.
    pub(super) fn window_min(&self) -> Option<Duration> {
        self.windows.keys().next().copied()
    }

    pub(super) fn of_group(&self, group: GroupId) -> impl Iterator<Item = (SessionId, &Lease)> {
        let members = self.by_group.get(&group);
        let ids = members.into_iter().flat_map(|members| &members.all);
        ids.filter_map(|id| Some((*id, self.by_session.get(id)?)))
    }

    /// Whether a mass failure of the group is not over.
    pub(super) fn in_mass_failure(&self, group: GroupId) -> bool {
        self.by_group
            .get(&group)
            .is_some_and(|members| members.mass_failure)
    }

    /// Changes a lease and keeps the queue of deadlines in step.
    fn update(&mut self, id: SessionId, change: impl FnOnce(&mut Lease)) {
        let Some(lease) = self.by_session.get_mut(&id) else {
            return;
        };
        let queued = |lease: &Lease| (!lease.is_undecided()).then(|| lease.deadline());
        let before = queued(lease);
        change(lease);
        let after = queued(lease);
        if before != after {
            self.queue.extend(after.map(|deadline| (deadline, id)));
            if let Some(before) = before {
                self.queue.remove(&(before, id));
            }
        }
    }
}
