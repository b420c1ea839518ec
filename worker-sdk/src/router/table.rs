//! What a router knows: the shards of a group and their owners, at a cursor.
//!
//! Invariant: the cursor never falls. A state or an event at or below it changes nothing, so an older
//! answer, of a node that is behind, never overwrites a newer one.

use std::collections::HashMap;

use tenure_fence::Epoch;
use tenure_proto::v1::event::Event as Fact;
use tenure_proto::v1::{Cursor, Event, GroupChange, ShardPhase, WatchEvents, WatchState};

/// A cursor, in its order.
type Position = (u64, u32);

/// A worker, as routers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) address: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Epoch of the latest grant; 0 if there was none.
    epoch: u64,
    /// Number of the owning session; 0 if unowned.
    owner: u64,
    serving: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    at: Position,
    shards: Vec<Entry>,
    workers: HashMap<u64, Endpoint>,
}

/// A state of which not all parts have arrived.
#[derive(Debug, Default)]
pub(super) struct Staging {
    table: Table,
}

impl Staging {
    /// Adds the next part.
    pub(super) fn add(&mut self, part: WatchState) {
        self.table.at = position(part.at.as_ref());
        let count = usize::try_from(part.shard_count).unwrap_or(usize::MAX);
        self.table.shards.resize(count, Entry::default());
        for worker in part.workers {
            let endpoint = Endpoint {
                name: worker.worker,
                address: worker.address,
            };
            self.table.workers.insert(worker.session, endpoint);
        }
        for shard in part.shards {
            let serving = shard.phase() == ShardPhase::Serving;
            self.table.set(
                shard.index,
                Entry {
                    epoch: shard.epoch,
                    owner: shard.owner,
                    serving,
                },
            );
        }
    }
}

impl Table {
    /// Takes a whole state. `false`, and nothing has changed, when it is older than what is known.
    pub(super) fn adopt(&mut self, staging: Staging) -> bool {
        if staging.table.at < self.at {
            return false;
        }
        *self = staging.table;
        true
    }

    /// Takes the events that are news.
    pub(super) fn apply(&mut self, events: &WatchEvents) {
        for event in &events.events {
            let at = position(event.cursor.as_ref());
            if at > self.at {
                self.apply_one(event);
                self.at = at;
            }
        }
        self.at = self.at.max(position(events.at.as_ref()));
    }

    /// Notes that nothing happened up to a cursor.
    pub(super) fn progress(&mut self, cursor: &Cursor) {
        self.at = self.at.max(position(Some(cursor)));
    }

    /// Returns the cursor.
    pub(super) fn at(&self) -> Position {
        self.at
    }

    /// Returns the cursor for the wire.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor {
            revision: self.at.0,
            ordinal: self.at.1,
        }
    }

    /// Returns the number of shards.
    pub(super) fn shard_count(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    /// Returns the tenure in which a shard is served, and by whom.
    pub(super) fn serving(&self, index: u32) -> Option<(Epoch, &Endpoint)> {
        let entry = self.shards.get(usize::try_from(index).ok()?)?;
        if !entry.serving {
            return None;
        }
        Some((Epoch::new(entry.epoch)?, self.workers.get(&entry.owner)?))
    }

    fn apply_one(&mut self, event: &Event) {
        match &event.event {
            Some(Fact::Registered(fact)) => {
                let endpoint = Endpoint {
                    name: fact.worker.clone(),
                    address: fact.address.clone(),
                };
                self.workers.insert(fact.session, endpoint);
            }
            Some(Fact::SessionEnded(fact)) => {
                self.workers.remove(&fact.session);
            }
            Some(Fact::Granted(fact)) => {
                let entry = Entry {
                    epoch: fact.epoch,
                    owner: fact.owner,
                    serving: false,
                };
                self.set(fact.shard, entry);
            }
            Some(Fact::Serving(fact)) => {
                let entry = Entry {
                    epoch: fact.epoch,
                    owner: fact.owner,
                    serving: true,
                };
                self.set(fact.shard, entry);
            }
            // Its owner finishes: no new requests.
            Some(Fact::Revoking(fact)) => {
                let entry = Entry {
                    epoch: fact.epoch,
                    owner: fact.owner,
                    serving: false,
                };
                self.set(fact.shard, entry);
            }
            Some(Fact::TenureEnded(fact)) => {
                self.set(
                    fact.shard,
                    Entry {
                        epoch: fact.epoch,
                        owner: 0,
                        serving: false,
                    },
                );
            }
            Some(Fact::GroupChanged(fact)) if fact.change() == GroupChange::Removed => {
                self.shards.clear();
                self.workers.clear();
            }
            Some(
                Fact::GroupChanged(_)
                | Fact::FloorRaised(_)
                | Fact::WorkerModeSet(_)
                | Fact::ShardPinned(_)
                | Fact::ShardQuarantined(_)
                | Fact::QuarantineEnded(_),
            )
            | None => {}
        }
    }

    fn set(&mut self, index: u32, entry: Entry) {
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.shards.get_mut(index));
        // Epochs only rise, whatever order facts come in.
        if let Some(slot) = slot.filter(|slot| slot.epoch <= entry.epoch) {
            *slot = entry;
        }
    }
}

fn position(cursor: Option<&Cursor>) -> Position {
    cursor.map_or((0, 0), |cursor| (cursor.revision, cursor.ordinal))
}

#[cfg(test)]
mod tests {
    use tenure_proto::v1::{
        SessionEnded, ShardGranted, ShardRevoking, ShardServing, TenureEnded, WatchShard,
        WatchWorker, WorkerRegistered,
    };

    use super::*;

    fn cursor(revision: u64, ordinal: u32) -> Cursor {
        Cursor { revision, ordinal }
    }

    fn state(revision: u64, shards: &[(u32, u64, u64)]) -> WatchState {
        WatchState {
            at: Some(cursor(revision, 0)),
            shard_count: 4,
            shards: shards
                .iter()
                .map(|&(index, epoch, owner)| WatchShard {
                    index,
                    phase: ShardPhase::Serving.into(),
                    epoch,
                    owner,
                })
                .collect(),
            workers: vec![worker(1, "a"), worker(2, "b")],
            last: true,
        }
    }

    fn worker(session: u64, name: &str) -> WatchWorker {
        WatchWorker {
            session,
            worker: name.into(),
            address: format!("{name}:9000"),
        }
    }

    fn adopt(table: &mut Table, state: WatchState) -> bool {
        let mut staging = Staging::default();
        staging.add(state);
        table.adopt(staging)
    }

    fn event(revision: u64, ordinal: u32, fact: Fact) -> WatchEvents {
        let at = Some(cursor(revision, ordinal));
        WatchEvents {
            at,
            events: vec![Event {
                cursor: at,
                event: Some(fact),
            }],
            ..WatchEvents::default()
        }
    }

    fn serving(shard: u32, epoch: u64, owner: u64) -> Fact {
        Fact::Serving(ShardServing {
            shard,
            epoch,
            owner,
        })
    }

    fn owner(table: &Table, index: u32) -> Option<(u64, String)> {
        table
            .serving(index)
            .map(|(epoch, worker)| (epoch.get(), worker.name.clone()))
    }

    #[test]
    fn a_shard_is_routed_to_its_owner_while_it_serves_and_to_nobody_else() {
        let mut table = Table::default();
        assert!(adopt(&mut table, state(10, &[(0, 7, 1)])));
        assert_eq!(owner(&table, 0), Some((7, "a".into())));
        assert_eq!(owner(&table, 1), None);

        let revoking = ShardRevoking {
            shard: 0,
            epoch: 7,
            owner: 1,
            next: 2,
            reason: 0,
        };
        table.apply(&event(11, 0, Fact::Revoking(revoking)));
        assert_eq!(owner(&table, 0), None);
        let ended = TenureEnded {
            shard: 0,
            epoch: 7,
            owner: 1,
            ..TenureEnded::default()
        };
        table.apply(&event(12, 0, Fact::TenureEnded(ended)));
        table.apply(&event(
            12,
            1,
            Fact::Granted(ShardGranted {
                shard: 0,
                epoch: 8,
                owner: 2,
            }),
        ));
        assert_eq!(owner(&table, 0), None);
        table.apply(&event(13, 0, serving(0, 8, 2)));
        assert_eq!(owner(&table, 0), Some((8, "b".into())));
    }

    // Scenario 43.
    #[test]
    fn an_older_answer_never_overwrites_a_newer_one() {
        let mut table = Table::default();
        assert!(adopt(&mut table, state(10, &[(0, 7, 1)])));
        table.apply(&event(20, 3, serving(0, 8, 2)));
        // A node that is behind shows its state, or repeats events.
        assert!(!adopt(&mut table, state(19, &[(0, 7, 1)])));
        table.apply(&event(20, 2, serving(0, 9, 1)));
        table.apply(&event(15, 0, serving(0, 7, 1)));
        assert_eq!(owner(&table, 0), Some((8, "b".into())));
        assert_eq!(table.at(), (20, 3));
        table.progress(&cursor(12, 0));
        assert_eq!(table.at(), (20, 3));
    }

    // Scenario 44, the watcher's half.
    #[test]
    fn events_of_one_revision_that_arrive_in_two_parts_count_once_each() {
        let mut table = Table::default();
        adopt(&mut table, state(10, &[]));
        let both = WatchEvents {
            at: Some(cursor(11, 1)),
            events: vec![
                Event {
                    cursor: Some(cursor(11, 0)),
                    event: Some(serving(0, 1, 1)),
                },
                Event {
                    cursor: Some(cursor(11, 1)),
                    event: Some(serving(1, 1, 2)),
                },
            ],
            ..WatchEvents::default()
        };
        table.apply(&event(11, 0, serving(0, 1, 1)));
        assert_eq!(table.cursor(), cursor(11, 0));
        table.apply(&both);
        assert_eq!(owner(&table, 0), Some((1, "a".into())));
        assert_eq!(owner(&table, 1), Some((1, "b".into())));
    }

    #[test]
    fn a_worker_that_is_gone_gets_no_requests_and_one_that_came_does() {
        let mut table = Table::default();
        adopt(&mut table, state(10, &[(0, 7, 1)]));
        let ended = SessionEnded {
            session: 1,
            worker: "a".into(),
            end: 2,
        };
        table.apply(&event(11, 0, Fact::SessionEnded(ended)));
        assert_eq!(owner(&table, 0), None);
        let registered = WorkerRegistered {
            session: 12,
            worker: "c".into(),
            address: "c:9000".into(),
        };
        table.apply(&event(12, 0, Fact::Registered(registered)));
        table.apply(&event(13, 0, serving(0, 8, 12)));
        assert_eq!(owner(&table, 0), Some((8, "c".into())));
    }

    #[test]
    fn a_state_in_parts_is_taken_as_a_whole() {
        let mut staging = Staging::default();
        let mut first = state(10, &[(0, 1, 1)]);
        first.last = false;
        staging.add(first);
        staging.add(WatchState {
            workers: Vec::new(),
            ..state(10, &[(3, 1, 2)])
        });
        let mut table = Table::default();
        assert!(table.adopt(staging));
        assert_eq!(owner(&table, 0), Some((1, "a".into())));
        assert_eq!(owner(&table, 3), Some((1, "b".into())));
        assert_eq!(table.shard_count(), 4);
    }

    #[test]
    fn a_removed_group_is_served_by_nobody_until_it_is_created_again() {
        let mut table = Table::default();
        adopt(&mut table, state(10, &[(0, 7, 1)]));
        let mut removed = tenure_proto::v1::GroupChanged::default();
        removed.set_change(GroupChange::Removed);
        table.apply(&event(11, 0, Fact::GroupChanged(removed)));
        assert_eq!(owner(&table, 0), None);
        assert!(adopt(&mut table, state(20, &[(0, 9, 2)])));
        assert_eq!(owner(&table, 0), Some((9, "b".into())));
    }
}
