//! The store in memory keeps the contract.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;

use async_trait::async_trait;
use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options, Report};
use tenure_fence::{
    CheckpointError, CheckpointStore, Deletion, FencingToken, MemoryStore, Refusals, Resource,
    Sequence, Write, WriteId,
};

struct InMemory {
    store: Arc<MemoryStore>,
    grants: LocalGrants,
}

impl InMemory {
    fn new(store: MemoryStore) -> Self {
        Self {
            store: Arc::new(store),
            grants: LocalGrants::new(),
        }
    }
}

#[async_trait]
impl Harness for InMemory {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.store.clone()
    }

    async fn fresh_resource(&mut self) -> Resource {
        self.grants.fresh_resource()
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        self.grants.next_tenure(resource, holder)
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }
}

fn passed_in_full(report: &Report) {
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    assert_eq!(report.race.rounds, 1_000);
}

#[tokio::test]
async fn keeps_the_contract_on_one_thread() {
    let report = kit::run(&mut InMemory::new(MemoryStore::new()), Options::default()).await;
    passed_in_full(&report);
    // A race that only ever ends one way shows nothing.
    assert!(report.race.landed > 1_000, "{:?}", report.race);
    assert!(report.race.fenced > 500, "{:?}", report.race);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_many_threads() {
    let report = kit::run(&mut InMemory::new(MemoryStore::new()), Options::default()).await;
    passed_in_full(&report);
    // How many come too late is up to the machine here.
    assert!(report.race.landed > 1_000, "{:?}", report.race);
    println!("{:?}", report.race);
}

#[tokio::test]
async fn keeps_the_contract_with_a_tiny_limit() {
    let store = MemoryStore::with_max_value_bytes(128);
    passed_in_full(&kit::run(&mut InMemory::new(store), Options::default()).await);
}

#[tokio::test]
async fn a_seed_repeats_a_run() {
    let options = Options {
        seed: Some(20_261_130),
        ..Options::default()
    };
    let first = kit::run(&mut InMemory::new(MemoryStore::new()), options.clone()).await;
    let second = kit::run(&mut InMemory::new(MemoryStore::new()), options).await;
    assert_eq!(first.seed, 20_261_130);
    assert_eq!(first.race, second.race);
    assert_eq!(first.cases, second.cases);
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let store = MemoryStore::new();
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    let write = |number: u128| Write {
        sequence: Sequence::FIRST,
        write_id: WriteId::new(number),
        data: "value".into(),
    };

    assert!(matches!(
        store.write(&new, write(1)).await,
        Err(CheckpointError::NotSealed { .. })
    ));
    store.seal(&new).await.unwrap();
    store.write(&new, write(1)).await.unwrap();
    store.write(&new, write(1)).await.unwrap();
    store.write(&new, write(2)).await.unwrap_err();
    store.write(&old, write(3)).await.unwrap_err();
    let deletion = |number: u128| Deletion {
        sequence: Sequence::FIRST,
        write_id: WriteId::new(number),
    };
    store.delete(&old, deletion(5)).await.unwrap_err();
    store.delete(&new, deletion(6)).await.unwrap_err();
    store.seal(&old).await.unwrap_err();
    store
        .write(&grants.conflicting(&new), write(4))
        .await
        .unwrap_err();

    let expected = Refusals {
        fenced: 2,
        not_sealed: 1,
        epoch_conflict: 1,
        sequence_reused: 2,
    };
    assert_eq!(store.refusals(), expected);
}
