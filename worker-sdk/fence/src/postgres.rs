//! The store in PostgreSQL.
//!
//! # How it fences
//!
//! One row for each resource holds the fence and the checkpoint. A write is a single `UPDATE` whose
//! condition names the fence; PostgreSQL locks the row and looks at its newest version, under each
//! isolation. A seal is a single `INSERT .. ON CONFLICT DO UPDATE`. In the user's own transaction
//! ([`SqlStore::transaction`]) the row is locked first, `FOR UPDATE`, and stays so until the end.
//!
//! # What it promises, and what not
//!
//! * It keeps the contract of [`CheckpointStore`] across crashes and restarts
//!   of the server. `fsync = off` is refused; `synchronous_commit = off` is switched on for the
//!   store's connections. After a restart a server shows what it had committed while a synchronous
//!   standby may be without it, so what was merely *seen* (the retry of a write or seal that had landed)
//!   is acknowledged only after a commit of its own.
//! * A standby that takes over is only as good as its replication. With `synchronous_commit` on and
//!   synchronous standbys nothing acknowledged is lost. An asynchronous failover can lose the latest
//!   writes *and the latest seals*: an old owner may then write until the new one seals again.
//!   Compare [`fence`](crate::CheckpointStore::fence) with the epoch that was granted.
//! * A restored backup has the fences of its time. Seal every resource again before trusting it.
//! * An operator with a SQL prompt can do what they like. A fence that was changed by hand is noticed
//!   by its checksum and refused as corrupt; a row that was deleted is refused as never sealed. Tables
//!   that only owners may write to are protected from accidents by
//!   [`guard_table`](SqlStore::guard_table).
//! * Connect to the server itself or through a pooler in session mode: settings and prepared
//!   statements belong to a session.

mod guard;
mod layout;

use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgDatabaseError, PgPool, PgPoolOptions, PgSeverity,
};
use sqlx::{ConnectOptions, Postgres, Row, SqlStr};

use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::sql::bound::{Bound, Value};
use crate::sql::row::{FENCE_COLUMNS, FenceRow, KEPT_COLUMNS, KeptRow, fence_checksum};
use crate::sql::statements::{Parameters, Statement, Statements};
use crate::sql::{
    Connected, SqlBackend, SqlOptions, SqlStore, Verdict, general_verdict, sealed, statement,
};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// A store in PostgreSQL, version 12 or newer. See the [module](self) for what it promises.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_fence::{PostgresStore, SqlOptions};
///
/// let connect = "postgres://worker@db.example/orders".parse()?;
/// let store = PostgresStore::open(connect, SqlOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
pub type PostgresStore = SqlStore<PostgresBackend>;

/// The statements of [`PostgresStore`].
#[derive(Debug)]
pub struct PostgresBackend {
    connect: PgConnectOptions,
    settings: SqlStr,
    schema: String,
    raise: SqlStr,
    kept: SqlStr,
    lock: Statement,
    statements: Statements,
}

impl SqlStore<PostgresBackend> {
    /// Connects, creates or migrates the tables, and probes the server.
    ///
    /// Creating takes the right to create the schema; a layout that is there takes only the rights to
    /// select, insert and update.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the server does not keep what it acknowledges, or the
    /// tables have a newer [layout](crate::LayoutError); [`CheckpointError::Unavailable`].
    pub async fn open(
        connect: PgConnectOptions,
        options: SqlOptions,
    ) -> Result<Self, CheckpointError> {
        let backend = PostgresBackend::new(connect, &options);
        layout::prepare(&backend, &options).await?;
        let store = Self::new(backend, &options, options.max_value_bytes);
        store.probe().await?;
        Ok(store)
    }
}

impl PostgresBackend {
    fn new(connect: PgConnectOptions, options: &SqlOptions) -> Self {
        let schema = options.name.as_str();
        let table = format!("\"{schema}\".fence");
        let settings = format!(
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}; \
             SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
             SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'",
            options.isolation.words(),
            options.lock_wait_max().as_millis().max(1),
            options.transaction_idle_max.as_millis().max(1),
        );
        Self {
            connect,
            settings: statement(settings),
            schema: schema.to_owned(),
            raise: statement(format!(
                "INSERT INTO {table} AS kept ({FENCE_COLUMNS}) \
                 SELECT * FROM UNNEST($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], \
                 $5::bigint[]) AS presented({FENCE_COLUMNS}) ORDER BY resource COLLATE \"C\" \
                 ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, \
                 cluster = excluded.cluster, session = excluded.session, \
                 fence_checksum = excluded.fence_checksum WHERE kept.epoch < excluded.epoch \
                 OR (kept.epoch = excluded.epoch AND kept.cluster = excluded.cluster \
                 AND kept.session = excluded.session \
                 AND kept.fence_checksum = excluded.fence_checksum) \
                 RETURNING {KEPT_COLUMNS}"
            )),
            kept: statement(format!(
                "SELECT {KEPT_COLUMNS} FROM {table} WHERE resource = ANY($1::text[])"
            )),
            // The guard of the user's tables reads the token back: see `guard`.
            lock: Statement::new(
                &format!(
                    "SELECT {FENCE_COLUMNS}, set_config('tenure.token', $2, true) FROM {table} \
                     WHERE resource = $1 FOR UPDATE"
                ),
                Parameters::Numbered,
            ),
            statements: Statements::new(&table, Parameters::Numbered, Some("epoch = epoch")),
        }
    }
}

impl sealed::Sealed for PostgresBackend {}

impl SqlBackend for PostgresBackend {
    type Database = Postgres;

    const BEGIN: &'static str = "BEGIN; SAVEPOINT tenure_fenced";

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        sqlx::raw_sql(self.settings.clone())
            .execute(&mut connection)
            .await?;
        Ok(connection)
    }

    fn transactions(&self, options: &SqlOptions) -> PgPool {
        let settings = self.settings.clone();
        PgPoolOptions::new()
            .max_connections(options.connections_max.max(1))
            .acquire_timeout(options.deadline)
            .after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move {
                    sqlx::raw_sql(settings).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(self.connect.clone())
    }

    async fn raise(
        &self,
        connection: &mut PgConnection,
        tokens: &[&FencingToken],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        let (mut names, mut epochs, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sessions, mut checksums) = (Vec::new(), Vec::new());
        for token in tokens {
            names.push(token.resource.to_string());
            epochs.push(token.epoch.get().cast_signed());
            clusters.push(token.owner.cluster.to_be_bytes().to_vec());
            sessions.push(token.owner.session.cast_signed());
            checksums.push(fence_checksum(token));
        }
        let rows = sqlx::query(self.raise.clone())
            .bind(names)
            .bind(epochs)
            .bind(clusters)
            .bind(sessions)
            .bind(checksums)
            .fetch_all(connection)
            .await?;
        rows.iter().map(KeptRow::take).collect()
    }

    async fn kept(
        &self,
        connection: &mut PgConnection,
        resources: &[&Resource],
    ) -> Result<Vec<KeptRow>, sqlx::Error> {
        let names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        let rows = sqlx::query(self.kept.clone())
            .bind(names)
            .fetch_all(connection)
            .await?;
        rows.iter().map(KeptRow::take).collect()
    }

    async fn lock(
        &self,
        connection: &mut PgConnection,
        token: &FencingToken,
    ) -> Result<Option<FenceRow>, sqlx::Error> {
        let name = Value::Text(token.resource.to_string());
        let lock = self.lock.bind([name, Value::Text(token.to_string())]);
        Ok(self.select(connection, lock).await?.pop())
    }

    async fn lacks(&self, connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
        let row = sqlx::raw_sql(
            "SELECT pg_is_in_recovery(), current_setting('fsync'), \
             current_setting('synchronous_commit')",
        )
        .fetch_one(connection)
        .await?;
        // A standby may be promoted at any moment, and nothing but the primary can fence.
        if row.try_get::<bool, _>(0)? {
            return Ok(Some("the server is a standby".to_owned()));
        }
        if row.try_get::<String, _>(1)? == "off" {
            return Ok(Some("fsync is off: a crash loses fences".to_owned()));
        }
        if row.try_get::<String, _>(2)? == "off" {
            return Ok(Some(
                "synchronous_commit is off: a crash loses fences".to_owned(),
            ));
        }
        Ok(None)
    }

    fn statements(&self) -> &Statements {
        &self.statements
    }

    async fn execute(
        &self,
        connection: &mut PgConnection,
        bound: Bound<'_>,
    ) -> Result<u64, sqlx::Error> {
        // The driver reads on until the server is ready again. It has to: the count of rows is sent
        // before the statement commits, and an error of the commit comes after it.
        let done = bound.query::<Postgres>().execute(connection).await?;
        Ok(done.rows_affected())
    }

    async fn select(
        &self,
        connection: &mut PgConnection,
        bound: Bound<'_>,
    ) -> Result<Vec<FenceRow>, sqlx::Error> {
        let rows = bound.query::<Postgres>().fetch_all(connection).await?;
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
        let Some(said) = said.try_downcast_ref::<PgDatabaseError>() else {
            return Verdict::Lost;
        };
        // A backend that ends itself may have committed: it also says so while it waits for a standby.
        if matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic) {
            return Verdict::Lost;
        }
        match said.code() {
            // Serialization failure, deadlock.
            "40001" | "40P01" => Verdict::Contended,
            // Statement completion unknown; connection exceptions.
            "40003" => Verdict::Lost,
            code if code.starts_with("08") => Verdict::Lost,
            // No active transaction; no such savepoint.
            "25P01" | "3B001" => Verdict::TransactionGone,
            // Data or index corrupted.
            "XX001" | "XX002" => Verdict::Unreadable,
            // An error rolls its statement back, and a failed transaction cannot commit.
            _ => Verdict::NotDone,
        }
    }
}
