//! In SQLite. Unfenced: one statement that inserts or replaces, in its own transaction, in a file of the
//! same settings on the same disk. One connection writes, in both.

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use tenure_fence::{SqlOptions, SqliteStore};
use tokio::sync::Mutex;

use super::{Opened, name};

const PUT: &str = "INSERT INTO plain (name, data) VALUES (?1, ?2) \
                   ON CONFLICT (name) DO UPDATE SET data = excluded.data";

struct Plain {
    connection: Mutex<SqliteConnection>,
    names: Vec<String>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let mut connection = self.connection.lock().await;
        sqlx::query(PUT)
            .bind(self.names[writer].as_str())
            .bind(value.as_ref())
            .execute(&mut *connection)
            .await?;
        Ok(())
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let folder = tempfile::tempdir()?;
    let mut connection = SqliteConnectOptions::new()
        .filename(folder.path().join("plain.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await?;
    sqlx::query("CREATE TABLE plain (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID")
        .execute(&mut connection)
        .await?;
    let plain = Plain {
        connection: Mutex::new(connection),
        names: (0..writers).map(name).collect(),
    };
    let fenced = SqliteConnectOptions::new().filename(folder.path().join("fenced.db"));
    let store = SqliteStore::open(fenced, SqlOptions::default()).await?;
    Opened::new(plain, store, writers, folder).await
}
