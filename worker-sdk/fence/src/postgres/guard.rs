//! The guard of the user's own tables.
//!
//! [`SqlStore::transaction`] notes its token in the setting `tenure.token`, for its transaction only.
//! A trigger on a guarded table reads it, and checks it against the fence, whose row it locks: until
//! the transaction ends nobody can raise that fence. Without a token, or with one that is not the
//! current one, the statement fails.
//!
//! It keeps accidents out: a migration, an admin's `UPDATE`, a job that nobody remembered. It is no
//! protection from malice: who may write the table may also set the setting, and who owns the table
//! may drop the trigger. To narrow that down, let a role own the tables that no worker and no person
//! uses, and grant the workers no more than `SELECT, INSERT, UPDATE, DELETE`.

use sqlx::{Connection, SqlStr};
use tokio::time;

use super::{PostgresBackend, statement};
use crate::error::CheckpointError;
use crate::sql::{SqlBackend, SqlStore};

/// The SQLSTATE of a write that carries no token.
pub(super) const NO_TOKEN: &str = "TF001";

/// The SQLSTATE of a write whose token is not the current one.
pub(super) const STALE_TOKEN: &str = "TF002";

impl SqlStore<PostgresBackend> {
    /// Guards one of the user's tables: from now on every `INSERT`, `UPDATE`, `DELETE`, `TRUNCATE`
    /// and `COPY` into it fails unless its transaction carries a current token. Guarding twice
    /// changes nothing.
    ///
    /// `table` is a name as PostgreSQL reads it: `orders`, `sink.orders`, `"Orders"`. The trigger
    /// fires always, also for replication roles. It fires for the table that a statement names: guard
    /// each partition that is written to directly. What is refused has the SQLSTATE `TF001` without a
    /// token and `TF002` with one that is not current.
    ///
    /// A statement by hand, where it must be, carries a token like this; the current one is printed
    /// by `tenure shard`:
    ///
    /// ```sql
    /// BEGIN;
    /// SELECT set_config('tenure.token', 'shard/orders/7@42:00000000000000000000000000c0ffee/917', true);
    /// UPDATE orders SET ...;
    /// COMMIT;
    /// ```
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unavailable`] with the server's words: no such table, no right to it, or
    /// the server was not reached.
    pub async fn guard_table(&self, table: &str) -> Result<(), CheckpointError> {
        let schema = &self.backend.schema;
        self.alter(table, |table| {
            format!(
                "DROP TRIGGER IF EXISTS tenure_guard ON {table};
                 CREATE TRIGGER tenure_guard
                     BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
                     FOR EACH STATEMENT EXECUTE FUNCTION \"{schema}\".guard();
                 ALTER TABLE {table} ENABLE ALWAYS TRIGGER tenure_guard;"
            )
        })
        .await
    }

    /// Takes the guard from a table again. Takes nothing from one that has none.
    ///
    /// # Errors
    ///
    /// Those of [`guard_table`](Self::guard_table).
    pub async fn unguard_table(&self, table: &str) -> Result<(), CheckpointError> {
        self.alter(table, |table| {
            format!("DROP TRIGGER IF EXISTS tenure_guard ON {table}")
        })
        .await
    }

    async fn alter(
        &self,
        table: &str,
        change: impl FnOnce(String) -> String,
    ) -> Result<(), CheckpointError> {
        let work = async {
            let mut connection = self.backend.connect().await?;
            // The server reads the name and writes it back with whatever quotes it needs.
            let name: String = sqlx::query_scalar("SELECT $1::regclass::text")
                .bind(table)
                .fetch_one(&mut connection)
                .await?;
            sqlx::raw_sql(statement(change(name)))
                .execute(&mut connection)
                .await?;
            connection.close().await
        };
        match time::timeout(self.deadline, work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CheckpointError::Unavailable {
                source: error.into(),
            }),
            Err(elapsed) => Err(CheckpointError::Unavailable {
                source: elapsed.into(),
            }),
        }
    }
}

/// The function that the triggers call. It runs with the rights of the role that created the layout,
/// so that writers need none to the fences.
pub(super) fn functions(schema: &str) -> SqlStr {
    statement(format!(
        "CREATE FUNCTION \"{schema}\".guard() RETURNS trigger
             LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $guard$
         DECLARE
             token text := current_setting('tenure.token', true);
         BEGIN
             IF token IS NULL OR token = '' THEN
                 RAISE EXCEPTION 'a write to % carries no fencing token', TG_RELID::regclass
                     USING ERRCODE = '{NO_TOKEN}';
             END IF;
             -- The token is compared as text: it has exactly one, and no part can be left out.
             PERFORM FROM \"{schema}\".fence
                 WHERE resource = split_part(token, '@', 1)
                 AND token = resource || '@' || epoch || ':' || encode(cluster, 'hex') || '/' ||
                     CASE WHEN session < 0 THEN session::numeric + 18446744073709551616
                     ELSE session::numeric END
                 FOR SHARE;
             IF NOT FOUND THEN
                 RAISE EXCEPTION 'a write to % carries the fencing token %, which is not current',
                     TG_RELID::regclass, token USING ERRCODE = '{STALE_TOKEN}';
             END IF;
             RETURN NULL;
         END
         $guard$;
         REVOKE ALL ON FUNCTION \"{schema}\".guard() FROM PUBLIC;"
    ))
}
