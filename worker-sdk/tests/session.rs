//! Stories of a worker and its coordinator, message by message, on a driven clock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what is wrong by panicking"
)]

mod script;

use std::sync::Arc;
use std::time::Duration;

use futures::future;
use script::{Coordinator, error, tenure, within};
use tenure::connection::TlsOptions;
use tenure::{
    Checkpoint, CheckpointStore, Clock, HandleState, HeldShard, LinkState, LostReason, ManualClock,
    MemoryStore, RunError, ShardError, ShardHandler, Worker, WorkerError, WorkerHandle,
};
use tenure_proto::reason;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tenure_proto::v1::{Lost, ReleaseCause, Set, SetShard, ShardPhase};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tonic::Code;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

/// What a handler does with a shard after it has claimed it.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Writes a last checkpoint when asked to, and returns.
    Obedient,
    /// Ignores everything until the test lets it go.
    Stubborn,
    /// Returns an error.
    Failing,
    /// Panics.
    Panicking,
}

struct Probe {
    behaviour: Behaviour,
    shards: mpsc::Sender<HeldShard>,
    /// Lets stubborn handlers go.
    release: Arc<Semaphore>,
}

impl ShardHandler for Probe {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        let claimed = shard.claim().await;
        self.shards.send(shard.clone()).await?;
        claimed?;
        match self.behaviour {
            Behaviour::Obedient => {
                shard.revoked().await;
                shard.write("last").await?;
            }
            Behaviour::Stubborn => self.release.acquire().await?.forget(),
            Behaviour::Failing => return Err(WorkerError::new("the input is gone")),
            Behaviour::Panicking => panic!("as the test wants"),
        }
        Ok(())
    }
}

struct Story {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    coordinator: Coordinator,
    worker: WorkerHandle,
    shards: mpsc::Receiver<HeldShard>,
    release: Arc<Semaphore>,
}

impl Story {
    async fn begin(behaviour: Behaviour) -> Self {
        let coordinator = Coordinator::start().await;
        let addresses = vec![coordinator.address.clone()];
        Self::begin_at(behaviour, coordinator, addresses)
    }

    fn begin_at(behaviour: Behaviour, coordinator: Coordinator, addresses: Vec<String>) -> Self {
        let clock = Arc::new(ManualClock::new());
        let store = Arc::new(MemoryStore::new());
        let release = Arc::new(Semaphore::new(0));
        let (sender, shards) = mpsc::channel(16);
        let worker = Worker::builder()
            .coordinators(addresses)
            .group("orders")
            .name("worker-1")
            .weight(3)
            .label("zone", "a")
            .address("10.0.0.5:9000")
            .store("main", store.clone())
            .clock(clock.clone())
            .handler(Probe {
                behaviour,
                shards: sender,
                release: Arc::clone(&release),
            })
            .build()
            .unwrap()
            .spawn();
        Self {
            clock,
            store,
            coordinator,
            worker,
            shards,
            release,
        }
    }

    async fn shard(&mut self) -> HeldShard {
        within("a handler", self.shards.recv()).await.unwrap()
    }

    /// Lets a worker register and be granted shard 1 at epoch 7, and claim it.
    async fn serving(&mut self) -> (script::ServerStream, HeldShard) {
        let mut stream = self.coordinator.accept(&self.clock).await;
        stream.register().await;
        stream.welcome(11, 20, &[]).await;
        stream.grant(21, 1, 7).await;
        let ready = stream.ready().await;
        assert_eq!(ready.tenures, [tenure(1, 7)]);
        assert_eq!(ready.stores, ["main"]);
        (stream, self.shard().await)
    }

    async fn end(self) {
        let Self {
            worker,
            coordinator,
            release,
            ..
        } = self;
        release.add_permits(16);
        coordinator.stop().await;
        // What the story ended with has been judged; here it is only ended.
        let clock = self.clock;
        let _outcome = within("the end of the worker", async {
            let mut ending = std::pin::pin!(worker.shutdown());
            loop {
                match tokio::time::timeout(Duration::from_millis(5), ending.as_mut()).await {
                    Ok(outcome) => return outcome,
                    Err(_) => clock.advance(Duration::from_millis(500)),
                }
            }
        })
        .await;
    }
}

fn drain() -> Duration {
    Duration::from_secs(1)
}

/// A shard in a `Set`, not known to be ready.
fn opening(shard: u32, epoch: u64) -> SetShard {
    SetShard {
        tenure: Some(tenure(shard, epoch)),
        phase: ShardPhase::Opening.into(),
        ..SetShard::default()
    }
}

/// Waits until a handle is dead. Time does not go on meanwhile.
async fn lost(shard: &HeldShard) -> LostReason {
    within("the end of the handle", shard.lost()).await
}

async fn stored(store: &MemoryStore, shard: &HeldShard) -> Option<Checkpoint> {
    store.read(&shard.token().resource).await.unwrap()
}

#[tokio::test]
async fn a_worker_registers_opens_what_it_is_granted_and_says_so() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    let register = stream.register().await;
    assert_eq!(
        (register.group.as_str(), register.worker.as_str()),
        ("orders", "worker-1")
    );
    assert_eq!(
        (register.weight, register.address.as_str()),
        (3, "10.0.0.5:9000")
    );
    assert_eq!(register.labels["zone"], "a");
    assert_eq!((register.nonce.len(), register.attempt), (16, 1));
    assert_eq!(register.first, None);

    stream.welcome(11, 20, &[(4, 2)]).await;
    let ready = stream.ready().await;
    assert_eq!(ready.tenures, [tenure(4, 2)]);
    let shard = story.shard().await;
    assert_eq!(
        shard.token().to_string(),
        format!("shard/orders/4@2:{}/11", "07".repeat(16))
    );
    shard.write("x").await.unwrap();
    assert!(shard.is_current());

    let status = story.worker.observer().status();
    assert_eq!(status.session.unwrap().session, 11);
    assert_eq!((status.shards[0].index, status.shards[0].ready), (4, true));
    assert_eq!((status.counters.ready, status.counters.writes), (1, 1));
    story.end().await;
}

#[tokio::test]
async fn nothing_is_believed_before_the_set_and_an_acknowledgement_of_the_stream() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (mut stream, shard) = story.serving().await;
    assert!(shard.is_current());
    let before = stream.heartbeat;
    assert!(before > 0);

    stream.fail(tonic::Status::unavailable("stopping")).await;
    stream = story.coordinator.accept(&story.clock).await;
    let resume = stream.resume().await;
    assert_eq!(resume.session, Some(script::session(11)));
    assert!(resume.attempt > 1);
    stream.registered(11).await;
    // Before the Set it does not count.
    stream.acknowledge(0).await;
    stream.set(30, &[(1, 7)]).await;
    assert_eq!(stream.holding().await.tenures, [tenure(1, 7)]);
    // Said again: the Set does not know of it.
    assert_eq!(stream.ready().await.tenures, [tenure(1, 7)]);
    // Sent between the two: heartbeats go on counting.
    assert!(stream.heartbeat > before);
    assert!(!shard.is_current());
    assert!(matches!(shard.read().await, Err(ShardError::AtRisk)));
    shard.write("at risk, not fenced").await.unwrap();

    stream.acknowledge(stream.heartbeat).await;
    stream.grant(31, 2, 1).await;
    // The grant comes after the acknowledgement.
    story.shard().await;
    assert!(shard.is_current());
    story.end().await;
}

#[tokio::test]
async fn heartbeats_go_every_third_of_the_window() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.register().await;
    stream.welcome(11, 20, &[]).await;
    for sequence in 1..=5 {
        assert_eq!(stream.next_heartbeat().await, sequence);
        stream.acknowledge(sequence).await;
        story.clock.advance(Duration::from_millis(250));
    }
    story.end().await;
}

// Scenario 39.
#[tokio::test]
async fn a_registration_whose_answer_was_lost_is_retried_as_the_same_process() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    let first = stream.register().await;
    drop(stream);
    let mut stream = story.coordinator.accept(&story.clock).await;
    let second = stream.register().await;
    script::assert_same("nonce", &first.nonce, &second.nonce);
    assert_eq!(second.first, None);
    assert!(second.attempt > first.attempt);
    story.end().await;
}

// Scenarios 18 and 26.
#[tokio::test]
async fn a_replaced_worker_stops_and_does_not_come_back() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    stream
        .fail(error(Code::FailedPrecondition, reason::REPLACED, &[]))
        .await;
    let outcome = within("the worker stops", story.worker.stopped()).await;
    assert!(matches!(outcome, Err(RunError::Replaced { worker }) if worker == "worker-1"));
    assert_eq!(lost(&shard).await, LostReason::Replaced);
    assert!(!shard.is_current());
    // It has stopped, so no stream is on its way either.
    story.coordinator.assert_no_stream();
    story.coordinator.stop().await;
}

#[tokio::test]
async fn a_refused_registration_ends_the_worker_with_what_was_said() {
    let coordinator = Coordinator::start().await;
    coordinator.refuse_next(error(Code::InvalidArgument, reason::INVALID_ARGUMENT, &[]));
    let addresses = vec![coordinator.address.clone()];
    let mut story = Story::begin_at(Behaviour::Obedient, coordinator, addresses);
    let outcome = within("the worker stops", story.worker.stopped()).await;
    assert!(
        matches!(outcome, Err(RunError::Refused { reason, .. }) if reason == "INVALID_ARGUMENT")
    );
    story.coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_started_before_its_group_exists_waits_for_it() {
    let coordinator = Coordinator::start().await;
    coordinator.refuse_next(error(Code::NotFound, reason::GROUP_NOT_FOUND, &[]));
    let addresses = vec![coordinator.address.clone()];
    let mut story = Story::begin_at(Behaviour::Obedient, coordinator, addresses);
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert_eq!(stream.register().await.attempt, 2);
    stream.welcome(11, 20, &[(1, 7)]).await;
    assert_eq!(stream.ready().await.tenures, [tenure(1, 7)]);
    story.end().await;
}

#[tokio::test]
async fn a_session_that_another_process_registered_is_given_up_for_a_new_one() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    story
        .coordinator
        .refuse_next(error(Code::PermissionDenied, reason::WRONG_NONCE, &[]));
    stream.fail(tonic::Status::unavailable("stopping")).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    let register = stream.register().await;
    assert_eq!(register.first, Some(script::session(11)));
    assert_eq!(lost(&shard).await, LostReason::SessionEnded);
    story.end().await;
}

#[tokio::test]
async fn a_leader_that_cannot_decide_now_is_resumed_with_after_a_pause() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    story
        .coordinator
        .refuse_next(error(Code::Unavailable, reason::UNAVAILABLE, &[]));
    stream
        .fail(error(Code::Unavailable, reason::UNAVAILABLE, &[]))
        .await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert_eq!(stream.resume().await.session, Some(script::session(11)));
    assert_eq!(shard.state(), HandleState::Held);
    story.end().await;
}

#[tokio::test]
async fn after_a_broken_stream_the_last_leader_is_asked_before_the_others() {
    let leader = Coordinator::start().await;
    let others = [Coordinator::start().await, Coordinator::start().await];
    let hint = [(reason::LEADER_ADDRESS, leader.address.as_str())];
    let mut addresses = vec![leader.address.clone()];
    for other in &others {
        addresses.push(other.address.clone());
        // Whether or not the worker begins there.
        other.refuse_next(error(Code::Unavailable, reason::NOT_LEADER, &hint));
    }
    let mut story = Story::begin_at(Behaviour::Obedient, leader, addresses);
    let mut stream = story.coordinator.accept(&story.clock).await;
    let attempt = stream.register().await.attempt;
    stream.welcome(11, 20, &[]).await;
    // The grant comes after the acknowledgement.
    stream.grant(21, 1, 7).await;
    stream.ready().await;
    stream.fail(tonic::Status::unavailable("reset")).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert_eq!(stream.resume().await.attempt, attempt + 1);
    story.end().await;
    for other in others {
        other.stop().await;
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_does_not_use_up_the_window_of_a_session() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    // Takes connections, and nothing more.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let hint = [(reason::LEADER_ADDRESS, address.as_str())];
    let before = story.clock.now();
    stream
        .fail(error(Code::Unavailable, reason::NOT_LEADER, &hint))
        .await;
    let asked = within("a connection to the mute node", mute.accept()).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.resume().await;
    let spent = story.clock.now().since(before);
    assert!(spent < Duration::from_millis(500), "{spent:?}");
    assert_eq!(shard.state(), HandleState::Held);
    drop(asked);
    story.end().await;
}

#[tokio::test]
async fn what_a_stream_did_not_take_is_made_up_for_on_the_next_one() {
    let server = Server::builder().initial_stream_window_size(1_024);
    let coordinator = Coordinator::start_with(server).await;
    let addresses = vec![coordinator.address.clone()];
    let mut story = Story::begin_at(Behaviour::Obedient, coordinator, addresses);
    let (stream, _shard) = story.serving().await;
    // Each is answered, until neither the network nor the outbox takes more. Time stands still, so
    // nothing else can end the stream.
    let flood = stream.flood(|number| {
        Down::Set(Set {
            revision: 22 + number,
            shards: vec![opening(1, 7)],
        })
    });
    let observer = story.worker.observer().clone();
    let left = observer.wait_until(|status| status.link == LinkState::Connecting);
    let left = std::pin::pin!(left);
    within(
        "the worker leaves the stream",
        future::select(left, std::pin::pin!(flood)),
    )
    .await;
    let mut next = story.coordinator.accept(&story.clock).await;
    next.resume().await;
    next.registered(11).await;
    next.set(1_000_000, &[(1, 7), (2, 1)]).await;
    assert_eq!(next.holding().await.tenures, [tenure(1, 7), tenure(2, 1)]);
    assert_eq!(next.ready().await.tenures, [tenure(1, 7)]);
    assert_eq!(next.ready().await.tenures, [tenure(2, 1)]);
    story.end().await;
}

#[tokio::test]
async fn a_node_that_does_not_lead_sends_the_worker_to_the_leader() {
    let follower = Coordinator::start().await;
    let leader = Coordinator::start().await;
    let hint = [
        (reason::LEADER_ID, "2"),
        (reason::LEADER_ADDRESS, leader.address.as_str()),
    ];
    follower.refuse_next(error(Code::FailedPrecondition, reason::NOT_LEADER, &hint));
    let addresses = vec![follower.address.clone()];
    let mut story = Story::begin_at(Behaviour::Obedient, leader, addresses);
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert_eq!(stream.register().await.attempt, 2);
    stream.welcome(11, 20, &[]).await;
    story.end().await;
    follower.stop().await;
}

#[tokio::test]
async fn a_leader_that_stops_leading_in_the_middle_of_a_stream_is_left_for_the_next() {
    let next = Coordinator::start().await;
    let first = Coordinator::start().await;
    let address = next.address.clone();
    let addresses = vec![first.address.clone()];
    let mut story = Story::begin_at(Behaviour::Obedient, first, addresses);
    let (stream, shard) = story.serving().await;
    let hint = [(reason::LEADER_ADDRESS, address.as_str())];
    stream
        .fail(error(Code::FailedPrecondition, reason::NOT_LEADER, &hint))
        .await;
    let old = std::mem::replace(&mut story.coordinator, next);
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.resume().await;
    stream.registered(11).await;
    stream.set(40, &[(1, 7)]).await;
    // Owner and epoch are unchanged, and so is the handle.
    assert_eq!(stream.holding().await.tenures, [tenure(1, 7)]);
    // Said again: the Set does not know of it.
    assert_eq!(stream.ready().await.tenures, [tenure(1, 7)]);
    shard.write("still mine").await.unwrap();
    story.end().await;
    old.stop().await;
}

#[tokio::test]
async fn a_leader_that_acknowledges_nothing_is_left() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    // The stream stands, and nothing comes.
    story.clock.advance(Duration::from_millis(1_500));
    let mut next = story.coordinator.accept(&story.clock).await;
    next.resume().await;
    stream.closed().await;
    assert!(!shard.is_current());
    assert_eq!(shard.state(), HandleState::Held);
    story.end().await;
}

#[tokio::test]
async fn a_superseded_stream_is_followed_by_one_with_a_higher_attempt() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, _shard) = story.serving().await;
    stream
        .fail(error(Code::Aborted, reason::STREAM_SUPERSEDED, &[]))
        .await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    let attempt = stream.resume().await.attempt;
    stream
        .fail(error(Code::Aborted, reason::STREAM_SUPERSEDED, &[]))
        .await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert!(stream.resume().await.attempt > attempt);
    story.end().await;
}

#[tokio::test]
async fn an_ended_session_takes_its_shards_with_it_and_the_first_one_is_named_ever_after() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    stream
        .fail(error(Code::FailedPrecondition, reason::SESSION_ENDED, &[]))
        .await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    let register = stream.register().await;
    assert_eq!(register.first, Some(script::session(11)));
    assert_eq!(lost(&shard).await, LostReason::SessionEnded);
    stream.welcome(31, 40, &[(1, 8)]).await;
    let anew = story.shard().await;
    assert_eq!((anew.epoch().get(), anew.token().owner.session), (8, 31));
    // The first one says how old the process is, however many it had since.
    stream
        .fail(error(Code::FailedPrecondition, reason::SESSION_ENDED, &[]))
        .await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    assert_eq!(stream.register().await.first, Some(script::session(11)));
    story.end().await;
}

// Scenarios 28 and 30: the answer to a Set says what is held, and a lost handle stays lost.
#[tokio::test]
async fn after_the_end_of_the_lease_the_same_tenure_is_not_opened_again() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (stream, shard) = story.serving().await;
    drop(stream);
    story.clock.advance(Duration::from_secs(10));
    assert_eq!(lost(&shard).await, LostReason::LeaseEnded);
    let mut stream = loop {
        let mut stream = story.coordinator.accept(&story.clock).await;
        match stream.next().await {
            Up::Register(register) => {
                assert_eq!(register.first, Some(script::session(11)));
                break stream;
            }
            // On its way when the lease ended.
            Up::Resume(_) => {}
            other => panic!("{other:?}"),
        }
    };
    // The coordinator knows the process by its nonce, and has not expired the session.
    stream.registered(11).await;
    stream.set(30, &[(1, 7)]).await;
    let released = stream.released().await;
    assert_eq!(released[0].tenure, Some(tenure(1, 7)));
    assert_eq!(released[0].cause(), ReleaseCause::Lost);
    assert_eq!(stream.holding().await.tenures, []);
    stream.grant(31, 1, 8).await;
    assert_eq!(stream.ready().await.tenures, [tenure(1, 8)]);
    story.end().await;
}

#[tokio::test]
async fn a_revoked_shard_is_given_back_after_a_last_checkpoint() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (mut stream, shard) = story.serving().await;
    stream.revoke(22, 1, 7, drain()).await;
    let released = stream.released().await;
    assert_eq!(released[0].tenure, Some(tenure(1, 7)));
    assert_eq!(released[0].cause(), ReleaseCause::Finished);
    assert_eq!(stored(&story.store, &shard).await.unwrap().data, "last");
    // The clone that this test kept is dead as well.
    assert_eq!(lost(&shard).await, LostReason::Released);
    assert!(!shard.is_current());
    story.end().await;
}

// Scenarios 20 and 27, the worker's half.
#[tokio::test]
async fn a_handler_that_ignores_the_revoke_loses_its_handle_at_the_deadline() {
    let mut story = Story::begin(Behaviour::Stubborn).await;
    let (mut stream, shard) = story.serving().await;
    assert_eq!(stream.heartbeat, 1);
    stream.acknowledge(1).await;
    // The Revoke was long under way: the worker counts from the last acknowledged heartbeat.
    story.clock.advance(Duration::from_millis(600));
    stream.revoke(22, 1, 7, drain()).await;
    within("the revocation", shard.revoked()).await;
    story.clock.advance(Duration::from_millis(349));
    assert_eq!(shard.state(), HandleState::Revoked);
    story.clock.advance(Duration::from_millis(1));
    assert_eq!(shard.state(), HandleState::Lost(LostReason::DrainDeadline));
    let released = stream.released().await;
    assert_eq!(released[0].cause(), ReleaseCause::Lost);
    assert!(matches!(
        shard.write("late").await,
        Err(ShardError::Lost(_))
    ));
    story.end().await;
}

#[tokio::test]
async fn a_shard_that_comes_back_waits_for_its_old_handler() {
    let mut story = Story::begin(Behaviour::Stubborn).await;
    let (mut stream, shard) = story.serving().await;
    stream
        .send(Down::Lost(Lost {
            revision: 22,
            tenures: vec![tenure(1, 7)],
        }))
        .await;
    assert_eq!(lost(&shard).await, LostReason::Ended);
    stream.grant(23, 1, 8).await;
    // Another shard that is granted later is opened at once, this one is not.
    stream.grant(24, 2, 1).await;
    assert_eq!(story.shard().await.id().index, 2);
    assert!(story.shards.try_recv().is_err());
    story.release.add_permits(1);
    // Either of the two handlers may have taken the permit; in the end the old one goes.
    stream.ready().await;
    story.clock.advance(Duration::from_secs(5));
    let anew = story.shard().await;
    assert_eq!((anew.id().index, anew.epoch().get()), (1, 8));
    story.end().await;
}

// Scenario 41, the worker's half.
#[tokio::test]
async fn a_shard_whose_store_is_ahead_is_given_back_with_the_fence() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let ahead = format!("shard/orders/1@9:{}/5", "0".repeat(32))
        .parse()
        .unwrap();
    story.store.seal(&ahead).await.unwrap();
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.register().await;
    stream.welcome(11, 20, &[(1, 7)]).await;
    let released = stream.released().await;
    assert_eq!(released[0].cause(), ReleaseCause::StoreAhead);
    assert_eq!(released[0].store_fence, 9);
    stream.grant(21, 1, 10).await;
    assert_eq!(stream.ready().await.tenures, [tenure(1, 10)]);
    story.end().await;
}

#[tokio::test]
async fn a_failed_handler_gives_its_shard_back_with_the_reason() {
    let mut story = Story::begin(Behaviour::Failing).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.register().await;
    stream.welcome(11, 20, &[(1, 7)]).await;
    let released = loop {
        match stream.next_report().await {
            Up::Released(released) => break released.releases,
            Up::Ready(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(released[0].cause(), ReleaseCause::OpenFailed);
    assert_eq!(released[0].detail, "the input is gone");
    story.end().await;
}

#[tokio::test]
async fn a_panic_of_a_handler_costs_its_shard_and_nothing_else() {
    let mut story = Story::begin(Behaviour::Panicking).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.register().await;
    stream.welcome(11, 20, &[(1, 7)]).await;
    let released = loop {
        match stream.next_report().await {
            Up::Released(released) => break released.releases,
            Up::Ready(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(released[0].detail, "the handler panicked");
    assert!(story.worker.observer().status().session.is_some());
    story.end().await;
}

#[tokio::test]
async fn a_worker_that_stops_writes_last_checkpoints_gives_everything_back_and_leaves() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (mut stream, shard) = story.serving().await;
    stream.grant(22, 2, 1).await;
    assert_eq!(stream.ready().await.tenures, [tenure(2, 1)]);
    let stopping = tokio::spawn(story.worker.shutdown());
    // First, so that nothing comes back.
    stream.stopping().await;
    // Nobody else is there to take them.
    stream.dismiss().await;
    // In one message or two: each goes when its handler has returned.
    let mut released = stream.released().await;
    if released.len() < 2 {
        released.extend(stream.released().await);
    }
    released.sort_by_key(|release| release.tenure.map(|tenure| tenure.shard));
    let tenures: Vec<_> = released
        .iter()
        .filter_map(|release| release.tenure)
        .collect();
    assert_eq!(tenures, [tenure(1, 7), tenure(2, 1)]);
    assert!(
        released
            .iter()
            .all(|release| release.cause() == ReleaseCause::Finished)
    );
    stream.let_go().await;
    assert!(within("the worker stops", stopping).await.unwrap().is_ok());
    assert_eq!(stored(&story.store, &shard).await.unwrap().data, "last");
    story.coordinator.assert_no_stream();
    story.coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_stops_serves_its_shards_until_others_take_them() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (mut stream, shard) = story.serving().await;
    stream.grant(22, 2, 1).await;
    assert_eq!(stream.ready().await.tenures, [tenure(2, 1)]);
    let stopping = tokio::spawn(story.worker.shutdown());
    stream.stopping().await;
    shard.write("still serving").await.unwrap();
    assert_eq!(shard.state(), HandleState::Held);
    for (revision, shard, epoch) in [(23, 1, 7), (24, 2, 1)] {
        stream.revoke(revision, shard, epoch, drain()).await;
        let released = stream.released().await;
        assert_eq!(released[0].tenure, Some(tenure(shard, epoch)));
    }
    stream.let_go().await;
    assert!(within("the worker stops", stopping).await.unwrap().is_ok());
    story.coordinator.stop().await;
}

#[tokio::test]
async fn what_nobody_takes_in_time_a_worker_that_stops_gives_back() {
    let mut story = Story::begin(Behaviour::Obedient).await;
    let (mut stream, _shard) = story.serving().await;
    let begun = story.clock.now();
    let stopping = tokio::spawn(story.worker.shutdown());
    stream.stopping().await;
    // Two thirds of its time, in which it lives on and is acknowledged.
    let waited = loop {
        story.clock.advance(Duration::from_millis(250));
        match stream.next().await {
            Up::Heartbeat(heartbeat) => stream.acknowledge(heartbeat.sequence).await,
            Up::Released(released) => {
                assert_eq!(released.releases[0].tenure, Some(tenure(1, 7)));
                break story.clock.now();
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(waited.since(begun) >= Duration::from_secs(20));
    stream.let_go().await;
    assert!(within("the worker stops", stopping).await.unwrap().is_ok());
    story.coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_stops_gives_each_shard_back_when_its_handler_has_returned() {
    let mut story = Story::begin(Behaviour::Stubborn).await;
    let (mut stream, first) = story.serving().await;
    stream.grant(22, 2, 1).await;
    stream.ready().await;
    let second = story.shard().await;
    let stopping = tokio::spawn(story.worker.shutdown());
    stream.stopping().await;
    stream.dismiss().await;
    story.release.add_permits(1);
    let released = stream.released().await;
    assert_eq!(released.len(), 1);
    // Either of the two handlers may have taken the permit.
    let (gone, left) = match released[0].tenure {
        Some(released) if released == tenure(1, 7) => (first, second),
        _ => (second, first),
    };
    assert_eq!(lost(&gone).await, LostReason::Released);
    assert_eq!(left.state(), HandleState::Revoked);
    left.write("still at work").await.unwrap();

    // A leader that has not heard of it is told again, before the shard that is left.
    stream.fail(tonic::Status::unavailable("stopping")).await;
    let mut stream = story.coordinator.accept(&story.clock).await;
    stream.resume().await;
    stream.registered(11).await;
    stream.set(30, &[(1, 7), (2, 1)]).await;
    stream.stopping().await;
    assert_eq!(stream.released().await, released);
    assert_eq!(stream.holding().await.tenures.len(), 1);
    stream.ready().await;
    story.release.add_permits(1);
    let last = stream.released().await;
    assert_eq!(last.len(), 1);
    assert_ne!(last[0].tenure, released[0].tenure);
    stream.let_go().await;
    assert!(within("the worker stops", stopping).await.unwrap().is_ok());
    story.coordinator.stop().await;
}

#[tokio::test]
async fn what_is_granted_to_a_worker_that_stops_goes_back_at_once() {
    let mut story = Story::begin(Behaviour::Stubborn).await;
    let (mut stream, shard) = story.serving().await;
    let stopping = tokio::spawn(story.worker.shutdown());
    stream.stopping().await;
    stream.dismiss().await;
    within("the revocation", shard.revoked()).await;
    // Planned before the coordinator knew.
    stream.grant(22, 2, 1).await;
    let released = stream.released().await;
    assert_eq!(released[0].tenure, Some(tenure(2, 1)));
    // So that the coordinator prefers another worker.
    assert_eq!(released[0].cause(), ReleaseCause::OpenFailed);
    assert_eq!(released[0].detail, "the worker is stopping");
    // Its other handler is still at work.
    assert_eq!(shard.state(), HandleState::Revoked);
    story.release.add_permits(1);
    let released = stream.released().await;
    assert_eq!(released[0].tenure, Some(tenure(1, 7)));
    stream.let_go().await;
    assert!(within("the worker stops", stopping).await.unwrap().is_ok());
    story.coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_stops_does_not_wait_for_ever_for_a_stubborn_handler_or_a_dead_leader() {
    let mut story = Story::begin(Behaviour::Stubborn).await;
    let (stream, shard) = story.serving().await;
    drop(stream);
    story.coordinator.stop().await;
    let stopping = tokio::spawn(story.worker.shutdown());
    let clock = Arc::clone(&story.clock);
    let stopped = within("the worker stops", async {
        let mut stopping = stopping;
        loop {
            match tokio::time::timeout(Duration::from_millis(5), &mut stopping).await {
                Ok(outcome) => return outcome.unwrap(),
                Err(_) => clock.advance(Duration::from_millis(500)),
            }
        }
    })
    .await;
    assert!(stopped.is_ok());
    assert!(matches!(shard.state(), HandleState::Lost(_)));
}

/// A certificate for this host and its key, in PEM, and the authority's certificate.
struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

fn certificates() -> Certificates {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["coordinator.test".to_owned()]).unwrap();
    Certificates {
        authority: authority.pem(),
        certificate: leaf.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn a_worker_registers_through_mutual_tls() {
    let Certificates {
        authority,
        certificate,
        key,
    } = certificates();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&certificate, &key))
        .client_ca_root(Certificate::from_pem(&authority));
    let server = Server::builder().tls_config(tls).unwrap();
    let mut coordinator = Coordinator::start_with(server).await;
    let clock = Arc::new(ManualClock::new());
    let (sender, _shards) = mpsc::channel(1);
    let tls = TlsOptions::new(authority)
        .identity(certificate, key)
        .server_name("coordinator.test");
    let release = Arc::new(Semaphore::new(0));
    let mut worker = Worker::builder()
        .coordinators([coordinator.address.clone()])
        .tls(tls)
        .group("orders")
        .name("worker-1")
        .clock(clock.clone())
        .handler(Probe {
            behaviour: Behaviour::Obedient,
            shards: sender,
            release,
        })
        .build()
        .unwrap()
        .spawn();
    let mut stream = coordinator.accept(&clock).await;
    assert_eq!(stream.register().await.worker, "worker-1");
    stream
        .fail(error(Code::InvalidArgument, reason::INVALID_ARGUMENT, &[]))
        .await;
    let outcome = within("the worker stops", worker.stopped()).await;
    assert!(matches!(outcome, Err(RunError::Refused { .. })));
    coordinator.stop().await;
}
