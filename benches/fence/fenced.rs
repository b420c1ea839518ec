//! The fenced side: what an owner does through the contract of all stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use tenure_fence::{
    CheckpointError, CheckpointStore, Epoch, FencingToken, Owner, Resource, Sequence, Write,
    WriteId,
};

/// Owners of one resource each, which write in turn.
pub(crate) struct Fenced {
    stores: Vec<Arc<dyn CheckpointStore>>,
    owners: Arc<[Held]>,
}

/// One resource that is held, and how far its owner has come.
pub(crate) struct Held {
    token: FencingToken,
    sequence: AtomicU64,
}

impl Held {
    /// Begins with the first sequence.
    pub(crate) fn new(token: FencingToken) -> Self {
        Self {
            token,
            sequence: AtomicU64::new(0),
        }
    }
}

impl Fenced {
    /// Seals a resource for each writer, after another owner had it, and makes sure that the store
    /// refuses that one: a store that does not fence would be fast.
    pub(crate) async fn seal(
        store: impl CheckpointStore + 'static,
        writers: usize,
    ) -> Result<Self, Failure> {
        let store: Arc<dyn CheckpointStore> = Arc::new(store);
        let former = tokens(writers, 1)?;
        let tokens = tokens(writers, 2)?;
        for tokens in [&former, &tokens] {
            for sealed in store.seal_many(tokens).await {
                sealed?;
            }
        }
        let fenced = Self::hold(vec![store], tokens.into_iter().map(Held::new).collect());
        fenced.refuses(&former).await?;
        Ok(fenced)
    }

    /// Holds what was sealed. Writers take the stores in turn.
    pub(crate) fn hold(stores: Vec<Arc<dyn CheckpointStore>>, owners: Arc<[Held]>) -> Self {
        Self { stores, owners }
    }

    /// Makes sure that owners which were replaced are refused.
    pub(crate) async fn refuses(&self, former: &[FencingToken]) -> Result<(), Failure> {
        let store = self
            .stores
            .first()
            .ok_or_else(|| Failure::new("no store"))?;
        for token in former {
            match store.write(token, write(1, Bytes::new())?).await {
                Err(CheckpointError::Fenced { .. }) => {}
                answer => {
                    return Err(Failure::new(format!(
                        "a write of an owner that was replaced was answered with {answer:?}"
                    )));
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Writes for Fenced {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let owner = &self.owners[writer];
        let number = owner.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let store = &self.stores[writer % self.stores.len()];
        Ok(store.write(&owner.token, write(number, value)?).await?)
    }
}

fn write(number: u64, data: Bytes) -> Result<Write, Failure> {
    let sequence = Sequence::new(number).ok_or_else(|| Failure::new("no sequences are left"))?;
    Ok(Write {
        sequence,
        write_id: WriteId::new(u128::from(number)),
        data,
    })
}

/// Returns tokens of one epoch, of one resource for each writer.
pub(crate) fn tokens(writers: usize, epoch: u64) -> Result<Vec<FencingToken>, Failure> {
    let mut tokens = Vec::with_capacity(writers);
    for writer in 0..writers {
        tokens.push(FencingToken {
            resource: resource(writer)?,
            epoch: Epoch::try_from(epoch)?,
            owner: Owner {
                cluster: 0x00c0_ffee,
                session: epoch,
            },
        });
    }
    Ok(tokens)
}

/// Returns the resource of a writer.
pub(crate) fn resource(writer: usize) -> Result<Resource, Failure> {
    Ok(format!("shard/bench/{writer}").parse()?)
}
