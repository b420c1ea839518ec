//! A store in an etcd cluster.

mod client;
mod failure;
mod keys;
mod known;
mod options;
/// The messages of etcd's API.
#[allow(
    warnings,
    clippy::all,
    reason = "generated; the protocol file is its documentation"
)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::admission::{Fence, Refusal, SealAdmission, admit_seal};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::layout;
use crate::record::Record;
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

pub use options::{EtcdIdentity, EtcdStoreOptions, EtcdTls, EtcdUser};

use client::{Call, Client};
use keys::Keys;
use known::{Known, KnownFence, Memory};

/// How often a transaction is tried again because somebody changed what it compared. Only owners of
/// one resource that write at the same time do that to each other, and each time one of them wins.
const ROUNDS: usize = 64;

/// How many seals of [`EtcdStore::seal_many`] are on their way at the same time.
const SEALS_AT_ONCE: usize = 64;

/// How many fences one step of a listing asks for.
const FENCES_IN_PAGE: usize = 1_000;

/// A store in an etcd cluster.
///
/// # How it fences
///
/// Fence and data of a resource are two keys. A write is one transaction: it compares the value of the
/// fence, which is its epoch and owner, and the revision of the data, which stands for the latest
/// sequence, and puts the data. If one has changed, the same transaction reads both instead, and the
/// decision is made anew. What was read is remembered, so that a write costs one round trip; the
/// memory only guesses, it is the transaction that decides. A seal likewise compares the fence, puts
/// it, and reads the data it guards.
///
/// # What it promises
///
/// etcd acknowledges what a majority of its members has synced to disk, so that what was acknowledged
/// outlives the loss of any minority and a crash of all. Reads ask the majority as well.
///
/// # What it does not promise
///
/// A cluster that is restored from a snapshot has the fences of that snapshot; tokens granted since
/// then are above them and raise them again, but those between are not refused. Anyone who may write
/// the keys (`etcdctl put`) can put back a fence: give the prefix to one user. A fence that somebody
/// tied to a lease, whose end would remove it, is refused as `Corrupt`. An open store takes no answer
/// from a cluster with another id than the one it was opened in.
pub struct EtcdStore {
    client: Client,
    keys: Keys,
    memory: Memory,
    options: EtcdStoreOptions,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EtcdStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Opens the store in the cluster whose members are at `endpoints`: `http://host:2379`, or
    /// `https://` with [`EtcdStoreOptions::tls`].
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the options or endpoints make no sense, an endpoint is
    /// not etcd or belongs to another cluster than the rest, or the store was laid out by a newer
    /// version. `Unavailable` when no endpoint, or no majority, was reached, or it does not let
    /// this user in.
    pub async fn open<E: AsRef<str>>(
        endpoints: &[E],
        options: EtcdStoreOptions,
    ) -> Result<Self, CheckpointError> {
        let endpoints: Vec<&str> = endpoints.iter().map(AsRef::as_ref).collect();
        let client = Client::new(&endpoints, &options).map_err(CheckpointError::unsupported)?;
        let store = Self {
            client,
            keys: Keys::new(&options.prefix),
            memory: Memory::default(),
            options,
        };
        store.probe().await?;
        Ok(store)
    }

    /// Returns resources and their fences in the order of their names: at most `limit`, of those
    /// after `after`, or from the first.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] when a fence cannot be read, or `Unavailable`.
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let mut found: Vec<(Resource, Fence)> = Vec::new();
        while found.len() < limit {
            let after = found.last().map(|(resource, _)| resource).or(after);
            let count = (limit - found.len()).min(FENCES_IN_PAGE);
            let page = self.client.read(self.keys.fences_after(after, count));
            let page = known::found(page.await?.responses);
            let last = page.len() < count;
            for entry in page {
                let resource = self
                    .keys
                    .resource(&entry.key)
                    .map_err(CheckpointError::unavailable)?;
                let fence = known::fence_of(&entry)
                    .map_err(|error| CheckpointError::corrupt(&resource, error))?;
                found.push((resource, fence.fence));
            }
            if last {
                break;
            }
        }
        Ok(found)
    }

    /// Decides a write or deletion by what is known, and puts it on the condition that this is still
    /// so; otherwise decides by what is there.
    async fn replace(
        &self,
        token: &FencingToken,
        decide: impl Fn(Option<&Record>) -> Result<Option<Record>, Refusal> + Send + Sync,
    ) -> Result<(), CheckpointError> {
        let resource = &token.resource;
        let call = self.client.begin();
        let work = async {
            let remembered = self.memory.get(resource);
            let mut fresh = remembered.is_none();
            let mut known = match remembered {
                Some(known) => known,
                None => self.look(resource, &call).await?,
            };
            for _ in 0..ROUNDS {
                let next = match decide(known.record.as_ref()) {
                    Ok(Some(next)) => next,
                    // Somebody may have sealed since it was remembered.
                    Ok(None) | Err(_) if !fresh => {
                        known = self.look(resource, &call).await?;
                        fresh = true;
                        continue;
                    }
                    Ok(None) => {
                        self.memory.keep(resource, known);
                        return Ok(());
                    }
                    Err(refusal) => return Err(CheckpointError::refused(token, refusal)),
                };
                // Nothing is admitted without a fence, so there is one.
                let Some(fence) = &known.fence else {
                    return Err(CheckpointError::refused(token, Refusal::NotSealed));
                };
                let request = self
                    .keys
                    .put_data(resource, fence, known.data_revision, &next);
                let answer = call.change(request).await?;
                if answer.succeeded {
                    let known = known.after(&next, client::revision(&answer));
                    self.memory.keep(resource, known);
                    return Ok(());
                }
                let found = Known::read(answer.responses);
                known = found.map_err(|error| CheckpointError::corrupt(resource, error))?;
                fresh = true;
            }
            Err(client::beaten())
        };
        call.bounded(work).await
    }

    async fn seal_one(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let resource = &token.resource;
        let read = |error| CheckpointError::corrupt(resource, error);
        let call = self.client.begin();
        let work = async {
            // A guess: what is remembered may be old, and what is not may have been sealed.
            let mut fence = self.memory.get(resource).and_then(|known| known.fence);
            let mut fresh = false;
            for _ in 0..ROUNDS {
                let admission = match admit_seal(fence.as_ref().map(|known| &known.fence), token) {
                    Ok(admission) => admission,
                    Err(_) if !fresh => {
                        fence = self.look(resource, &call).await?.fence;
                        fresh = true;
                        continue;
                    }
                    Err(refusal) => return Err(CheckpointError::refused(token, refusal)),
                };
                let raised = (admission == SealAdmission::Raise).then(|| Fence::from(token));
                let request = self.keys.seal(resource, fence.as_ref(), raised);
                let answer = call.change(request).await?;
                let found = known::found_one(answer.responses);
                if answer.succeeded {
                    let sealed = raised.map(KnownFence::new).or(fence);
                    let (known, checkpoint) = Known::sealed(sealed, found).map_err(read)?;
                    self.memory.keep(resource, known);
                    return Ok(checkpoint);
                }
                let found = found.as_ref().map(known::fence_of).transpose();
                fence = found.map_err(read)?;
                fresh = true;
            }
            Err(client::beaten())
        };
        call.bounded(work).await
    }

    /// Reads fence and data as they are at one moment.
    async fn look(&self, resource: &Resource, call: &Call<'_>) -> Result<Known, CheckpointError> {
        let responses = call.read(self.keys.look(resource)).await?.responses;
        Known::read(responses).map_err(|error| CheckpointError::corrupt(resource, error))
    }

    async fn read_one(&self, key: Bytes) -> Result<Option<proto::KeyValue>, CheckpointError> {
        let answer = self.client.read(keys::read_one(key)).await?;
        Ok(known::found_one(answer.responses))
    }

    /// Writes the version of the layout, or refuses that of a newer version.
    async fn lay_out(&self) -> Result<(), CheckpointError> {
        let answer = self.client.read(self.keys.lay_out(options::LAYOUT)).await?;
        if answer.succeeded {
            return Ok(());
        }
        let found = known::found_one(answer.responses).map(|entry| entry.value);
        let found = found.unwrap_or_default();
        layout::check(&found, options::LAYOUT).map_err(layout::refuse)
    }
}

#[async_trait]
impl CheckpointStore for EtcdStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        self.seal_one(token).await
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        // One transaction for many would be one answer for all. None of these begins before its turn.
        let seals: Vec<_> = tokens.iter().map(|token| self.seal(token)).collect();
        futures::stream::iter(seals)
            .buffered(SEALS_AT_ONCE)
            .collect()
            .await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes())?;
        self.replace(token, |current| {
            Record::write(current, token, write.clone())
        })
        .await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(entry) = self.read_one(self.keys.data(resource)).await? else {
            return Ok(None);
        };
        let record = Record::decode(entry.value)
            .map_err(|error| CheckpointError::corrupt(resource, error))?;
        Ok(record.checkpoint)
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let Some(entry) = self.read_one(self.keys.fence(resource)).await? else {
            return Ok(None);
        };
        let fence =
            known::fence_of(&entry).map_err(|error| CheckpointError::corrupt(resource, error))?;
        Ok(Some(fence.fence))
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let deletion = (deletion.sequence, deletion.write_id);
        self.replace(token, |current| Record::delete(current, token, deletion))
            .await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.client.check_members().await?;
        self.lay_out().await
    }

    fn max_value_bytes(&self) -> usize {
        self.options.max_value_bytes
    }
}
