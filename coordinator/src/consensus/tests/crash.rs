//! Processes that are killed, and what the next one finds.
//!
//! Each test runs itself again as a child, told apart by an environment variable, kills the child
//! at a random moment and looks at what it left.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use openraft::RaftLogReader as _;
use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _};
use openraft::type_config::TypeConfigExt as _;
use openraft::{EntryPayload, RaftSnapshotBuilder as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tempfile::TempDir;

use super::super::types::{EncodedCommand, LogId, TypeConfig, Vote};
use super::{SMALL, command_entry, log_id, open_rocks, open_stores};
use crate::storage::{MemoryStorage, RocksStorage, Storage};

/// The child's data folder; set only for a child.
const FOLDER: &str = "TENURE_CRASH_FOLDER";
/// The child's seed.
const SEED: &str = "TENURE_CRASH_SEED";

const ROUNDS: usize = 12;

/// Returns the storage and the seed of a child, or `None` in the parent.
fn as_child() -> Option<(Arc<dyn Storage>, StdRng)> {
    let folder = std::env::var_os(FOLDER)?;
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let storage = RocksStorage::open(Path::new(&folder).join("data"), SMALL).unwrap();
    Some((Arc::new(storage), StdRng::seed_from_u64(seed)))
}

fn spawn(test: &str, folder: &TempDir, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Hands the child's reports to `see`, and kills it (-9) when `see` says so; reports that were under
/// way still count.
fn watch_and_kill(mut child: Child, mut see: impl FnMut(&str, u64) -> bool) {
    let reports = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut is_killed = false;
    for line in reports {
        let line = line.unwrap();
        let Some((word, number)) = line.split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        if see(word, number) && !is_killed {
            child.kill().unwrap();
            is_killed = true;
        }
    }
    child.wait().unwrap();
    assert!(is_killed, "the child ended by itself");
}

fn random_seed() -> u64 {
    let seed = rand::random();
    println!("seed {seed}");
    seed
}

fn content(log_id: LogId) -> Vec<u8> {
    format!("{log_id}/")
        .repeat(usize::try_from(log_id.index() % 50).unwrap() + 1)
        .into_bytes()
}

/// Appends, votes and truncates for ever, and reports what is durable.
async fn append_for_ever(storage: Arc<dyn Storage>, mut random: StdRng) {
    let mut stores = open_stores(storage);
    let last = stores.log.get_log_state().await.unwrap().last_log_id;
    let mut term = last.map_or(1, |last| last.committed_leader_id().term);
    let mut next = last.map_or(0, |last| last.index() + 1);
    loop {
        match random.random_range(0..10) {
            0 => {
                term += 1;
                stores.log.save_vote(&Vote::new(term, 1)).await.unwrap();
                println!("vote {term}");
            }
            1 if next > 5 => {
                let kept = next - random.random_range(1..5);
                println!("cut {kept}");
                let entry = stores
                    .log
                    .try_get_log_entries(kept - 1..kept)
                    .await
                    .unwrap()
                    .remove(0);
                stores.log.truncate_after(Some(entry.log_id)).await.unwrap();
                next = kept;
            }
            _ => {
                let count = random.random_range(1..20);
                let entries = (next..next + count)
                    .map(|index| command_entry(log_id(term, index), content(log_id(term, index))));
                stores.log.blocking_append(entries).await.unwrap();
                next += count;
                println!("acknowledged {next}");
            }
        }
    }
}

#[test]
fn acknowledged_entries_survive_kills_and_leave_no_hole() {
    if let Some((storage, random)) = as_child() {
        TypeConfig::run(append_for_ever(storage, random));
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut random = StdRng::seed_from_u64(random_seed());
    let (mut promised, mut voted) = (0, 0);
    for _ in 0..ROUNDS {
        let test = "consensus::tests::crash::acknowledged_entries_survive_kills_and_leave_no_hole";
        let mut left = random.random_range(1..80);
        watch_and_kill(spawn(test, &folder, random.random()), |word, number| {
            match word {
                "vote" => voted = number,
                "cut" => promised = promised.min(number),
                "acknowledged" => promised = number,
                _ => return false,
            }
            left -= 1;
            left <= 0
        });
        TypeConfig::run(check_log(&folder, promised, voted));
    }
    assert!(promised > 0);
}

async fn check_log(folder: &TempDir, promised: u64, voted: u64) {
    let mut stores = open_stores(open_rocks(folder));
    let entries = stores.log.try_get_log_entries(..).await.unwrap();
    assert!(
        entries.len() as u64 >= promised,
        "{} entries of {promised}",
        entries.len()
    );
    for (entry, index) in entries.iter().zip(0..) {
        assert_eq!(entry.log_id.index(), index);
        let EntryPayload::Normal(EncodedCommand { bytes, .. }) = &entry.payload else {
            panic!("entry {index} is another");
        };
        assert_eq!(*bytes, content(entry.log_id));
    }
    let vote = stores.log.read_vote().await.unwrap();
    let term = vote.map_or(0, |vote| vote.leader_id.term);
    assert!(term >= voted, "vote of term {term}, {voted} was promised");
    stores.close().await;
}

/// Installs one snapshot after the other, each of one entry more.
async fn install_for_ever(storage: Arc<dyn Storage>) {
    let mut target = open_stores(storage);
    let source_storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut source = open_stores(Arc::clone(&source_storage));
    let first = target
        .shared
        .last_applied()
        .map_or(2, |log_id| log_id.index())
        + 1;
    for index in first.. {
        source.apply_history(index).await;
        let builder = source.state_machine.try_create_snapshot_builder(true).await;
        let snapshot = builder.unwrap().build_snapshot().await.unwrap();
        let file = target.receive(source_storage.as_ref(), &snapshot);
        println!("begun {index}");
        target
            .state_machine
            .install_snapshot(&snapshot.meta, file)
            .await
            .unwrap();
        println!("installed {index}");
    }
}

#[test]
fn kill_during_an_installation_leaves_the_old_state_or_the_new_one() {
    if let Some((storage, _)) = as_child() {
        TypeConfig::run(install_for_ever(storage));
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut random = StdRng::seed_from_u64(random_seed());
    let (mut begun, mut installed) = (0, 0);
    let mut interrupted = 0;
    for _ in 0..ROUNDS {
        let test = "consensus::tests::crash::kill_during_an_installation_leaves_the_old_state_or_the_new_one";
        let mut left = random.random_range(1..6);
        watch_and_kill(spawn(test, &folder, random.random()), |word, number| {
            match word {
                "begun" => begun = number,
                "installed" => {
                    installed = number;
                    return false;
                }
                _ => return false,
            }
            left -= 1;
            left <= 0
        });
        interrupted += usize::from(begun > installed);
        installed = TypeConfig::run(check_state(&folder, installed, begun));
    }
    assert!(interrupted > 0, "no kill hit an installation");
}

/// Returns the index of the state found.
async fn check_state(folder: &TempDir, installed: u64, begun: u64) -> u64 {
    let stores = open_stores(open_rocks(folder));
    let found = stores
        .shared
        .last_applied()
        .map_or(0, |log_id| log_id.index());
    assert!(
        found == installed || found == begun,
        "found {found}, not {installed} or {begun}"
    );
    let mut expected = open_stores(Arc::new(MemoryStorage::new()));
    if found > 0 {
        expected.apply_history(found).await;
    }
    assert_eq!(
        stores.shared.read(Clone::clone),
        expected.shared.read(Clone::clone)
    );
    stores.close().await;
    found
}
