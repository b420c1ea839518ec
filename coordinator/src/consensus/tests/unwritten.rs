//! Records that were applied and are gathered before they are written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use openraft::RaftSnapshotBuilder as _;
use openraft::storage::RaftStateMachine as _;
use tenure_ownership::State;
use tenure_ownership::ids::Revision;
use tenure_ownership::record::RecordWrite;

use super::super::Outcome;
use super::super::envelope::Envelope;
use super::super::meta;
use super::super::observer::Observer;
use super::super::state_machine::Shared;
use super::super::types::LogId;
use super::durability::Held;
use super::{Stores, history, log_id, open_observed, open_stores};
use crate::history::Query;
use crate::storage::{MemoryStorage, Records, Storage};

/// Longer than anything is gathered.
const WRITTEN_AFTER: Duration = Duration::from_secs(1);

/// Returns stores whose entries up to 3 are written and up to 6 applied.
async fn gathering(storage: &Arc<dyn Storage>) -> Stores {
    let mut stores = open_stores(Arc::clone(storage));
    stores.apply_history(3).await;
    assert_eq!(written(storage), Some(log_id(1, 3)));
    stores.apply_history(6).await;
    assert_eq!(stores.shared.last_applied(), Some(log_id(1, 6)));
    assert_eq!(written(storage), Some(log_id(1, 3)));
    stores
}

fn storage() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn written(storage: &Arc<dyn Storage>) -> Option<LogId> {
    meta::applied(storage.as_ref() as &dyn Records).unwrap()
}

/// Returns what the entries up to `last` write.
fn writes_up_to(last: u64) -> Vec<RecordWrite> {
    let mut state = State::default();
    let mut writes = Vec::new();
    for index in 2..=last {
        let openraft::EntryPayload::Normal(command) = history(index).payload else {
            panic!("entry {index} carries a command");
        };
        let command = tenure_ownership::Command::decode(&command.bytes).unwrap();
        writes.extend(tenure_ownership::apply(&mut state, Revision(index), command).writes);
    }
    writes
}

/// Asserts that the records are those of the entries up to `last`.
fn assert_read(shared: &Shared, last: u64) {
    let mut latest = BTreeMap::new();
    for write in writes_up_to(last) {
        latest.insert(write.key, write.value);
    }
    for (key, value) in latest {
        let value = value.map(|value| value.to_vec());
        assert_eq!(shared.record(&key).unwrap(), value);
    }
}

/// An observer that reads everything whenever it is told something.
#[derive(Default)]
struct Reading {
    shared: OnceLock<Weak<Shared>>,
    told: Mutex<Vec<u64>>,
}

impl Observer for Reading {
    fn applied(&self, revision: Revision, _: &Envelope, _: &Outcome) {
        let shared = self.shared.get().and_then(Weak::upgrade).unwrap();
        assert_eq!(shared.read(State::revision), revision);
        assert_read(&shared, revision.0);
        self.told.lock().unwrap().push(revision.0);
    }

    fn replaced(&self, _: Revision) {}
}

/// Whoever sees an event may read at once what it says, also what does not stand in the state itself.
#[tokio::test(start_paused = true)]
async fn an_observer_is_told_when_what_was_applied_can_be_read() {
    let reading = Arc::new(Reading::default());
    let observer = Arc::clone(&reading) as Arc<dyn Observer>;
    let mut stores = open_observed(storage(), observer);
    reading.shared.set(Arc::downgrade(&stores.shared)).unwrap();
    for last in 2..=6 {
        stores.apply_history(last).await;
    }
    assert_eq!(*reading.told.lock().unwrap(), [2, 3, 4, 5, 6]);
    stores.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_applied_record_is_read_before_it_is_written_and_after() {
    let storage = storage();
    let mut stores = gathering(&storage).await;
    assert_read(&stores.shared, 6);
    tokio::time::advance(WRITTEN_AFTER).await;
    stores.apply_history(7).await;
    assert_eq!(written(&storage), Some(log_id(1, 7)));
    assert_read(&stores.shared, 7);
    stores.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_is_applied_again_by_the_next_process() {
    let storage = storage();
    let first = gathering(&storage).await;
    let state = first.shared.state();
    // A process that is killed does nothing any more.
    std::mem::forget(first.state_machine);
    drop((first.shared, first.log));
    first.sync_task.join().await;

    let mut second = open_stores(Arc::clone(&storage));
    assert_eq!(second.shared.last_applied(), Some(log_id(1, 3)));
    second.apply_history(6).await;
    assert_eq!(second.shared.state(), state);
    second.close().await;
}

/// The revisions of all that is in the history.
fn kept(stores: &Stores) -> Vec<u64> {
    let query = Query {
        limit: 1_000,
        ..Query::default()
    };
    let page = stores.shared.history(|reader| reader.page(&query)).unwrap();
    page.events
        .iter()
        .map(|event| event.at.revision.0)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn history_is_as_new_as_the_state_before_it_is_written_and_after_a_crash() {
    let storage = storage();
    let first = gathering(&storage).await;
    assert_eq!(kept(&first), [2, 3, 4, 5, 6]);
    // A process that is killed does nothing any more.
    std::mem::forget(first.state_machine);
    drop((first.shared, first.log));
    first.sync_task.join().await;

    let mut second = open_stores(Arc::clone(&storage));
    assert_eq!(kept(&second), [2, 3]);
    second.apply_history(6).await;
    assert_eq!(kept(&second), [2, 3, 4, 5, 6]);
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_leaves_a_gap_in_the_history_that_is_told() {
    let source_storage = storage();
    let mut source = open_stores(Arc::clone(&source_storage));
    source.apply_history(9).await;
    let mut builder = source.state_machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.unwrap();

    let storage = storage();
    let mut target = gathering(&storage).await;
    let file = target.receive(source_storage.as_ref(), &snapshot);
    target
        .state_machine
        .install_snapshot(&snapshot.meta, file)
        .await
        .unwrap();
    target.apply_history(10).await;
    assert_eq!(kept(&target), [2, 3, 4, 5, 6, 10]);
    let query = Query {
        limit: 1,
        ..Query::default()
    };
    let page = target.shared.history(|reader| reader.page(&query)).unwrap();
    let gaps: Vec<_> = page
        .gaps
        .iter()
        .map(|gap| (gap.after.0, gap.until.0))
        .collect();
    assert_eq!((gaps, page.since.0), (vec![(6, 9)], 2));
    source.close().await;
    target.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_of_everything_that_was_applied() {
    let storage = storage();
    let mut stores = gathering(&storage).await;
    let snapshot = stores
        .state_machine
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    assert_eq!(snapshot.meta.last_log_id, Some(log_id(1, 6)));
    assert_eq!(written(&storage), Some(log_id(1, 6)));
    stores.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_leaves_nothing_to_apply_again() {
    let storage = storage();
    let stores = gathering(&storage).await;
    let state = stores.shared.state();
    stores.close().await;
    assert_eq!(written(&storage), Some(log_id(1, 6)));

    let next = open_stores(Arc::clone(&storage));
    assert_eq!(next.shared.state(), state);
    next.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_gathered_never_follows_the_snapshot_that_replaced_it() {
    let source_storage = storage();
    let mut source = open_stores(Arc::clone(&source_storage));
    source.apply_history(9).await;
    let mut builder = source.state_machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.unwrap();

    let held = Arc::new(Held::default());
    let storage: Arc<dyn Storage> = Arc::clone(&held) as Arc<dyn Storage>;
    let mut target = gathering(&storage).await;
    let file = target.receive(source_storage.as_ref(), &snapshot);
    // The switch is written and fails to be synced: the node stops, and nobody knows which state is next.
    held.break_syncs();
    let installed = target
        .state_machine
        .install_snapshot(&snapshot.meta, file)
        .await;
    assert!(installed.is_err());
    target.close().await;

    let next = open_stores(Arc::clone(&storage));
    assert_eq!(next.shared.last_applied(), snapshot.meta.last_log_id);
    assert_eq!(next.shared.state(), source.shared.state());
    next.close().await;
}
