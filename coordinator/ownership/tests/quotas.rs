//! Nothing in the state grows without a bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::collections::BTreeMap;

use tenure_fence::{Epoch, GroupName};
use tenure_ownership::command::{
    Assign, CreateGroup, Grant, OneShard, PinShard, PinTo, Ready, Register, Release, ReleaseCause,
    Released, SetWorkerMode, Tenure,
};
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::{
    ADDRESS_BYTES_MAX, LABEL_BYTES_MAX, LABEL_KEY_BYTES, LABELS_MAX, WorkerMode,
};
use tenure_ownership::shard::{OpenFailure, Shard};
use tenure_ownership::{Command, Rejection, State, apply, invariants, quota};

const SESSION: SessionId = SessionId(3);

struct Node {
    state: State,
    index: u64,
}

impl Node {
    /// A node with an identity and nothing else.
    fn new() -> Self {
        let mut node = Self {
            state: State::new(),
            index: 0,
        };
        node.accept(Command::InitCluster(ClusterId(7)));
        node
    }

    /// A node with group `orders` of one shard, which session 3 owns at epoch 1.
    fn with_owner() -> Self {
        let mut node = Self::new();
        node.accept(create("orders", 1));
        node.accept(Command::Register(Box::new(register("worker"))));
        node.grant(None);
        node
    }

    fn propose(&mut self, command: Command) -> Result<(), Rejection> {
        self.index += 1;
        let applied = apply(&mut self.state, Revision(self.index), command);
        let effect = applied.outcome?;
        assert_eq!(effect.refused, []);
        Ok(())
    }

    fn accept(&mut self, command: Command) {
        self.propose(command).unwrap();
    }

    fn refuse(&mut self, command: Command) -> String {
        self.propose(command).unwrap_err().to_string()
    }

    fn grant(&mut self, seen: Option<u64>) {
        let grant = Grant {
            shard: ShardIndex(0),
            seen: seen.and_then(Epoch::new),
            to: SESSION,
        };
        self.accept(Command::Assign(Assign {
            group: GroupId(2),
            grants: vec![grant],
            revokes: Vec::new(),
        }));
    }

    fn release(&mut self, epoch: u64, cause: ReleaseCause) {
        let released = Released {
            tenure: tenure(epoch),
            cause,
        };
        self.accept(Command::Release(Release {
            session: SESSION,
            releases: vec![released],
        }));
    }

    fn shard(&self) -> &Shard {
        self.state.shard(GroupId(2), ShardIndex(0)).unwrap()
    }
}

fn tenure(epoch: u64) -> Tenure {
    Tenure {
        shard: ShardIndex(0),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

fn name(text: &str) -> GroupName {
    text.parse().unwrap()
}

fn create(group: &str, shard_count: u32) -> Command {
    Command::CreateGroup(CreateGroup {
        name: name(group),
        shard_count,
        policy: Policy::default(),
    })
}

fn register(worker: &str) -> Register {
    Register {
        group: name("orders"),
        worker: WorkerName::new(worker).unwrap(),
        nonce: ProcessNonce(1),
        first: None,
        replaces: None,
        ttl: None,
        weight: 1,
        labels: BTreeMap::new(),
        address: String::new(),
    }
}

fn mode(worker: &str, mode: WorkerMode) -> Command {
    Command::SetWorkerMode(SetWorkerMode {
        group: name("orders"),
        worker: WorkerName::new(worker).unwrap(),
        mode,
        pause_timeout: None,
    })
}

#[test]
fn a_group_takes_no_more_workers_than_its_quota() {
    let mut node = Node::new();
    node.accept(create("orders", 1));
    for number in 1..quota::WORKERS_PER_GROUP_MAX {
        node.accept(Command::Register(Box::new(register(&format!(
            "worker-{number}"
        )))));
    }
    // A worker that is drained before it registers takes the last place.
    node.accept(mode("drained", WorkerMode::Draining));
    let refused = "workers of a group are limited to 20000";
    assert_eq!(
        node.refuse(Command::Register(Box::new(register("one-more")))),
        refused
    );
    assert_eq!(node.refuse(mode("one-more", WorkerMode::Draining)), refused);

    // Whoever has a place keeps it: it may register, be drained and be replaced.
    node.accept(Command::Register(Box::new(register("drained"))));
    node.accept(mode("worker-1", WorkerMode::Draining));
    let replacing = Register {
        nonce: ProcessNonce(2),
        replaces: Some(SESSION),
        ..register("worker-1")
    };
    node.accept(Command::Register(Box::new(replacing)));
    assert_eq!(
        node.refuse(Command::Register(Box::new(register("one-more")))),
        refused
    );

    // A place that becomes free is taken.
    node.accept(Command::Expire(vec![SessionId(4)]));
    node.accept(Command::Register(Box::new(register("one-more"))));
    assert_eq!(invariants::check(&node.state), []);
}

#[test]
fn a_group_takes_no_more_pins_than_its_quota() {
    let mut node = Node::new();
    node.accept(create("orders", 10_001));
    let pin = |shard| {
        Command::PinShard(PinShard {
            group: name("orders"),
            shard: ShardIndex(shard),
            to: PinTo::Worker(WorkerName::new("a").unwrap()),
        })
    };
    let most = u32::try_from(quota::PLACEMENTS_PER_GROUP_MAX).unwrap();
    (0..most).for_each(|shard| node.accept(pin(shard)));
    let refused = node.refuse(pin(most));
    assert!(refused.ends_with("are limited to 10000"), "{refused}");
    // What is known takes no more room.
    node.accept(pin(0));
    node.accept(Command::UnpinShard(OneShard {
        group: name("orders"),
        shard: ShardIndex(0),
    }));
    node.accept(pin(most));
    assert_eq!(invariants::check(&node.state), []);
}

#[test]
fn a_cluster_takes_no_more_groups_than_its_quota() {
    let mut node = Node::new();
    for number in 0..quota::GROUPS_MAX {
        node.accept(create(&format!("group-{number}"), 1));
    }
    assert_eq!(
        node.refuse(create("one-more", 1)),
        "groups are limited to 10000"
    );
    node.accept(Command::DeleteGroup(name("group-0")));
    node.accept(Command::RemoveGroup(GroupId(2)));
    node.accept(create("one-more", 1));
    assert_eq!(invariants::check(&node.state), []);
}

#[test]
fn a_cluster_remembers_no_more_names_than_its_quota() {
    let mut node = Node::new();
    for number in 0..quota::GROUP_NAMES_MAX {
        let text = format!("group-{number}");
        node.accept(create(&text, 1));
        let group = GroupId(node.index);
        node.accept(Command::DeleteGroup(name(&text)));
        node.accept(Command::RemoveGroup(group));
    }
    let refused = "names of groups ever used are limited to 100000";
    assert_eq!(node.refuse(create("one-more", 1)), refused);
    // A name that is remembered anyway is free to be used again, and can be removed again.
    node.accept(create("group-0", 1));
    let group = GroupId(node.index);
    assert_eq!(node.refuse(create("one-more", 1)), refused);
    node.accept(Command::DeleteGroup(name("group-0")));
    node.accept(Command::RemoveGroup(group));
    assert_eq!(invariants::check(&node.state), []);
}

#[test]
fn a_cluster_takes_no_more_shards_than_its_quota() {
    let mut node = Node::new();
    for number in 0..3 {
        node.accept(create(&format!("group-{number}"), 1_000_000));
    }
    node.accept(create("nearly", 999_999));
    let refused = "shards of the cluster are limited to 4000000";
    assert_eq!(node.refuse(create("two-more", 2)), refused);
    node.accept(create("last", 1));
    assert_eq!(node.refuse(create("one-more", 1)), refused);
}

#[test]
fn a_worker_describes_itself_within_bounds() {
    let labels = |count: usize, key: usize, value: usize| -> BTreeMap<String, String> {
        let keys = (0..count).map(|number| format!("{number:0>key$}"));
        keys.map(|key| (key, "v".repeat(value))).collect()
    };
    let described = |labels, address: usize| Register {
        labels,
        address: "a".repeat(address),
        ..register("worker")
    };
    let (key, value) = (*LABEL_KEY_BYTES.end(), LABEL_BYTES_MAX);
    let refused = [
        (
            labels(LABELS_MAX + 1, key, value),
            ADDRESS_BYTES_MAX,
            "labels",
        ),
        (
            labels(LABELS_MAX, key + 1, value),
            ADDRESS_BYTES_MAX,
            "labels",
        ),
        (
            labels(LABELS_MAX, key, value + 1),
            ADDRESS_BYTES_MAX,
            "labels",
        ),
        (
            labels(LABELS_MAX, key, value),
            ADDRESS_BYTES_MAX + 1,
            "address",
        ),
    ];
    let mut node = Node::new();
    node.accept(create("orders", 1));
    for (labels, address, expected) in refused {
        let command = Command::Register(Box::new(described(labels, address)));
        match node.propose(command) {
            Err(Rejection::OutOfBounds { field, .. }) => assert_eq!(field, expected),
            other => panic!("{other:?}"),
        }
    }
    let most = described(labels(LABELS_MAX, key, value), ADDRESS_BYTES_MAX);
    node.accept(Command::Register(Box::new(most)));
}

#[test]
fn a_reason_is_cut_at_a_whole_character() {
    let mut node = Node::with_owner();
    // The 256th byte is the first half of a character.
    node.release(1, ReleaseCause::OpenFailed(format!("x{}", "é".repeat(200))));
    let failure = node.shard().open_failure.as_ref().unwrap();
    assert_eq!(failure.reason, format!("x{}", "é".repeat(127)));
    assert!(failure.reason.len() <= OpenFailure::REASON_BYTES_MAX);
}

#[test]
fn of_many_stores_those_used_lately_are_remembered() {
    let mut node = Node::with_owner();
    // One stays attached, the others come and go.
    let rounds = 40;
    for epoch in 1..=rounds {
        let names = ["main".to_owned(), format!("store-{epoch:02}")];
        node.accept(Command::Ready(Ready {
            session: SESSION,
            stores: names
                .iter()
                .map(|name| StoreName::new(name).unwrap())
                .collect(),
            tenures: vec![tenure(epoch)],
        }));
        node.release(epoch, ReleaseCause::Finished);
        node.grant(Some(epoch));
    }
    let kept: Vec<_> = node
        .shard()
        .stores
        .iter()
        .map(|ready| ready.store.as_str())
        .collect();
    let lately = (26..=rounds).map(|epoch| format!("store-{epoch:02}"));
    let expected: Vec<_> = std::iter::once("main".to_owned()).chain(lately).collect();
    assert_eq!(kept, expected);
    assert_eq!(kept.len(), quota::STORES_PER_SHARD_MAX);
    assert_eq!(invariants::check(&node.state), []);
}
