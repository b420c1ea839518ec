//! The tables.

use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use super::{MysqlBackend, statement};
use crate::error::CheckpointError;
use crate::sql::{LAYOUT_VERSION, PrepareError, SqlBackend, SqlOptions, known, prepared};

/// Creates the tables, or brings them to the layout of this version. Returns how large a packet the
/// server takes, in bytes.
pub(super) async fn prepare(
    backend: &MysqlBackend,
    options: &SqlOptions,
) -> Result<u64, CheckpointError> {
    let work = async {
        let mut connection = backend.connect().await?;
        let packet_bytes: i64 =
            sqlx::query_scalar("SELECT CAST(@@global.max_allowed_packet AS SIGNED)")
                .fetch_one(&mut connection)
                .await?;
        // What this version needs is mostly there, and then no lock is taken and no right is needed.
        if version(&mut connection, backend).await? != Some(LAYOUT_VERSION) {
            migrate(&mut connection, backend, options).await?;
        }
        // The lock, if it was taken, ends with the connection at the latest.
        connection.close().await?;
        Ok(u64::try_from(packet_bytes).unwrap_or(0))
    };
    prepared(options, work).await
}

/// Returns the version of the layout; `None` when there is none yet, or not all of it.
async fn version(
    connection: &mut MySqlConnection,
    backend: &MysqlBackend,
) -> Result<Option<i64>, PrepareError> {
    let table = format!("{}_layout", backend.prefix);
    let there: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = ?",
    )
    .bind(&table)
    .fetch_one(&mut *connection)
    .await?;
    if there == 0 {
        return Ok(None);
    }
    let version: Option<i64> =
        sqlx::query_scalar(statement(format!("SELECT version FROM {table}")))
            .fetch_optional(connection)
            .await?;
    version.map(known).transpose()
}

/// Creates or migrates, one process at a time.
///
/// MySQL commits after every statement that creates something, so there is no transaction to put
/// around them: each step may be taken again, and the version comes last.
async fn migrate(
    connection: &mut MySqlConnection,
    backend: &MysqlBackend,
    options: &SqlOptions,
) -> Result<(), PrepareError> {
    let prefix = &backend.prefix;
    let lock: Option<i64> =
        sqlx::query_scalar("SELECT CAST(GET_LOCK(CONCAT(DATABASE(), '.', ?), ?) AS SIGNED)")
            .bind(prefix)
            .bind(options.lock_wait_max().as_secs().max(1).cast_signed())
            .fetch_one(&mut *connection)
            .await?;
    if lock != Some(1) {
        let waited = "another process is creating the tables, and takes too long";
        return Err(PrepareError::Sql(sqlx::Error::InvalidArgument(
            waited.to_owned(),
        )));
    }
    if version(connection, backend).await?.is_none() {
        sqlx::raw_sql(statement(tables(prefix)))
            .execute(connection)
            .await?;
    }
    // Later layouts: one step for each version from the one that was found.
    Ok(())
}

fn tables(prefix: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {prefix}_fence (
             resource VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
             epoch BIGINT NOT NULL,
             cluster BINARY(16) NOT NULL,
             session BIGINT NOT NULL
                 COMMENT 'the 64 bits of an unsigned number: add 2^64 to a negative one',
             fence_checksum BIGINT NOT NULL,
             written_epoch BIGINT,
             written_cluster BINARY(16),
             written_session BIGINT,
             written_sequence BIGINT,
             write_id BINARY(16),
             data LONGBLOB,
             checksum BIGINT,
             confirmed BIGINT NOT NULL DEFAULT 0
                 COMMENT 'how often something was found to have landed already'
         ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
           COMMENT = 'Fences of tenures, and the checkpoints they guard. Never delete a row.';
         CREATE TABLE IF NOT EXISTS {prefix}_layout (
             one TINYINT NOT NULL PRIMARY KEY DEFAULT 1, version BIGINT NOT NULL
         ) ENGINE = InnoDB;
         INSERT IGNORE INTO {prefix}_layout (version) VALUES ({LAYOUT_VERSION});"
    )
}
