//! How much memory a shard takes, and that nothing is quadratic in shards.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and this one measures time"
)]

use std::collections::BTreeMap;
use std::mem::size_of;
use std::time::{Duration, Instant};

use tenure_fence::{Epoch, GroupName, Owner};
use tenure_ownership::command::{Assign, CreateGroup, Grant, Ready, Register, Seal, Tenure};
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use tenure_ownership::policy::Policy;
use tenure_ownership::shard::{OpenFailure, Replicated, Revocation, Shard, StoreReady, TenureEnd};
use tenure_ownership::{Command, State, apply};

/// What the state may take at worst of the 512 bytes that `docs/architecture.md` allows the whole
/// coordinator: no name is shared, every shard has a store, a checkpoint and an end. Most take half.
const STATE_BUDGET_BYTES: usize = 448;

/// What an allocator adds to each allocation, at most: its header and the rounding to 16 bytes.
const ALLOCATION_BYTES: usize = 24;

#[test]
fn a_shard_with_a_store_and_a_checkpoint_fits_into_its_budget() {
    let replicated = size_of::<Replicated>() + ALLOCATION_BYTES;
    // Names that no other record shares: the counts of an `Arc`, and a long text.
    let name = 2 * size_of::<usize>() + 24 + ALLOCATION_BYTES;
    let stores = size_of::<StoreReady>() + ALLOCATION_BYTES + name;
    // An owned shard is in the index of its owner, whose nodes of eleven are at least half full. One
    // that is revoked or not owned has a record of that instead or besides.
    let entry = 2 * size_of::<ShardIndex>() + 8;
    let revoked = entry + size_of::<Revocation>() + ALLOCATION_BYTES;
    let unowned = size_of::<TenureEnd>() + ALLOCATION_BYTES + name;
    let total = size_of::<Shard>() + replicated + stores + revoked.max(unowned);
    assert!(total <= STATE_BUDGET_BYTES, "a shard takes {total} bytes");
    // What few shards have must not be kept in every shard that does not.
    assert!(size_of::<Option<Box<OpenFailure>>>() <= 8);
    assert!(size_of::<Shard>() <= 64, "{} bytes", size_of::<Shard>());
}

#[test]
fn a_hundred_thousand_shards_move_in_one_entry() {
    const SHARDS: u32 = 100_000;
    let group: GroupName = "orders".parse().unwrap();
    let session = SessionId(3);
    let first = Epoch::FIRST;
    let shards = || (0..SHARDS).map(ShardIndex);
    let tenures = || {
        shards()
            .map(|shard| Tenure {
                shard,
                epoch: first,
            })
            .collect::<Vec<_>>()
    };
    let register = Register {
        group: group.clone(),
        worker: WorkerName::new("worker-1").unwrap(),
        nonce: ProcessNonce(1),
        first: None,
        replaces: None,
        ttl: None,
        weight: 1,
        labels: BTreeMap::new(),
        address: String::new(),
    };
    let history = [
        Command::InitCluster(ClusterId(7)),
        Command::CreateGroup(CreateGroup {
            name: group.clone(),
            shard_count: SHARDS,
            policy: Policy::default(),
        }),
        Command::Register(Box::new(register)),
        Command::Assign(Assign {
            group: GroupId(2),
            grants: shards()
                .map(|shard| Grant {
                    shard,
                    seen: None,
                    to: session,
                })
                .collect(),
            revokes: Vec::new(),
        }),
        Command::Seal(Seal {
            group: group.clone(),
            owner: Owner {
                cluster: 7,
                session: session.0,
            },
            tenures: tenures(),
        }),
        Command::Ready(Ready {
            session,
            stores: vec![StoreName::new("main").unwrap()],
            tenures: tenures(),
        }),
        Command::DeleteGroup(group),
        Command::Expire(vec![session]),
        Command::RemoveGroup(GroupId(2)),
    ];
    let mut state = State::new();
    for (index, command) in (1..).zip(history) {
        let shown = command.to_string();
        let began = Instant::now();
        let applied = apply(&mut state, Revision(index), command);
        let took = began.elapsed();
        // Each takes a tenth of a second or two. Something quadratic would take minutes.
        assert!(took < Duration::from_secs(5), "{shown} took {took:?}");
        let effect = applied.outcome.unwrap();
        assert_eq!(effect.refused, []);
    }
    assert_eq!(state.groups().count(), 0);
}
