//! Decisions on what was proposed.

use std::time::Duration;

use tenure_ownership::Rejection;
use tenure_ownership::State;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::SessionId;

use super::super::message::Close;
use super::super::message::StreamId;
use super::Awaited;
use super::Core;
use super::Decision;
use super::Ticket;
use crate::clock::Moment;
use crate::metrics as names;

/// Pause before something that was not proposed is tried again: the queue was full or a quorum was missing.
const RETRY: Duration = Duration::from_millis(100);

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
            } => {
                self.registration_decided(now, stream, attempt, replaces, decision, state);
            }
            Awaited::Expiry { sessions } => self.release_unless_unknown(&sessions, &decision),
            Awaited::Force {
                group,
                tenures,
                owners,
            } => {
                self.force_decided(now, group, &tenures, &owners, &decision);
            }
            Awaited::Assignment { group } => self.assignment_decided(now, group, decision),
            Awaited::Report { stream } => self.report_decided(stream, &decision),
            Awaited::Leave { stream } => self.leave_decided(stream, &decision),
            Awaited::Removal { group } => {
                self.planning.decided(group, retry_at(now, &decision));
            }
        }
    }

    fn registration_decided(
        &mut self,
        now: Moment,
        stream: StreamId,
        attempt: u64,
        replaces: Option<SessionId>,
        decision: Decision,
        state: &State,
    ) {
        // After an unknown outcome the session to be replaced stays held: it may have ended already.
        if let Some(replaced) = replaces
            && !matches!(decision, Decision::Unknown)
        {
            self.leases.release(replaced);
        }
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
            self.leases.release(*session);
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

    fn assignment_decided(&mut self, now: Moment, group: GroupId, decision: Decision) {
        if let Decision::Applied(_, Ok(effect)) = &decision {
            for (shard, refusals) in self.planning.refused(group, &effect.refused) {
                let reason = effect
                    .refused
                    .iter()
                    .find(|(of, _)| *of == shard)
                    .map(|(_, reason)| reason.to_string());
                tracing::warn!(%group, %shard, refusals, reason, "a planned move is refused again and again");
                metrics::counter!(names::MOVES_REFUSED_REPEATEDLY).increment(1);
                self.handoffs
                    .back_off(group, shard, now + RETRY * refusals.min(100));
            }
        }
        if let Decision::Applied(_, Err(reason)) = &decision {
            tracing::warn!(%group, %reason, "a plan was refused");
        }
        self.planning.decided(group, retry_at(now, &decision));
    }

    /// A report whose outcome is not known is settled by a new stream, which begins with a `Set`.
    fn report_decided(&mut self, stream: StreamId, decision: &Decision) {
        let settled = matches!(decision, Decision::Applied(..));
        if !settled && self.streams.is_open(stream) {
            self.close(stream, Close::Retry);
        }
    }

    fn leave_decided(&mut self, stream: StreamId, decision: &Decision) {
        if !self.streams.is_open(stream) {
            return;
        }
        match decision {
            Decision::Applied(..) => self.close(stream, Close::Left),
            Decision::NotProposed | Decision::Unknown => self.close(stream, Close::Retry),
        }
    }
}

fn retry_at(now: Moment, decision: &Decision) -> Option<Moment> {
    (!matches!(decision, Decision::Applied(..))).then(|| now + RETRY)
}
