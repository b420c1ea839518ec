//! The store in MySQL and MariaDB.
//!
//! # How it fences
//!
//! One row for each resource holds the fence and the checkpoint, in an InnoDB table. A write is a
//! single `UPDATE` whose condition names the fence: InnoDB locks the row and looks at its newest
//! version, under each isolation. A seal is one transaction of an `INSERT .. ON DUPLICATE KEY UPDATE`
//! and a read. In the user's own transaction ([`SqlStore::transaction`]) the row is locked first,
//! `FOR UPDATE`, and stays so until the end.
//!
//! "0 rows changed" never decides anything: the driver asks for the rows that were *matched*, and
//! every write raises the sequence, so a row that was matched is also changed.
//!
//! # What it promises, and what not
//!
//! * It keeps the contract of [`CheckpointStore`] across crashes and restarts
//!   of the server. `innodb_flush_log_at_trx_commit` other than 1 is refused, for it loses what was
//!   acknowledged, and so is a binary log with `sync_binlog` other than 1 (MariaDB's default is 0):
//!   after a crash of the machine the server rolls back what it does not find there. InnoDB shows a commit before it is durable, so what was merely *seen* (the retry of
//!   a write or seal that had landed) is acknowledged only after a commit of its own.
//! * A replica that takes over is only as good as its replication, which is asynchronous unless it is
//!   set up otherwise: a failover can lose the latest writes *and the latest seals*. An old owner may
//!   then write until the new one seals again. Compare [`fence`](crate::CheckpointStore::fence) with
//!   the epoch that was granted.
//! * A restored backup has the fences of its time. Seal every resource again before trusting it.
//! * An operator with a SQL prompt can do what they like. A fence that was changed by hand is noticed
//!   by its checksum and refused as corrupt; a row that was deleted is refused as never sealed.
//! * In a transaction, statements that commit by themselves (`CREATE TABLE`, `ALTER`, `TRUNCATE`) end
//!   it: the store notices that at the end, but not before.

mod layout;

use sqlx::mysql::{
    MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlPool, MySqlPoolOptions,
};
use sqlx::{ConnectOptions, Connection, MySql, Row, SqlStr};

use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::sql::bound::{Bound, Value};
use crate::sql::row::{FENCE_COLUMNS, FenceRow, KeptRow};
use crate::sql::statements::{Parameters, Statement, Statements};
use crate::sql::{
    Connected, SqlBackend, SqlOptions, SqlStore, Verdict, general_verdict, sealed, statement,
};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// A store in MySQL, version 8 or newer, or MariaDB, version 10.5 or newer. See the [module](self)
/// for what it promises.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_fence::{MysqlStore, SqlOptions};
///
/// let connect = "mysql://worker@db.example/orders".parse()?;
/// let store = MysqlStore::open(connect, SqlOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
pub type MysqlStore = SqlStore<MysqlBackend>;

/// The statements of [`MysqlStore`].
#[derive(Debug)]
pub struct MysqlBackend {
    connect: MySqlConnectOptions,
    settings: SqlStr,
    /// What the connections of the user's transactions are set up with besides.
    transaction_settings: SqlStr,
    prefix: String,
    table: String,
    lock: Statement,
    statements: Statements,
    lacks: SqlStr,
}

/// What a statement takes of a packet beside the value, rounded up.
const PACKET_OVERHEAD_BYTES: u64 = 4096;

impl SqlStore<MysqlBackend> {
    /// Connects, creates or migrates the tables, and probes the server.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the server does not keep what it acknowledges, or the
    /// tables have a newer [layout](crate::LayoutError); [`CheckpointError::Unavailable`].
    pub async fn open(
        connect: MySqlConnectOptions,
        options: SqlOptions,
    ) -> Result<Self, CheckpointError> {
        let backend = MysqlBackend::new(connect, &options);
        let packet_bytes = layout::prepare(&backend, &options).await?;
        let value_bytes = packet_bytes.saturating_sub(PACKET_OVERHEAD_BYTES);
        let value_bytes = usize::try_from(value_bytes).unwrap_or(usize::MAX);
        let max_value_bytes = options.max_value_bytes.min(value_bytes);
        let store = Self::new(backend, &options, max_value_bytes);
        store.probe().await?;
        Ok(store)
    }
}

impl MysqlBackend {
    fn new(connect: MySqlConnectOptions, options: &SqlOptions) -> Self {
        let prefix = options.name.as_str();
        let table = format!("{prefix}_fence");
        // A value must be refused rather than cut.
        let settings = format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL {isolation}; \
             SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), \
             SESSION innodb_lock_wait_timeout = {wait}",
            isolation = options.isolation.words(),
            wait = options.lock_wait_max().as_secs().max(1),
        );
        // MariaDB ends a transaction in which nothing happens; MySQL can only end the connection.
        // Each reads its own of the two comments.
        let transaction_settings = format!(
            "SET SESSION autocommit = 1 \
             /*M! , SESSION idle_transaction_timeout = {idle} */ \
             /*!50718 , SESSION wait_timeout = {idle} */",
            idle = options.transaction_idle_max.as_secs().max(1),
        );
        Self {
            connect,
            settings: statement(settings),
            transaction_settings: statement(transaction_settings),
            prefix: prefix.to_owned(),
            lock: Statement::new(
                &format!("SELECT {FENCE_COLUMNS} FROM {table} WHERE resource = $1 FOR UPDATE"),
                Parameters::InOrder,
            ),
            statements: Statements::new(
                &table,
                Parameters::InOrder,
                Some("confirmed = confirmed + 1"),
            ),
            lacks: statement(format!(
                "SELECT CAST(@@global.innodb_flush_log_at_trx_commit AS SIGNED), \
                 CAST(@@global.read_only AS SIGNED), \
                 CAST(@@global.log_bin AS SIGNED), CAST(@@global.sync_binlog AS SIGNED), \
                 (SELECT CAST(engine AS CHAR) FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_name = '{table}')"
            )),
            table,
        }
    }
}

impl sealed::Sealed for MysqlBackend {}

impl SqlBackend for MysqlBackend {
    type Database = MySql;

    /// Without `autocommit`: after a deadlock the server has rolled back, and what follows must not
    /// commit one by one as if nothing had happened.
    const BEGIN: &'static str = "BEGIN; SAVEPOINT tenure_fenced; SET SESSION autocommit = 0";

    async fn connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        sqlx::raw_sql(self.settings.clone())
            .execute(&mut connection)
            .await?;
        Ok(connection)
    }

    fn transactions(&self, options: &SqlOptions) -> MySqlPool {
        let settings = [self.settings.clone(), self.transaction_settings.clone()];
        MySqlPoolOptions::new()
            .max_connections(options.connections_max.max(1))
            .acquire_timeout(options.deadline)
            .after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move {
                    for settings in settings {
                        sqlx::raw_sql(settings).execute(&mut *connection).await?;
                    }
                    Ok(())
                })
            })
            .after_release(|connection, _| {
                Box::pin(async move {
                    // As it was before the transaction. What is still open is rolled back by now: the
                    // driver sends that first.
                    sqlx::raw_sql("SET SESSION autocommit = 1")
                        .execute(connection)
                        .await?;
                    Ok(true)
                })
            })
            .connect_lazy_with(self.connect.clone())
    }

    async fn raise(
        &self,
        connection: &mut MySqlConnection,
        tokens: &[&FencingToken],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        // Assignments see those before them, so the epoch, which decides, comes last. A fence that is
        // there already counts up: the change makes this statement's commit wait until the one that
        // raised it is durable, which may be seen before it is.
        let raise = Bound::insert_fences(
            &self.table,
            tokens,
            "ON DUPLICATE KEY UPDATE confirmed = confirmed + (epoch = VALUES(epoch)), \
             cluster = IF(epoch < VALUES(epoch), VALUES(cluster), cluster), \
             session = IF(epoch < VALUES(epoch), VALUES(session), session), \
             fence_checksum = IF(epoch < VALUES(epoch), VALUES(fence_checksum), fence_checksum), \
             epoch = GREATEST(epoch, VALUES(epoch))",
        );
        // MySQL cannot return rows from here. They are read while they are still locked, so that a seal
        // is one step also for those who look at it from beside: nobody sees the fence up and then what
        // the seal returned not there yet.
        let resources: Vec<&Resource> = tokens.iter().map(|token| &token.resource).collect();
        let mut transaction = connection.begin().await?;
        let rows = match raise.query::<MySql>().execute(&mut *transaction).await {
            Ok(_) => self.kept(&mut transaction, &resources).await,
            Err(error) => Err(error),
        };
        match rows {
            Ok(rows) => {
                transaction.commit().await?;
                Ok(rows)
            }
            Err(error) => {
                // Now, so that no row stays locked until the connection is used again. If it fails the
                // connection is gone, and the locks with it.
                let _gone = transaction.rollback().await.is_err();
                Err(error)
            }
        }
    }

    async fn kept(
        &self,
        connection: &mut MySqlConnection,
        resources: &[&Resource],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        let kept = Bound::select_kept(&self.table, resources);
        let rows = kept.query::<MySql>().fetch_all(connection).await?;
        rows.iter().map(KeptRow::take).collect()
    }

    async fn lock(
        &self,
        connection: &mut MySqlConnection,
        token: &FencingToken,
    ) -> Result<Option<FenceRow>, sqlx::Error> {
        let lock = self.lock.bind([Value::Text(token.resource.to_string())]);
        Ok(self.select(connection, lock).await?.pop())
    }

    async fn lacks(&self, connection: &mut MySqlConnection) -> Result<Option<String>, sqlx::Error> {
        let row = sqlx::query(self.lacks.clone())
            .fetch_one(connection)
            .await?;
        let flush: i64 = row.try_get(0)?;
        if flush != 1 {
            return Ok(Some(format!(
                "innodb_flush_log_at_trx_commit is {flush}: a crash loses fences"
            )));
        }
        if row.try_get::<i64, _>(1)? != 0 {
            return Ok(Some("the server is read-only".to_owned()));
        }
        let (log, sync): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
        if log != 0 && sync != 1 {
            return Ok(Some(format!(
                "the binary log is on and sync_binlog is {sync}: a crash of the machine loses fences"
            )));
        }
        match row.try_get::<Option<String>, _>(4)?.as_deref() {
            Some("InnoDB") => Ok(None),
            Some(engine) => Ok(Some(format!(
                "the table is kept by {engine}, which has no transactions"
            ))),
            None => Ok(Some("the table of the fences is not there".to_owned())),
        }
    }

    fn statements(&self) -> &Statements {
        &self.statements
    }

    async fn execute(
        &self,
        connection: &mut MySqlConnection,
        bound: Bound<'_>,
    ) -> Result<u64, sqlx::Error> {
        let done = bound.query::<MySql>().execute(connection).await?;
        Ok(done.rows_affected())
    }

    async fn select(
        &self,
        connection: &mut MySqlConnection,
        bound: Bound<'_>,
    ) -> Result<Vec<FenceRow>, sqlx::Error> {
        let rows = bound.query::<MySql>().fetch_all(connection).await?;
        rows.iter().map(FenceRow::take).collect()
    }

    async fn run(
        &self,
        connection: &mut Connected<Self>,
        statement: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(statement).execute(connection).await?;
        Ok(())
    }

    fn verdict(error: &sqlx::Error) -> Verdict {
        let sqlx::Error::Database(said) = error else {
            return general_verdict(error);
        };
        let Some(said) = said.try_downcast_ref::<MySqlDatabaseError>() else {
            return Verdict::Lost;
        };
        match said.number() {
            // Deadlock; the record has changed since it was read (MariaDB's snapshot isolation).
            1213 | 1020 => Verdict::Contended,
            // The server stops; errors of the network; an error during the commit; the statement or
            // the connection was killed, or the plugin that acknowledges the commit failed.
            1053 | 1077..=1080 | 1156..=1161 | 1180 | 1317 | 1927 | 3100 | 3101 | 4031 => {
                Verdict::Lost
            }
            // The server closes the connection after a packet that is too large.
            1153 => Verdict::Lost,
            // No such savepoint.
            1305 => Verdict::TransactionGone,
            // Waiting for a lock took too long, and everything else: it rolls the statement back.
            _ => Verdict::NotDone,
        }
    }
}
