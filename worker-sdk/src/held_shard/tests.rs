//! A handle against stores that misbehave, on a driven clock.

use std::collections::VecDeque;
use std::sync::Mutex as StdMutex;

use async_trait::async_trait;
use tenure_fence::{CheckpointStore, Deletion, Fence, MemoryStore, Sequence, Write};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::ManualClock;
use crate::connection::ConnectionOptions;
use crate::load::Loads;
use crate::session::belief::{Belief, Terms};

type Answer = Result<(), CheckpointError>;

/// What happens to the next write or deletion.
#[derive(Clone, Copy)]
enum Fault {
    /// It lands, and the answer is lost.
    LandsUnknown,
    /// It does not land, and nobody can tell.
    HangsUnknown,
    /// It does not happen.
    Unavailable,
}

/// A store whose next changes fail as told.
struct Faulty {
    store: MemoryStore,
    faults: StdMutex<VecDeque<Fault>>,
    presented: StdMutex<Vec<Write>>,
    deleted: StdMutex<Vec<Deletion>>,
    /// The fence it claims to have, if not its own.
    fence: StdMutex<Option<Fence>>,
}

impl Faulty {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            faults: StdMutex::default(),
            presented: StdMutex::default(),
            deleted: StdMutex::default(),
            fence: StdMutex::default(),
        }
    }

    fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    fn presented(&self) -> Vec<Write> {
        self.presented.lock().unwrap().clone()
    }

    fn deleted(&self) -> Vec<Deletion> {
        self.deleted.lock().unwrap().clone()
    }

    /// Does what was asked for, or fails as told.
    async fn done(&self, change: impl Future<Output = Result<(), CheckpointError>>) -> Answer {
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            None => change.await,
            Some(Fault::LandsUnknown) => {
                change.await?;
                Err(CheckpointError::OutcomeUnknown {
                    source: "lost reply".into(),
                })
            }
            Some(Fault::HangsUnknown) => Err(CheckpointError::OutcomeUnknown {
                source: "no answer".into(),
            }),
            Some(Fault::Unavailable) => Err(CheckpointError::Unavailable {
                source: "no route".into(),
            }),
        }
    }
}

#[async_trait]
impl CheckpointStore for Faulty {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        self.store.seal(token).await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        self.presented.lock().unwrap().push(write.clone());
        self.done(self.store.write(token, write)).await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        self.store.read(resource).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let claimed = *self.fence.lock().unwrap();
        match claimed {
            Some(fence) => Ok(Some(fence)),
            None => self.store.fence(resource).await,
        }
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        self.deleted.lock().unwrap().push(deletion);
        self.done(self.store.delete(token, deletion)).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn max_value_bytes(&self) -> usize {
        self.store.max_value_bytes()
    }
}

/// A worker's surroundings without a worker.
struct Stage {
    clock: Arc<ManualClock>,
    store: Arc<Faulty>,
    other: Arc<Faulty>,
    belief: Arc<BeliefView>,
    context: Arc<HandleContext>,
    reports: mpsc::Receiver<Report>,
    /// The sealing tasks; they end with the test.
    _tasks: JoinSet<()>,
}

const TERMS: Terms = Terms {
    ttl: Duration::from_secs(10),
    window: Duration::from_millis(750),
};

/// Stores that fail are asked once, unless a test says otherwise.
fn stage() -> Stage {
    stage_with(Duration::ZERO)
}

fn stage_with(store_timeout: Duration) -> Stage {
    let clock = Arc::new(ManualClock::new());
    let (store, other) = (Arc::new(Faulty::new()), Arc::new(Faulty::new()));
    let mut tasks = JoinSet::new();
    let named: Vec<(String, Arc<dyn CheckpointStore>)> = vec![
        ("main".into(), store.clone()),
        ("other".into(), other.clone()),
    ];
    let stores = Arc::new(Stores::attach(named, &mut tasks, &CancellationToken::new()));
    let (reporter, reports) = mpsc::channel(64);
    let belief = Arc::new(BeliefView::default());
    let context = Arc::new(HandleContext {
        clock: clock.clone(),
        belief: Arc::clone(&belief),
        stores,
        connection: Connection::new(ConnectionOptions::new(["127.0.0.1:1"])).unwrap(),
        tally: Arc::new(Tally::new()),
        loads: Loads::default(),
        store_timeout,
        reports: reporter,
    });
    let stage = Stage {
        clock,
        store,
        other,
        belief,
        context,
        reports,
        _tasks: tasks,
    };
    stage.acknowledge();
    stage
}

impl Stage {
    /// Lets a heartbeat be sent and acknowledged now.
    fn acknowledge(&self) {
        let now = self.clock.now();
        let mut belief = Belief::register(TERMS, now, now);
        belief.acknowledge(0);
        self.belief.publish(Some(&belief));
    }

    fn shard(&self, epoch: u64) -> HeldShard {
        self.shard_after(epoch, BTreeMap::new())
    }

    fn shard_after(&self, epoch: u64, recorded: BTreeMap<String, Epoch>) -> HeldShard {
        let token = token(epoch);
        let Resource::Shard(shard) = token.resource.clone() else {
            unreachable!()
        };
        HeldShard::new(token, shard, recorded, Arc::clone(&self.context))
    }

    fn report(&mut self) -> Report {
        self.reports.try_recv().unwrap()
    }
}

fn token(epoch: u64) -> FencingToken {
    format!("shard/orders/1@{epoch}:{}/{}", "0".repeat(32), epoch * 10)
        .parse()
        .unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn unknown(outcome: Result<(), ShardError>) -> bool {
    matches!(
        outcome,
        Err(ShardError::Store {
            source: CheckpointError::OutcomeUnknown { .. },
            ..
        })
    )
}

fn lost(outcome: Result<(), ShardError>) -> LostReason {
    match outcome {
        Err(ShardError::Lost(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

async fn stored(store: &Faulty) -> Option<Checkpoint> {
    store.read(&token(1).resource).await.unwrap()
}

#[tokio::test]
async fn claiming_seals_every_store_then_reports_ready() {
    let mut stage = stage();
    let old = stage.shard(7);
    old.claim().await.unwrap();
    old.write("490").await.unwrap();
    old.write_to("other", "index").await.unwrap();

    let new = stage.shard(8);
    assert_eq!(new.claim().await.unwrap().unwrap().data, "490");
    assert!(matches!(stage.report().kind, ReportKind::Claimed));
    let report = stage.report();
    assert!(matches!(report.kind, ReportKind::Claimed) && report.epoch == epoch(8));
    let all = new.claim_all().await.unwrap();
    assert_eq!(all["other"].as_ref().unwrap().data, "index");
    // Also the store that the new owner has not written to is closed to the old one.
    assert!(matches!(
        lost(old.write_to("other", "late").await),
        LostReason::Fenced { .. }
    ));
}

#[tokio::test]
async fn nothing_is_written_before_the_claim() {
    let stage = stage();
    let shard = stage.shard(7);
    assert!(matches!(
        shard.write("x").await,
        Err(ShardError::NotClaimed)
    ));
    assert!(stage.store.presented().is_empty());
    assert!(matches!(
        shard.write_to("nope", "x").await,
        Err(ShardError::UnknownStore { .. })
    ));
}

// Scenario 9.
#[tokio::test]
async fn fenced_is_final_and_the_next_tenure_is_not_touched_by_it() {
    let mut stage = stage();
    let old = stage.shard(7);
    old.claim().await.unwrap();
    stage.report();
    stage.store.seal(&token(8)).await.unwrap();

    let fenced = LostReason::Fenced {
        store: "main".into(),
        current: epoch(8),
    };
    assert_eq!(lost(old.write("late").await), fenced);
    let ReportKind::Dead(reason) = stage.report().kind else {
        panic!()
    };
    assert_eq!(reason, fenced);
    // From now on nothing reaches the store any more.
    let presented = stage.store.presented().len();
    for _ in 0..3 {
        assert_eq!(lost(old.write("later").await), fenced);
    }
    assert_eq!(lost(old.claim().await.map(drop)), fenced);
    assert_eq!(lost(old.until_revoked(async {}).await.map(drop)), fenced);
    assert_eq!(old.lost().await, fenced);
    assert!(!old.is_current());
    assert_eq!(stage.store.presented().len(), presented);

    let new = stage.shard(9);
    new.claim().await.unwrap();
    new.write("fine").await.unwrap();
    assert_eq!(stored(&stage.store).await.unwrap().data, "fine");
}

#[tokio::test]
async fn a_refused_write_is_counted_and_remembered() {
    let stage = stage();
    let old = stage.shard(7);
    old.claim().await.unwrap();
    stage.store.seal(&token(8)).await.unwrap();
    assert!(old.write("late").await.is_err());
    let status = crate::status::Observer::new(Arc::clone(&stage.context.tally)).status();
    assert_eq!(status.counters.refused, 1);
    assert_eq!(status.refused[0].presented, epoch(7));
    assert_eq!(status.refused[0].current, epoch(8));
}

// Scenario 7.
#[tokio::test]
async fn after_an_unknown_outcome_the_same_bytes_are_the_same_write() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage.store.fail([Fault::LandsUnknown, Fault::Unavailable]);
    assert!(unknown(shard.write("x").await));
    assert!(matches!(shard.state(), HandleState::Held));
    // A try that surely did not happen settles nothing about the one before.
    assert!(shard.write("x").await.is_err());
    shard.write("x").await.unwrap();
    let presented = stage.store.presented();
    assert!(
        presented.iter().all(|write| *write == presented[0]),
        "{presented:?}"
    );
    // Once it is settled the same bytes are a new write.
    shard.write("x").await.unwrap();
    let next = stage.store.presented()[3].clone();
    assert_eq!(next.sequence, Sequence::new(2).unwrap());
    assert_ne!(next.write_id, presented[0].write_id);
}

// Scenario 38.
#[tokio::test]
async fn after_an_unknown_outcome_other_bytes_take_a_higher_sequence_and_win() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage.store.fail([Fault::HangsUnknown]);
    assert!(unknown(shard.write("x").await));
    shard.write("y").await.unwrap();
    let presented = stage.store.presented();
    assert!(presented[1].sequence > presented[0].sequence);
    // The write that hung arrives after all.
    let late = stage.store.write(shard.token(), presented[0].clone()).await;
    assert!(matches!(late, Err(CheckpointError::SequenceReused { .. })));
    assert_eq!(stored(&stage.store).await.unwrap().data, "y");
}

#[tokio::test]
async fn a_write_that_is_dropped_half_way_is_still_pending() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    let mut writer = shard.inner.writers[0].lock().await;
    let dropped = writer.begin(Some("x".into())).unwrap();
    drop(writer);
    shard.write("y").await.unwrap();
    assert!(stage.store.presented()[0].sequence > dropped.sequence);
}

#[tokio::test]
async fn what_is_deleted_is_gone_from_that_store_and_for_the_next_tenure() {
    let stage = stage();
    let old = stage.shard(7);
    old.claim().await.unwrap();
    old.write("490").await.unwrap();
    old.write_to("other", "index").await.unwrap();

    // Also what an earlier tenure wrote.
    let new = stage.shard(8);
    new.claim().await.unwrap();
    new.delete().await.unwrap();
    assert_eq!(new.read().await.unwrap(), None);
    assert_eq!(new.read_from("other").await.unwrap().unwrap().data, "index");
    new.delete_from("other").await.unwrap();
    assert_eq!(new.read_from("other").await.unwrap(), None);
    // What is not there is deleted all the same, by another deletion.
    new.delete().await.unwrap();
    let deleted = stage.store.deleted();
    assert_eq!(deleted[0].sequence, Sequence::FIRST);
    assert_eq!(Some(deleted[1].sequence), Sequence::FIRST.next());
    assert_ne!(deleted[0].write_id, deleted[1].write_id);
    assert!(new.claim_all().await.unwrap().values().all(Option::is_none));
    // It was not forgotten where the sequences are.
    new.write("1").await.unwrap();
    assert_eq!(stored(&stage.store).await.unwrap().sequence.get(), 3);

    assert!(matches!(
        new.delete_from("nope").await,
        Err(ShardError::UnknownStore { .. })
    ));
}

#[tokio::test]
async fn nothing_is_deleted_before_the_claim() {
    let stage = stage();
    let shard = stage.shard(7);
    assert!(matches!(shard.delete().await, Err(ShardError::NotClaimed)));
    assert!(stage.store.deleted().is_empty());
}

#[tokio::test]
async fn after_an_unknown_deletion_another_is_its_retry() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    shard.write("x").await.unwrap();
    stage.store.fail([Fault::LandsUnknown, Fault::Unavailable]);
    assert!(unknown(shard.delete().await));
    assert!(shard.delete().await.is_err());
    shard.delete().await.unwrap();
    let deleted = stage.store.deleted();
    assert!(deleted.len() == 3 && deleted.iter().all(|it| *it == deleted[0]));
    // Once it is settled, another deletion is a new one.
    shard.delete().await.unwrap();
    assert!(stage.store.deleted()[3].sequence > deleted[0].sequence);
}

#[tokio::test]
async fn a_late_deletion_does_not_remove_what_was_written_after_it() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    shard.write("x").await.unwrap();
    stage.store.fail([Fault::HangsUnknown]);
    assert!(unknown(shard.delete().await));
    shard.write("y").await.unwrap();
    // The deletion that hung arrives after all.
    let hung = stage.store.deleted()[0];
    let late = stage.store.delete(shard.token(), hung).await;
    assert!(matches!(late, Err(CheckpointError::SequenceReused { .. })));
    assert_eq!(stored(&stage.store).await.unwrap().data, "y");
}

#[tokio::test]
async fn a_late_write_does_not_come_back_after_a_deletion() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    // An empty checkpoint is one: its pending write is not taken for the deletion.
    stage.store.fail([Fault::HangsUnknown]);
    assert!(unknown(shard.write("").await));
    shard.delete().await.unwrap();
    let hung = stage.store.presented()[0].clone();
    let late = stage.store.write(shard.token(), hung).await;
    assert!(matches!(late, Err(CheckpointError::SequenceReused { .. })));
    assert_eq!(stored(&stage.store).await, None);
}

#[tokio::test]
async fn a_fenced_deletion_ends_the_handle_and_is_counted() {
    let mut stage = stage();
    let old = stage.shard(7);
    old.claim().await.unwrap();
    stage.report();
    stage.store.seal(&token(8)).await.unwrap();
    let fenced = LostReason::Fenced {
        store: "main".into(),
        current: epoch(8),
    };
    assert_eq!(lost(old.delete().await), fenced);
    assert!(matches!(stage.report().kind, ReportKind::Dead(_)));
    // From now on nothing reaches any store.
    let deleted = stage.store.deleted().len();
    for _ in 0..3 {
        assert_eq!(lost(old.delete().await), fenced);
        assert_eq!(lost(old.delete_from("other").await), fenced);
        assert_eq!(lost(old.write("later").await), fenced);
    }
    assert_eq!(stage.store.deleted().len(), deleted);
    assert!(stage.other.deleted().is_empty() && stage.store.presented().is_empty());
    let status = crate::status::Observer::new(Arc::clone(&stage.context.tally)).status();
    assert_eq!(status.counters.refused, 1);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_asked_again_until_the_timeout() {
    let stage = stage_with(Duration::from_secs(10));
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage
        .store
        .fail([Fault::HangsUnknown, Fault::Unavailable, Fault::LandsUnknown]);
    let mut writing = std::pin::pin!(shard.write("x"));
    while futures::poll!(writing.as_mut()).is_pending() {
        stage.clock.advance(Duration::from_millis(400));
    }
    let presented = stage.store.presented();
    assert_eq!(presented.len(), 4);
    assert!(presented.iter().all(|write| *write == presented[0]));
}

#[tokio::test]
async fn a_failure_that_may_have_happened_once_stays_unknown() {
    let stage = stage_with(Duration::from_millis(100));
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    let unavailable = std::iter::repeat_n(Fault::Unavailable, 100);
    stage
        .store
        .fail(std::iter::once(Fault::HangsUnknown).chain(unavailable));
    let mut writing = std::pin::pin!(shard.write("x"));
    let outcome = loop {
        match futures::poll!(writing.as_mut()) {
            std::task::Poll::Ready(outcome) => break outcome,
            std::task::Poll::Pending => stage.clock.advance(Duration::from_millis(10)),
        }
    };
    assert!(unknown(outcome));
    assert!(stage.store.presented().len() > 1);
}

#[tokio::test]
async fn a_write_that_may_have_landed_before_the_fence_rose_is_not_counted_as_stale() {
    let stage = stage_with(Duration::from_secs(60));
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage.store.fail([Fault::LandsUnknown]);
    let mut writing = std::pin::pin!(shard.write("x"));
    assert!(futures::poll!(writing.as_mut()).is_pending());
    let next = FencingToken {
        epoch: epoch(8),
        ..shard.token().clone()
    };
    let found = stage.store.store.seal(&next).await.unwrap();
    assert_eq!(found.unwrap().data, "x");
    let outcome = loop {
        match futures::poll!(writing.as_mut()) {
            std::task::Poll::Ready(outcome) => break outcome,
            std::task::Poll::Pending => stage.clock.advance(Duration::from_millis(10)),
        }
    };
    assert!(matches!(
        outcome,
        Err(ShardError::Lost(LostReason::Fenced { .. }))
    ));
    let status = crate::status::Observer::new(Arc::clone(&stage.context.tally)).status();
    assert_eq!(status.counters.refused, 0);
}

#[tokio::test]
async fn a_retry_ends_with_the_handle() {
    let stage = stage_with(Duration::from_secs(60));
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage
        .store
        .fail(std::iter::repeat_n(Fault::Unavailable, 1_000));
    let writing = shard.write("x");
    let killing = async { shard.kill(LostReason::Ended) };
    let (written, ()) = futures::join!(writing, killing);
    assert_eq!(lost(written), LostReason::Ended);
}

#[tokio::test]
async fn a_second_claim_goes_on_above_its_own_writes() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    shard.write("x").await.unwrap();
    // The process forgot the handle's memory of it: a clone made from nothing but the token.
    let again = stage.shard(7);
    assert_eq!(again.claim().await.unwrap().unwrap().data, "x");
    again.write("y").await.unwrap();
    assert_eq!(stored(&stage.store).await.unwrap().data, "y");
}

// Scenario 41, the worker's half.
#[tokio::test]
async fn a_store_that_is_ahead_is_reported_with_its_fence() {
    let mut stage = stage();
    stage.store.seal(&token(9)).await.unwrap();
    let shard = stage.shard(7);
    let ahead = LostReason::StoreAhead {
        store: "main".into(),
        fence: epoch(9),
    };
    assert_eq!(lost(shard.claim().await.map(drop)), ahead);
    let ReportKind::Dead(reason) = stage.report().kind else {
        panic!()
    };
    assert_eq!(reason, ahead);
}

#[tokio::test]
async fn a_store_that_was_restored_to_an_older_state_is_not_opened() {
    let stage = stage();
    stage.store.seal(&token(5)).await.unwrap();
    let recorded = BTreeMap::from([("main".to_owned(), epoch(6))]);
    let shard = stage.shard_after(7, recorded.clone());
    let regressed = LostReason::StoreRegressed {
        store: "main".into(),
        recorded: epoch(6),
        found: 5,
    };
    assert_eq!(lost(shard.claim().await.map(drop)), regressed);
    // It was not sealed either: what it holds is left as it is.
    let fence = stage
        .store
        .store
        .fence(&token(5).resource)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(fence.epoch, epoch(5));

    *stage.store.fence.lock().unwrap() = Some(Fence::from(&token(6)));
    let shard = stage.shard_after(7, recorded);
    assert!(shard.claim().await.is_ok());
}

#[tokio::test]
async fn a_store_that_forgot_its_fence_ends_the_handle() {
    let stage = stage();
    let shard = stage.shard(7);
    stage.other.seal(shard.token()).await.unwrap();
    for writer in &shard.inner.writers {
        writer.lock().await.claim(epoch(7), None);
    }
    // The default store was never sealed, or lost what was.
    assert!(matches!(
        lost(shard.write("x").await),
        LostReason::StoreRegressed { .. }
    ));
}

#[tokio::test]
async fn past_the_window_reads_are_refused_and_writes_go_on() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    shard.write("x").await.unwrap();
    assert!(shard.is_current());
    assert_eq!(shard.read().await.unwrap().unwrap().data, "x");
    stage.clock.advance(Duration::from_millis(713));
    assert!(!shard.is_current());
    assert!(matches!(shard.read().await, Err(ShardError::AtRisk)));
    assert!(matches!(
        shard.read_from("other").await,
        Err(ShardError::AtRisk)
    ));
    shard.write("y").await.unwrap();
    stage.acknowledge();
    assert!(shard.is_current());
}

#[tokio::test]
async fn currency_is_judged_after_the_read_not_before() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    let slow = async { stage.clock.advance(Duration::from_secs(1)) };
    assert!(matches!(
        shard.exclusively(slow).await,
        Err(ShardError::AtRisk)
    ));
}

#[tokio::test]
async fn at_the_end_of_the_lease_the_handle_is_dead_for_ever() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    stage.clock.advance(Duration::from_millis(9_500));
    assert_eq!(lost(shard.write("x").await), LostReason::LeaseEnded);
    // Whatever is acknowledged later.
    stage.acknowledge();
    assert_eq!(lost(shard.write("x").await), LostReason::LeaseEnded);
    assert!(!shard.is_current());
    assert!(stage.store.presented().is_empty());
}

// Scenario 27.
#[tokio::test]
async fn past_the_drain_deadline_the_handle_is_dead_whatever_the_handler_does() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    shard.revoke(stage.clock.now() + Duration::from_millis(500));
    shard.revoked().await;
    assert_eq!(shard.state(), HandleState::Revoked);
    // Until then it still owns: a last checkpoint lands.
    shard.write("last").await.unwrap();
    assert!(shard.is_current());
    stage.clock.advance(Duration::from_millis(500));
    // No task of the session has run.
    assert!(!shard.is_current());
    assert_eq!(lost(shard.write("late").await), LostReason::DrainDeadline);
    assert_eq!(stored(&stage.store).await.unwrap().data, "last");
}

#[tokio::test]
async fn a_later_revoke_does_not_give_more_time() {
    let stage = stage();
    let shard = stage.shard(7);
    let now = stage.clock.now();
    shard.revoke(now + Duration::from_millis(500));
    shard.revoke(now + Duration::from_secs(60));
    stage.clock.advance(Duration::from_millis(500));
    assert!(!shard.is_current());
}

#[tokio::test]
async fn waiting_for_input_ends_when_the_shard_is_revoked() {
    let stage = stage();
    let shard = stage.shard(7);
    assert_eq!(shard.until_revoked(async { 1 }).await.unwrap(), Some(1));
    let waiting = shard.until_revoked(future::pending::<()>());
    let revoking = async { shard.revoke(stage.clock.now() + Duration::from_secs(1)) };
    let (waited, ()) = futures::join!(waiting, revoking);
    assert!(matches!(waited, Ok(None)));
    // Also when there is always input.
    assert_eq!(shard.until_revoked(async { 1 }).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_too_large_uses_no_sequence() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    let large = vec![0; stage.store.max_value_bytes() + 1];
    assert!(matches!(
        shard.write(large).await,
        Err(ShardError::Store {
            source: CheckpointError::TooLarge { .. },
            ..
        })
    ));
    shard.write("x").await.unwrap();
    assert_eq!(stage.store.presented()[0].sequence, Sequence::FIRST);
}

#[tokio::test]
async fn a_clone_dies_with_the_handle() {
    let stage = stage();
    let shard = stage.shard(7);
    shard.claim().await.unwrap();
    let clone = shard.clone();
    shard.kill(LostReason::Released);
    assert_eq!(lost(clone.write("x").await), LostReason::Released);
}
