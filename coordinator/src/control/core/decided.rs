//! Decisions on what was proposed.

use std::time::Duration;

use tenure_ownership::Command;
use tenure_ownership::Rejection;
use tenure_ownership::State;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;

use super::super::message::Close;
use super::super::message::StreamId;
use super::super::registrations::Name;
use super::Awaited;
use super::Core;
use super::Decision;
use super::Ticket;
use crate::clock::Moment;
use crate::metrics as names;

/// Pause before something is tried again that was not proposed, because the queue was full or a quorum
/// missing, or that was refused.
const RETRY: Duration = Duration::from_millis(100);

/// A move waits [`RETRY`] for each time it was refused, and at most for so many: ten seconds.
const REFUSALS_COUNTED_MAX: u32 = 100;

impl Core {
    pub(super) fn decided(
        &mut self,
        now: Moment,
        ticket: Ticket,
        decision: Decision,
        state: &State,
    ) {
        let Some(awaited) = self.awaited.remove(&ticket) else {
            return;
        };
        match awaited {
            Awaited::Registration {
                stream,
                attempt,
                replaces,
                name,
            } => {
                if let Some(replaced) = replaces {
                    self.replacement_decided(now, replaced, name, &decision);
                }
                self.registration_decided(now, stream, attempt, decision, state);
            }
            Awaited::Expiry { sessions } => {
                self.release_unless_unknown(&sessions, &decision);
                if matches!(decision, Decision::NotProposed) {
                    self.leases.pause_until(now + RETRY);
                }
            }
            Awaited::Force {
                group,
                tenures,
                owners,
            } => self.force_decided(now, group, &tenures, &owners, &decision),
            Awaited::Assignment { group } => self.assignment_decided(now, group, decision),
            Awaited::Report { stream, report } => {
                self.report_decided(now, stream, report, &decision);
            }
            Awaited::Quarantine { group } => self.quarantine_decided(group, &decision),
            Awaited::Removal { group } => {
                self.planning.decided(group, retry_at(now, &decision));
            }
            // Whatever else became of it is in the state, or will be: the pause names itself.
            Awaited::EndOfPause { pause } => {
                if !matches!(decision, Decision::Applied(..)) {
                    self.pauses.retry(pause, now + RETRY);
                }
            }
            Awaited::Settlement => self.settlement_decided(now, &decision, state),
        }
    }

    fn replacement_decided(
        &mut self,
        now: Moment,
        replaced: SessionId,
        name: Name,
        decision: &Decision,
    ) {
        // After an unknown outcome the session to be replaced stays held: it may yet end.
        self.release_unless_unknown(&[replaced], decision);
        if matches!(decision, Decision::Applied(_, Ok(_))) {
            self.registrations.replaced(name, now);
        }
    }

    fn registration_decided(
        &mut self,
        now: Moment,
        stream: StreamId,
        attempt: u64,
        decision: Decision,
        state: &State,
    ) {
        if !self.streams.is_open(stream) {
            return;
        }
        match decision {
            Decision::Applied(revision, Ok(_)) => {
                self.attach(now, stream, SessionId(revision.0), attempt, state);
            }
            Decision::Applied(_, Err(Rejection::AlreadyRegistered { session })) => {
                self.attach(now, stream, session, attempt, state);
            }
            Decision::Applied(_, Err(Rejection::Replaced { .. })) => {
                self.close(stream, Close::Replaced)
            }
            // The holder is another one now, so its belief must be waited for: start over.
            Decision::Applied(_, Err(Rejection::HolderChanged { .. })) => {
                self.close(stream, Close::Retry)
            }
            Decision::Applied(_, Err(rejection)) => self.close(stream, Close::Refused(rejection)),
            Decision::NotProposed | Decision::Unknown => self.close(stream, Close::Retry),
        }
    }

    /// Once the outcome is known, what is still live may be acknowledged again. While it is not, the
    /// entry may yet be applied, so nothing may extend a belief past it; a later leader starts afresh.
    fn release_unless_unknown(&mut self, sessions: &[SessionId], decision: &Decision) {
        if matches!(decision, Decision::Unknown) {
            return;
        }
        for session in sessions {
            self.leases.release(*session, self.now);
        }
    }

    fn force_decided(
        &mut self,
        now: Moment,
        group: GroupId,
        tenures: &[Tenure],
        owners: &[SessionId],
        decision: &Decision,
    ) {
        self.release_unless_unknown(owners, decision);
        if matches!(decision, Decision::NotProposed) {
            for tenure in tenures {
                self.handoffs.retry_drain((group, *tenure), now + RETRY);
            }
        }
    }

    /// A quarantine that came too late is decided anew when one more owner crashes.
    fn quarantine_decided(&mut self, group: GroupId, decision: &Decision) {
        if let Decision::Applied(_, Err(reason)) = decision {
            tracing::warn!(%group, %reason, "a quarantine was refused");
        }
    }

    fn assignment_decided(&mut self, now: Moment, group: GroupId, decision: Decision) {
        if let Decision::Applied(_, Ok(effect)) = &decision {
            self.moves_refused(now, group, &effect.refused);
        }
        if let Decision::Applied(_, Err(reason)) = &decision {
            tracing::warn!(%group, %reason, "a plan was refused");
        }
        self.planning.decided(group, retry_at(now, &decision));
    }

    /// Reports moves that are refused again and again, once for all of them, and delays each.
    fn moves_refused(&mut self, now: Moment, group: GroupId, refused: &[(ShardIndex, Rejection)]) {
        let repeated = self.planning.refused(group, refused);
        for (shard, refusals) in &repeated {
            let until = now + RETRY * (*refusals).min(REFUSALS_COUNTED_MAX);
            self.handoffs.back_off(group, *shard, until);
        }
        let Some((shard, refusals)) = repeated.first() else {
            return;
        };
        let reason = refused.iter().find(|(of, _)| of == shard);
        let reason = reason.map(|(_, reason)| reason.to_string());
        let moves = repeated.len();
        tracing::warn!(%group, moves, %shard, refusals, reason, "planned moves are refused again and again");
        metrics::counter!(names::MOVES_REFUSED_REPEATEDLY)
            .increment(u64::try_from(moves).unwrap_or(u64::MAX));
    }

    /// A report that was not proposed is proposed again; one whose outcome is not known is settled by
    /// a new stream, which begins with a `Set`.
    fn report_decided(
        &mut self,
        now: Moment,
        stream: StreamId,
        report: Command,
        decision: &Decision,
    ) {
        if !self.streams.is_open(stream) {
            return;
        }
        match decision {
            Decision::Applied(..) if matches!(report, Command::Leave(_)) => {
                self.close(stream, Close::Left);
            }
            Decision::Applied(..) => {}
            Decision::NotProposed => {
                self.reports.push_back((stream, report));
                self.reports_due_at = now + RETRY;
            }
            Decision::Unknown => self.close(stream, Close::Retry),
        }
    }
}

/// A command that changed nothing is not followed at once by another that may change as little.
fn retry_at(now: Moment, decision: &Decision) -> Option<Moment> {
    (!matches!(decision, Decision::Applied(_, Ok(_)))).then(|| now + RETRY)
}
