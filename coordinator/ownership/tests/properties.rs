//! What holds for every history of commands.
//!
//! A history is a list of dice throws. Each throw becomes a command that mostly fits the state it
//! meets, so that histories go deep. A failing history is made small, printed, and kept in
//! `tests/properties.regressions`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests fail by panicking, and dice are small"
)]

mod random;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use random::Throw;
use tenure_fence::{Epoch, GroupName, Owner};
use tenure_ownership::command::{DeleteCheckpoint, Tenure, WriteCheckpoint};
use tenure_ownership::ids::{GroupId, Revision, ShardIndex};
use tenure_ownership::record::checkpoint_key;
use tenure_ownership::shard::{Shard, Written};
use tenure_ownership::{Applied, Command, Event, State, apply, invariants};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

fn histories(longest: usize) -> impl Strategy<Value = Vec<Throw>> {
    vec(any::<Throw>(), 1..longest)
}

/// A node that applies commands and keeps what it wrote.
#[derive(Default)]
struct Node {
    state: State,
    index: u64,
    disk: BTreeMap<Vec<u8>, Bytes>,
}

impl Node {
    fn apply(&mut self, command: Command) -> Applied {
        self.index += 1;
        let applied = apply(&mut self.state, Revision(self.index), command);
        for write in &applied.writes {
            match &write.value {
                Some(value) => self.disk.insert(write.key.clone(), value.clone()),
                None => self.disk.remove(&write.key),
            };
        }
        applied
    }

    /// The state as it is after a restart.
    fn read_back(&self) -> State {
        let records = self
            .disk
            .iter()
            .map(|(key, value)| (key.clone(), value.to_vec()));
        State::from_records(records).unwrap()
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    /// Every invariant holds after every command.
    #[test]
    fn random_commands_keep_every_invariant(history in histories(120)) {
        let mut node = Node::default();
        for throw in &history {
            let command = random::command(&node.state, throw);
            let shown = format!("{command:?}");
            node.apply(command);
            prop_assert_eq!(invariants::check(&node.state), [], "after {}", shown);
        }
    }

    /// P10, and its counterpart: whatever says that it changed nothing did not.
    #[test]
    fn a_refused_command_changes_nothing(history in histories(120)) {
        let mut node = Node::default();
        for throw in &history {
            let command = random::command(&node.state, throw);
            let before = node.state.clone();
            let applied = node.apply(command);
            let changed = node.state.revision() != before.revision();
            if applied.outcome.is_err() || !changed {
                prop_assert_eq!(&node.state, &before);
                prop_assert_eq!(&applied.writes, &[]);
            }
            prop_assert_eq!(changed, node.state.revision() == Revision(node.index));
            prop_assert_eq!(changed, !applied.writes.is_empty());
        }
    }

    /// P1, also across the deletion and the return of a group.
    #[test]
    fn epochs_only_rise_and_are_granted_once(history in histories(200)) {
        let mut node = Node::default();
        let mut granted: BTreeMap<(GroupName, ShardIndex), Epoch> = BTreeMap::new();
        for throw in &history {
            let before = node.state.clone();
            let command = random::command(&node.state, throw);
            let applied = node.apply(command);
            for event in applied.outcome.iter().flat_map(|effect| &effect.events) {
                let Event::Granted { group, shard, epoch, .. } = event else { continue };
                let name = node.state.group(*group).unwrap().header.name.clone();
                let highest = granted.insert((name, *shard), *epoch);
                prop_assert!(highest < Some(*epoch), "{} after {:?}", epoch, highest);
            }
            epochs_did_not_fall(&before, &node.state)?;
        }
    }

    /// Rule 3 of the store: what a shard has accepted last never falls back, neither behind a write
    /// nor behind a deletion.
    #[test]
    fn sequences_only_rise_within_an_epoch(history in histories(250)) {
        let mut node = Node::default();
        for throw in &history {
            let before = node.state.clone();
            let command = random::command(&node.state, throw);
            node.apply(command);
            for group in node.state.groups() {
                for (index, shard) in group.indexed_shards() {
                    let earlier = before.shard(group.header.id, index).and_then(latest);
                    let now = latest(shard);
                    let place = |latest: Option<Written>| latest.map(|it| (it.epoch, it.sequence));
                    prop_assert!(
                        earlier == now || place(earlier.clone()) < place(now.clone()),
                        "{now:?} after {earlier:?}"
                    );
                }
            }
        }
    }

    /// P9: every node that applies the log, as it is encoded, has the same state and outcomes.
    #[test]
    fn replay_gives_an_identical_state(history in histories(120)) {
        let mut node = Node::default();
        let mut log = Vec::new();
        let mut outcomes = Vec::new();
        for throw in &history {
            let command = random::command(&node.state, throw);
            let encoded = command.encode();
            prop_assert_eq!(&Command::decode(&encoded).unwrap(), &command);
            log.push(encoded);
            outcomes.push(node.apply(command));
        }
        let mut other = Node::default();
        for (encoded, outcome) in log.iter().zip(&outcomes) {
            let applied = other.apply(Command::decode(encoded).unwrap());
            prop_assert_eq!(&applied, outcome);
        }
        prop_assert_eq!(&other.state, &node.state);
        prop_assert_eq!(&other.disk, &node.disk);
    }

    /// Whoever reads a clone reads the state of its moment, whatever is applied meanwhile.
    #[test]
    fn a_clone_stays_as_it_was_taken(history in histories(120), at in any::<Index>()) {
        let mut node = Node::default();
        let mut taken = None;
        for (position, throw) in history.iter().enumerate() {
            if position == at.index(history.len()) {
                taken = Some((node.state.clone(), node.read_back()));
            }
            let command = random::command(&node.state, throw);
            node.apply(command);
        }
        let (clone, of_its_moment) = taken.unwrap();
        prop_assert_eq!(&clone, &of_its_moment);
        prop_assert_eq!(invariants::check(&clone), []);
        prop_assert_eq!(&node.read_back(), &node.state);
    }

    /// Writing the touched records alone loses nothing, whenever the node stops.
    #[test]
    fn the_records_written_give_back_the_state(history in histories(120)) {
        let mut node = Node::default();
        for throw in &history {
            let command = random::command(&node.state, throw);
            node.apply(command);
            prop_assert_eq!(&node.read_back(), &node.state);
        }
        // And nothing is left on disk of what is gone: the records are those of the state.
        let blobs: BTreeSet<_> = blob_keys(&node.state).collect();
        let records: BTreeMap<_, _> = node.state.records().collect();
        let (kept, other): (BTreeMap<_, _>, BTreeMap<_, _>) =
            node.disk.into_iter().partition(|(key, _)| blobs.contains(key));
        prop_assert_eq!(kept.len(), blobs.len());
        prop_assert_eq!(other, records);
    }

    /// P2 and P3: a write lands only at the highest epoch ever granted or sealed, and what the
    /// store holds is the last write that was answered with success.
    #[test]
    fn the_store_holds_the_last_accepted_write(history in histories(250)) {
        let mut node = Node::default();
        let mut stored: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
        for throw in &history {
            let command = random::command(&node.state, throw);
            let before = node.state.revision();
            let applied = node.apply(command.clone());
            let changed = node.state.revision() != before;
            if changed && applied.outcome.is_ok() {
                match &command {
                    Command::WriteCheckpoint(write) => {
                        let WriteCheckpoint { group, owner, tenure, .. } = write;
                        admitted_at_the_highest_epoch(&node.state, group, *owner, *tenure)?;
                        stored.insert(blob_key(&node.state, &write.group, write.tenure.shard), write.data.clone());
                    }
                    Command::DeleteCheckpoint(delete) => {
                        let DeleteCheckpoint { group, owner, tenure, .. } = delete;
                        admitted_at_the_highest_epoch(&node.state, group, *owner, *tenure)?;
                        stored.remove(&blob_key(&node.state, &delete.group, delete.tenure.shard));
                    }
                    Command::RemoveGroup(group) => {
                        let of_group = checkpoint_key(*group, ShardIndex(0));
                        let prefix = &of_group[..of_group.len() - 4];
                        stored.retain(|key, _| !key.starts_with(prefix));
                    }
                    _ => {}
                }
            }
            for (key, data) in &stored {
                prop_assert_eq!(node.disk.get(key), Some(data));
            }
            let blobs: BTreeSet<_> = blob_keys(&node.state).collect();
            prop_assert_eq!(blobs, stored.keys().cloned().collect::<BTreeSet<_>>());
        }
    }
}

proptest! {
    #![proptest_config(config(20_000))]

    /// Bytes that are no command are an error.
    #[test]
    fn arbitrary_bytes_are_no_command(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(command) = Command::decode(&bytes) {
            prop_assert_eq!(Command::decode(&command.encode()).unwrap(), command);
        }
    }

    /// Bytes that are no record are an error.
    #[test]
    fn arbitrary_bytes_are_no_record(
        kind in proptest::sample::select(b"mgtwshbx".to_vec()),
        key in vec(any::<u8>(), 0..16),
        value in vec(any::<u8>(), 0..64),
    ) {
        let key = [&[kind], &key[..]].concat();
        let _either = State::from_records([(key, value)].into_iter());
    }
}

proptest! {
    #![proptest_config(config(300))]

    /// Damage to a log entry or a record is an error or another value, never a panic.
    #[test]
    fn damaged_bytes_do_not_panic(history in histories(60), at in any::<u16>(), with in any::<u8>()) {
        let mut node = Node::default();
        for throw in &history {
            let command = random::command(&node.state, throw);
            let mut encoded = command.encode();
            damage(&mut encoded, at, with);
            let _either = Command::decode(&encoded);
            node.apply(command);
        }
        for damaged in node.disk.keys() {
            let records = node.disk.iter().map(|(key, value)| {
                let (mut key, mut value) = (key.clone(), value.to_vec());
                if key == *damaged {
                    damage(if with % 4 == 0 { &mut key } else { &mut value }, at, with);
                }
                (key, value)
            });
            let _either = State::from_records(records);
        }
    }
}

/// The histories above reach what they are to test: every event, and nearly every rejection.
#[test]
fn random_histories_reach_everything() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..400 {
        let mut node = Node::default();
        for throw in histories(250).new_tree(&mut runner).unwrap().current() {
            let command = random::command(&node.state, &throw);
            match node.apply(command).outcome {
                Ok(effect) => {
                    reached.extend(effect.events.iter().map(variant));
                    reached.extend(
                        effect
                            .refused
                            .iter()
                            .map(|(_, rejection)| variant(rejection)),
                    );
                }
                Err(rejection) => {
                    reached.insert(variant(&rejection));
                }
            }
        }
    }
    let expected = [
        "AlreadyInitialized",
        "AlreadyRegistered",
        "AlreadyServing",
        "BeingRevoked",
        "CheckpointTooLarge",
        "ClusterInitialized",
        "ClusterRestored",
        "ClusterSettled",
        "EpochExhausted",
        "FeatureEnabled",
        "Fence",
        "FloorRaised",
        "FreezeSet",
        "Granted",
        "GroupActive",
        "GroupCreated",
        "GroupDeleting",
        "GroupExists",
        "GroupGone",
        "GroupInUse",
        "GroupRemoved",
        "HolderChanged",
        "NeverGranted",
        "NotInitialized",
        "OtherCluster",
        "NotOwner",
        "NotPaused",
        "NotRevoking",
        "OutOfBounds",
        "Owned",
        "Policy",
        "PolicyChanged",
        "PolicySet",
        "QuarantineEnded",
        "Quarantined",
        "Registered",
        "Replaced",
        "Revoking",
        "Serving",
        "SessionEnded",
        "ShardPinned",
        "ShardQuarantined",
        "StaleEpoch",
        "TenureEnded",
        "UnknownGroup",
        "UnknownShard",
        "Unowned",
        "Unsettled",
        "WorkerModeSet",
        "WorkerTakesNone",
        "WrongGroup",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(reached, expected);
}

fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(char::is_ascii_alphabetic).collect()
}

fn damage(bytes: &mut [u8], at: u16, with: u8) {
    let length = bytes.len().max(1);
    if let Some(byte) = bytes.get_mut(usize::from(at) % length) {
        *byte ^= with;
    }
}

fn epochs_did_not_fall(before: &State, after: &State) -> Result<(), TestCaseError> {
    for group in after.groups() {
        let id = group.header.id;
        for (index, shard) in group.indexed_shards() {
            let Some(earlier) = before.shard(id, index) else {
                continue;
            };
            prop_assert!(earlier.epoch <= shard.epoch);
            prop_assert!(earlier.floor <= shard.floor);
            let fence =
                |shard: &Shard| shard.replicated.as_ref().map(|replicated| replicated.epoch);
            prop_assert!(fence(earlier) <= fence(shard), "a fence fell");
        }
    }
    Ok(())
}

fn admitted_at_the_highest_epoch(
    state: &State,
    group: &GroupName,
    owner: Owner,
    tenure: Tenure,
) -> Result<(), TestCaseError> {
    let group = state.group_named(group).unwrap();
    let shard = group.shard(tenure.shard).unwrap();
    prop_assert_eq!(shard.epoch, Some(tenure.epoch));
    prop_assert_eq!(shard.owner().map(|owner| owner.0), Some(owner.session));
    let replicated = shard.replicated.as_ref().unwrap();
    prop_assert_eq!((replicated.epoch, replicated.owner), (tenure.epoch, owner));
    Ok(())
}

fn latest(shard: &Shard) -> Option<Written> {
    shard.replicated.as_ref()?.latest.clone()
}

fn blob_key(state: &State, group: &GroupName, shard: ShardIndex) -> Vec<u8> {
    let id: GroupId = state.group_named(group).unwrap().header.id;
    checkpoint_key(id, shard)
}

/// The keys of all checkpoints that the state knows of.
fn blob_keys(state: &State) -> impl Iterator<Item = Vec<u8>> + '_ {
    state.groups().flat_map(|group| {
        let id = group.header.id;
        group
            .indexed_shards()
            .filter(|(_, shard)| shard.content().is_some())
            .map(move |(index, _)| checkpoint_key(id, index))
    })
}
