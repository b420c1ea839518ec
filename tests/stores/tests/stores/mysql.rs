//! The store in MariaDB, with the driver and the statements of MySQL.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use store_tests::mariadb::Mariadb;
use store_tests::server::Server;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    CheckpointError, CheckpointStore, FencedTransaction, Isolation, MysqlStore, Resource,
    SqlOptions, SqlStore, mysql,
};
use tokio::sync::Barrier;

use crate::case::{Case, write};
use crate::lost_answers;
use crate::sql::{self, Database, InDatabase, RemoteDatabase, SinkError};

#[async_trait]
impl Database for Server<Mariadb> {
    type Backend = mysql::MysqlBackend;

    async fn open_with(
        &self,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError> {
        let connect = MySqlConnectOptions::from_str(&self.url()).unwrap();
        MysqlStore::open(connect, options).await
    }

    async fn operate(&self, statements: &str) {
        let mut connection = MySqlConnection::connect(&self.url()).await.unwrap();
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        statements.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn delivered(&self) -> Vec<String> {
        let mut connection = MySqlConnection::connect(&self.url()).await.unwrap();
        let rows = sqlx::query_scalar("SELECT line FROM delivered ORDER BY number");
        rows.fetch_all(&mut connection).await.unwrap()
    }

    async fn waiting(&self) -> i64 {
        let mut connection = MySqlConnection::connect(&self.url()).await.unwrap();
        // Not from `innodb_trx`, which answers from memory while it is asked more often than ten times
        // a second.
        let waiting = sqlx::query_scalar(
            "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
             WHERE variable_name = 'innodb_row_lock_current_waits'",
        );
        waiting.fetch_one(&mut connection).await.unwrap()
    }

    async fn deliver(
        transaction: &mut FencedTransaction<Self::Backend>,
        row: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO delivered (line) VALUES (?)")
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
impl RemoteDatabase for Server<Mariadb> {
    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    async fn open_at(
        &self,
        address: SocketAddr,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError> {
        let connect = MySqlConnectOptions::from_str(&self.url()).unwrap();
        MysqlStore::open(connect.port(address.port()), options).await
    }
}

/// Starts a server with the user's table.
async fn database() -> Result<Server<Mariadb>, Failure> {
    let server = Mariadb::start().await?;
    server
        .operate(
            "CREATE TABLE delivered (number BIGINT AUTO_INCREMENT PRIMARY KEY, \
             line VARCHAR(100) NOT NULL) ENGINE = InnoDB",
        )
        .await;
    Ok(server)
}

async fn case() -> Result<Case<InDatabase<Server<Mariadb>>>, Failure> {
    Case::new(InDatabase::new(database().await?)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_the_contract_under_stricter_isolation() -> Result<(), Failure> {
    sql::keeps_the_contract_under_stricter_isolation(database().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    case().await?.survives_a_kill().await
}

#[tokio::test]
async fn mariadb_lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &MysqlStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

#[tokio::test]
async fn mariadb_answers_that_are_lost_are_reported_as_what_they_are() -> Result<(), Failure> {
    lost_answers::are_reported_as_what_they_are(InDatabase::new(database().await?)).await
}

#[tokio::test]
async fn mariadb_seal_waits_for_a_transaction_in_flight() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::seal_waits_for_a_transaction_in_flight(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mariadb_transaction_after_a_seal_delivers_nothing() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::transaction_after_a_seal_delivers_nothing(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mariadb_seal_and_transaction_that_wait_together_agree() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::seal_and_transaction_that_wait_together_agree(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mariadb_rows_and_offset_commit_together_or_not_at_all() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::rows_and_offset_commit_together_or_not_at_all(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mariadb_transaction_that_has_ended_inside_is_no_success() -> Result<(), Failure> {
    let database = database().await?;
    sql::transaction_that_has_ended_inside_is_no_success(&database, "COMMIT", None).await?;
    // A statement that commits by itself.
    let create = "CREATE TABLE other (number INT)";
    sql::transaction_that_has_ended_inside_is_no_success(&database, create, None).await
}

#[tokio::test]
async fn mariadb_ends_an_idle_transaction() -> Result<(), Failure> {
    sql::idle_transaction_is_ended_by_the_server(&database().await?).await
}

#[tokio::test]
async fn mariadb_row_that_was_changed_by_hand_is_corrupt() -> Result<(), Failure> {
    sql::what_was_changed_by_hand_is_corrupt(&database().await?, "tenure_fence").await
}

#[tokio::test]
async fn mariadb_seals_of_a_batch_are_independent() -> Result<(), Failure> {
    let database = database().await?;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        sql::seals_of_a_batch_are_independent(&database, isolation).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mariadb_layout_is_made_once_and_a_newer_one_refused() -> Result<(), Failure> {
    let database = database().await?;
    sql::first_openings_at_once_make_one_layout(&database).await?;
    sql::newer_layout_is_refused(&database, "tenure_layout").await
}

/// Where MySQL says "0 rows changed": data that is the same as before, and the retry of a write.
#[tokio::test]
async fn mariadb_write_of_identical_data_is_accepted() -> Result<(), Failure> {
    let server = Mariadb::start().await?;
    let store = server.open_with(SqlOptions::default()).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let token = grants.next_tenure(&resource, Holder::New);
    store.seal(&token).await?;
    for number in 1..=3 {
        store
            .write(&token, write(number, "always the same"))
            .await?;
        store
            .write(&token, write(number, "always the same"))
            .await?;
    }
    // The driver asks for the rows that were matched: an update that changes nothing counts its row.
    let mut connection = MySqlConnection::connect(&server.url()).await?;
    let unchanged = sqlx::query("UPDATE tenure_fence SET data = data")
        .execute(&mut connection)
        .await?;
    assert_eq!(unchanged.rows_affected(), 1);
    Ok(())
}

/// Appends to the lines that begin with `line`.
async fn touch(
    transaction: &mut FencedTransaction<mysql::MysqlBackend>,
    line: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE delivered SET line = CONCAT(line, '.') WHERE line = ?")
        .bind(line)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// After a deadlock MySQL has rolled the transaction back, lock of the fence and all. What a user who
/// does not look goes on to write must not be committed.
#[tokio::test]
async fn mariadb_deadlock_that_nobody_looked_at_is_no_success() -> Result<(), Failure> {
    let server = database().await?;
    server
        .operate("INSERT INTO delivered (line) VALUES ('left'), ('right')")
        .await;
    let store = Arc::new(server.open_with(SqlOptions::default()).await?);
    let mut grants = LocalGrants::new();
    let both_have_one = Arc::new(Barrier::new(2));
    let mut tasks = Vec::new();
    for (first, second) in [("left", "right"), ("right", "left")] {
        let resource = grants.fresh_resource();
        let token = grants.next_tenure(&resource, Holder::New);
        store.seal(&token).await?;
        let (store, both_have_one) = (Arc::clone(&store), Arc::clone(&both_have_one));
        tasks.push(tokio::spawn(async move {
            let work = async |transaction: &mut FencedTransaction<mysql::MysqlBackend>| {
                sqlx::query("SELECT line FROM delivered WHERE number = ? FOR UPDATE")
                    .bind(if first == "left" { 1 } else { 2 })
                    .execute(&mut **transaction)
                    .await?;
                both_have_one.wait().await;
                let deadlocked = touch(transaction, second).await.is_err();
                <Server<Mariadb> as Database>::deliver(transaction, "afterwards").await?;
                Ok::<_, SinkError>(deadlocked)
            };
            store.transaction(&token, work).await
        }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await?);
    }
    let committed = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(false)));
    assert_eq!(committed.count(), 1, "{outcomes:?}");
    let gone = outcomes.iter().filter(|outcome| {
        matches!(
            outcome,
            Err(SinkError::Store(CheckpointError::OutcomeUnknown { .. }))
        )
    });
    assert_eq!(gone.count(), 1, "{outcomes:?}");
    let delivered = server.delivered().await;
    let afterwards = delivered.iter().filter(|line| *line == "afterwards");
    assert_eq!(afterwards.count(), 1, "{delivered:?}");
    Ok(())
}

#[tokio::test]
async fn mariadb_that_does_not_sync_is_refused() -> Result<(), Failure> {
    let server = Mariadb::start().await?;
    server
        .operate("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        .await;
    let refused = server.open_with(SqlOptions::default()).await;
    assert!(matches!(refused, Err(CheckpointError::Unsupported { .. })));
    Ok(())
}

/// What is not in the binary log is rolled back after a crash of the machine.
#[tokio::test]
async fn mariadb_whose_binary_log_is_not_synced_is_refused() -> Result<(), Failure> {
    let server = Mariadb::start_with_binary_log().await?;
    let refused = server.open_with(SqlOptions::default()).await;
    assert!(matches!(refused, Err(CheckpointError::Unsupported { .. })));
    server.operate("SET GLOBAL sync_binlog = 1").await;
    server.open_with(SqlOptions::default()).await?;
    Ok(())
}

/// A value that would not fit a packet is refused before it is sent.
#[tokio::test]
async fn mariadb_takes_no_more_than_a_packet_holds() -> Result<(), Failure> {
    let server = Mariadb::start().await?;
    server
        .operate("SET GLOBAL max_allowed_packet = 1048576")
        .await;
    let store = server.open_with(SqlOptions::default()).await?;
    assert!(store.max_value_bytes() < 1_048_576);
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let token = grants.next_tenure(&resource, Holder::New);
    store.seal(&token).await?;
    let largest = "x".repeat(store.max_value_bytes());
    store.write(&token, write(1, largest.clone())).await?;
    let larger = store.write(&token, write(2, format!("{largest}x"))).await;
    assert!(matches!(larger, Err(CheckpointError::TooLarge { .. })));
    Ok(())
}
