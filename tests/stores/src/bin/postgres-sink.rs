//! A stream job whose sink is PostgreSQL, and which delivers every line exactly once.
//!
//! ```sh
//! postgres-sink URL TOKEN LINES
//! ```
//!
//! It may be killed at any moment, and started again by anyone who has been granted the next epoch. Rows
//! and offset commit together or not at all, so the next owner goes on exactly where this one's last
//! commit left off; and a commit that comes after the next owner's seal is refused, rows and all. In a
//! worker the token is the SDK's `HeldShard` itself, and `claim` is the seal:
//!
//! ```text
//!   shard.claim().await?;
//!   store.transaction(&shard, async |transaction| { .. }).await?;
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use tenure_fence::{
    CheckpointError, CheckpointStore, FencingToken, PostgresStore, SqlOptions, sqlx,
};

/// Lines that are delivered in one transaction.
const BATCH: u64 = 10;

/// Why a batch was not delivered.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error(transparent)]
    Store(#[from] CheckpointError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("the offset is no number")]
    Offset,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, token, lines] = arguments.as_slice() else {
        return Err("usage: postgres-sink URL TOKEN LINES".into());
    };
    let (token, lines): (FencingToken, u64) = (token.parse()?, lines.parse()?);
    let options = SqlOptions {
        // One that is stopped in the middle of a transaction holds the next one up for so long.
        transaction_idle_max: Duration::from_secs(1),
        ..SqlOptions::default()
    };
    let store = PostgresStore::open(url.parse()?, options).await?;
    store.seal(&token).await?;
    loop {
        match deliver_batch(&store, &token, lines).await {
            Ok(offset) if offset == lines => return Ok(()),
            Ok(_) => {}
            // Also when the outcome is unknown: the next transaction reads the offset, and knows.
            Err(SinkError::Store(error)) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Delivers the lines after the offset, and returns the next offset.
async fn deliver_batch(
    store: &PostgresStore,
    token: &FencingToken,
    lines: u64,
) -> Result<u64, SinkError> {
    store
        .transaction(token, async |transaction| {
            let offset = match transaction.checkpoint().await? {
                Some(checkpoint) => std::str::from_utf8(&checkpoint.data)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or(SinkError::Offset)?,
                None => 0,
            };
            let next = lines.min(offset + BATCH);
            for line in offset..next {
                sqlx::query("INSERT INTO delivered (line) VALUES ($1)")
                    .bind(format!("line {line}"))
                    .execute(&mut **transaction)
                    .await?;
            }
            transaction.save(next.to_string()).await?;
            Ok(next)
        })
        .await
}
