//! The store in PostgreSQL.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use store_tests::postgres::Postgres;
use store_tests::server::Server;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    CheckpointError, CheckpointStore, FencedTransaction, FencingToken, Isolation, PostgresStore,
    Resource, SqlOptions, SqlStore, postgres,
};

use crate::case::{Case, write};
use crate::lost_answers;
use crate::sql::{self, Database, InDatabase, RemoteDatabase, SinkError};

#[async_trait]
impl Database for Server<Postgres> {
    type Backend = postgres::PostgresBackend;

    async fn open_with(
        &self,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError> {
        let connect = PgConnectOptions::from_str(&self.url()).unwrap();
        PostgresStore::open(connect, options).await
    }

    async fn operate(&self, statements: &str) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        statements.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn delivered(&self) -> Vec<String> {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let rows = sqlx::query_scalar("SELECT line FROM delivered ORDER BY number");
        rows.fetch_all(&mut connection).await.unwrap()
    }

    async fn waiting(&self) -> i64 {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let waiting = sqlx::query_scalar("SELECT count(*) FROM pg_locks WHERE NOT granted");
        waiting.fetch_one(&mut connection).await.unwrap()
    }

    async fn deliver(
        transaction: &mut FencedTransaction<Self::Backend>,
        row: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO delivered (line) VALUES ($1)")
            .bind(row)
            .execute(&mut **transaction)
            .await?;
        Ok(())
    }

    async fn execute(
        transaction: &mut FencedTransaction<Self::Backend>,
        statement: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(statement).execute(&mut **transaction).await?;
        Ok(())
    }
}

#[async_trait]
impl RemoteDatabase for Server<Postgres> {
    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    async fn open_at(
        &self,
        address: SocketAddr,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError> {
        let connect = PgConnectOptions::from_str(&self.url()).unwrap();
        PostgresStore::open(connect.port(address.port()), options).await
    }
}

/// Starts a server with the user's table.
async fn database() -> Result<Server<Postgres>, Failure> {
    let server = Postgres::start().await?;
    server
        .operate("CREATE TABLE delivered (number bigserial PRIMARY KEY, line text NOT NULL)")
        .await;
    Ok(server)
}

async fn case() -> Result<Case<InDatabase<Server<Postgres>>>, Failure> {
    Case::new(InDatabase::new(database().await?)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_keeps_the_contract_under_stricter_isolation() -> Result<(), Failure> {
    sql::keeps_the_contract_under_stricter_isolation(database().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    case().await?.survives_a_kill().await
}

#[tokio::test]
async fn postgresql_lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &PostgresStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

#[tokio::test]
async fn postgresql_answers_that_are_lost_are_reported_as_what_they_are() -> Result<(), Failure> {
    lost_answers::are_reported_as_what_they_are(InDatabase::new(database().await?)).await
}

#[tokio::test]
async fn postgresql_seal_waits_for_a_transaction_in_flight() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::seal_waits_for_a_transaction_in_flight(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn postgresql_transaction_after_a_seal_delivers_nothing() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::transaction_after_a_seal_delivers_nothing(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn postgresql_seal_and_transaction_that_wait_together_agree() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::seal_and_transaction_that_wait_together_agree(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn postgresql_rows_and_offset_commit_together_or_not_at_all() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        sql::rows_and_offset_commit_together_or_not_at_all(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn postgresql_transaction_that_has_ended_inside_is_no_success() -> Result<(), Failure> {
    let database = database().await?;
    sql::transaction_that_has_ended_inside_is_no_success(&database, "COMMIT", Some("SELECT 1 / 0"))
        .await
}

#[tokio::test]
async fn postgresql_ends_an_idle_transaction() -> Result<(), Failure> {
    sql::idle_transaction_is_ended_by_the_server(&database().await?).await
}

#[tokio::test]
async fn postgresql_row_that_was_changed_by_hand_is_corrupt() -> Result<(), Failure> {
    sql::what_was_changed_by_hand_is_corrupt(&database().await?, "tenure.fence").await
}

#[tokio::test]
async fn postgresql_seals_of_a_batch_are_independent() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        sql::seals_of_a_batch_are_independent(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn postgresql_layout_is_made_once_and_a_newer_one_refused() -> Result<(), Failure> {
    let database = database().await?;
    sql::first_openings_at_once_make_one_layout(&database).await?;
    sql::newer_layout_is_refused(&database, "tenure.layout").await?;
    // Another schema is another store.
    let elsewhere = SqlOptions {
        name: "elsewhere".parse()?,
        ..SqlOptions::default()
    };
    assert!(
        database
            .open_with(elsewhere)
            .await?
            .list(None, 1)
            .await?
            .is_empty()
    );
    Ok(())
}

#[tokio::test]
async fn postgresql_that_does_not_answer_leaves_the_outcome_unknown() -> Result<(), Failure> {
    let mut server = Postgres::start().await?;
    let options = SqlOptions {
        deadline: Duration::from_secs(2),
        ..SqlOptions::default()
    };
    let store = server.open_with(options).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let token = grants.next_tenure(&resource, Holder::New);
    store.seal(&token).await?;

    server.freeze()?;
    let unknown = store.write(&token, write(1, "into the silence")).await;
    assert!(
        matches!(unknown, Err(CheckpointError::OutcomeUnknown { .. })),
        "{unknown:?}"
    );
    let unread = store.read(&resource).await;
    assert!(
        matches!(unread, Err(CheckpointError::Unavailable { .. })),
        "{unread:?}"
    );
    server.thaw()?;
    store.write(&token, write(1, "into the silence")).await?;

    server.kill().await?;
    // The connection was idle and is dead: one attempt is lost on it, and no other can be made.
    let lost = store.write(&token, write(2, "to a dead server")).await;
    assert!(lost.unwrap_err().is_retryable());
    let refused = store.write(&token, write(2, "to a dead server")).await;
    assert!(
        matches!(refused, Err(CheckpointError::Unavailable { .. })),
        "{refused:?}"
    );
    server.restart().await?;
    store.write(&token, write(2, "to a dead server")).await?;
    Ok(())
}

#[tokio::test]
async fn postgresql_role_that_does_not_wait_for_the_disk_is_overruled() -> Result<(), Failure> {
    let server = Postgres::start().await?;
    server
        .operate("ALTER ROLE tenure SET synchronous_commit = off")
        .await;
    // The probe, which looks at a connection of the store, would refuse it.
    let store = server.open_with(SqlOptions::default()).await?;
    store.probe().await?;
    Ok(())
}

/// What a statement by hand is answered with: its SQLSTATE, or the number of rows.
async fn by_hand(
    server: &Server<Postgres>,
    token: Option<&FencingToken>,
    statement: &'static str,
) -> Result<u64, String> {
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    if let Some(token) = token {
        sqlx::query("SELECT set_config('tenure.token', $1, true)")
            .bind(token.to_string())
            .execute(&mut *transaction)
            .await
            .unwrap();
    }
    let done = sqlx::raw_sql(statement).execute(&mut *transaction).await;
    match done {
        Ok(done) => {
            transaction.commit().await.unwrap();
            Ok(done.rows_affected())
        }
        Err(error) => {
            let said = error.into_database_error().unwrap();
            Err(said.code().unwrap().into_owned())
        }
    }
}

#[tokio::test]
async fn guarded_table_takes_writes_with_a_current_token_only() -> Result<(), Failure> {
    let server = database().await?;
    let store = server.open_with(SqlOptions::default()).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    store.seal(&old).await?;
    store.guard_table("delivered").await?;
    store.guard_table("public.delivered").await?;

    let deliver = async |token| {
        store
            .transaction(token, async |transaction| {
                <Server<Postgres> as Database>::deliver(transaction, "fenced").await?;
                Ok::<_, SinkError>(())
            })
            .await
    };
    deliver(&old).await.unwrap();

    // An admin's job, a migration, a bulk load: none of them carries a token.
    let no_token = Err("TF001".to_owned());
    for statement in [
        "UPDATE delivered SET line = 'by an admin'",
        "INSERT INTO delivered (line) VALUES ('by an admin')",
        "DELETE FROM delivered",
        "TRUNCATE delivered",
        "SET LOCAL session_replication_role = replica; DELETE FROM delivered",
    ] {
        assert_eq!(
            by_hand(&server, None, statement).await,
            no_token,
            "{statement}"
        );
    }
    // One that does is let in, also by hand.
    let touch = "UPDATE delivered SET line = line";
    assert_eq!(by_hand(&server, Some(&old), touch).await, Ok(1));

    // After the next owner's seal the old token is stale, and a forged one is no better.
    store.seal(&new).await?;
    let stale = Err("TF002".to_owned());
    assert_eq!(by_hand(&server, Some(&old), touch).await, stale);
    let forged = grants.conflicting(&new);
    assert_eq!(by_hand(&server, Some(&forged), touch).await, stale);
    let far = FencingToken {
        owner: tenure_fence::Owner {
            session: u64::MAX,
            ..new.owner
        },
        epoch: new.epoch.next().unwrap(),
        ..new.clone()
    };
    assert_eq!(by_hand(&server, Some(&far), touch).await, stale);
    store.seal(&far).await?;
    assert_eq!(by_hand(&server, Some(&far), touch).await, Ok(1));
    assert!(matches!(
        deliver(&new).await,
        Err(SinkError::Store(CheckpointError::Fenced { .. }))
    ));
    deliver(&far).await.unwrap();
    assert_eq!(server.delivered().await, ["fenced", "fenced"]);

    // The token of a transaction ends with it, also on a connection that is used again.
    store.unguard_table("delivered").await?;
    assert_eq!(by_hand(&server, None, touch).await, Ok(2));
    let unknown = store.guard_table("no_such_table").await;
    assert!(matches!(unknown, Err(CheckpointError::Unavailable { .. })));
    Ok(())
}

/// While a statement that carries a token is in flight, the fence it was checked against cannot rise.
#[tokio::test]
async fn guard_keeps_the_fence_until_the_transaction_ends() -> Result<(), Failure> {
    let server = database().await?;
    let store = Arc::new(server.open_with(SqlOptions::default()).await?);
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    store.seal(&old).await?;
    store.guard_table("delivered").await?;

    let mut connection = PgConnection::connect(&server.url()).await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT set_config('tenure.token', $1, true)")
        .bind(old.to_string())
        .execute(&mut *transaction)
        .await?;
    sqlx::raw_sql("INSERT INTO delivered (line) VALUES ('in flight')")
        .execute(&mut *transaction)
        .await?;
    let seal = {
        let (store, new) = (Arc::clone(&store), new.clone());
        tokio::spawn(async move { store.seal(&new).await })
    };
    sql::until_waiting(&server, 1).await?;
    assert!(!seal.is_finished());
    transaction.commit().await?;
    seal.await??;
    assert_eq!(server.delivered().await, ["in flight"]);
    Ok(())
}
