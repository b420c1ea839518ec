//! Committed facts: clocks that start and stop, and news for the workers concerned.

use std::collections::BTreeMap;

use tenure_ownership::Event;
use tenure_ownership::State;
use tenure_ownership::command::Tenure;
use tenure_ownership::event::EndCause;
use tenure_ownership::group::Group;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::session::SessionEnd;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::shard::ShardState;

use super::super::message::Close;
use super::super::message::Down;
use super::super::message::StreamId;
use super::Core;
use crate::clock::Moment;
use crate::watch::Batch;

/// What one command means for one session.
#[derive(Debug, Default)]
struct News {
    lost: Vec<Tenure>,
    granted: Vec<Tenure>,
    revoked: BTreeMap<RevokeReason, Vec<Tenure>>,
}

impl Core {
    /// Starts the clocks of a group as a new leader finds it: all of them in full.
    pub(super) fn adopt_group(&mut self, group: &Group, now: Moment) {
        let id = group.header.id;
        let policy = &group.header.policy;
        for (index, shard) in group.indexed_shards() {
            let Some(epoch) = shard.epoch else { continue };
            let tenure = (
                id,
                Tenure {
                    shard: index,
                    epoch,
                },
            );
            match &shard.state {
                ShardState::Unowned(Some(end)) if !end.clean => {
                    self.handoffs.lock_delay(id, end.at, policy.lock_delay, now);
                    self.handoffs
                        .restart_grace(id, end.at, policy.restart_grace, now);
                }
                ShardState::Unowned(_) | ShardState::Serving(_) => {}
                ShardState::Opening(_) => {
                    self.handoffs.opening(tenure, policy.opening_deadline, now)
                }
                ShardState::Revoking(revocation) => {
                    self.start_drain(tenure, revocation.owner, group, now);
                }
            }
        }
        self.pauses.adopt(group, now);
        self.planning.touch(id);
    }

    pub(super) fn committed(&mut self, now: Moment, batch: &Batch, state: &State) {
        if batch.revision <= self.seen {
            return;
        }
        self.seen = batch.revision;
        let mut news: BTreeMap<SessionId, News> = BTreeMap::new();
        let mut ended: Vec<(SessionId, SessionEnd)> = Vec::new();
        for event in &batch.events {
            self.note(now, batch.revision, event, state);
            gather(event, &mut news, &mut ended);
        }
        self.blame(now, &batch.events, state);
        for (session, news) in news {
            self.tell(batch.revision, session, news, state);
        }
        for (session, end) in ended {
            self.end_session(session, end);
        }
    }

    /// Starts and stops the clocks that an event concerns.
    fn note(&mut self, now: Moment, revision: Revision, event: &Event, state: &State) {
        let Some(id) = event.group() else { return };
        // A plan does not depend on who is ready, and a revocation is what a plan has done.
        if !matches!(event, Event::Serving { .. } | Event::Revoking { .. }) {
            self.planning.touch(id);
        }
        let Some(group) = state.group(id) else {
            self.handoffs.forget(id);
            self.pauses.forget(id);
            self.homes.forget(id);
            self.planning.forget(id);
            self.forget_measured(id);
            return;
        };
        self.measure(now, event, group);
        let policy = &group.header.policy;
        match event {
            Event::Registered { session, .. } => {
                if let Some(record) = state.session(*session) {
                    self.leases.start(*session, record, now);
                }
                if is_new(group) {
                    self.planning.forming(id, now);
                }
            }
            Event::WorkerModeSet { worker, .. } => {
                let pause = group.workers.get(worker).and_then(|worker| worker.pause);
                if let Some(pause) = pause {
                    self.pauses.start(id, pause, now);
                }
            }
            Event::Granted {
                shard,
                epoch,
                owner,
                ..
            } => {
                if let Some(lease) = self.leases.get(*owner) {
                    self.homes.granted(id, *shard, &lease.worker);
                }
                let tenure = (
                    id,
                    Tenure {
                        shard: *shard,
                        epoch: *epoch,
                    },
                );
                self.handoffs.opening(tenure, policy.opening_deadline, now);
                self.planning.moved(id, *shard);
            }
            Event::Serving { shard, epoch, .. } => {
                self.handoffs.opened((
                    id,
                    Tenure {
                        shard: *shard,
                        epoch: *epoch,
                    },
                ));
            }
            Event::Revoking {
                shard,
                epoch,
                owner,
                reason,
                ..
            } => {
                if let Some(lease) = self.leases.get(*owner) {
                    self.homes.revoked(id, *shard, &lease.worker, *reason);
                }
                self.start_drain(
                    (
                        id,
                        Tenure {
                            shard: *shard,
                            epoch: *epoch,
                        },
                    ),
                    *owner,
                    group,
                    now,
                );
                self.planning.moved(id, *shard);
            }
            Event::TenureEnded {
                shard,
                epoch,
                owner,
                cause,
                ..
            } => {
                let tenure = Tenure {
                    shard: *shard,
                    epoch: *epoch,
                };
                let asked = self.handoffs.ended((id, tenure));
                // A handler that gives up at once must not be granted the shard again at once.
                if !asked && matches!(cause, EndCause::Released | EndCause::Lost) {
                    self.handoffs.given_back(id, *shard, *owner, now);
                }
                self.delay_after_end(now, revision, group, *shard, cause);
            }
            _ => {}
        }
    }

    /// Starts the delays that follow an unclean end or a failure to open.
    fn delay_after_end(
        &mut self,
        now: Moment,
        revision: Revision,
        group: &Group,
        shard: ShardIndex,
        cause: &EndCause,
    ) {
        let (id, policy) = (group.header.id, &group.header.policy);
        match cause {
            EndCause::Forced => self
                .handoffs
                .lock_delay(id, revision, policy.lock_delay, now),
            EndCause::SessionEnded(SessionEnd::Expired | SessionEnd::Replaced) => {
                self.handoffs
                    .lock_delay(id, revision, policy.lock_delay, now);
                self.handoffs
                    .restart_grace(id, revision, policy.restart_grace, now);
            }
            EndCause::SessionEnded(_)
            | EndCause::Released
            | EndCause::Lost
            | EndCause::OpenFailed(_) => {}
        }
        let failure = group
            .shard(shard)
            .and_then(|shard| shard.open_failure.as_ref());
        if let Some(failure) = failure.filter(|failure| failure.at == revision) {
            self.handoffs.open_failed(id, shard, failure.count, now);
        }
    }

    fn start_drain(
        &mut self,
        tenure: (GroupId, Tenure),
        owner: SessionId,
        group: &Group,
        now: Moment,
    ) {
        let policy = &group.header.policy;
        let window = self
            .leases
            .get(owner)
            .map_or_else(|| policy.belief_window(), |lease| lease.window);
        self.handoffs
            .drain(tenure, policy.drain_timeout, window, now);
    }

    /// Sends a session what a command means for it, unless its stream began with a later `Set`.
    fn tell(&mut self, revision: Revision, session: SessionId, news: News, state: &State) {
        let Some(stream) = self.stream_before(session, revision) else {
            return;
        };
        let Some(group) = state
            .session(session)
            .and_then(|session| state.group(session.group))
        else {
            return;
        };
        if !news.lost.is_empty() {
            self.send(
                stream,
                Down::Lost {
                    revision,
                    tenures: news.lost,
                },
            );
        }
        for (reason, tenures) in news.revoked {
            let drain = group.header.policy.drain_timeout;
            self.send(
                stream,
                Down::Revoke {
                    revision,
                    tenures,
                    drain,
                    reason,
                },
            );
        }
        if !news.granted.is_empty() {
            let stores =
                |tenure: &Tenure| group.shard(tenure.shard).map(|shard| shard.stores.to_vec());
            let grants = news
                .granted
                .iter()
                .map(|tenure| (*tenure, stores(tenure).unwrap_or_default()))
                .collect();
            self.send(stream, Down::Granted { revision, grants });
        }
    }

    fn end_session(&mut self, session: SessionId, end: SessionEnd) {
        self.rounds.forget(session);
        let Some(stream) = self.leases.end(session).and_then(|lease| lease.stream()) else {
            return;
        };
        let close = match end {
            SessionEnd::Left => Close::Left,
            SessionEnd::Replaced => Close::Replaced,
            SessionEnd::Expired | SessionEnd::GroupDeleted => Close::SessionEnded,
        };
        self.close(stream, close);
    }

    fn stream_before(&self, session: SessionId, revision: Revision) -> Option<StreamId> {
        let id = self.leases.get(session)?.stream()?;
        self.streams
            .get(id)
            .filter(|stream| stream.set < revision)
            .map(|_| id)
    }
}

/// Sorts an event into what it means for whom.
fn gather(
    event: &Event,
    news: &mut BTreeMap<SessionId, News>,
    ended: &mut Vec<(SessionId, SessionEnd)>,
) {
    match event {
        Event::Granted {
            shard,
            epoch,
            owner,
            ..
        } => {
            let tenure = Tenure {
                shard: *shard,
                epoch: *epoch,
            };
            news.entry(*owner).or_default().granted.push(tenure);
        }
        Event::Revoking {
            shard,
            epoch,
            owner,
            reason,
            ..
        } => {
            let tenure = Tenure {
                shard: *shard,
                epoch: *epoch,
            };
            news.entry(*owner)
                .or_default()
                .revoked
                .entry(*reason)
                .or_default()
                .push(tenure);
        }
        Event::TenureEnded {
            shard,
            epoch,
            owner,
            cause,
            ..
        } => {
            // An owner that gave a shard back knows.
            if matches!(cause, EndCause::Forced | EndCause::Lost) {
                let tenure = Tenure {
                    shard: *shard,
                    epoch: *epoch,
                };
                news.entry(*owner).or_default().lost.push(tenure);
            }
        }
        Event::SessionEnded { session, end, .. } => ended.push((*session, *end)),
        _ => {}
    }
}

/// Whether nothing of the group was ever granted. The first plan grants everything, so one shard tells.
fn is_new(group: &Group) -> bool {
    group
        .shard(ShardIndex(0))
        .is_some_and(|shard| shard.epoch.is_none())
}
