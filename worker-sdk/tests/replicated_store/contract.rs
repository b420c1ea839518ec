//! The contract of all stores, and seals.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::{CheckpointError, CheckpointStore, FencingToken, ReplicatedStore, Resource};
use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options};

use crate::service::{Node, shard_token, write};

struct Replicated {
    store: Arc<ReplicatedStore>,
    grants: LocalGrants,
}

#[async_trait]
impl Harness for Replicated {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.store.clone()
    }

    async fn fresh_resource(&mut self) -> Resource {
        // The replicated store keeps shards only.
        loop {
            let resource = self.grants.fresh_resource();
            if matches!(resource, Resource::Shard(_)) {
                return resource;
            }
        }
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        self.grants.next_tenure(resource, holder)
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }
}

#[tokio::test]
async fn the_adapter_passes_the_conformance_kit() {
    let node = Node::start().await;
    let mut harness = Replicated {
        store: Arc::new(node.store()),
        grants: LocalGrants::new(),
    };
    let options = Options {
        race_rounds: 100,
        ..Options::default()
    };
    let report = kit::run(&mut harness, options).await;
    assert_eq!(report.race.rounds, 100);
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    node.stop().await;
}

#[tokio::test]
async fn seals_that_are_put_off_are_asked_for_again_and_keep_their_order() {
    let node = Node::start().await;
    let store = node.store();
    for shard in 0..10 {
        node.backing
            .store
            .seal(&shard_token(shard, 1))
            .await
            .unwrap();
        let data = write(u64::from(shard) + 1, "x");
        node.backing
            .store
            .write(&shard_token(shard, 1), data)
            .await
            .unwrap();
    }
    node.backing.store.seal(&shard_token(4, 9)).await.unwrap();
    *node.backing.outcomes_max.lock().unwrap() = Some(3);
    let tokens: Vec<FencingToken> = (0..10).map(|shard| shard_token(shard, 2)).collect();
    let answers = store.seal_many(&tokens).await;
    for (shard, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Some(found)) => {
                assert_eq!(found.sequence.get(), u64::try_from(shard).unwrap() + 1);
            }
            Err(CheckpointError::Fenced { current, .. }) => {
                assert_eq!((shard, current.get()), (4, 9));
            }
            other => panic!("{shard}: {other:?}"),
        }
    }
    assert_eq!(*node.backing.seals.lock().unwrap(), [10, 7, 4, 1]);
    node.stop().await;
}

#[tokio::test]
async fn an_answer_without_any_outcome_does_not_repeat_for_ever() {
    let node = Node::start().await;
    *node.backing.outcomes_max.lock().unwrap() = Some(0);
    let sealed = node.store().seal(&shard_token(1, 1)).await;
    assert!(matches!(
        sealed,
        Err(CheckpointError::OutcomeUnknown { .. })
    ));
    node.stop().await;
}

#[tokio::test]
async fn more_shards_than_fit_go_in_several_requests() {
    let node = Node::start().await;
    let tokens: Vec<FencingToken> = (0..2_500).map(|shard| shard_token(shard, 1)).collect();
    let answers = node.store().seal_many(&tokens).await;
    assert!(answers.len() == 2_500 && answers.iter().all(Result::is_ok));
    assert_eq!(*node.backing.seals.lock().unwrap(), [1_000, 1_000, 500]);
    node.stop().await;
}
