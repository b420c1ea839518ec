//! A store that is checked, together with what it runs on.

#![allow(clippy::expect_used, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options, Report};
use tenure_fence::{CheckpointStore, FencingToken, Resource, Sequence, Write, WriteId};

/// What a store runs on, and how it crashes.
#[async_trait]
pub(crate) trait Ground: Send + Sync {
    /// Returns the store. Called again after a crash.
    fn store(&self) -> Arc<dyn CheckpointStore>;

    /// Takes away everything that was not made durable, and opens the store again.
    async fn crash(&mut self) -> Result<(), Failure>;
}

/// A store whose tokens come from here.
pub(crate) struct Case<G> {
    ground: G,
    grants: LocalGrants,
}

impl<G: Ground> Case<G> {
    /// Runs the conformance kit, and requires that nothing of it is left out.
    pub(crate) async fn keeps_the_contract(ground: G) -> Report {
        let mut case = Self {
            ground,
            grants: LocalGrants::new(),
        };
        let report = kit::run(&mut case, Options::default()).await;
        assert!(report.left_out.is_empty(), "{:?}", report.left_out);
        println!("{:?}", report.race);
        report
    }
}

#[async_trait]
impl<G: Ground> Harness for Case<G> {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.ground.store()
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

    async fn reopen(&mut self) {
        if let Err(failure) = self.ground.crash().await {
            panic!("the store does not come back: {failure}");
        }
    }
}

/// Makes a token of the shard `orders/<index>`.
pub(crate) fn token(index: u32, epoch: u64, session: u64) -> FencingToken {
    format!("shard/orders/{index}@{epoch}:00000000000000000000000000c0ffee/{session}")
        .parse()
        .expect("the text of a token")
}

/// Makes a write.
pub(crate) fn write(sequence: u64, data: &str) -> Write {
    let sequence = Sequence::new(sequence).expect("a sequence");
    Write {
        sequence,
        write_id: WriteId::new(u128::from(sequence.get()) << 64 | 0xab),
        data: data.to_owned().into(),
    }
}
