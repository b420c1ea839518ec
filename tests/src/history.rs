//! What happened in a group, as watchers on every node saw it, and whether it may have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tenure_proto::v1::event::Event as Fact;
use tenure_proto::v1::{Cursor, Event, ShardPhase, WatchShard};

use crate::failure::Failure;
use crate::ownership::Ownership;

/// Violations that are kept. One is enough to fail; a few more show a pattern.
const VIOLATIONS_MAX: usize = 10;

/// A grant that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenGrant {
    /// Number of the session.
    pub owner: u64,
    /// When the first watcher heard of it.
    pub at: Instant,
}

/// What is known of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    /// Epoch of the latest grant; 0 if there was none.
    pub epoch: u64,
    /// Number of the owning session; 0 if nobody owns it.
    pub owner: u64,
    /// Whether the owner has reported that it serves, and was not asked to stop since.
    pub serving: bool,
}

/// What one watcher has seen.
#[derive(Debug, Default)]
struct View {
    cursor: Option<(u64, u32)>,
    shards: BTreeMap<u32, Latest>,
    floors: BTreeMap<u32, u64>,
}

/// Everything all watchers of a group have seen.
///
/// Checked while it comes in:
///
/// * each watcher sees its cursor rise: every event once, in order;
/// * the epochs of a shard rise by exactly one from grant to grant, so none is missing or used twice;
/// * no two watchers see different owners of one epoch: a grant that was committed stays what it was.
#[derive(Debug, Default)]
pub struct History {
    views: BTreeMap<String, View>,
    grants: BTreeMap<(u32, u64), SeenGrant>,
    last_grant: Option<Instant>,
    registrations: BTreeMap<String, BTreeSet<u64>>,
    workers: BTreeMap<u64, String>,
    violations: Vec<String>,
}

impl History {
    /// Notes a part of the state that a watcher was sent.
    pub fn state(&mut self, watcher: &str, at: Cursor, shards: &[WatchShard]) {
        let view = self.views.entry(watcher.to_owned()).or_default();
        view.cursor = view.cursor.max(Some((at.revision, at.ordinal)));
        for shard in shards {
            let view = self.views.entry(watcher.to_owned()).or_default();
            let serving = shard.phase() == ShardPhase::Serving;
            let latest = Latest {
                epoch: shard.epoch,
                owner: shard.owner,
                serving,
            };
            let before = view.shards.insert(shard.index, latest);
            if let Some(before) = before.filter(|before| before.epoch > shard.epoch) {
                let text = format!(
                    "{watcher}: epoch of shard {} fell from {} to {}",
                    shard.index, before.epoch, shard.epoch
                );
                note(&mut self.violations, text);
            }
            if shard.owner != 0 {
                self.grant(watcher, shard.index, shard.epoch, shard.owner);
            }
        }
    }

    /// Notes a worker that a watched state names.
    pub fn worker(&mut self, session: u64, name: &str) {
        self.workers.insert(session, name.to_owned());
        self.registrations
            .entry(name.to_owned())
            .or_default()
            .insert(session);
    }

    /// Notes an event.
    pub fn event(&mut self, watcher: &str, event: &Event) {
        let at = event.cursor.unwrap_or_default();
        let at = (at.revision, at.ordinal);
        let view = self.views.entry(watcher.to_owned()).or_default();
        if view.cursor.is_some_and(|before| before >= at) {
            let text = format!("{watcher}: event at {at:?} after {:?}", view.cursor);
            note(&mut self.violations, text);
        }
        view.cursor = Some(at);
        match &event.event {
            Some(Fact::Granted(granted)) => {
                self.granted(watcher, granted.shard, granted.epoch, granted.owner);
            }
            Some(Fact::Serving(serving)) => {
                self.change(watcher, serving.shard, |latest| latest.serving = true);
            }
            Some(Fact::Revoking(revoking)) => {
                self.change(watcher, revoking.shard, |latest| latest.serving = false);
            }
            Some(Fact::TenureEnded(ended)) => self.change(watcher, ended.shard, |latest| {
                latest.owner = 0;
                latest.serving = false;
            }),
            Some(Fact::FloorRaised(raised)) => {
                let view = self.views.entry(watcher.to_owned()).or_default();
                view.floors.insert(raised.shard, raised.floor);
            }
            Some(Fact::Registered(registered)) => {
                self.worker(registered.session, &registered.worker);
            }
            _ => {}
        }
    }

    /// Returns what is known of a shard: by the watcher that has come furthest with it.
    #[must_use]
    pub fn latest(&self, shard: u32) -> Option<Latest> {
        let known = self
            .views
            .values()
            .filter_map(|view| view.shards.get(&shard));
        known
            .max_by_key(|latest| (latest.epoch, latest.serving))
            .copied()
    }

    /// Returns a grant.
    #[must_use]
    pub fn seen_grant(&self, shard: u32, epoch: u64) -> Option<SeenGrant> {
        self.grants.get(&(shard, epoch)).copied()
    }

    /// Returns whether a grant was heard of within this time.
    #[must_use]
    pub fn granted_within(&self, time: Duration) -> bool {
        self.last_grant.is_some_and(|at| at.elapsed() < time)
    }

    /// Returns how many grants were seen.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.grants.len()
    }

    /// Returns the sessions that were registered under a name, oldest first.
    #[must_use]
    pub fn sessions_of(&self, worker: &str) -> Vec<u64> {
        self.registrations
            .get(worker)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// Returns the name of the worker of a session.
    #[must_use]
    pub fn worker_of(&self, session: u64) -> Option<&str> {
        self.workers.get(&session).map(String::as_str)
    }

    /// Returns how many of the shards `0..count` are served as far as any watcher knows.
    #[must_use]
    pub fn serving(&self, count: u32) -> u32 {
        let serving = |shard: &u32| self.latest(*shard).is_some_and(|latest| latest.serving);
        u32::try_from((0..count).filter(serving).count()).unwrap_or(u32::MAX)
    }

    /// Checks everything that was seen against what the cluster says now: no grant that was seen is
    /// lost or has become another's.
    ///
    /// # Errors
    ///
    /// Lists the violations.
    pub fn check(&self, now: &Ownership) -> Result<(), Failure> {
        let mut violations = self.violations.clone();
        for (&(shard, epoch), grant) in &self.grants {
            let Some(held) = now.get(shard) else {
                note(&mut violations, format!("shard {shard} is gone"));
                continue;
            };
            let lost = held.epoch < epoch;
            let other = held.epoch == epoch && held.owner.is_some_and(|owner| owner != grant.owner);
            if lost || other {
                let text = format!(
                    "shard {shard} was granted to {} at {epoch}, and is now at {:?}",
                    grant.owner,
                    held.tenure()
                );
                note(&mut violations, text);
            }
        }
        if violations.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "violations: {}",
            violations.join("; ")
        )))
    }

    fn granted(&mut self, watcher: &str, shard: u32, epoch: u64, owner: u64) {
        let view = self.views.entry(watcher.to_owned()).or_default();
        let latest = Latest {
            epoch,
            owner,
            serving: false,
        };
        let before = view
            .shards
            .insert(shard, latest)
            .map_or(0, |before| before.epoch);
        let floor = view.floors.get(&shard).copied().unwrap_or(0);
        if epoch != before.max(floor) + 1 {
            let text = format!("{watcher}: shard {shard} went from epoch {before} to {epoch}");
            note(&mut self.violations, text);
        }
        self.grant(watcher, shard, epoch, owner);
    }

    fn grant(&mut self, watcher: &str, shard: u32, epoch: u64, owner: u64) {
        let seen = SeenGrant {
            owner,
            at: Instant::now(),
        };
        let known = self.grants.len();
        let first = *self.grants.entry((shard, epoch)).or_insert(seen);
        if self.grants.len() > known {
            self.last_grant = Some(seen.at);
        }
        if first.owner != owner {
            let text = format!(
                "{watcher}: epoch {epoch} of shard {shard} belongs to {owner}, elsewhere to {}",
                first.owner
            );
            note(&mut self.violations, text);
        }
    }

    fn change(&mut self, watcher: &str, shard: u32, change: impl FnOnce(&mut Latest)) {
        let view = self.views.entry(watcher.to_owned()).or_default();
        if let Some(latest) = view.shards.get_mut(&shard) {
            change(latest);
        }
    }
}

fn note(violations: &mut Vec<String>, violation: String) {
    if violations.len() < VIOLATIONS_MAX {
        violations.push(violation);
    }
}

#[cfg(test)]
mod tests {
    use tenure_proto::v1::{Shard, ShardGranted, ShardRef};

    use super::*;

    fn grant(revision: u64, shard: u32, epoch: u64, owner: u64) -> Event {
        let fact = Fact::Granted(ShardGranted {
            shard,
            epoch,
            owner,
        });
        Event {
            cursor: Some(Cursor {
                revision,
                ordinal: 0,
            }),
            event: Some(fact),
        }
    }

    fn now(epoch: u64, owner: u64) -> Ownership {
        let mut ownership = Ownership::default();
        let shard = Some(ShardRef {
            group: "g".to_owned(),
            index: 0,
        });
        let owner = Some(tenure_proto::v1::Session {
            cluster_id: vec![0; 16].into(),
            number: owner,
        });
        ownership
            .insert(Shard {
                shard,
                epoch,
                owner,
                ..Shard::default()
            })
            .unwrap();
        ownership
    }

    fn violations(events: &[(&str, Event)], now: &Ownership) -> String {
        let mut history = History::default();
        for (watcher, event) in events {
            history.event(watcher, event);
        }
        history
            .check(now)
            .err()
            .map(|failure| failure.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn grants_that_rise_one_by_one_are_right() {
        let events = [
            ("a", grant(1, 0, 1, 7)),
            ("a", grant(2, 0, 2, 8)),
            ("b", grant(1, 0, 1, 7)),
        ];
        assert_eq!(violations(&events, &now(2, 8)), "");
        assert_eq!(violations(&events, &now(3, 7)), "");
    }

    #[test]
    fn every_way_to_lose_or_repeat_a_grant_is_noticed() {
        let first = || ("a", grant(1, 0, 1, 7));
        for (events, now, expected) in [
            (
                vec![first(), ("a", grant(2, 0, 1, 8))],
                now(1, 7),
                "went from epoch 1 to 1",
            ),
            (
                vec![first(), ("a", grant(2, 0, 3, 8))],
                now(3, 8),
                "went from epoch 1 to 3",
            ),
            (
                vec![first(), ("b", grant(1, 0, 1, 8))],
                now(1, 7),
                "belongs to 8, elsewhere to 7",
            ),
            (
                vec![first(), ("a", grant(1, 0, 2, 8))],
                now(2, 8),
                "event at (1, 0) after",
            ),
            (vec![first()], now(0, 7), "is now at (0,"),
            (vec![first()], now(1, 8), "is now at (1, Some(8))"),
            (vec![first()], Ownership::default(), "shard 0 is gone"),
        ] {
            let violations = violations(&events, &now);
            assert!(violations.contains(expected), "{expected}: {violations}");
        }
    }

    #[test]
    fn a_state_that_falls_back_is_noticed() {
        let mut history = History::default();
        history.event("a", &grant(1, 0, 1, 7));
        let at = Cursor {
            revision: 2,
            ordinal: 0,
        };
        history.state(
            "a",
            at,
            &[WatchShard {
                index: 0,
                phase: 1,
                epoch: 0,
                owner: 0,
            }],
        );
        let failure = history.check(&now(1, 7)).unwrap_err().to_string();
        assert!(
            failure.contains("epoch of shard 0 fell from 1 to 0"),
            "{failure}"
        );
    }
}
