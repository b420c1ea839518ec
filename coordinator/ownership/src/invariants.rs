//! What holds after every command: the numbered list of the crate's documentation, one function each.
//!
//! For tests, simulations and the operator's `fsck`: it reads the whole state, so it is not for
//! every command of a running node.

mod placing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::group::{Group, GroupPhase};
use crate::ids::{Revision, SessionId, ShardIndex};
use crate::quota;
use crate::session::WorkerMode;
use crate::shard::{Shard, ShardState};
use crate::state::State;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the crate's documentation.
    pub invariant: u8,
    /// Where it is broken, and how.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.detail)
    }
}

/// Finds everything that is wrong with a state; nothing, if the rules keep their promises.
pub fn check(state: &State) -> Vec<Violation> {
    let mut found = Findings::default();
    owners_are_live(state, found.of(1));
    workers_and_sessions_agree(state, found.of(2));
    epochs_are_in_order(state, found.of(3));
    groups_are_whole(state, found.of(4));
    deletion_grants_nothing(state, found.of(5));
    names_are_taken_once(state, found.of(6));
    bytes_are_accounted_for(state, found.of(7));
    worker_records_say_something(state, found.of(8));
    nothing_is_newer(state, found.of(9));
    identity_comes_first(state, found.of(10));
    quotas_are_kept(state, found.of(11));
    nothing_is_left_to_write(state, found.of(12));
    shards_are_indexed(state, found.of(13));
    placing::placements_say_something(state, found.of(14));
    placing::quarantine_grants_nothing(state, found.of(15));
    nobody_owns_before_a_restore_is_settled(state, found.of(20));
    found.violations
}

#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
}

/// Takes what breaks one invariant.
struct Finding<'a> {
    invariant: u8,
    violations: &'a mut Vec<Violation>,
}

impl Findings {
    fn of(&mut self, invariant: u8) -> Finding<'_> {
        Finding {
            invariant,
            violations: &mut self.violations,
        }
    }
}

impl Finding<'_> {
    fn require(&mut self, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation {
                invariant: self.invariant,
                detail: detail(),
            });
        }
    }
}

fn shards(state: &State) -> impl Iterator<Item = (&Group, ShardIndex, &Shard)> {
    state.groups().flat_map(|group| {
        group
            .indexed_shards()
            .map(move |(index, shard)| (group, index, shard))
    })
}

fn owners_are_live(state: &State, mut finding: Finding<'_>) {
    let mut owned: BTreeMap<SessionId, BTreeSet<ShardIndex>> = state
        .sessions
        .keys()
        .map(|id| (*id, BTreeSet::new()))
        .collect();
    for (group, index, shard) in shards(state) {
        let Some(owner) = shard.owner() else { continue };
        let session = state.sessions.get(&owner);
        finding.require(
            session.is_some_and(|session| session.group == group.header.id),
            || {
                let name = &group.header.name;
                format!("{name}/{index} is owned by {owner}, no live session of the group")
            },
        );
        owned.entry(owner).or_default().insert(index);
    }
    let indexed = state.owned.iter().map(|(id, owned)| (id, &**owned));
    finding.require(indexed.eq(&owned), || {
        "the index of owners differs from the shards".to_owned()
    });
}

fn workers_and_sessions_agree(state: &State, mut finding: Finding<'_>) {
    for (id, session) in state.sessions() {
        let group = state.groups.get(&session.group);
        let worker = group.and_then(|group| group.workers.get(&session.worker));
        finding.require(
            worker.is_some_and(|worker| worker.session == Some(id)),
            || {
                format!(
                    "session {id} is live but not the session of {}",
                    session.worker
                )
            },
        );
    }
    for group in state.groups() {
        for (name, worker) in group.workers.iter() {
            let Some(id) = worker.session else { continue };
            let session = state.sessions.get(&id);
            finding.require(
                session.is_some_and(|session| {
                    session.group == group.header.id && session.worker == *name
                }),
                || format!("worker {name} has session {id}, which is not live or another's"),
            );
        }
    }
}

fn epochs_are_in_order(state: &State, mut finding: Finding<'_>) {
    let cluster = state.cluster.map(|cluster| cluster.0);
    for (group, index, shard) in shards(state) {
        let at = || format!("{}/{index}", group.header.name);
        finding.require(shard.owner().is_none() || shard.epoch.is_some(), || {
            format!("{} is owned without an epoch", at())
        });
        for ready in &shard.stores {
            finding.require(Some(ready.epoch) <= shard.epoch, || {
                format!("{}: store {} is ready above the epoch", at(), ready.store)
            });
        }
        let sorted = shard.stores.is_sorted_by(|one, two| one.store < two.store);
        finding.require(sorted, || format!("{}: stores out of order", at()));
        let Some(replicated) = &shard.replicated else {
            continue;
        };
        finding.require(Some(replicated.epoch) <= shard.epoch, || {
            format!("{}: the fence is above the epoch", at())
        });
        let written = replicated.latest.as_ref().map(|latest| latest.epoch);
        finding.require(written <= Some(replicated.epoch), || {
            format!("{}: the latest write is above the fence", at())
        });
        let Some(owner) = shard
            .owner()
            .filter(|_| Some(replicated.epoch) == shard.epoch)
        else {
            continue;
        };
        let fence = replicated.owner;
        let same = Some(fence.cluster) == cluster && fence.session == owner.0;
        finding.require(same, || {
            format!(
                "{}: the fence of session {owner}'s epoch is {fence}'s",
                at()
            )
        });
    }
}

fn groups_are_whole(state: &State, mut finding: Finding<'_>) {
    for (id, group) in state.groups.iter() {
        let name = &group.header.name;
        finding.require(group.header.id == *id, || {
            format!("{name} is filed under #{id}")
        });
        let (found, expected) = (
            group.shards.iter().count(),
            group.header.shard_count as usize,
        );
        finding.require(found == expected, || {
            format!("{name} has {found} shards instead of {expected}")
        });
        finding.require(group.shards.len() as usize == found, || {
            format!(
                "{name} counts {} shards and has {found}",
                group.shards.len()
            )
        });
    }
    let names: BTreeMap<_, _> = state
        .groups
        .iter()
        .map(|(id, group)| (group.header.name.clone(), *id))
        .collect();
    finding.require(
        names == *state.names && names.len() == state.groups.len(),
        || "the index of names differs from the groups".to_owned(),
    );
}

fn deletion_grants_nothing(state: &State, mut finding: Finding<'_>) {
    let deleting = shards(state).filter(|(group, ..)| group.header.phase == GroupPhase::Deleting);
    for (group, index, shard) in deleting {
        let ending = match &shard.state {
            ShardState::Unowned(_) => true,
            ShardState::Revoking(revocation) => revocation.next.is_none(),
            ShardState::Opening(_) | ShardState::Serving(_) => false,
        };
        finding.require(ending, || {
            format!(
                "{}/{index} is {:?} under deletion",
                group.header.name, shard.state
            )
        });
    }
}

fn names_are_taken_once(state: &State, mut finding: Finding<'_>) {
    for name in state.names.keys() {
        finding.require(!state.tombstones.contains_key(name), || {
            format!("{name} is a group and a tombstone")
        });
    }
}

fn bytes_are_accounted_for(state: &State, mut finding: Finding<'_>) {
    let bytes = |group: &Group| {
        group
            .shards
            .iter()
            .map(Shard::checkpoint_bytes)
            .sum::<u64>()
    };
    for group in state.groups() {
        let (counted, kept) = (bytes(group), group.checkpoint_bytes);
        finding.require(counted == kept, || {
            let name = &group.header.name;
            format!("checkpoints of {name} take {counted} bytes, accounted for are {kept}")
        });
    }
}

fn worker_records_say_something(state: &State, mut finding: Finding<'_>) {
    for group in state.groups() {
        for (name, worker) in group.workers.iter() {
            let says = worker.session.is_some() || worker.mode != WorkerMode::Active;
            finding.require(says, || format!("worker {name} is kept for nothing"));
            let is_paused = worker.mode == WorkerMode::Paused;
            finding.require(worker.pause.is_some() == is_paused, || {
                format!("worker {name} is {:?} with {:?}", worker.mode, worker.pause)
            });
        }
    }
}

fn nothing_is_newer(state: &State, mut finding: Finding<'_>) {
    let Revision(now) = state.revision;
    let newest = [
        state.groups.keys().map(|id| id.0).max(),
        state.sessions.keys().map(|id| id.0).max(),
        state
            .groups
            .values()
            .map(|group| group.header.policy_revision.0)
            .max(),
        state
            .tombstones
            .values()
            .map(|tombstone| tombstone.removed_at.0)
            .max(),
        state.groups().filter_map(latest_of_operators).max(),
    ];
    for newest in newest.into_iter().flatten() {
        finding.require(newest <= now, || {
            format!("{newest} is above the revision {now}")
        });
    }
    for (group, index, shard) in shards(state) {
        let since = match &shard.state {
            ShardState::Unowned(end) => end.as_ref().map(|end| end.at),
            ShardState::Revoking(revocation) => Some(revocation.since),
            ShardState::Opening(_) | ShardState::Serving(_) => None,
        };
        let failed = shard.open_failure.as_ref().map(|failure| failure.at);
        finding.require(since.max(failed) <= Some(state.revision), || {
            format!(
                "{}/{index} is newer than the revision {now}",
                group.header.name
            )
        });
    }
}

/// The latest pause or freeze of a group.
fn latest_of_operators(group: &Group) -> Option<u64> {
    let pauses = group.workers.values().filter_map(|worker| worker.pause);
    let pauses = pauses.map(|pause| pause.since.0);
    let frozen = group.header.frozen.as_ref().map(|freeze| freeze.since.0);
    pauses.chain(frozen).max()
}

fn identity_comes_first(state: &State, mut finding: Finding<'_>) {
    finding.require(state.cluster.is_some() || *state == State::new(), || {
        "there is a state without an identity".to_owned()
    });
}

fn quotas_are_kept(state: &State, mut finding: Finding<'_>) {
    let names = state.groups.len() + state.tombstones.len();
    let shards: u64 = state
        .groups()
        .map(|group| u64::from(group.shards.len()))
        .sum();
    finding.require(state.groups.len() <= quota::GROUPS_MAX, || {
        "too many groups".to_owned()
    });
    finding.require(names <= quota::GROUP_NAMES_MAX, || {
        "too many names".to_owned()
    });
    finding.require(shards <= quota::SHARDS_MAX, || "too many shards".to_owned());
    for group in state.groups() {
        finding.require(group.workers.len() <= quota::WORKERS_PER_GROUP_MAX, || {
            format!("{} has too many workers", group.header.name)
        });
        let placements = group.placements.len();
        finding.require(placements <= quota::PLACEMENTS_PER_GROUP_MAX, || {
            format!("{} has too many placements", group.header.name)
        });
    }
    let stores = |group: &Group| group.shards.iter().map(|shard| shard.stores.len()).max();
    let most = state.groups().filter_map(stores).max();
    finding.require(most <= Some(quota::STORES_PER_SHARD_MAX), || {
        "too many stores".to_owned()
    });
}

fn nothing_is_left_to_write(state: &State, mut finding: Finding<'_>) {
    finding.require(state.touched.is_empty(), || {
        "a change was not written".to_owned()
    });
}

fn shards_are_indexed(state: &State, mut finding: Finding<'_>) {
    for group in state.groups() {
        let (mut unowned, mut revoking) = (BTreeSet::new(), BTreeSet::new());
        for (index, shard) in group.indexed_shards() {
            match shard.state {
                ShardState::Unowned(_) => drop(unowned.insert(index)),
                ShardState::Revoking(_) => drop(revoking.insert(index)),
                ShardState::Opening(_) | ShardState::Serving(_) => {}
            }
        }
        let name = &group.header.name;
        finding.require(group.unowned.iter().eq(unowned), || {
            format!("the index of unowned shards of {name} differs from the shards")
        });
        finding.require(group.revoking.iter().eq(revoking), || {
            format!("the index of revoked shards of {name} differs from the shards")
        });
    }
}

fn nobody_owns_before_a_restore_is_settled(state: &State, mut finding: Finding<'_>) {
    let Some(restored) = state.restored() else {
        return;
    };
    for (group, index, shard) in shards(state) {
        finding.require(shard.owner().is_none(), || {
            let name = &group.header.name;
            format!(
                "shard {index} of {name} is owned since a restore at {}",
                restored.at
            )
        });
    }
    finding.require(state.cluster() != Some(restored.from), || {
        format!("the restored cluster is {}, as before", restored.from)
    });
    finding.require(restored.at <= state.revision(), || {
        format!("the restore at {} is still to come", restored.at)
    });
}
