//! What has happened in a run, and the promises it is held against.
//!
//! | promise | held against |
//! |---|---|
//! | P1 one owner for an epoch, epochs rise | every event of every node, every grant a worker was told |
//! | P2, P3 the fence | the shared store's own account (`store`), every claim of the replicated store |
//! | P4 and the rules' invariants | every state of every node |
//! | P5 nothing acknowledged is lost | every claim, and what is there at the end |
//! | P8 watchers miss nothing | what watchers were sent, against the events of the nodes |
//! | P9 equal states | states of different nodes at one revision |
//! | P11 one believer | every handle in the run, after every step |

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tenure::HeldShard;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::{Event, State, invariants};
use tenure_proto::v1 as pb;

use crate::totals::Totals;

/// States kept for comparison: as many revisions as a node may lag behind.
const STATES_MAX: usize = 4_096;

/// Violations told of one run: one mistake may break a promise at every step.
const VIOLATIONS_MAX: usize = 20;

/// Position of an event: revision and ordinal.
pub type Position = (u64, u32);

/// One tenure in the eyes of a worker: shard, epoch, and the number of the process.
pub type Tenure = (u32, u64, u64);

/// A handle, and the machine its process runs on.
#[derive(Debug)]
struct Held {
    machine: usize,
    shard: HeldShard,
}

/// Everything that is recorded.
#[derive(Debug, Default)]
pub struct History {
    /// Counts.
    pub totals: Totals,
    violations: Vec<String>,
    /// What events said who owns an epoch.
    owners: BTreeMap<(u32, u64), u64>,
    /// What workers were told that they own.
    told: BTreeMap<(u32, u64), u64>,
    /// The events of the group, by position, as nodes published them.
    events: BTreeMap<Position, String>,
    /// From where on every event is known, and how far.
    complete_from: Position,
    complete_to: Position,
    states: BTreeMap<u64, State>,
    held: BTreeMap<Tenure, Held>,
    /// The highest count that a store has acknowledged to each epoch, by store and shard.
    acknowledged: BTreeMap<(&'static str, u32), BTreeMap<u64, u64>>,
    /// What the claim of each epoch has found, by store and shard.
    claims: BTreeMap<(&'static str, u32), BTreeMap<u64, u64>>,
    /// When shards last moved, in nanoseconds of true time.
    moved_at_ns: u64,
}

impl History {
    /// Notes that a promise was broken.
    pub fn violate(&mut self, what: String) {
        self.totals.violations += 1;
        tracing::error!(target: "simulation", "{what}");
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// Returns what was broken.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Returns the position up to which events are known.
    #[must_use]
    pub fn last_event(&self) -> Position {
        // What comes before the first command is known: nothing.
        self.complete_to.max((0, u32::MAX))
    }

    /// Notes that no node can say any more what happened up to a revision: all of them lost their
    /// power while it did.
    pub fn skip_events(&mut self, revision: u64) {
        tracing::info!(target: "simulation", revision, "events before it are unknown");
        self.complete_from = (revision, u32::MAX);
        self.complete_to = self.complete_from;
    }

    /// Notes that every event up to a position was recorded.
    pub fn recorded_to(&mut self, position: Position) {
        self.complete_to = self.complete_to.max(position);
    }

    /// Returns when shards last moved, in nanoseconds of true time.
    #[must_use]
    pub fn moved_at_ns(&self) -> u64 {
        self.moved_at_ns
    }

    /// Records an event that a node has published.
    pub fn published(&mut self, node: usize, position: Position, event: &Event, now_ns: u64) {
        let text = event.to_string();
        match self.events.entry(position) {
            Entry::Occupied(known) if *known.get() != text => {
                let known = known.get().clone();
                self.violate(format!(
                    "P9: node {node} published {text:?} at {position:?}, another node {known:?}"
                ));
                return;
            }
            Entry::Occupied(_) => return,
            Entry::Vacant(free) => free.insert(text),
        };
        tracing::info!(target: "simulation", node, revision = position.0, "{event}");
        match event {
            Event::Granted {
                shard,
                epoch,
                owner,
                ..
            } => {
                self.moved_at_ns = now_ns;
                self.granted(shard.0, epoch.get(), owner.0);
            }
            Event::Revoking { .. } | Event::TenureEnded { .. } | Event::Serving { .. } => {
                self.moved_at_ns = now_ns;
            }
            _ => {}
        }
    }

    fn granted(&mut self, shard: u32, epoch: u64, owner: u64) {
        self.totals.grants += 1;
        if epoch > 1 {
            self.totals.handoffs += 1;
        }
        if let Some(other) = self.owners.insert((shard, epoch), owner)
            && other != owner
        {
            self.violate(format!(
                "P1: epoch {epoch} of shard {shard} was granted to {other} and to {owner}"
            ));
        }
    }

    /// Records what a node's state is now.
    pub fn applied(&mut self, node: usize, before: Option<&State>, state: &State) {
        self.totals.states += 1;
        for violation in invariants::check(state) {
            self.violate(format!("node {node}: {violation}"));
        }
        if let Some(before) = before {
            self.compare_epochs(node, before, state);
        }
        let revision = state.revision().0;
        match self.states.entry(revision) {
            Entry::Occupied(known) if known.get() != state => {
                self.violate(format!(
                    "P9: node {node} has another state at revision {revision} than another node"
                ));
            }
            Entry::Occupied(_) => self.totals.compared += 1,
            Entry::Vacant(free) => {
                free.insert(state.clone());
            }
        }
        while self.states.len() > STATES_MAX {
            self.states.pop_first();
        }
    }

    fn compare_epochs(&mut self, node: usize, before: &State, state: &State) {
        let mut fallen = Vec::new();
        for (was, is) in before.groups().zip(state.groups()) {
            for ((index, was), (_, is)) in was.indexed_shards().zip(is.indexed_shards()) {
                if is.highest_epoch() < was.highest_epoch() {
                    fallen.push(index);
                }
            }
        }
        for index in fallen {
            self.violate(format!("P1: an epoch of shard {index} fell on node {node}"));
        }
    }

    /// Returns a state that some node has had, if it is kept.
    #[must_use]
    pub fn state_at(&self, revision: u64) -> Option<&State> {
        self.states.get(&revision)
    }

    /// Records that a worker was given a handle.
    pub fn opened(&mut self, machine: usize, process: u64, shard: &HeldShard) {
        let (index, epoch) = (shard.id().index, shard.epoch().get());
        let owner = shard.token().owner.session;
        if let Some(other) = self.told.insert((index, epoch), owner)
            && other != owner
        {
            self.violate(format!(
                "P1: epoch {epoch} of shard {index} was given to {other} and to {owner}"
            ));
        }
        let held = Held {
            machine,
            shard: shard.clone(),
        };
        self.held.insert((index, epoch, process), held);
    }

    /// Records that a handle is out of use.
    pub fn closed(&mut self, tenure: Tenure) {
        self.held.remove(&tenure);
    }

    /// Checks that no shard has two who believe to be its only owner at this moment (P11). A process that
    /// is paused asks nothing.
    pub fn check_belief(&mut self, is_paused: impl Fn(usize) -> bool) {
        let mut believer: Option<Tenure> = None;
        let mut broken = Vec::new();
        for (tenure, held) in &self.held {
            if is_paused(held.machine) || !held.shard.is_current() {
                continue;
            }
            match believer {
                Some(other) if other.0 == tenure.0 => broken.push((other, *tenure)),
                _ => believer = Some(*tenure),
            }
        }
        for (one, other) in broken {
            self.violate(format!(
                "P11: shard {} is current at epoch {} and at epoch {} at the same time",
                one.0, one.1, other.1
            ));
        }
    }

    /// Records that a store has acknowledged a count to an epoch. A later epoch that has claimed has found it,
    /// also when its owner was told sooner than the writer.
    pub fn wrote(&mut self, store: &'static str, shard: u32, epoch: u64, count: u64) {
        self.totals.accepted += 1;
        let of_epochs = self.acknowledged.entry((store, shard)).or_default();
        let highest = of_epochs.entry(epoch).or_default();
        *highest = (*highest).max(count);
        let claims = self.claims.get(&(store, shard));
        let claims = claims
            .into_iter()
            .flat_map(|claims| claims.range(epoch + 1..));
        let missed: Vec<(u64, u64)> = claims
            .map(|(&claimer, &found)| (claimer, found))
            .filter(|&(_, found)| found < count)
            .collect();
        for (claimer, found) in missed {
            self.not_found(store, shard, (claimer, found), (epoch, count));
        }
    }

    /// Checks what the claim of an epoch has found in a store: nothing that was acknowledged to an earlier one
    /// may be missing. What a later one has written is not its matter: a claim may be answered late.
    pub fn found(&mut self, store: &'static str, shard: u32, epoch: u64, count: u64) {
        let claims = self.claims.entry((store, shard)).or_default();
        claims.insert(epoch, count);
        let earlier = self.acknowledged.get(&(store, shard));
        let earlier = earlier.into_iter().flat_map(|epochs| epochs.range(..epoch));
        let missed: Vec<(u64, u64)> = earlier
            .map(|(&writer, &acknowledged)| (writer, acknowledged))
            .filter(|&(_, acknowledged)| count < acknowledged)
            .collect();
        for written in missed {
            self.not_found(store, shard, (epoch, count), written);
        }
    }

    fn not_found(
        &mut self,
        store: &'static str,
        shard: u32,
        (claimer, found): (u64, u64),
        (writer, acknowledged): (u64, u64),
    ) {
        self.violate(format!(
            "P3, P5: the claim of epoch {claimer} found {found} in the {store} store of shard {shard}, \
             {acknowledged} was acknowledged to epoch {writer}"
        ));
    }

    /// Returns the highest count that a store has acknowledged for a shard.
    #[must_use]
    pub fn acknowledged(&self, store: &'static str, shard: u32) -> u64 {
        let of_epochs = self.acknowledged.get(&(store, shard));
        let highest = of_epochs.and_then(|epochs| epochs.values().max());
        highest.copied().unwrap_or(0)
    }

    /// Checks what was read from a store, when so much was acknowledged before.
    pub fn left(&mut self, store: &'static str, shard: u32, acknowledged: u64, count: u64) {
        if count < acknowledged {
            self.violate(format!(
                "P5: {count} is left in the {store} store of shard {shard}, \
                 {acknowledged} was acknowledged"
            ));
        }
    }

    /// Checks what an owner has read as the only one, when it was told that so much is written.
    pub fn read_as_owner(
        &mut self,
        store: &'static str,
        shard: u32,
        acknowledged: u64,
        count: u64,
        by: &str,
    ) {
        self.totals.reads += 1;
        if count < acknowledged {
            self.violate(format!(
                "P5: {by} read {count} in the {store} store of shard {shard}, \
                 its own {acknowledged} was acknowledged"
            ));
        }
    }

    /// Tells whether a tenure is known to be over: a later one was granted.
    #[must_use]
    pub fn is_superseded(&self, shard: u32, epoch: u64) -> bool {
        let later = (shard, epoch + 1)..=(shard, u64::MAX);
        self.owners.range(later).next().is_some()
    }

    /// Checks what coordinators said of a tenure that was over, or not, when they were asked.
    pub fn verified(&mut self, shard: u32, epoch: u64, was_over: bool, current: bool) {
        self.totals.verified += 1;
        if was_over && current {
            self.violate(format!(
                "P6: epoch {epoch} of shard {shard} was said to be current, it was over before"
            ));
        }
    }

    /// Checks a part of a state that a watcher was sent.
    pub fn shown(&mut self, shown: &pb::WatchState) {
        let Some(at) = &shown.at else {
            self.violate("P8: a state came without its cursor".to_owned());
            return;
        };
        let Some(state) = self.states.get(&at.revision) else {
            return;
        };
        let Some(group) = state.groups().next() else {
            return;
        };
        let differs = shown.shards.iter().find(|shown| {
            let shard = group.shard(ShardIndex(shown.index));
            let known = shard.map(|shard| {
                (
                    shard.epoch.map_or(0, |epoch| epoch.get()),
                    shard.owner().map_or(0, |owner| owner.0),
                )
            });
            known != Some((shown.epoch, shown.owner))
        });
        if let Some(shown) = differs {
            let complaint = format!("P8: at {at:?} a watcher was shown {shown:?}, it was not so");
            self.violate(complaint);
        }
    }

    /// Checks what a watcher was sent: the events after `after` up to and with `at`.
    pub fn watched(&mut self, after: Position, at: Position, kinds: &[(Position, String)]) {
        self.totals.watched += u64::try_from(kinds.len()).unwrap_or(0);
        if after >= at {
            self.violate(format!("P8: a watcher at {after:?} was sent {at:?}"));
            return;
        }
        if after < self.complete_from {
            return;
        }
        let range = (
            std::ops::Bound::Excluded(after),
            std::ops::Bound::Included(at),
        );
        let truth: Vec<(Position, &str)> = self
            .events
            .range(range)
            .map(|(position, text)| (*position, text.as_str()))
            .collect();
        let equal = truth.len() == kinds.len()
            && truth
                .iter()
                .zip(kinds)
                .all(|(truth, sent)| truth.0 == sent.0 && begins(truth.1, &sent.1));
        if !equal {
            let complaint =
                format!("P8: after {after:?} a watcher was sent {kinds:?}, but it was {truth:?}");
            self.violate(complaint);
        }
    }

    /// Tells whether a machine's process holds any tenure.
    #[must_use]
    pub fn has_handles(&self, machine: usize) -> bool {
        self.held.values().any(|held| held.machine == machine)
    }

    /// Tells whether a machine's process holds a tenure after which another was granted: a zombie.
    #[must_use]
    pub fn is_outlived(&self, machine: usize) -> bool {
        self.held.iter().any(|((shard, epoch, _), held)| {
            held.machine == machine && self.is_superseded(*shard, *epoch)
        })
    }

    /// Checks, at the end, that everything workers were told was really granted.
    pub fn check_grants(&mut self) {
        let incomplete = self.complete_from > Position::default();
        let invented: Vec<String> = self
            .told
            .iter()
            .filter(|(tenure, owner)| match self.owners.get(tenure) {
                Some(granted) => granted != *owner,
                None => !incomplete,
            })
            .map(|((shard, epoch), owner)| {
                format!("P5: epoch {epoch} of shard {shard} was given to {owner}, never granted")
            })
            .collect();
        for complaint in invented {
            self.violate(complaint);
        }
    }
}

/// Tells whether a text begins with these words, whole.
fn begins(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
