//! The store in a SQLite file.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::process::Process;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use store_tests::server::Crash;
use tempfile::TempDir;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    CheckpointError, CheckpointStore, FencedTransaction, FencingToken, Isolation, Resource,
    SqlOptions, SqlStore, SqliteStore, sqlite,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::case::{Case, write};
use crate::sql::{self, Database, InDatabase, SinkError};

/// A folder with one database.
struct Folder(TempDir);

impl Folder {
    fn file(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.0.path().join("store.db"))
    }

    async fn connection(&self) -> SqliteConnection {
        let file = self.file().create_if_missing(true);
        file.connect().await.unwrap()
    }
}

// Nothing but this process keeps it; another one is killed in a test of its own.
impl Crash for Folder {}

#[async_trait]
impl Database for Folder {
    type Backend = sqlite::SqliteBackend;

    async fn open_with(
        &self,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError> {
        SqliteStore::open(self.file(), options).await
    }

    async fn operate(&self, statements: &str) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        let mut connection = self.connection().await;
        statements.execute(&mut connection).await.unwrap();
    }

    async fn delivered(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("SELECT line FROM delivered ORDER BY number");
        rows.fetch_all(&mut self.connection().await).await.unwrap()
    }

    async fn waiting(&self) -> i64 {
        unreachable!("SQLite does not tell who waits")
    }

    async fn deliver(
        transaction: &mut FencedTransaction<Self::Backend>,
        row: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO delivered (line) VALUES (?1)")
            .bind(row.to_owned())
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

/// A folder with the user's table.
async fn database() -> Result<Folder, Failure> {
    let folder = Folder(TempDir::new()?);
    folder
        .operate("CREATE TABLE delivered (number INTEGER PRIMARY KEY, line TEXT NOT NULL)")
        .await;
    Ok(folder)
}

async fn case() -> Result<Case<InDatabase<Folder>>, Failure> {
    Case::new(InDatabase::new(database().await?)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test]
async fn sqlite_lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &SqliteStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

/// Scenario 4, the transaction first: nobody seals while it is in flight, and afterwards the seal sees
/// what it has committed. Two stores, as two processes have.
#[tokio::test]
async fn sqlite_seal_waits_for_a_transaction_in_flight() -> Result<(), Failure> {
    let folder = database().await?;
    let patient = folder.open_with(SqlOptions::default()).await?;
    let hasty = SqlOptions {
        deadline: Duration::from_millis(500),
        ..SqlOptions::default()
    };
    let hasty = folder.open_with(hasty).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    patient.seal(&old).await?;

    let (reach, reached) = oneshot::channel();
    let (go_on, paused) = oneshot::channel();
    let transaction = patient.transaction(&old, async |transaction| {
        transaction.save("in flight").await?;
        <Folder as Database>::deliver(transaction, "in flight").await?;
        reach.send(()).unwrap();
        paused.await.unwrap();
        Ok::<_, SinkError>(())
    });
    let others = async {
        reached.await.unwrap();
        let waited = hasty.seal(&new).await;
        // It has not happened, or on a slow machine is not known to have: in any case, repeat it.
        assert!(waited.unwrap_err().is_retryable());
        // Readers see what was committed before.
        assert_eq!(hasty.read(&resource).await.unwrap(), None);
        go_on.send(()).unwrap();
    };
    let (committed, ()) = tokio::join!(transaction, others);
    committed.unwrap();
    assert_eq!(hasty.seal(&new).await?.unwrap().data, "in flight");
    assert_eq!(folder.delivered().await, ["in flight"]);
    let late = patient.transaction(&old, async |_| Ok::<_, CheckpointError>(()));
    assert!(matches!(late.await, Err(CheckpointError::Fenced { .. })));
    Ok(())
}

#[tokio::test]
async fn sqlite_transaction_after_a_seal_delivers_nothing() -> Result<(), Failure> {
    let isolation = Isolation::ReadCommitted;
    sql::transaction_after_a_seal_delivers_nothing(&database().await?, isolation).await
}

#[tokio::test]
async fn sqlite_rows_and_offset_commit_together_or_not_at_all() -> Result<(), Failure> {
    let isolation = Isolation::ReadCommitted;
    sql::rows_and_offset_commit_together_or_not_at_all(&database().await?, isolation).await
}

#[tokio::test]
async fn sqlite_transaction_that_has_ended_inside_is_no_success() -> Result<(), Failure> {
    sql::transaction_that_has_ended_inside_is_no_success(&database().await?, "COMMIT", None).await
}

#[tokio::test]
async fn sqlite_row_that_was_changed_by_hand_is_corrupt() -> Result<(), Failure> {
    sql::what_was_changed_by_hand_is_corrupt(&database().await?, "tenure_fence").await
}

#[tokio::test]
async fn sqlite_seals_of_a_batch_are_independent() -> Result<(), Failure> {
    sql::seals_of_a_batch_are_independent(&database().await?, Isolation::ReadCommitted).await
}

#[tokio::test]
async fn sqlite_layout_is_made_once_and_a_newer_one_refused() -> Result<(), Failure> {
    let database = database().await?;
    sql::first_openings_at_once_make_one_layout(&database).await?;
    sql::newer_layout_is_refused(&database, "tenure_layout").await
}

#[tokio::test]
async fn sqlite_in_memory_is_refused() {
    let memory = SqliteConnectOptions::new().in_memory(true);
    let refused = SqliteStore::open(memory, SqlOptions::default()).await;
    assert!(matches!(refused, Err(CheckpointError::Unsupported { .. })));
}

/// Two stores over one file, as two processes have: a write of the old owner through one of them is
/// refused as soon as the new owner has sealed through the other.
#[tokio::test]
async fn sqlite_stores_of_two_processes_share_their_fences() -> Result<(), Failure> {
    let folder = database().await?;
    let one = folder.open_with(SqlOptions::default()).await?;
    let other = folder.open_with(SqlOptions::default()).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let mut token = grants.next_tenure(&resource, Holder::New);
    one.seal(&token).await?;
    for round in 1..=50 {
        one.write(&token, write(1, round.to_string())).await?;
        let next = grants.next_tenure(&resource, Holder::New);
        let found = other.seal(&next).await?.unwrap();
        assert_eq!(found.data, round.to_string());
        let stale = one.write(&token, write(2, "stale")).await;
        assert!(matches!(stale, Err(CheckpointError::Fenced { .. })));
        one.seal(&next).await?;
        token = next;
    }
    Ok(())
}

/// Owners that write at the same time in the process that is killed.
const WRITERS: u32 = 200;

/// Acknowledged writes before the process is killed.
const WRITES: usize = 2_000;

#[tokio::test]
async fn sqlite_whose_process_is_killed_amid_writers_loses_nothing() -> Result<(), Failure> {
    let folder = database().await?;
    let file = folder.0.path().join("store.db");
    for epoch in (1..=9).step_by(2) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqlite-writers"));
        command
            .arg(&file)
            .args([epoch.to_string(), WRITERS.to_string()]);
        let log = folder.0.path().join("log");
        let (process, _stdin, stdout) = Process::spawn_piped("sqlite-writers", command, &log)?;
        let mut lines = BufReader::new(stdout).lines();
        let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
        let mut count = 0;
        // What was said before the kill is still to be read after it.
        while let Some(line) = lines.next_line().await? {
            // A line is written to the pipe in one piece or not at all.
            let (resource, sequence) = line.split_once(' ').unwrap();
            acknowledged.insert(resource.to_owned(), sequence.parse()?);
            count += 1;
            if count == WRITES {
                process.kill_now()?;
            }
        }
        assert!(
            count >= WRITES,
            "the writers have ended after {count} writes"
        );
        assert_eq!(acknowledged.len(), usize::try_from(WRITERS)?);

        let store = folder.open_with(SqlOptions::default()).await?;
        for (resource, sequence) in acknowledged {
            let old: FencingToken = format!("{resource}@{epoch}:{:032x}/{epoch}", 1).parse()?;
            let new = FencingToken {
                epoch: old.epoch.next().unwrap(),
                ..old.clone()
            };
            let found = store.seal(&new).await?.unwrap();
            // One more may have landed whose acknowledgement was not said.
            let landed = found.sequence.get();
            assert!(
                (sequence..=sequence + 1).contains(&landed),
                "{landed} after {sequence}"
            );
            assert_eq!(found.data, format!("{old} {landed}"));
            let stale = store.write(&old, write(landed + 2, "stale")).await;
            assert!(matches!(stale, Err(CheckpointError::Fenced { .. })));
        }
    }
    Ok(())
}
