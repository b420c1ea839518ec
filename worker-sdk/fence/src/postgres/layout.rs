//! The tables.

use sqlx::Executor;
use sqlx::postgres::PgConnection;

use super::{PostgresBackend, guard, statement};
use crate::LayoutError;
use crate::error::CheckpointError;
use crate::sql::{LAYOUT_VERSION, PrepareError, SqlBackend, SqlOptions, known, prepared};

/// What the names of the advisory locks of this crate begin with: "tenure" in ASCII, so that nobody
/// else's locks are met by accident.
const ADVISORY_LOCKS: i64 = 0x0074_656e_7572_6500;

/// Creates the tables, or brings them to the layout of this version.
pub(super) async fn prepare(
    backend: &PostgresBackend,
    options: &SqlOptions,
) -> Result<(), CheckpointError> {
    let work = async {
        let mut connection = backend.connect().await?;
        // What this version needs is mostly there, and then no lock is taken and no right is needed.
        if version(&mut connection, backend).await? == Some(LAYOUT_VERSION) {
            return Ok(());
        }
        migrate(&mut connection, backend).await
    };
    prepared(options, work).await
}

/// Returns the version of the layout; `None` when there is none yet.
async fn version(
    connection: &mut PgConnection,
    backend: &PostgresBackend,
) -> Result<Option<i64>, PrepareError> {
    let schema = &backend.schema;
    let table = format!("\"{schema}\".layout");
    // Not `to_regclass`: within a transaction that goes on answering that there is no such table after
    // another one has created it.
    let there: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'layout' AND relnamespace = \
         (SELECT oid FROM pg_namespace WHERE nspname = $1))",
    )
    .bind(schema)
    .fetch_one(&mut *connection)
    .await?;
    if !there {
        return Ok(None);
    }
    let version = sqlx::query_scalar(statement(format!("SELECT version FROM {table}")))
        .fetch_optional(connection)
        .await?;
    match version {
        None => Err(PrepareError::Layout(LayoutError::Unmarked)),
        Some(found) => known(found).map(Some),
    }
}

/// Creates or migrates in one transaction, one process at a time.
async fn migrate(
    connection: &mut PgConnection,
    backend: &PostgresBackend,
) -> Result<(), PrepareError> {
    // Under a stricter isolation what another process has just created would not be seen.
    connection
        .execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        .await?;
    let key = ADVISORY_LOCKS ^ i64::from(crc32c::crc32c(backend.schema.as_bytes()));
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(key)
        .execute(&mut *connection)
        .await?;
    if version(connection, backend).await?.is_none() {
        create(connection, &backend.schema).await?;
    }
    // Later layouts: one step for each version from the one that was found, in this transaction.
    connection.execute("COMMIT").await?;
    Ok(())
}

async fn create(connection: &mut PgConnection, schema: &str) -> Result<(), PrepareError> {
    // `IF NOT EXISTS` asks for the right to create schemas even where there is nothing to create.
    let there: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
            .bind(schema)
            .fetch_one(&mut *connection)
            .await?;
    if !there {
        let create = statement(format!("CREATE SCHEMA \"{schema}\""));
        connection.execute(create).await?;
    }
    // Room for new versions of a row in its own page: a write then touches no index. No `CHECK`: it would be
    // evaluated with every write, and a fence that was written by hand is found by its checksum.
    let tables = format!(
        "CREATE TABLE \"{schema}\".fence (
             resource text COLLATE \"C\" PRIMARY KEY,
             epoch bigint NOT NULL,
             cluster bytea NOT NULL,
             session bigint NOT NULL,
             fence_checksum bigint NOT NULL,
             written_epoch bigint,
             written_cluster bytea,
             written_session bigint,
             written_sequence bigint,
             write_id bytea,
             data bytea,
             checksum bigint
         ) WITH (fillfactor = 70);
         COMMENT ON TABLE \"{schema}\".fence IS
             'Fences of tenures, and the checkpoints they guard. Never delete a row or lower an epoch.';
         COMMENT ON COLUMN \"{schema}\".fence.session IS
             'The 64 bits of an unsigned number: add 2^64 to a negative one.';
         CREATE TABLE \"{schema}\".layout (version bigint NOT NULL);
         INSERT INTO \"{schema}\".layout VALUES ({LAYOUT_VERSION});"
    );
    sqlx::raw_sql(statement(tables))
        .execute(&mut *connection)
        .await?;
    sqlx::raw_sql(guard::functions(schema))
        .execute(connection)
        .await?;
    Ok(())
}
