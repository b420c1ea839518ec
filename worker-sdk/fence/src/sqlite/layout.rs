//! The tables.

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::{SqliteBackend, statement};
use crate::LayoutError;
use crate::error::CheckpointError;
use crate::sql::{LAYOUT_VERSION, PrepareError, SqlBackend, SqlOptions, known, prepared};

/// Creates the tables, or brings them to the layout of this version.
pub(super) async fn prepare(
    backend: &SqliteBackend,
    options: &SqlOptions,
) -> Result<(), CheckpointError> {
    let work = async {
        let mut connection = backend.connect().await?;
        migrate(&mut connection, &backend.prefix).await?;
        connection.close().await?;
        Ok(())
    };
    prepared(options, work).await
}

/// Creates or migrates in one transaction, one process at a time: SQLite's write lock is the lock.
async fn migrate(connection: &mut SqliteConnection, prefix: &str) -> Result<(), PrepareError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if version(&mut transaction, prefix).await?.is_none() {
        sqlx::raw_sql(statement(tables(prefix)))
            .execute(&mut *transaction)
            .await?;
    }
    // Later layouts: one step for each version from the one that was found, in this transaction.
    transaction.commit().await?;
    Ok(())
}

/// Returns the version of the layout; `None` when there is none yet.
async fn version(
    connection: &mut SqliteConnection,
    prefix: &str,
) -> Result<Option<i64>, PrepareError> {
    let table = format!("{prefix}_layout");
    let there: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1")
            .bind(&table)
            .fetch_one(&mut *connection)
            .await?;
    if there == 0 {
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

fn tables(prefix: &str) -> String {
    format!(
        "CREATE TABLE {prefix}_fence (
             resource TEXT NOT NULL PRIMARY KEY,
             epoch INTEGER NOT NULL CHECK (epoch > 0),
             cluster BLOB NOT NULL CHECK (length(cluster) = 16),
             session INTEGER NOT NULL, -- the 64 bits of an unsigned number
             fence_checksum INTEGER NOT NULL,
             written_epoch INTEGER,
             written_cluster BLOB,
             written_session INTEGER,
             written_sequence INTEGER,
             write_id BLOB,
             data BLOB,
             checksum INTEGER
         ) STRICT;
         CREATE TABLE {prefix}_layout (version INTEGER NOT NULL) STRICT;
         INSERT INTO {prefix}_layout VALUES ({LAYOUT_VERSION});"
    )
}
