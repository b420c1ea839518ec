//! Streams that open: registration, replacement, resumption.

use tenure_fence::Owner;
use tenure_ownership::Command;
use tenure_ownership::Rejection;
use tenure_ownership::State;
use tenure_ownership::command::Register;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::ProcessNonce;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::session::Session;
use tenure_ownership::shard::ShardState;

use super::super::leases::Attached;
use super::super::message::Close;
use super::super::message::Down;
use super::super::message::Duty;
use super::super::message::Open;
use super::super::message::SetShard;
use super::super::message::StreamId;
use super::super::registrations::Candidate;
use super::super::registrations::Stage;
use super::super::rounds::Waiting;
use super::super::streams::Stream;
use super::Awaited;
use super::Core;
use crate::clock::Moment;
use crate::metrics as names;

impl Core {
    pub(super) fn opened(&mut self, now: Moment, stream: StreamId, open: Open, state: &State) {
        self.streams.registering(stream);
        match open {
            Open::Register {
                register,
                first,
                attempt,
            } => {
                self.register(now, stream, register, first, attempt, state);
            }
            Open::Resume {
                session,
                nonce,
                attempt,
            } => {
                self.resume(now, stream, session, nonce, attempt, state);
            }
        }
    }

    fn register(
        &mut self,
        now: Moment,
        stream: StreamId,
        mut register: Box<Register>,
        first: Option<Owner>,
        attempt: u64,
        state: &State,
    ) {
        // A session of another cluster, such as one before a restore, says nothing about this one's.
        register.first = first
            .filter(|owner| is_ours(*owner, state))
            .map(|owner| SessionId(owner.session));
        if state.group_named(&register.group).is_none() {
            let name = register.group.clone();
            self.close(stream, Close::Refused(Rejection::UnknownGroup { name }));
            return;
        }
        let holder = holder(&register, state);
        let Some((holder, session)) = holder else {
            self.propose_registration(stream, register, attempt, None);
            return;
        };
        if session.nonce == register.nonce {
            self.attach(now, stream, holder, attempt, state);
            return;
        }
        if session.is_newer_than(register.first) {
            self.close(stream, Close::Replaced);
            return;
        }
        self.wait_to_replace(now, stream, register, attempt, holder);
    }

    /// Lets a registration wait until the process it replaces cannot believe any more.
    fn wait_to_replace(
        &mut self,
        now: Moment,
        stream: StreamId,
        register: Box<Register>,
        attempt: u64,
        replaces: SessionId,
    ) {
        let name = (register.group.clone(), register.worker.clone());
        let mut not_before = now + self.registrations.damping(&name, now);
        // The newest process is the one to wait for; the other comes back and finds it registered.
        // It does not begin a new wait, or two processes could keep each other waiting for ever.
        if let Some(other) = self.registrations.replacing(replaces) {
            if let Some(candidate) = self.cancel_registration(other) {
                not_before = not_before.min(candidate.not_before);
            }
            self.close(other, Close::Retry);
        }
        let candidate = Candidate {
            register,
            attempt,
            replaces,
            stage: Stage::Damped,
            not_before,
        };
        if not_before <= now {
            self.decide_to_replace(stream, candidate);
            return;
        }
        let (worker, delay_ms) = (name.1, not_before.since(now).as_millis());
        tracing::warn!(%worker, delay_ms, "processes fight over a worker name");
        metrics::counter!(names::REPLACEMENTS_DAMPED).increment(1);
        self.registrations.wait(stream, candidate);
    }

    /// Decides on a replacement. From here on the holder is not acknowledged, so that its belief ends
    /// a window after its last heartbeat.
    pub(super) fn decide_to_replace(&mut self, stream: StreamId, mut candidate: Candidate) {
        let lease = self
            .leases
            .get(candidate.replaces)
            .filter(|lease| !lease.is_undecided());
        let Some(lease) = lease else {
            // Gone, or about to end otherwise: the process comes back and finds out.
            self.close(stream, Close::Retry);
            return;
        };
        candidate.stage = Stage::Decided;
        candidate.not_before = lease.belief_over_at();
        self.leases.hold(candidate.replaces);
        self.registrations.wait(stream, candidate);
    }

    /// Takes a waiting registration back, and with it the decision to end the session it was to replace.
    pub(super) fn cancel_registration(&mut self, stream: StreamId) -> Option<Candidate> {
        let candidate = self.registrations.cancel(stream)?;
        if candidate.stage == Stage::Decided {
            self.leases.release(candidate.replaces, self.now);
        }
        Some(candidate)
    }

    pub(super) fn propose_registration(
        &mut self,
        stream: StreamId,
        mut register: Box<Register>,
        attempt: u64,
        replaces: Option<SessionId>,
    ) {
        register.replaces = replaces;
        let awaited = Awaited::Registration {
            stream,
            attempt,
            replaces,
            name: (register.group.clone(), register.worker.clone()),
        };
        self.propose(Command::Register(register), awaited);
    }

    fn resume(
        &mut self,
        now: Moment,
        stream: StreamId,
        owner: Owner,
        nonce: ProcessNonce,
        attempt: u64,
        state: &State,
    ) {
        let id = SessionId(owner.session);
        let Some(session) = state.session(id).filter(|_| is_ours(owner, state)) else {
            self.close(stream, Close::SessionEnded);
            return;
        };
        if session.nonce != nonce {
            self.close(stream, Close::WrongNonce);
            return;
        }
        self.attach(now, stream, id, attempt, state);
    }

    /// Makes a stream the session's own and tells the worker where it stands.
    pub(super) fn attach(
        &mut self,
        now: Moment,
        stream: StreamId,
        id: SessionId,
        attempt: u64,
        state: &State,
    ) {
        let Some(session) = state.session(id) else {
            self.close(stream, Close::SessionEnded);
            return;
        };
        // The command that made the session may be applied and not seen here yet.
        self.leases.start(id, session, now);
        match self.leases.attach(id, stream, attempt, now) {
            Attached::Outdated => self.close(stream, Close::Superseded),
            Attached::Undecided => self.close(stream, Close::Retry),
            Attached::Current { superseded } => {
                if let Some(superseded) = superseded {
                    self.close(superseded, Close::Superseded);
                }
                self.greet(now, stream, id, session, state);
                self.planning.touch(session.group);
            }
        }
    }

    fn greet(
        &mut self,
        now: Moment,
        stream: StreamId,
        id: SessionId,
        session: &Session,
        state: &State,
    ) {
        let (Some(cluster), Some(group)) = (state.cluster(), state.group(session.group)) else {
            self.close(stream, Close::SessionEnded);
            return;
        };
        let owned: Vec<ShardIndex> = state.owned(id).collect();
        let shards: Vec<SetShard> = owned
            .into_iter()
            .filter_map(|index| self.set_shard(now, session, index, state))
            .collect();
        let tenures: Vec<Tenure> = shards.iter().map(|shard| shard.tenure).collect();
        let revision = state.revision();
        self.streams.attach(
            stream,
            Stream {
                session: id,
                set: revision,
                unanswered: Some(tenures),
            },
        );
        self.send(
            stream,
            Down::Registered {
                session: Owner {
                    cluster: cluster.0,
                    session: id.0,
                },
                ttl: session.ttl,
                window: session.window,
                shard_count: group.header.shard_count,
            },
        );
        self.send(stream, Down::Set { revision, shards });
        // The message that opened the stream is acknowledged like a heartbeat.
        self.rounds.add(
            id,
            Waiting {
                stream,
                sequence: 0,
            },
        );
    }

    fn set_shard(
        &mut self,
        now: Moment,
        session: &Session,
        index: ShardIndex,
        state: &State,
    ) -> Option<SetShard> {
        let group = state.group(session.group)?;
        let shard = group.shard(index)?;
        let tenure = Tenure {
            shard: index,
            epoch: shard.epoch?,
        };
        let duty = match &shard.state {
            ShardState::Unowned(_) => return None,
            ShardState::Opening(_) => Duty::Open,
            ShardState::Serving(_) => Duty::Serve,
            ShardState::Revoking(_) => {
                let drain = group.header.policy.drain_timeout;
                let of_group = (session.group, tenure);
                Duty::Drain(self.handoffs.drain(of_group, drain, session.window, now))
            }
        };
        Some(SetShard {
            tenure,
            duty,
            stores: shard.stores.to_vec(),
        })
    }
}

/// The live session that holds a worker's name.
fn holder<'s>(register: &Register, state: &'s State) -> Option<(SessionId, &'s Session)> {
    let group = state.group_named(&register.group)?;
    let id = group.workers.get(&register.worker)?.session?;
    Some((id, state.session(id)?))
}

fn is_ours(owner: Owner, state: &State) -> bool {
    state
        .cluster()
        .is_some_and(|cluster| cluster.0 == owner.cluster)
}
