//! What workers say on their streams.

use std::collections::BTreeSet;

use tenure_ownership::Command;
use tenure_ownership::State;
use tenure_ownership::command::Ready;
use tenure_ownership::command::Release;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;

use super::super::message::StreamId;
use super::super::message::Up;
use super::super::rounds::Waiting;
use super::Awaited;
use super::Core;
use crate::clock::Moment;
use crate::metrics as names;

impl Core {
    pub(super) fn message(&mut self, now: Moment, stream: StreamId, up: Up, state: &State) {
        // A stream that was closed, superseded or has no session yet has nothing to say.
        let Some(session) = self.streams.get(stream).map(|stream| stream.session) else {
            return;
        };
        match up {
            Up::Heartbeat { sequence, loads } => {
                metrics::counter!(names::HEARTBEATS).increment(1);
                self.take_loads(now, session, &loads, state);
                if self.leases.heard(session, stream, now) {
                    self.rounds.add(session, Waiting { stream, sequence });
                }
            }
            Up::Holding { set, tenures } => self.holding(stream, session, set, &tenures, state),
            Up::Ready { tenures, stores } => {
                let ready = Ready {
                    session,
                    stores,
                    tenures,
                };
                self.report(stream, Command::Ready(ready));
            }
            Up::Released(releases) => self.release(stream, session, releases),
            Up::Stopping => self.stopping(session, state),
            Up::Leaving => self.report(stream, Command::Leave(session)),
        }
    }

    /// Proposes what a worker reports, after what it reported before.
    fn report(&mut self, stream: StreamId, report: Command) {
        if self.reports.is_empty() {
            let awaited = Awaited::Report {
                stream,
                report: report.clone(),
            };
            self.propose(report, awaited);
            return;
        }
        self.reports.push_back((stream, report));
    }

    /// Proposes again what could not be proposed.
    pub(super) fn retry_reports(&mut self, now: Moment) {
        if self.reports_due_at > now {
            return;
        }
        for (stream, report) in std::mem::take(&mut self.reports) {
            if self.streams.is_open(stream) {
                self.report(stream, report);
            }
        }
    }

    /// Notes that a worker stops. What others may have grows by its share, so the group is planned anew.
    fn stopping(&mut self, session: SessionId, state: &State) {
        self.leases.stopping(session);
        if let Some(session) = state.session(session) {
            self.planning.touch(session.group);
        }
    }

    /// Takes shards back that a worker should hold and does not. The answer speaks of the `Set` it
    /// names and of nothing granted later.
    fn holding(
        &mut self,
        stream: StreamId,
        session: SessionId,
        set: Revision,
        held: &[Tenure],
        state: &State,
    ) {
        let Some(expected) = self.streams.take_unanswered(stream, set) else {
            return;
        };
        let Some(group) = state.session(session).map(|session| session.group) else {
            return;
        };
        let held: BTreeSet<Tenure> = held.iter().copied().collect();
        let releases: Vec<Released> = expected
            .into_iter()
            .filter(|tenure| !held.contains(tenure))
            .filter(|tenure| {
                state.shard(group, tenure.shard).is_some_and(|shard| {
                    shard.epoch == Some(tenure.epoch) && shard.owner() == Some(session)
                })
            })
            .map(|tenure| Released {
                tenure,
                cause: ReleaseCause::Lost,
            })
            .collect();
        if !releases.is_empty() {
            self.release(stream, session, releases);
        }
    }

    fn release(&mut self, stream: StreamId, session: SessionId, releases: Vec<Released>) {
        let release = Release { session, releases };
        self.report(stream, Command::Release(release));
    }

    /// A stream broke: its session's deadline is nearer now, and a registration on it is off.
    pub(super) fn broken(&mut self, now: Moment, stream: StreamId, state: &State) {
        // Whoever waited is gone, and with it the decision that was taken for it.
        drop(self.cancel_registration(stream));
        let Some(gone) = self.streams.forget(stream) else {
            return;
        };
        let mass_failure = self.leases.broke(gone.session, stream, now);
        let Some(session) = state.session(gone.session) else {
            return;
        };
        self.planning.touch(session.group);
        if mass_failure {
            tracing::warn!(group = %session.group, "most workers lost their streams at once; waiting for the full ttl");
            metrics::counter!(names::MASS_FAILURES).increment(1);
        }
    }
}
