//! What is durable when, on a storage whose syncs can be held up and made to fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use openraft::RaftLogReader as _;
use openraft::storage::{IOFlushed, RaftLogStorage as _, RaftLogStorageExt as _};
use openraft::type_config::TypeConfigExt as _;
use openraft::type_config::alias::OneshotReceiverOf;
use tenure_ownership::Command;
use tenure_ownership::ids::ClusterId;

use super::super::group_commit::GroupCommit;
use super::super::log_store::LogStore;
use super::super::types::{TypeConfig, Vote};
use super::super::{
    Consensus, ConsensusOptions, Health, NodeAddresses, ProposeError, TcpConnector,
};
use super::{Blind, command_entry, log_id, meta_vote, open_stores};
use crate::storage::{
    Batch, Files, MemoryStorage, RecordIter, Records, Storage, StorageError, Table,
};

const WITHIN: Duration = Duration::from_secs(20);

/// A storage whose syncs wait while it is held, and fail once it is broken. It remembers the vote
/// as of the last sync.
#[derive(Default)]
pub(super) struct Held {
    memory: MemoryStorage,
    is_held: Mutex<bool>,
    released: Condvar,
    is_broken: AtomicBool,
    syncs: AtomicUsize,
    durable_vote: Mutex<Option<Vote>>,
}

impl Held {
    fn hold(&self) {
        *self.is_held.lock().unwrap() = true;
    }

    fn release(&self) {
        *self.is_held.lock().unwrap() = false;
        self.released.notify_all();
    }

    pub(super) fn break_syncs(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
    }

    fn mend_syncs(&self) {
        self.is_broken.store(false, Ordering::SeqCst);
    }
}

impl Records for Held {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.memory.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        self.memory.scan(table, from, to)
    }
}

impl Storage for Held {
    fn log(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StorageError> {
        self.memory.log(from, to, bytes_max)
    }

    fn last_log_index(&self) -> Result<Option<u64>, StorageError> {
        self.memory.last_log_index()
    }

    fn write(&self, batch: Batch) -> Result<(), StorageError> {
        self.memory.write(batch)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let is_held = self.is_held.lock().unwrap();
        drop(
            self.released
                .wait_while(is_held, |is_held| *is_held)
                .unwrap(),
        );
        self.syncs.fetch_add(1, Ordering::SeqCst);
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(StorageError::io("sync its log", "no space left"));
        }
        *self.durable_vote.lock().unwrap() = meta_vote(&self.memory);
        Ok(())
    }

    fn view(&self) -> Box<dyn Records + '_> {
        self.memory.view()
    }

    fn files(&self) -> &dyn Files {
        self.memory.files()
    }
}

async fn append(
    log: &mut LogStore,
    index: u64,
) -> OneshotReceiverOf<TypeConfig, std::io::Result<()>> {
    let (flushed, result) = TypeConfig::oneshot();
    let entries = [command_entry(log_id(1, index), vec![0; 10])];
    log.append(entries, IOFlushed::signal(flushed))
        .await
        .unwrap();
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vote_is_durable_when_save_vote_returns() {
    let storage = Arc::new(Held::default());
    let mut stores = open_stores(storage.clone());
    for term in 1..20 {
        let vote = Vote::new(term, 3);
        stores.log.save_vote(&vote).await.unwrap();
        assert_eq!(*storage.durable_vote.lock().unwrap(), Some(vote));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_readable_before_and_acknowledged_after_the_sync() {
    let storage = Arc::new(Held::default());
    let mut stores = open_stores(storage.clone());
    storage.hold();
    let mut flushed = append(&mut stores.log, 0).await;
    let mut reader = stores.log.get_log_reader().await;
    assert_eq!(reader.try_get_log_entries(0..10).await.unwrap().len(), 1);
    assert!(flushed.try_recv().is_err(), "acknowledged without a sync");
    storage.release();
    flushed.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_appends_share_one_sync_and_complete_in_order() {
    let storage = Arc::new(Held::default());
    let (commit, sync_task) = GroupCommit::start(storage.clone()).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    storage.hold();
    for number in 0..500 {
        let order = Arc::clone(&order);
        commit
            .complete(move |synced| {
                synced.unwrap();
                order.lock().unwrap().push(number);
            })
            .await
            .unwrap();
    }
    assert!(order.lock().unwrap().is_empty());
    storage.release();
    commit.durable().await.unwrap();
    assert_eq!(*order.lock().unwrap(), (0..500).collect::<Vec<_>>());
    // The first sync may have begun with any part of them; the rest shared the next.
    assert!(storage.syncs.load(Ordering::SeqCst) <= 3);
    drop(commit);
    sync_task.join().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_sync_is_final() {
    let storage = Arc::new(Held::default());
    let mut stores = open_stores(storage.clone());
    append(&mut stores.log, 0).await.await.unwrap().unwrap();
    storage.break_syncs();
    append(&mut stores.log, 1).await.await.unwrap().unwrap_err();
    // A disk that reports success again proves nothing about what was written before.
    storage.mend_syncs();
    append(&mut stores.log, 2).await.await.unwrap().unwrap_err();
    stores.log.save_vote(&Vote::new(9, 1)).await.unwrap_err();
}

#[test]
fn entries_and_votes_survive_a_restart() {
    let folder = tempfile::TempDir::new().unwrap();
    TypeConfig::run(async {
        let mut stores = open_stores(super::open_rocks(&folder));
        stores
            .log
            .save_vote(&Vote::new_committed(4, 2))
            .await
            .unwrap();
        let entries = (0..50).map(super::history);
        stores.log.blocking_append(entries).await.unwrap();
        stores.apply_history(40).await;
        stores.log.purge(log_id(1, 9)).await.unwrap();
        stores
            .log
            .truncate_after(Some(log_id(1, 45)))
            .await
            .unwrap();
        let state = stores.shared.read(Clone::clone);
        stores.close().await;

        let mut stores = open_stores(super::open_rocks(&folder));
        let log = stores.log.get_log_state().await.unwrap();
        assert_eq!(log.last_purged_log_id, Some(log_id(1, 9)));
        assert_eq!(log.last_log_id, Some(log_id(1, 45)));
        assert_eq!(
            stores.log.read_vote().await.unwrap(),
            Some(Vote::new_committed(4, 2))
        );
        let entries = stores.log.try_get_log_entries(..).await.unwrap();
        assert_eq!(entries, (10..=45).map(super::history).collect::<Vec<_>>());
        assert_eq!(stores.shared.last_applied(), Some(log_id(1, 40)));
        assert_eq!(stores.shared.read(Clone::clone), state);
        stores.close().await;
    });
}

/// Scenario of a full or broken disk: whatever was not synced is not acknowledged, and the node says
/// that it does not serve any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_cannot_sync_acknowledges_nothing_and_says_so() {
    let storage = Arc::new(Held::default());
    let addresses = NodeAddresses {
        raft: "127.0.0.1:1".to_owned(),
        client: "127.0.0.1:2".to_owned(),
        http: String::new(),
    };
    let (consensus, _service) = Consensus::start(
        ConsensusOptions::new(addresses),
        storage.clone(),
        Arc::new(TcpConnector::new(None, Duration::from_secs(1))),
        Arc::new(Blind),
    )
    .await
    .unwrap();
    consensus
        .initialize(ClusterId(7), Vec::new(), WITHIN)
        .await
        .unwrap();
    consensus
        .leadership()
        .wait_for(|now| now.is_leader)
        .await
        .unwrap();
    // The leader names the cluster on its own: a second time is refused, which is an answer too.
    let command = Command::InitCluster(ClusterId(7));
    consensus.propose(&command, WITHIN).await.unwrap();

    storage.break_syncs();
    let unknown = consensus.propose(&command, WITHIN).await.unwrap_err();
    assert_eq!(unknown, ProposeError::OutcomeUnknown);
    let mut health = consensus.health();
    health
        .wait_for(|health| matches!(health, Health::Failed { .. }))
        .await
        .unwrap();
    assert!(!consensus.leadership().borrow().is_leader);
    storage.mend_syncs();
    consensus.propose(&command, WITHIN).await.unwrap_err();
    consensus
        .read_barrier(Duration::from_millis(200))
        .await
        .unwrap_err();
    consensus.shutdown().await;
}
