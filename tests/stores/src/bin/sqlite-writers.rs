//! Many owners that write to a store in a SQLite file, and say on stdout what was acknowledged: one line
//! `<resource> <sequence>` for each write. They go on until the process is killed.
//!
//! ```sh
//! sqlite-writers FILE EPOCH OWNERS
//! ```

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;

use tenure_fence::sqlx::sqlite::SqliteConnectOptions;
use tenure_fence::{
    CheckpointError, CheckpointStore, Epoch, FencingToken, Owner, Sequence, SqlOptions,
    SqliteStore, Write, WriteId,
};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, epoch, owners] = arguments.as_slice() else {
        return Err("usage: sqlite-writers FILE EPOCH OWNERS".into());
    };
    let (epoch, owners): (u64, u32) = (epoch.parse()?, owners.parse()?);
    let connect = SqliteConnectOptions::new().filename(file);
    let store = Arc::new(SqliteStore::open(connect, SqlOptions::default()).await?);
    let mut writers = JoinSet::new();
    for index in 0..owners {
        let token = FencingToken {
            resource: format!("shard/sqlite/{index}").parse()?,
            epoch: Epoch::try_from(epoch)?,
            owner: Owner {
                cluster: 1,
                session: epoch,
            },
        };
        writers.spawn(write_for_ever(Arc::clone(&store), token));
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(())
}

async fn write_for_ever(
    store: Arc<SqliteStore>,
    token: FencingToken,
) -> Result<(), CheckpointError> {
    store.seal(&token).await?;
    let mut sequence = Some(Sequence::FIRST);
    while let Some(number) = sequence {
        let write = Write {
            sequence: number,
            write_id: WriteId::new(u128::from(number.get())),
            data: format!("{token} {number}").into(),
        };
        store.write(&token, write).await?;
        // In one piece, so that lines of two writers never mix. A reader that is gone ends this process.
        let line = format!("{} {number}\n", token.resource);
        if io::stdout().lock().write_all(line.as_bytes()).is_err() {
            break;
        }
        sequence = number.next();
    }
    Ok(())
}
