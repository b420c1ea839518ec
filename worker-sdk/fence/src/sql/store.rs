//! The store: what is the same for every database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Pool;

use super::backend::{Connected, SqlBackend, Verdict};
use super::call::{Call, CallError, Effect, Failure};
use super::connections::Connections;
use super::options::SqlOptions;
use super::row::{Change, FenceRow, Kept, KeptRow, resource_of};
use crate::admission::{
    Fence, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::{CheckpointError, StoreError};
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// How many resources one statement seals: few enough that the answer, which holds their checkpoints,
/// stays a reasonable size.
const SEALED_AT_ONCE_MAX: usize = 256;

/// How often a change is tried whose row changes between the statement that matched nothing and the
/// one that looks why. Only a seal of the same owner can do that, so once is rare.
const SETTLE_TRIES_MAX: u32 = 5;

/// A store in a SQL database. See the type of the database: `PostgresStore`, `MysqlStore`,
/// `SqliteStore`.
pub struct SqlStore<B: SqlBackend> {
    pub(crate) backend: Arc<B>,
    writers: Connections<B>,
    /// `None` where any connection may write.
    readers: Option<Connections<B>>,
    /// The connections of the user's transactions.
    pub(super) transactions: Pool<B::Database>,
    pub(crate) deadline: Duration,
    max_value_bytes: usize,
}

impl<B: SqlBackend> fmt::Debug for SqlStore<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SqlStore")
            .field("deadline", &self.deadline)
            .field("max_value_bytes", &self.max_value_bytes)
            .finish_non_exhaustive()
    }
}

impl<B: SqlBackend> SqlStore<B> {
    /// Creates a store in which any connection may write.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn new(backend: B, options: &SqlOptions, max_value_bytes: usize) -> Self {
        let backend = Arc::new(backend);
        Self {
            writers: Connections::new(Arc::clone(&backend), options.connections_max),
            readers: None,
            transactions: backend.transactions(options),
            deadline: options.deadline,
            max_value_bytes,
            backend,
        }
    }

    /// Creates a store with one connection that writes, and others that read.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_one_writer(backend: B, options: &SqlOptions) -> Self {
        let backend = Arc::new(backend);
        Self {
            writers: Connections::new(Arc::clone(&backend), 1),
            readers: Some(Connections::new(
                Arc::clone(&backend),
                options.connections_max,
            )),
            transactions: backend.transactions(options),
            deadline: options.deadline,
            max_value_bytes: options.max_value_bytes,
            backend,
        }
    }

    /// Returns the fences of the resources whose names come after that of `after`, in the order of
    /// their names as text, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] when a fence cannot be read, [`CheckpointError::Unsupported`]
    /// when something else has written to the table, [`CheckpointError::Unavailable`].
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let call = Call::new(Effect::Reads);
        let attempt = async || {
            let mut connection = self.readers().take().await?;
            let rows = self.backend.fences(&mut connection, after, limit).await;
            connection.settle(rows.map_err(Failure::of::<B>))
        };
        let work = async {
            loop {
                match attempt().await {
                    Ok(rows) => return Ok(rows),
                    Err(failure) => call.again(failure, None).await?,
                }
            }
        };
        let rows = call.within(self.deadline, work).await?;
        let named = |row: FenceRow| {
            let Some(resource) = resource_of(&row) else {
                return Err(CheckpointError::Unsupported {
                    source: format!(
                        "the table holds a row for {:?}, which is no resource",
                        row.resource
                    )
                    .into(),
                });
            };
            let fence = row
                .fence()
                .map_err(|error| CheckpointError::corrupt(&resource, error))?;
            Ok((resource, fence))
        };
        rows.into_iter().map(named).collect()
    }

    fn readers(&self) -> &Connections<B> {
        self.readers.as_ref().unwrap_or(&self.writers)
    }

    /// Seals resources, each named once, in the order of their names.
    async fn seal_batch(&self, tokens: &[&FencingToken]) -> Result<Vec<Sealed>, CheckpointError> {
        let Some(first) = tokens.first() else {
            return Ok(Vec::new());
        };
        let call = Call::new(Effect::Changes);
        let work = async {
            loop {
                match self.seal_once(&call, tokens).await {
                    Ok(answers) => {
                        let judged = |answer: Sealed| answer.map_err(|error| call.outcome(error));
                        return Ok(answers.into_iter().map(judged).collect());
                    }
                    Err(failure) => call.again(failure, Some(&first.resource)).await?,
                }
            }
        };
        call.within(self.deadline, work).await
    }

    async fn seal_once(
        &self,
        call: &Call,
        tokens: &[&FencingToken],
    ) -> Result<Vec<Sealed>, Failure> {
        let mut connection = self.writers.take().await?;
        call.sends();
        let rows = self.raise_and_read(&mut connection, tokens).await;
        let mut rows = connection.settle(rows)?;
        let mut answers = Vec::with_capacity(tokens.len());
        for token in tokens {
            let row = rows.remove(&token.resource.to_string());
            answers.push(match sealed(token, row) {
                Ok(checkpoint) => Ok(checkpoint),
                Err(Failure::Answer(answer)) => Err(answer),
                Err(failure) => return Err(failure),
            });
        }
        Ok(answers)
    }

    async fn raise_and_read(
        &self,
        connection: &mut Connected<B>,
        tokens: &[&FencingToken],
    ) -> Result<BTreeMap<String, KeptRow>, Failure> {
        let by_name = |row: KeptRow| (row.fence.resource.clone(), row);
        let raised = self.backend.raise(connection, tokens).await;
        let raised = raised.map_err(Failure::of::<B>)?;
        let mut rows: BTreeMap<_, _> = raised.into_iter().map(by_name).collect();
        // The others were not lower. A fence only rises, so what is read now refuses them as well as
        // what the statement saw, and a repeated seal returns what is the latest now.
        let others: Vec<&Resource> = tokens
            .iter()
            .map(|token| &token.resource)
            .filter(|resource| !rows.contains_key(&resource.to_string()))
            .collect();
        if !others.is_empty() {
            let others = self.backend.kept(connection, &others).await;
            rows.extend(others.map_err(Failure::of::<B>)?.into_iter().map(by_name));
        }
        Ok(rows)
    }

    /// Makes a change in a call of its own.
    async fn change(&self, token: &FencingToken, change: Change) -> Result<(), CheckpointError> {
        let call = Call::new(Effect::Changes);
        let work = async {
            loop {
                match self.change_once(&call, token, &change).await {
                    Ok(_) => return Ok(()),
                    Err(failure) => call.again(failure, Some(&token.resource)).await?,
                }
            }
        };
        call.within(self.deadline, work).await
    }

    async fn change_once(
        &self,
        call: &Call,
        token: &FencingToken,
        change: &Change,
    ) -> Result<SequenceAdmission, Failure> {
        let mut connection = self.writers.take().await?;
        call.sends();
        let outcome = admit(&*self.backend, &mut connection, token, change).await;
        connection.settle(outcome)
    }
}

#[async_trait]
impl<B: SqlBackend> CheckpointStore for SqlStore<B> {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        match self.seal_batch(&[token]).await?.pop() {
            Some(answer) => answer,
            None => Err(CheckpointError::OutcomeUnknown {
                source: CallError::Unsettled.into(),
            }),
        }
    }

    async fn seal_many(&self, tokens: &[FencingToken]) -> Vec<Sealed> {
        // In the order of their names: two callers that seal the same resources take their locks in
        // the same order, and cannot wait for each other.
        let mut order: Vec<(String, usize)> = tokens
            .iter()
            .enumerate()
            .map(|(place, token)| (token.resource.to_string(), place))
            .collect();
        order.sort_unstable();
        let mut answers: BTreeMap<usize, Sealed> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let (once, again): (Vec<_>, Vec<_>) = order
            .iter()
            .partition(|(name, _)| seen.insert(name.as_str()));
        for batch in once.chunks(SEALED_AT_ONCE_MAX) {
            let places = batch.iter().map(|(_, place)| *place);
            let named: Vec<&FencingToken> =
                places.clone().filter_map(|at| tokens.get(at)).collect();
            match self.seal_batch(&named).await {
                Ok(sealed) => answers.extend(places.zip(sealed)),
                // One row of the batch cannot be read: find out which.
                Err(CheckpointError::Corrupt { .. }) if named.len() > 1 => {
                    for (place, token) in places.zip(named) {
                        answers.insert(place, self.seal(token).await);
                    }
                }
                Err(error) => answers.extend(places.zip(repeated(error))),
            }
        }
        // A resource that is named twice, against the contract: the later ones one by one.
        for (_, place) in again {
            if let Some(token) = tokens.get(*place) {
                answers.insert(*place, self.seal(token).await);
            }
        }
        answers.into_values().collect()
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes)?;
        self.change(token, write.into()).await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = Call::new(Effect::Reads);
        let attempt = async || {
            let mut connection = self.readers().take().await?;
            let kept = kept(&*self.backend, &mut connection, resource).await;
            connection.settle(kept)
        };
        let work = async {
            loop {
                match attempt().await {
                    Ok(kept) => return Ok(kept.and_then(Kept::into_checkpoint)),
                    Err(failure) => call.again(failure, Some(resource)).await?,
                }
            }
        };
        call.within(self.deadline, work).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let call = Call::new(Effect::Reads);
        let attempt = async || {
            let mut connection = self.readers().take().await?;
            let row = self.backend.fence(&mut connection, resource).await;
            connection.settle(row.map_err(Failure::of::<B>))
        };
        let work = async {
            loop {
                match attempt().await {
                    Ok(row) => return verified_fence(row.as_ref(), resource),
                    Err(failure) => call.again(failure, Some(resource)).await?,
                }
            }
        };
        call.within(self.deadline, work).await
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        self.change(token, deletion.into()).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        let call = Call::new(Effect::Reads);
        let attempt = async || {
            let mut connection = self.writers.take().await?;
            let lacks = self.backend.lacks(&mut connection).await;
            connection.settle(lacks.map_err(Failure::of::<B>))
        };
        let work = async {
            loop {
                match attempt().await {
                    Ok(None) => return Ok(()),
                    Ok(Some(lacks)) => {
                        return Err(CheckpointError::Unsupported {
                            source: lacks.into(),
                        });
                    }
                    Err(failure) => call.again(failure, None).await?,
                }
            }
        };
        call.within(self.deadline, work).await
    }

    fn max_value_bytes(&self) -> usize {
        self.max_value_bytes
    }
}

/// Makes a change, or finds out why it is not to be made.
pub(super) async fn admit<B: SqlBackend>(
    backend: &B,
    connection: &mut Connected<B>,
    token: &FencingToken,
    change: &Change,
) -> Result<SequenceAdmission, Failure> {
    for _ in 0..SETTLE_TRIES_MAX {
        let put = backend.put(connection, token, change).await;
        if put.map_err(Failure::of::<B>)? {
            return Ok(SequenceAdmission::New);
        }
        let kept = kept(backend, connection, &token.resource).await?;
        let refused = |refusal| CheckpointError::refused(token, refusal);
        admit_write(kept.as_ref().map(|kept| &kept.fence), token).map_err(refused)?;
        let latest = kept.as_ref().and_then(Kept::latest);
        match admit_sequence(latest, change.presented()).map_err(refused)? {
            // The row has changed in between: the fence was raised just now.
            SequenceAdmission::New => continue,
            SequenceAdmission::AlreadyWritten => {}
        }
        let confirmed = backend.confirm(connection, token, change).await;
        if confirmed.map_err(Failure::of::<B>)? {
            return Ok(SequenceAdmission::AlreadyWritten);
        }
    }
    Err(unsettled())
}

/// Reads and verifies one row.
pub(super) async fn kept<B: SqlBackend>(
    backend: &B,
    connection: &mut Connected<B>,
    resource: &Resource,
) -> Result<Option<Kept>, Failure> {
    let rows = backend.kept(connection, &[resource]).await;
    let row = rows.map_err(Failure::of::<B>)?.pop();
    let kept = row.map(KeptRow::kept).transpose();
    kept.map_err(|error| CheckpointError::corrupt(resource, error).into())
}

/// The answer to one seal.
type Sealed = Result<Option<Checkpoint>, CheckpointError>;

/// Decides from a row that was read after the fence was to be raised whether it was.
fn sealed(token: &FencingToken, row: Option<KeptRow>) -> Result<Option<Checkpoint>, Failure> {
    let row = row.ok_or_else(unsettled)?;
    let resource = &token.resource;
    let fence = row
        .fence
        .fence()
        .map_err(|error| CheckpointError::corrupt(resource, error))?;
    let refused = |refusal| CheckpointError::refused(token, refusal);
    match admit_seal(Some(&fence), token).map_err(refused)? {
        SealAdmission::Same => {}
        // Lower still: the row was removed and made anew in between.
        SealAdmission::Raise => return Err(unsettled()),
    }
    let kept = row
        .kept()
        .map_err(|error| CheckpointError::corrupt(resource, error))?;
    Ok(kept.into_checkpoint())
}

pub(super) fn verified_fence(
    row: Option<&FenceRow>,
    resource: &Resource,
) -> Result<Option<Fence>, CheckpointError> {
    let fence = row.map(FenceRow::fence).transpose();
    fence.map_err(|error| CheckpointError::corrupt(resource, error))
}

fn unsettled() -> Failure {
    Failure::Sql(Verdict::Contended, CallError::Unsettled.into())
}

/// The one error of a batch, for each of its resources.
fn repeated(error: CheckpointError) -> impl Iterator<Item = Sealed> {
    let unknown = error.may_have_happened();
    let source = Arc::new(error);
    std::iter::repeat_with(move || {
        let source: StoreError = Shared(Arc::clone(&source)).into();
        Err(match unknown {
            true => CheckpointError::OutcomeUnknown { source },
            false => CheckpointError::Unavailable { source },
        })
    })
}

/// The error of a whole batch.
#[derive(Debug, thiserror::Error)]
#[error("sealing the batch got no answer")]
struct Shared(#[source] Arc<CheckpointError>);
