//! The user's own transaction: scenario 4, and rows that commit with their offset.

use std::sync::Arc;
use std::time::Duration;

use cluster_tests::failure::Failure;
use tenure_fence::{
    CheckpointError, CheckpointStore, FencedTransaction, FencingToken, Isolation,
    SequenceAdmission, SqlOptions, SqlStore, Write, WriteId,
};
use tokio::sync::oneshot;

use super::database::{Database, options};
use super::{data, two_owners, until_waiting};
use crate::case::write;

/// The error of a user's sink.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    #[error(transparent)]
    Store(#[from] CheckpointError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("the sink gave up")]
    GaveUp,
}

/// A transaction that has delivered `row`, saved it as its offset, and pauses before its commit until
/// it is told to go on.
struct Paused {
    outcome: tokio::task::JoinHandle<Result<(), SinkError>>,
    go_on: oneshot::Sender<()>,
}

impl Paused {
    async fn begin<D: Database>(
        store: &Arc<SqlStore<D::Backend>>,
        token: &FencingToken,
        row: &'static str,
    ) -> Self {
        let (store, token) = (Arc::clone(store), token.clone());
        let (go_on, paused) = oneshot::channel();
        let (reach, reached) = oneshot::channel();
        // Spawned, so the transaction's future must be `Send`, as in a worker's handler.
        let outcome = tokio::spawn(async move {
            store
                .transaction(&token, async |transaction| {
                    transaction.save(row).await?;
                    D::deliver(transaction, row).await?;
                    reach.send(()).unwrap();
                    paused.await.unwrap();
                    Ok::<_, SinkError>(())
                })
                .await
        });
        reached.await.expect("the transaction to reach its pause");
        Self { outcome, go_on }
    }

    async fn commit(self) -> Result<(), SinkError> {
        self.go_on.send(()).unwrap();
        self.outcome.await.unwrap()
    }
}

/// Scenario 4, the transaction first: the seal waits for it, and then sees what it has committed.
pub(crate) async fn seal_waits_for_a_transaction_in_flight<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    database.operate("DELETE FROM delivered").await;
    let store = Arc::new(database.open_with(options(isolation)).await?);
    let (old, new) = two_owners(&store).await;
    let paused = Paused::begin::<D>(&store, &old, "in flight").await;
    let seal = {
        let (store, new) = (Arc::clone(&store), new.clone());
        tokio::spawn(async move { store.seal(&new).await })
    };
    until_waiting(database, 1).await?;
    assert!(!seal.is_finished());
    assert!(database.delivered().await.is_empty());

    paused.commit().await.unwrap();
    assert_eq!(data(seal.await??).unwrap(), "in flight");
    assert_eq!(database.delivered().await, ["in flight"]);
    let late = store.transaction(&old, async |_| Ok::<_, CheckpointError>(()));
    assert!(matches!(late.await, Err(CheckpointError::Fenced { .. })));
    Ok(())
}

/// Scenario 4, the seal first: the transaction fails before the user's statements run.
pub(crate) async fn transaction_after_a_seal_delivers_nothing<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    database.operate("DELETE FROM delivered").await;
    let store = database.open_with(options(isolation)).await?;
    let (old, new) = two_owners(&store).await;
    store.seal(&new).await?;
    let mut ran = false;
    let refused = store
        .transaction(&old, async |transaction| {
            ran = true;
            D::deliver(transaction, "stale").await?;
            Ok::<_, SinkError>(())
        })
        .await;
    assert!(matches!(
        refused,
        Err(SinkError::Store(CheckpointError::Fenced { presented, current, .. }))
            if presented == old.epoch && current == new.epoch
    ));
    assert!(!ran);
    assert!(database.delivered().await.is_empty());
    Ok(())
}

/// Scenario 4, both at once: a seal and a transaction wait for the same transaction. Whichever comes
/// first, the seal returns the last row that was delivered.
pub(crate) async fn seal_and_transaction_that_wait_together_agree<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    database.operate("DELETE FROM delivered").await;
    let store = Arc::new(database.open_with(options(isolation)).await?);
    let (mut old, mut new) = two_owners(&store).await;
    for round in 0..10 {
        let paused = Paused::begin::<D>(&store, &old, "first").await;
        let seal = {
            let (store, new) = (Arc::clone(&store), new.clone());
            tokio::spawn(async move { store.seal(&new).await })
        };
        if round % 2 == 0 {
            until_waiting(database, 1).await?;
        }
        let second = {
            let (store, old) = (Arc::clone(&store), old.clone());
            tokio::spawn(async move {
                let work = async |transaction: &mut FencedTransaction<D::Backend>| {
                    transaction.save("second").await?;
                    D::deliver(transaction, "second").await?;
                    Ok::<_, SinkError>(())
                };
                store.transaction(&old, work).await
            })
        };
        until_waiting(database, 2).await?;
        paused.commit().await.unwrap();
        let found = data(seal.await??).unwrap();
        let delivered = database.delivered().await;
        match second.await? {
            Ok(()) => assert_eq!(
                (found.as_ref(), delivered.as_slice()),
                (
                    b"second".as_slice(),
                    ["first".to_owned(), "second".to_owned()].as_slice()
                )
            ),
            Err(SinkError::Store(CheckpointError::Fenced { .. })) => {
                assert_eq!(
                    (found.as_ref(), delivered.as_slice()),
                    (b"first".as_slice(), ["first".to_owned()].as_slice())
                );
            }
            Err(error) => panic!("the second transaction was answered with {error:?}"),
        }
        database.operate("DELETE FROM delivered").await;
        (old, new) = (
            new.clone(),
            FencingToken {
                epoch: new.epoch.next().unwrap(),
                ..new
            },
        );
    }
    Ok(())
}

/// Rows and offset commit together or not at all.
pub(crate) async fn rows_and_offset_commit_together_or_not_at_all<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    database.operate("DELETE FROM delivered").await;
    let store = database.open_with(options(isolation)).await?;
    let (token, _) = two_owners(&store).await;

    // The user's own error rolls both back, and is passed on.
    let given_up = store
        .transaction(&token, async |transaction| {
            transaction.write(write(1, "given up")).await?;
            D::deliver(transaction, "given up").await?;
            Err::<(), _>(SinkError::GaveUp)
        })
        .await;
    assert!(matches!(given_up, Err(SinkError::GaveUp)));
    assert!(database.delivered().await.is_empty());
    assert_eq!(store.read(&token.resource).await?, None);

    let value = store
        .transaction(&token, async |transaction| {
            assert_eq!(transaction.token(), &token);
            assert_eq!(transaction.checkpoint().await?, None);
            D::deliver(transaction, "a").await?;
            assert_eq!(
                transaction.write(write(1, "1")).await?,
                SequenceAdmission::New
            );
            assert_eq!(data(transaction.checkpoint().await?).unwrap(), "1");
            Ok::<_, SinkError>(42)
        })
        .await;
    assert_eq!(value.unwrap(), 42);
    assert_eq!(database.delivered().await, ["a"]);
    assert_eq!(data(store.read(&token.resource).await?).unwrap(), "1");

    // A refused write takes the rows with it, even if the user does not look at the refusal.
    let other = Write {
        write_id: WriteId::new(77),
        ..write(1, "other")
    };
    let refused = store
        .transaction(&token, async |transaction| {
            D::deliver(transaction, "without its offset").await?;
            let refused = transaction.write(other).await;
            assert!(matches!(
                refused,
                Err(CheckpointError::SequenceReused { .. })
            ));
            Ok::<_, SinkError>(())
        })
        .await;
    assert!(matches!(
        refused,
        Err(SinkError::Store(CheckpointError::Unavailable { .. }))
    ));
    assert_eq!(database.delivered().await, ["a"]);

    // A transaction that had committed although nobody heard of it is not carried out again.
    store
        .transaction(&token, async |transaction| {
            let again = transaction.write(write(1, "1")).await?;
            assert_eq!(again, SequenceAdmission::AlreadyWritten);
            D::deliver(transaction, "a").await?;
            Ok::<_, SinkError>(())
        })
        .await
        .unwrap();
    assert_eq!(database.delivered().await, ["a"]);

    // And the connections it used are as good as before.
    for number in 2..6 {
        store.write(&token, write(number, "alone")).await?;
    }
    writes_of_one_transaction_commit_together(database, &store, &token).await
}

/// A write that is repeated in its own transaction is still to be committed; one that an earlier
/// transaction has committed does not keep the next one from it; and after a refusal nothing is.
async fn writes_of_one_transaction_commit_together<D: Database>(
    database: &D,
    store: &SqlStore<D::Backend>,
    token: &FencingToken,
) -> Result<(), Failure> {
    store
        .transaction(token, async |transaction| {
            for _ in 0..2 {
                let written = transaction.write(write(6, "6")).await?;
                assert_eq!(written, SequenceAdmission::New);
            }
            D::deliver(transaction, "b").await?;
            Ok::<_, SinkError>(())
        })
        .await?;
    assert_eq!(data(store.read(&token.resource).await?).unwrap(), "6");
    assert_eq!(database.delivered().await, ["a", "b"]);

    store
        .transaction(token, async |transaction| {
            let again = transaction.write(write(6, "6")).await?;
            assert_eq!(again, SequenceAdmission::AlreadyWritten);
            let next = transaction.write(write(7, "7")).await?;
            assert_eq!(next, SequenceAdmission::New);
            D::deliver(transaction, "c").await?;
            Ok::<_, SinkError>(())
        })
        .await?;
    assert_eq!(data(store.read(&token.resource).await?).unwrap(), "7");
    assert_eq!(database.delivered().await, ["a", "b", "c"]);

    let refused = store
        .transaction(token, async |transaction| {
            let low = transaction.write(write(1, "low")).await;
            assert!(matches!(low, Err(CheckpointError::SequenceReused { .. })));
            for after in [write(7, "7"), write(8, "8")] {
                let dead = transaction.write(after).await;
                assert!(matches!(dead, Err(CheckpointError::Unavailable { .. })));
            }
            D::deliver(transaction, "d").await?;
            Ok::<_, SinkError>(())
        })
        .await;
    assert!(matches!(refused, Err(SinkError::Store(_))));
    assert_eq!(data(store.read(&token.resource).await?).unwrap(), "7");
    assert_eq!(database.delivered().await, ["a", "b", "c"]);
    Ok(())
}

/// A transaction that was ended by hand inside, or that the server has given up, is not reported as
/// committed.
pub(crate) async fn transaction_that_has_ended_inside_is_no_success<D: Database>(
    database: &D,
    ended_by_hand: &'static str,
    fails: Option<&'static str>,
) -> Result<(), Failure> {
    let store = database
        .open_with(options(Isolation::ReadCommitted))
        .await?;
    let (token, _) = two_owners(&store).await;
    let ended = store
        .transaction(&token, async |transaction| {
            D::deliver(transaction, "by hand").await?;
            D::execute(transaction, ended_by_hand).await?;
            Ok::<_, SinkError>(())
        })
        .await;
    assert!(matches!(
        ended,
        Err(SinkError::Store(CheckpointError::OutcomeUnknown { .. }))
    ));
    database.operate("DELETE FROM delivered").await;

    if let Some(fails) = fails {
        let swallowed = store
            .transaction(&token, async |transaction| {
                D::deliver(transaction, "before the error").await?;
                D::execute(transaction, fails).await.unwrap_err();
                Ok::<_, SinkError>(())
            })
            .await;
        assert!(matches!(
            swallowed,
            Err(SinkError::Store(CheckpointError::Unavailable { .. }))
        ));
        assert!(database.delivered().await.is_empty());
    }
    store.write(&token, write(1, "afterwards")).await?;
    Ok(())
}

/// An owner that was paused in a transaction keeps the next one waiting for no longer than it may idle.
pub(crate) async fn idle_transaction_is_ended_by_the_server<D: Database>(
    database: &D,
) -> Result<(), Failure> {
    let options = SqlOptions {
        transaction_idle_max: Duration::from_secs(1),
        deadline: Duration::from_secs(20),
        ..SqlOptions::default()
    };
    let store = Arc::new(database.open_with(options).await?);
    let (old, new) = two_owners(&store).await;
    let paused = Paused::begin::<D>(&store, &old, "never").await;
    assert_eq!(store.seal(&new).await?, None);
    let lost = paused.commit().await;
    assert!(
        matches!(
            lost,
            Err(SinkError::Store(CheckpointError::Unavailable { .. }))
        ),
        "{lost:?}"
    );
    assert!(database.delivered().await.is_empty());
    Ok(())
}
