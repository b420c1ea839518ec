//! The user's own transaction, with the fence checked in it.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::Transaction;
use tokio::time;

use super::backend::{Connected, SqlBackend, Verdict};
use super::call::{Call, Effect, Failure, entropy};
use super::row::{Change, Kept};
use super::store::{SqlStore, admit, kept, verified_fence};
use crate::admission::{SequenceAdmission, admit_write};
use crate::checkpoint::{Checkpoint, Write};
use crate::error::{CheckpointError, StoreError};
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// A transaction of the user's in which the fence was checked and stays locked.
///
/// It is the driver's connection: statements run on `&mut *transaction`, or `&mut **transaction` where
/// one is lent. A new owner's seal waits until the transaction has ended, and then sees its rows; an
/// owner that was replaced gets none. Dropped without [`commit`](Self::commit) it is rolled back.
///
/// Nested transactions of the driver (savepoints) are fine. Do not end the outer one by hand, and in
/// MySQL run no statement that commits by itself, such as `CREATE TABLE`: the store notices, commits
/// nothing more, and answers [`CheckpointError::OutcomeUnknown`].
pub struct FencedTransaction<B: SqlBackend> {
    backend: Arc<B>,
    token: FencingToken,
    deadline: Duration,
    max_value_bytes: usize,
    transaction: Transaction<'static, B::Database>,
    written: Written,
}

/// Ends the savepoint of the fence check. Fails if that transaction has ended.
const RELEASE: &str = "RELEASE SAVEPOINT tenure_fenced";

/// Takes back everything since the fence check.
const UNDO: &str = "ROLLBACK TO SAVEPOINT tenure_fenced";

/// What has become of the checkpoint that was to be written in a transaction.
#[derive(Debug)]
enum Written {
    /// There was none so far.
    Nothing,
    /// It was written, and commits with the transaction.
    InIt,
    /// An earlier transaction has committed the very same write, and its rows with it.
    Before(Change),
    /// It was refused, or failed.
    Refused,
}

impl Written {
    /// Returns what a further change makes of it, and what that is to be answered with.
    fn then(
        self,
        change: Change,
        written: Result<SequenceAdmission, CheckpointError>,
    ) -> (Self, Result<SequenceAdmission, CheckpointError>) {
        match (self, written) {
            (_, Err(error)) => (Self::Refused, Err(error)),
            // It may have been the one that failed, or belong to rows that were left out.
            (Self::Refused, Ok(_)) => (Self::Refused, Err(refused())),
            (_, Ok(SequenceAdmission::New)) => (Self::InIt, Ok(SequenceAdmission::New)),
            // What was found is what this transaction has written itself: it is not committed yet.
            (Self::InIt, Ok(SequenceAdmission::AlreadyWritten)) => {
                (Self::InIt, Ok(SequenceAdmission::New))
            }
            (Self::Nothing | Self::Before(_), Ok(SequenceAdmission::AlreadyWritten)) => {
                (Self::Before(change), Ok(SequenceAdmission::AlreadyWritten))
            }
        }
    }
}

/// Why a transaction cannot be committed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum TransactionError {
    #[error("a write in the transaction was refused or failed, so it was rolled back")]
    WriteRefused,
    #[error("no answer in time")]
    Overdue,
    #[error("the write was committed earlier, and something else has been written since")]
    Overtaken,
}

impl<B: SqlBackend> fmt::Debug for FencedTransaction<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FencedTransaction")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl<B: SqlBackend> SqlStore<B> {
    /// Runs the user's statements and the check of the fence in one transaction: its rows and the
    /// checkpoint commit together or not at all, and only while the token is the current one.
    ///
    /// The fence is checked, and its row locked, before `work` begins. When `work` fails everything
    /// is rolled back and its error is returned. What fails before `work` has begun and is safe to
    /// repeat is repeated; `work` itself runs once.
    ///
    /// For a sink that delivers exactly once, save the offset in the same transaction as the rows,
    /// and go on from the offset that [`checkpoint`](FencedTransaction::checkpoint) returns: after an
    /// unknown outcome the next transaction finds out what has happened. See
    /// `tests/stores/src/bin/postgres-sink.rs`.
    ///
    /// `work` should not wait for anything else: the next owner's seal waits for it. After
    /// [`SqlOptions::transaction_idle_max`](crate::SqlOptions) without a statement the server ends the
    /// transaction, where it can.
    ///
    /// # Errors
    ///
    /// What `work` returned; or converted into the same type [`CheckpointError::Fenced`],
    /// [`CheckpointError::NotSealed`] or [`CheckpointError::EpochConflict`] before `work` has begun,
    /// [`CheckpointError::Unavailable`] when nothing was committed, and
    /// [`CheckpointError::OutcomeUnknown`] when the answer to the commit was lost.
    pub async fn transaction<T, E>(
        &self,
        token: &impl AsRef<FencingToken>,
        work: impl AsyncFnOnce(&mut FencedTransaction<B>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<CheckpointError>,
    {
        let mut transaction = self.begin(token).await?;
        match work(&mut transaction).await {
            Ok(value) => {
                transaction.commit().await?;
                Ok(value)
            }
            Err(error) => {
                transaction.roll_back().await;
                Err(error)
            }
        }
    }

    /// Begins a transaction of the user's, locks the row of the token's resource, and checks its fence.
    ///
    /// For what does not fit the closure of [`transaction`](Self::transaction), which says more.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Fenced`], [`CheckpointError::NotSealed`] or
    /// [`CheckpointError::EpochConflict`] when the fence differs; [`CheckpointError::Corrupt`] or
    /// [`CheckpointError::Unavailable`].
    pub async fn begin(
        &self,
        token: &impl AsRef<FencingToken>,
    ) -> Result<FencedTransaction<B>, CheckpointError> {
        let token = token.as_ref();
        // Until the commit nothing has happened.
        let call = Call::new(Effect::Reads);
        let work = async {
            loop {
                match self.begin_once(token).await {
                    Ok(transaction) => return Ok(transaction),
                    Err(failure) => call.again(failure, Some(&token.resource)).await?,
                }
            }
        };
        let transaction = call.within(self.deadline, work).await?;
        Ok(FencedTransaction {
            backend: Arc::clone(&self.backend),
            token: token.clone(),
            deadline: self.deadline,
            max_value_bytes: self.max_value_bytes(),
            transaction,
            written: Written::Nothing,
        })
    }

    async fn begin_once(
        &self,
        token: &FencingToken,
    ) -> Result<Transaction<'static, B::Database>, Failure> {
        let transaction = self.transactions.begin_with(B::BEGIN).await;
        let mut transaction = transaction.map_err(Failure::of::<B>)?;
        match self.lock_and_check(&mut transaction, token).await {
            Ok(()) => Ok(transaction),
            Err(failure) => {
                // Now, so that the row does not stay locked until the connection is used again. If it
                // fails the connection is gone, and the lock with it.
                let _gone = transaction.rollback().await.is_err();
                Err(failure)
            }
        }
    }

    async fn lock_and_check(
        &self,
        connection: &mut Connected<B>,
        token: &FencingToken,
    ) -> Result<(), Failure> {
        let row = self.backend.lock(connection, token).await;
        let row = row.map_err(Failure::of::<B>)?;
        let fence = verified_fence(row.as_ref(), &token.resource)?;
        let admitted = admit_write(fence.as_ref(), token);
        admitted.map_err(|refusal| CheckpointError::refused(token, refusal).into())
    }
}

fn not_begun(failure: Failure) -> CheckpointError {
    match failure {
        Failure::Answer(answer) => answer,
        Failure::NotReached(source) | Failure::Sql(_, source) => {
            CheckpointError::Unavailable { source }
        }
    }
}

impl<B: SqlBackend> FencedTransaction<B> {
    /// Returns the token that the fence was checked with.
    #[must_use]
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Returns the latest checkpoint, as this transaction would leave it.
    ///
    /// Nobody else can replace it meanwhile: it is where to go on from.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] or [`CheckpointError::Unavailable`].
    pub async fn checkpoint(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        Ok(self.kept().await?.and_then(Kept::into_checkpoint))
    }

    /// Saves a checkpoint: at the next sequence, as a write that never was before.
    ///
    /// For an owner that takes its place from [`checkpoint`](Self::checkpoint) each time, and so needs
    /// not repeat a write. One that does uses [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub async fn save(&mut self, data: impl Into<Bytes>) -> Result<(), CheckpointError> {
        let latest = self.kept().await?.and_then(|kept| kept.latest());
        let sequence = match latest {
            None => Sequence::FIRST,
            Some((latest, _)) => latest.next().ok_or(CheckpointError::SequenceReused {
                resource: self.token.resource.clone(),
                presented: latest,
                latest,
            })?,
        };
        let write_id = u128::from(entropy()) << 64 | u128::from(entropy());
        let write = Write {
            sequence,
            write_id: WriteId::new(write_id),
            data: data.into(),
        };
        self.write(write).await?;
        Ok(())
    }

    /// Writes a checkpoint, as [`CheckpointStore::write`](crate::CheckpointStore::write) does, but it
    /// commits with the transaction.
    ///
    /// [`SequenceAdmission::AlreadyWritten`] says that an earlier transaction with the very same write
    /// has committed although its outcome was unknown. Then its rows are there too: this transaction
    /// is rolled back at its end, and that counts as success, unless a later write in it is new. So write
    /// before the rows that the write belongs to, and leave them out in this case. The same write twice
    /// in one transaction is one write, and new.
    ///
    /// # Errors
    ///
    /// Those of [`CheckpointStore::write`](crate::CheckpointStore::write), without the fence's. After
    /// an error the transaction cannot be committed any more: rows without their checkpoint would be
    /// written again.
    pub async fn write(&mut self, write: Write) -> Result<SequenceAdmission, CheckpointError> {
        if matches!(self.written, Written::Refused) {
            return Err(refused());
        }
        let size = write.check_size(self.max_value_bytes);
        let change = Change::from(write);
        let written = match size {
            Ok(()) => self.admitted(&change).await,
            Err(error) => Err(error),
        };
        let before = mem::replace(&mut self.written, Written::Refused);
        let (written, answer) = before.then(change, written);
        self.written = written;
        answer
    }

    async fn admitted(&mut self, change: &Change) -> Result<SequenceAdmission, CheckpointError> {
        let admitted = admit(&*self.backend, &mut self.transaction, &self.token, change);
        match time::timeout(self.deadline, admitted).await {
            Ok(admitted) => admitted.map_err(not_begun),
            Err(_) => Err(overdue()),
        }
    }

    async fn kept(&mut self) -> Result<Option<Kept>, CheckpointError> {
        let kept = kept(&*self.backend, &mut self.transaction, &self.token.resource);
        match time::timeout(self.deadline, kept).await {
            Ok(kept) => kept.map_err(not_begun),
            Err(_) => Err(overdue()),
        }
    }

    /// Commits the rows and the checkpoint.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unavailable`] when nothing was committed,
    /// [`CheckpointError::OutcomeUnknown`] when the answer was lost.
    pub async fn commit(mut self) -> Result<(), CheckpointError> {
        match mem::replace(&mut self.written, Written::Nothing) {
            Written::Nothing | Written::InIt => {}
            Written::Before(change) => self.undo(&change).await?,
            Written::Refused => {
                self.roll_back().await;
                return Err(refused());
            }
        }
        let deadline = self.deadline;
        // If the transaction in which the fence was locked has ended, by hand or because the server
        // rolled it back and nobody looked, then so has its savepoint: without this a commit would
        // report success for rows that are gone, or commit rows that were never fenced.
        let released = self.backend.run(&mut self.transaction, RELEASE);
        match time::timeout(deadline, released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(not_committed::<B>(error)),
            Err(_) => return Err(overdue()),
        }
        match time::timeout(deadline, self.transaction.commit()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(maybe_committed::<B>(error)),
            Err(_) => Err(CheckpointError::OutcomeUnknown {
                source: TransactionError::Overdue.into(),
            }),
        }
    }

    /// Takes back the rows that belong to a write which was committed earlier, rows and all, and makes
    /// sure that it stays: it was only seen so far.
    async fn undo(&mut self, before: &Change) -> Result<(), CheckpointError> {
        let work = async {
            self.backend.run(&mut self.transaction, UNDO).await?;
            let connection = &mut self.transaction;
            self.backend.confirm(connection, &self.token, before).await
        };
        match time::timeout(self.deadline, work).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(CheckpointError::OutcomeUnknown {
                source: TransactionError::Overtaken.into(),
            }),
            Ok(Err(error)) => Err(not_committed::<B>(error).in_doubt()),
            Err(_) => Err(overdue().in_doubt()),
        }
    }

    /// Rolls back at once, where dropping leaves that to the connection's next user.
    pub async fn roll_back(self) {
        // If it fails the connection is gone, and then so is the transaction.
        let rolled_back = time::timeout(self.deadline, self.transaction.rollback()).await;
        let _gone = !matches!(rolled_back, Ok(Ok(())));
    }
}

fn refused() -> CheckpointError {
    CheckpointError::Unavailable {
        source: TransactionError::WriteRefused.into(),
    }
}

fn overdue() -> CheckpointError {
    CheckpointError::Unavailable {
        source: TransactionError::Overdue.into(),
    }
}

/// What an error means that came before the commit was asked for.
fn not_committed<B: SqlBackend>(error: sqlx::Error) -> CheckpointError {
    let verdict = B::verdict(&error);
    let source: StoreError = error.into();
    match verdict {
        // Somebody may have committed it by hand.
        Verdict::TransactionGone => CheckpointError::OutcomeUnknown { source },
        _ => CheckpointError::Unavailable { source },
    }
}

/// What an error means that answered a commit.
fn maybe_committed<B: SqlBackend>(error: sqlx::Error) -> CheckpointError {
    let verdict = B::verdict(&error);
    let source: StoreError = error.into();
    match verdict {
        Verdict::Contended | Verdict::NotDone => CheckpointError::Unavailable { source },
        Verdict::Lost | Verdict::Unreadable | Verdict::TransactionGone => {
            CheckpointError::OutcomeUnknown { source }
        }
    }
}

impl<B: SqlBackend> Deref for FencedTransaction<B> {
    type Target = Connected<B>;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}

impl<B: SqlBackend> DerefMut for FencedTransaction<B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.transaction
    }
}
