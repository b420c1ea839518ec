//! The store in a SQLite file.
//!
//! # How it fences
//!
//! One row for each resource holds the fence and the checkpoint. A write is a single `UPDATE` whose
//! condition names the fence, a seal a single `INSERT .. ON CONFLICT DO UPDATE`; SQLite lets one
//! statement write at a time. The user's own transaction ([`SqlStore::transaction`]) begins
//! `IMMEDIATE`: from before the fence is checked nobody else writes until it ends.
//!
//! # What it promises, and what not
//!
//! * It keeps the contract of [`CheckpointStore`] across crashes of the
//!   process and of the machine: write-ahead log, synced at every commit (`synchronous = FULL`).
//!   A database in memory is refused.
//! * Several processes of *one* machine may share a file. Over a network file system the locks of
//!   SQLite do not hold, and nothing notices: never do that.
//! * Nobody ends the transaction of a process that was stopped in it. Until it goes on or dies no one
//!   else can write to the file.
//! * A file that was restored from a copy has the fences of its time. Seal every resource again.
//! * Whoever can open the file can change it. A fence that was changed by hand is noticed by its
//!   checksum and refused as corrupt; a row that was deleted is refused as never sealed.

mod layout;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Row, Sqlite};

use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::sql::bound::Bound;
use crate::sql::row::{FenceRow, KEPT_COLUMNS, KeptRow};
use crate::sql::statements::{Parameters, Statements};
use crate::sql::{
    Connected, SqlBackend, SqlOptions, SqlStore, Verdict, general_verdict, sealed, statement,
};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// A store in a SQLite file. See the [module](self) for what it promises.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_fence::sqlx::sqlite::SqliteConnectOptions;
/// use tenure_fence::{SqlOptions, SqliteStore};
///
/// let file = SqliteConnectOptions::new().filename("orders.db");
/// let store = SqliteStore::open(file, SqlOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
pub type SqliteStore = SqlStore<SqliteBackend>;

/// The statements of [`SqliteStore`].
#[derive(Debug)]
pub struct SqliteBackend {
    connect: SqliteConnectOptions,
    prefix: String,
    table: String,
    statements: Statements,
}

impl SqlStore<SqliteBackend> {
    /// Opens the file, which is created if it is not there, creates or migrates the tables, and
    /// makes sure that what is committed is kept.
    ///
    /// Journal, syncing and the time to wait for locks are the store's to choose; the rest of
    /// `connect` is taken as it is.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the database has no write-ahead log, or the tables have a
    /// newer [layout](crate::LayoutError); [`CheckpointError::Unavailable`].
    pub async fn open(
        connect: SqliteConnectOptions,
        options: SqlOptions,
    ) -> Result<Self, CheckpointError> {
        let backend = SqliteBackend::new(connect, &options);
        layout::prepare(&backend, &options).await?;
        let store = Self::with_one_writer(backend, &options);
        store.probe().await?;
        Ok(store)
    }
}

impl SqliteBackend {
    fn new(connect: SqliteConnectOptions, options: &SqlOptions) -> Self {
        let prefix = options.name.as_str();
        let table = format!("{prefix}_fence");
        let connect = connect
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            // On macOS a sync reaches the drive only with this; elsewhere it does nothing.
            .pragma("fullfsync", "1")
            .busy_timeout(options.lock_wait_max());
        Self {
            connect,
            prefix: prefix.to_owned(),
            statements: Statements::new(&table, Parameters::Numbered, None),
            table,
        }
    }
}

impl sealed::Sealed for SqliteBackend {}

impl SqlBackend for SqliteBackend {
    type Database = Sqlite;

    const BEGIN: &'static str = "BEGIN IMMEDIATE; SAVEPOINT tenure_fenced";

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        self.connect.connect().await
    }

    fn transactions(&self, options: &SqlOptions) -> SqlitePool {
        // One: SQLite lets one write at a time, and here they wait in order.
        SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(options.deadline)
            .connect_lazy_with(self.connect.clone())
    }

    async fn raise(
        &self,
        connection: &mut SqliteConnection,
        tokens: &[&FencingToken],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        let table = &self.table;
        let otherwise = format!(
            "ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, \
             cluster = excluded.cluster, session = excluded.session, \
             fence_checksum = excluded.fence_checksum WHERE {table}.epoch < excluded.epoch \
             RETURNING {KEPT_COLUMNS}"
        );
        let raise = Bound::insert_fences(table, tokens, &otherwise);
        let rows = raise.query::<Sqlite>().fetch_all(connection).await?;
        rows.iter().map(KeptRow::take).collect()
    }

    async fn kept(
        &self,
        connection: &mut SqliteConnection,
        resources: &[&Resource],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        let kept = Bound::select_kept(&self.table, resources);
        let rows = kept.query::<Sqlite>().fetch_all(connection).await?;
        rows.iter().map(KeptRow::take).collect()
    }

    async fn lock(
        &self,
        connection: &mut SqliteConnection,
        token: &FencingToken,
    ) -> Result<Option<FenceRow>, sqlx::Error> {
        // The transaction has the whole file to itself already.
        self.fence(connection, &token.resource).await
    }

    async fn lacks(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<String>, sqlx::Error> {
        let journal = sqlx::query("PRAGMA journal_mode")
            .fetch_one(&mut *connection)
            .await?;
        let journal: String = journal.try_get(0)?;
        if journal != "wal" {
            return Ok(Some(format!(
                "the journal is {journal}: only a file with a write-ahead log will do"
            )));
        }
        let synchronous = sqlx::query("PRAGMA synchronous")
            .fetch_one(connection)
            .await?;
        let synchronous: i64 = synchronous.try_get(0)?;
        // 2 is FULL, 3 EXTRA.
        if synchronous < 2 {
            return Ok(Some(format!(
                "synchronous is {synchronous}: a crash loses fences"
            )));
        }
        Ok(None)
    }

    fn statements(&self) -> &Statements {
        &self.statements
    }

    async fn execute(
        &self,
        connection: &mut SqliteConnection,
        bound: Bound<'_>,
    ) -> Result<u64, sqlx::Error> {
        let done = bound.query::<Sqlite>().execute(connection).await?;
        Ok(done.rows_affected())
    }

    async fn select(
        &self,
        connection: &mut SqliteConnection,
        bound: Bound<'_>,
    ) -> Result<Vec<FenceRow>, sqlx::Error> {
        let rows = bound.query::<Sqlite>().fetch_all(connection).await?;
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
        let code = said.code().and_then(|code| code.parse::<u32>().ok());
        let Some(code) = code else {
            return Verdict::Lost;
        };
        // Busy because the snapshot is old: others have committed.
        if code == 517 {
            return Verdict::Contended;
        }
        // The low byte is the kind of error, the rest its details.
        match code & 0xff {
            // The disk: whether a commit reached it is not known.
            10 => Verdict::Lost,
            // Malformed; not a database.
            11 | 26 => Verdict::Unreadable,
            1 if said.message().starts_with("no such savepoint") => Verdict::TransactionGone,
            // Busy for too long, locked, full, read-only, and everything else.
            _ => Verdict::NotDone,
        }
    }
}
