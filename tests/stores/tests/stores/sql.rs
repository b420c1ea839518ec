//! What the SQL stores are held to beside the kit: the user's own transaction, damage, batches.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use store_tests::server::Crash;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, FencedTransaction, FencingToken, Isolation,
    Resource, SequenceAdmission, SqlBackend, SqlOptions, SqlStore, Write, WriteId,
};
use tokio::sync::oneshot;

use crate::case::{Case, Place, write};
use crate::lost_answers::Remote;

/// How long anything that is waited for may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A database, with a table `delivered` of the user's in it.
#[async_trait]
pub(crate) trait Database: Crash {
    /// The store's backend.
    type Backend: SqlBackend;

    /// Opens the store, which is in this database and nowhere else.
    async fn open_with(
        &self,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError>;

    /// Runs statements as an operator would.
    async fn operate(&self, statements: &str);

    /// Returns the rows of `delivered`, in order.
    async fn delivered(&self) -> Vec<String>;

    /// Returns how many statements wait for a lock.
    async fn waiting(&self) -> i64;

    /// Delivers a row in a transaction.
    async fn deliver(
        transaction: &mut FencedTransaction<Self::Backend>,
        row: &str,
    ) -> Result<(), sqlx::Error>;

    /// Runs a statement in a transaction.
    async fn execute(
        transaction: &mut FencedTransaction<Self::Backend>,
        statement: &'static str,
    ) -> Result<(), sqlx::Error>;
}

/// A database that is reached over the network.
#[async_trait]
pub(crate) trait RemoteDatabase: Database {
    /// Where its server listens.
    fn address(&self) -> SocketAddr;

    /// Opens the store as if its server listened elsewhere.
    async fn open_at(
        &self,
        address: SocketAddr,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError>;
}

/// A store in a database.
pub(crate) struct InDatabase<D> {
    pub(crate) database: D,
    pub(crate) isolation: Isolation,
}

impl<D> InDatabase<D> {
    pub(crate) fn new(database: D) -> Self {
        let isolation = SqlOptions::default().isolation;
        Self {
            database,
            isolation,
        }
    }
}

#[async_trait]
impl<D: Database> Place for InDatabase<D> {
    type Store = SqlStore<D::Backend>;

    async fn open(&self) -> Result<Self::Store, CheckpointError> {
        let options = SqlOptions {
            max_value_bytes: 1024 * 1024,
            ..options(self.isolation)
        };
        self.database.open_with(options).await
    }
}

#[async_trait]
impl<D: Database> Crash for InDatabase<D> {
    async fn kill(&mut self) -> Result<(), Failure> {
        self.database.kill().await
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.database.restart().await
    }
}

#[async_trait]
impl<D: RemoteDatabase> Remote for InDatabase<D> {
    fn address(&self) -> SocketAddr {
        self.database.address()
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Self::Store, CheckpointError> {
        let options = SqlOptions {
            deadline: Duration::from_secs(5),
            ..options(self.isolation)
        };
        self.database.open_at(address, options).await
    }
}

/// Runs the kit at the isolations that are not the default.
pub(crate) async fn keeps_the_contract_under_stricter_isolation<D: Database>(
    mut database: D,
) -> Result<(), Failure> {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let place = InDatabase {
            database,
            isolation,
        };
        let mut case = Case::new(place).await?;
        case.check(200).await;
        database = case.place.database;
    }
    Ok(())
}

/// The default options, but for the isolation.
pub(crate) fn options(isolation: Isolation) -> SqlOptions {
    SqlOptions {
        isolation,
        ..SqlOptions::default()
    }
}

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

fn data(checkpoint: Option<Checkpoint>) -> Option<Bytes> {
    checkpoint.map(|checkpoint| checkpoint.data)
}

/// An owner that has sealed, and the next owner, which has not.
async fn two_owners<B: SqlBackend>(store: &SqlStore<B>) -> (FencingToken, FencingToken) {
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    store.seal(&old).await.unwrap();
    (old, new)
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

pub(crate) async fn until_waiting<D: Database>(database: &D, count: i64) -> Result<(), Failure> {
    wait::until(
        "statements that wait for the fence",
        PATIENCE,
        async || match database.waiting().await {
            waiting if waiting >= count => Ok(()),
            waiting => Err(format!("{waiting} of {count} wait")),
        },
    )
    .await
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

/// A row that was changed by hand is refused.
pub(crate) async fn what_was_changed_by_hand_is_corrupt<D: Database>(
    database: &D,
    table: &str,
) -> Result<(), Failure> {
    let store = database.open_with(SqlOptions::default()).await?;
    let (old, new) = two_owners(&store).await;
    store.write(&old, write(1, "offset 1")).await?;
    store.seal(&new).await?;
    let resource = &old.resource;
    let change = async |change: &str| {
        let statement = format!("UPDATE {table} SET {change} WHERE resource = '{resource}'");
        database.operate(&statement).await;
    };
    let corrupt = |answer: &Result<(), CheckpointError>| match answer {
        Err(CheckpointError::Corrupt {
            resource: named, ..
        }) => named == resource,
        _ => false,
    };

    // The fence is lowered to the old owner's, in all of its parts but the one that nobody knows.
    let (epoch, session) = (old.epoch, old.owner.session);
    change(&format!("epoch = {epoch}, session = {session}")).await;
    let answer = store.write(&old, write(2, "let in by an operator")).await;
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.transaction(&old, async |_| Ok(())).await;
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.fence(resource).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.list(None, 10).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let (epoch, session) = (new.epoch, new.owner.session);
    change(&format!("epoch = {epoch}, session = {session}")).await;
    store.write(&new, write(2, "offset 2")).await?;

    // What was written is damaged: also a seal says so, after it has raised the fence.
    change("checksum = checksum + 1").await;
    let answer = store.read(resource).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let next = FencingToken {
        epoch: new.epoch.next().unwrap(),
        ..new.clone()
    };
    let answer = store.seal(&next).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    assert_eq!(store.fence(resource).await?.unwrap().epoch, next.epoch);
    // The new owner may decide to begin anew.
    store.write(&next, write(1, "anew")).await?;
    assert_eq!(data(store.read(resource).await?).unwrap(), "anew");
    Ok(())
}

/// Many at once: each answer is its own, whatever the others are.
pub(crate) async fn seals_of_a_batch_are_independent<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    let store = Arc::new(database.open_with(options(isolation)).await?);
    let mut grants = LocalGrants::new();
    let (mut tokens, mut older) = (Vec::new(), Vec::new());
    for _ in 0..600 {
        let resource = grants.fresh_resource();
        older.push(grants.next_tenure(&resource, Holder::New));
        tokens.push(grants.next_tenure(&resource, Holder::New));
    }
    let all_new = store.seal_many(&older).await;
    assert!(all_new.iter().all(|answer| matches!(answer, Ok(None))));
    for (place, token) in older.iter().enumerate().step_by(7) {
        store.write(token, write(1, place.to_string())).await?;
    }
    // Every tenth is refused for its epoch, every tenth for its owner; one is named twice.
    let mut asked = tokens.clone();
    for place in (0..asked.len()).step_by(10) {
        store.seal(&tokens[place]).await?;
        asked[place] = older[place].clone();
        store.seal(&tokens[place + 1]).await?;
        asked[place + 1] = grants.conflicting(&tokens[place + 1]);
    }
    asked.push(tokens[2].clone());

    // Two callers in opposite order: neither may wait for the other for ever.
    let turned: Vec<_> = asked.iter().rev().cloned().collect();
    let other = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.seal_many(&turned).await })
    };
    let answers = store.seal_many(&asked).await;
    let mut others = other.await?;
    others.reverse();
    for answers in [answers, others] {
        assert_eq!(answers.len(), asked.len());
        for (place, answer) in answers.into_iter().enumerate() {
            let token = &asked[place];
            let about = |named: &Resource| *named == token.resource;
            match place % 10 {
                _ if place == 600 => assert_eq!(answer?, None),
                0 => match answer {
                    Err(CheckpointError::Fenced { resource, .. }) if about(&resource) => {}
                    answer => panic!("{place}: {answer:?}"),
                },
                1 => match answer {
                    Err(CheckpointError::EpochConflict { resource, .. }) if about(&resource) => {}
                    answer => panic!("{place}: {answer:?}"),
                },
                _ if place % 7 == 0 => assert_eq!(data(answer?).unwrap(), place.to_string()),
                _ => assert_eq!(answer?, None, "{place}"),
            }
        }
    }
    Ok(())
}

/// A layout that is newer than this version is left alone.
pub(crate) async fn newer_layout_is_refused<D: Database>(
    database: &D,
    table: &str,
) -> Result<(), Failure> {
    let open = async || database.open_with(SqlOptions::default()).await;
    open().await?;
    // Again, and many at once: what is there is found.
    for opened in futures::future::join_all((0..5).map(|_| open())).await {
        opened?;
    }
    database
        .operate(&format!("UPDATE {table} SET version = 1000"))
        .await;
    let error = open().await.unwrap_err();
    assert!(
        matches!(error, CheckpointError::Unsupported { .. }),
        "{error:?}"
    );
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        source,
        "the tables have layout 1000, this version knows layouts up to 1"
    );
    Ok(())
}

/// Many processes that open the store for the first time at once make one layout.
pub(crate) async fn first_openings_at_once_make_one_layout<D: Database>(
    database: &D,
) -> Result<(), Failure> {
    let openings = (0..8).map(|_| database.open_with(SqlOptions::default()));
    let stores = futures::future::join_all(openings).await;
    let (token, _) = two_owners(stores[0].as_ref().unwrap()).await;
    for (number, store) in (1..).zip(stores) {
        store?.write(&token, write(number, "shared")).await?;
    }
    Ok(())
}
