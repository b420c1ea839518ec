//! The store in a RocksDB database.

use std::collections::BTreeMap;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::process::Process;
use store_tests::server::Crash;
use tempfile::TempDir;
use tenure_fence::{
    CheckpointError, CheckpointStore, FencingToken, Resource, RocksStore, RocksStoreOptions,
    Sequence,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::case::{Case, Place, token, write};

/// Owners of the process that is killed.
const OWNERS: u32 = 200;

/// Acknowledgements after which it is killed.
const ACKNOWLEDGEMENTS: usize = 2_000;

/// How long the process may take to come so far.
const TIME: Duration = Duration::from_secs(120);

/// Names the folder to the process that is killed.
const FOLDER: &str = "TENURE_TEST_ROCKS_FOLDER";

/// A folder with one database.
struct Folder(TempDir);

// Nothing but this process keeps it; another one is killed in a test of its own.
impl Crash for Folder {}

#[async_trait]
impl Place for Folder {
    type Store = RocksStore;

    async fn open(&self) -> Result<RocksStore, CheckpointError> {
        RocksStore::open(self.0.path(), options()).await
    }

    // The folder belongs to one store at a time.
    async fn close(&self, store: &RocksStore) -> Result<(), CheckpointError> {
        store.close().await
    }
}

async fn case() -> Result<Case<Folder>, Failure> {
    Case::new(Folder(TempDir::new()?)).await
}

fn options() -> RocksStoreOptions {
    RocksStoreOptions {
        // Below what the kit writes at most, so that it comes to the limit.
        max_value_bytes: 1 << 20,
        ..RocksStoreOptions::default()
    }
}

#[tokio::test]
async fn keeps_the_contract_on_one_thread() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract_on_many_threads() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test]
async fn a_folder_belongs_to_one_store_at_a_time() -> Result<(), Failure> {
    let Case {
        store,
        place: folder,
        ..
    } = case().await?;
    let second = RocksStore::open(folder.0.path(), options()).await;
    assert!(
        matches!(second, Err(CheckpointError::Unavailable { .. })),
        "{second:?}"
    );
    let owner = token(1, 1, 1);
    store.seal(&owner).await?;
    store.close().await?;
    let closed = store.seal(&owner).await;
    assert!(
        matches!(closed, Err(CheckpointError::Unavailable { .. })),
        "{closed:?}"
    );
    RocksStore::open(folder.0.path(), options()).await?;
    Ok(())
}

#[tokio::test]
async fn a_batch_of_seals_answers_each_and_lowers_none() -> Result<(), Failure> {
    let Case {
        store,
        place: _kept,
        ..
    } = case().await?;
    store.seal(&token(3, 9, 1)).await?;
    store.write(&token(3, 9, 1), write(1, "of nine")).await?;
    let mut tokens: Vec<FencingToken> = (0..2_000).map(|index| token(index, 7, 2)).collect();
    tokens[3] = token(3, 10, 2);
    tokens[4] = token(3, 8, 2);
    // Named twice, the lower one last.
    tokens[5] = token(6, 8, 3);
    let answers = store.seal_many(&tokens).await;

    assert_eq!(answers.len(), tokens.len());
    for (index, answer) in answers.iter().enumerate() {
        match index {
            3 => {
                let found = answer.as_ref().ok().and_then(Option::as_ref);
                assert_eq!(found.map(|found| &found.data[..]), Some(&b"of nine"[..]));
            }
            4 | 6 => assert!(
                matches!(answer, Err(CheckpointError::Fenced { .. })),
                "{index}: {answer:?}"
            ),
            _ => assert!(matches!(answer, Ok(None)), "{index}: {answer:?}"),
        }
    }
    assert_eq!(
        store
            .fence(&token(6, 1, 1).resource)
            .await?
            .map(|f| f.epoch.get()),
        Some(8)
    );
    let stale = store.write(&token(3, 9, 1), write(2, "late")).await;
    assert!(
        matches!(stale, Err(CheckpointError::Fenced { .. })),
        "{stale:?}"
    );
    Ok(())
}

#[tokio::test]
async fn lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &RocksStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

/// Runs twice: as the test, and as the process which the test starts and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_killed_process_has_acknowledged_is_there_and_nothing_stale_lands()
-> Result<(), Failure> {
    if let Some(folder) = env::var_os(FOLDER) {
        return write_until_killed(&PathBuf::from(folder)).await;
    }
    let folder = tempfile::tempdir()?;
    let acknowledged = kill_in_the_middle(folder.path()).await?;
    assert_eq!(acknowledged.len(), OWNERS as usize);

    let store = RocksStore::open(folder.path(), options()).await?;
    for index in 0..OWNERS {
        let old = token(index, 7, 1);
        let stale = store
            .write(&token(index, 6, 9), write(9_999_999, "stale"))
            .await;
        assert!(
            matches!(stale, Err(CheckpointError::Fenced { .. })),
            "{stale:?}"
        );

        let found = store
            .seal(&token(index, 8, 2))
            .await?
            .expect("a checkpoint");
        let latest = acknowledged[&index];
        // One more may have landed, whose acknowledgement was not heard any more.
        assert!(
            (latest..=latest + 1).contains(&found.sequence.get()),
            "of {} write {latest} was acknowledged, {} is there",
            old.resource,
            found.sequence
        );
        assert_eq!(found.data, content(index, found.sequence));
        let late = store.write(&old, write(latest + 2, "late")).await;
        assert!(
            matches!(late, Err(CheckpointError::Fenced { .. })),
            "{late:?}"
        );
    }
    Ok(())
}

fn content(index: u32, sequence: Sequence) -> String {
    format!("shard {index}, offset {sequence}")
}

/// Writes for ever, and says on its standard output what was acknowledged.
async fn write_until_killed(folder: &Path) -> Result<(), Failure> {
    let store = RocksStore::open(folder, options()).await?;
    let mut owners = JoinSet::new();
    for index in 0..OWNERS {
        let store = store.clone();
        owners.spawn(async move {
            let owner = token(index, 7, 1);
            store.seal(&owner).await?;
            for number in 1.. {
                let sequence = Sequence::new(number).ok_or(Failure::new("out of sequences"))?;
                store
                    .write(&owner, write(number, content(index, sequence)))
                    .await?;
                writeln!(std::io::stdout(), "acknowledged {index} {number}")?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = owners.join_next().await {
        ended??;
    }
    Ok(())
}

/// Starts this test as a process, kills it while all its owners write, and returns the latest write
/// of each that was acknowledged.
async fn kill_in_the_middle(folder: &Path) -> Result<BTreeMap<u32, u64>, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command
        .arg("--exact")
        .arg("rocksdb::what_a_killed_process_has_acknowledged_is_there_and_nothing_stale_lands")
        .arg("--nocapture")
        .env(FOLDER, folder);
    let log = folder.with_extension("log");
    let (mut process, _stdin, output) = Process::spawn_piped("writers", command, &log)?;
    let mut lines = BufReader::new(output).lines();
    let mut latest = BTreeMap::new();
    let heard = async {
        let mut count = 0;
        let mut killed = false;
        while let Some(line) = lines.next_line().await? {
            let Some((index, number)) = line
                .split_once("acknowledged ")
                .and_then(|(_, numbers)| numbers.split_once(' '))
            else {
                continue;
            };
            latest.insert(index.parse::<u32>()?, number.parse::<u64>()?);
            count += 1;
            // In the middle of all of them: an owner that has not written yet could lose nothing.
            if !killed && count >= ACKNOWLEDGEMENTS && latest.len() == OWNERS as usize {
                process.kill_now()?;
                killed = true;
            }
        }
        Ok::<_, Failure>((count, killed))
    };
    let (count, killed) = tokio::time::timeout(TIME, heard).await??;
    process.kill().await?;
    std::fs::remove_file(&log)?;
    assert!(killed, "the process ended by itself after {count}");
    Ok(latest)
}
