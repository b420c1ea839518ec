//! Leaders with a worker, in clusters whose network is cut (scenarios 15 and 33).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use tenure_coordinator::clock::{Clock, Moment, SystemClock};
use tenure_coordinator::consensus::{Envelope, Leading, ProposeError};
use tenure_coordinator::control::message::{Close, Down, Open, Up};
use tenure_coordinator::control::{Control, Downs, Told};
use tenure_coordinator::watch::Hub;
use tenure_fence::Epoch;
use tenure_ownership::Event;
use tenure_ownership::command::Register;
use tenure_ownership::ids::{GroupId, ProcessNonce, Revision, SessionId, ShardIndex, WorkerName};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{Cluster, Node, WITHIN, create_group};

/// The belief window of sessions under the default policy.
const WINDOW: Duration = Duration::from_millis(750);

/// Time between two heartbeats. Far below a third of the window, so that some arrive at every moment that
/// matters.
const BEAT: Duration = Duration::from_millis(20);

/// A worker that only heartbeats.
struct Worker {
    ups: mpsc::Sender<Up>,
    downs: Downs,
    /// The last heartbeat sent.
    sequence: u64,
}

impl Worker {
    /// Registers in the group `g`, which exists.
    async fn register(control: &Control) -> Self {
        let register = Register {
            group: "g".parse().unwrap(),
            worker: WorkerName::new("a").unwrap(),
            nonce: ProcessNonce(1),
            first: None,
            replaces: None,
            ttl: None,
            weight: 1,
            labels: BTreeMap::new(),
            address: String::new(),
        };
        let (ups, queue) = mpsc::channel(64);
        let open = Open::Register {
            register: Box::new(register),
            first: None,
            attempt: 1,
        };
        let downs = control
            .attach(open, ReceiverStream::new(queue).boxed())
            .await
            .unwrap();
        let mut worker = Self {
            ups,
            downs,
            sequence: 0,
        };
        let registered = worker.told().await;
        assert!(
            matches!(registered, Ok(Down::Registered { .. })),
            "{registered:?}"
        );
        worker
    }

    async fn told(&mut self) -> Told {
        let told = tokio::time::timeout(WITHIN, self.downs.next()).await;
        told.expect("nothing is said").expect("the stream ended")
    }

    /// Heartbeats until one that was sent from now on is acknowledged, or the stream is closed.
    async fn beat(&mut self) -> Result<u64, Close> {
        let before = self.sequence;
        loop {
            self.sequence += 1;
            let sequence = self.sequence;
            // Whoever closed the stream says why on the way down.
            let _ = self
                .ups
                .send(Up::Heartbeat {
                    sequence,
                    loads: Vec::new(),
                })
                .await;
            let Ok(told) = tokio::time::timeout(BEAT, self.downs.next()).await else {
                continue;
            };
            match told.expect("the stream ended without a reason") {
                Ok(Down::Ack { sequence }) if sequence > before => return Ok(sequence),
                Ok(_) => {}
                Err(close) => return Err(close),
            }
        }
    }

    async fn is_acknowledged(&mut self) {
        let beat = tokio::time::timeout(WITHIN, self.beat()).await;
        beat.expect("no acknowledgement").unwrap();
    }
}

fn lead(node: &Node, hub: Arc<Hub>, clock: Arc<dyn Clock>) -> Arc<Control> {
    Control::start(node.consensus().clone(), hub, clock)
}

/// A leader that counts on what a follower promised it is wrong once the follower has forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_voter_restarted_and_elected_another_acknowledges_nothing_any_more() {
    const ELECTION_MAX: Duration = Duration::from_secs(3);
    let mut cluster = Cluster::start_with(3, |options| {
        // Long, so that a leader that took an answer for a lease would live on it well into the next term.
        options.timings.election_timeout_min = ELECTION_MAX / 2;
        options.timings.election_timeout_max = ELECTION_MAX;
    })
    .await;
    let old = cluster.leader().await;
    let [forgetful, candidate] = cluster.others(old)[..] else {
        panic!("three nodes")
    };
    let node = cluster.node(old);
    node.propose_group("g").await;
    let control = lead(node, Arc::clone(&node.observer.hub), Arc::new(SystemClock));
    let mut worker = Worker::register(&control).await;
    worker.is_acknowledged().await;
    cluster.node(candidate).barrier().await;

    // One follower no longer hears the leader. It would stand for election, but the other hears the
    // leader and supports nobody else. That is the time in which nothing must happen.
    cluster.cut_between(old, candidate);
    let term = node.consensus().leadership().borrow().term;
    tokio::time::sleep(ELECTION_MAX).await;
    assert_eq!(node.consensus().leadership().borrow().term, term);
    // The other one answers the leader's round ...
    worker.is_acknowledged().await;
    // ... and forgets it, while the leader is cut off with its worker.
    cluster.cut_off(old);
    cluster.stop(forgetful).await;
    cluster.restart(forgetful).await;
    let new = tokio::select! {
        new = cluster.leader_other_than(old) => new,
        beat = worker.beat() => panic!("{beat:?} before the election"),
    };
    assert_ne!(new, old);
    let after = tokio::time::timeout(WINDOW, worker.beat()).await;
    assert!(after.is_err(), "{after:?} after the election");

    cluster.heal(old);
    let ended = tokio::time::timeout(WITHIN, worker.beat()).await;
    assert_eq!(
        ended.expect("the stream is not closed"),
        Err(Close::NotLeader)
    );
    control.shutdown().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deposed_leader_had_queued_takes_no_effect_even_when_it_leads_again() {
    async fn propose(leading: &Leading, name: &str) -> Result<(), ProposeError> {
        let proposal = leading.submit(&create_group(name, 1), WITHIN).await?;
        let applied = tokio::time::timeout(WITHIN, proposal.applied()).await;
        applied.expect("it is never decided").map(drop)
    }
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().await;
    cluster.node(old).propose_group("a").await;
    let consensus = cluster.node(old).consensus();
    let term = consensus.leadership().borrow().term;
    let leading = consensus.leading(term);

    cluster.cut_off(old);
    let mut queued = Vec::new();
    for number in 0..5 {
        let command = create_group(&format!("stale{number}"), 1);
        queued.push(leading.submit(&command, WITHIN).await.unwrap());
    }
    let new = cluster.leader_other_than(old).await;
    cluster.node(new).propose_group("b").await;
    cluster.heal(old);
    for proposal in queued {
        let applied = tokio::time::timeout(WITHIN, proposal.applied()).await;
        applied.expect("it is never decided").unwrap_err();
    }

    // What was decided in the first term is of no use in a later one, though the same node leads.
    cluster.leader().await;
    let consensus = cluster.node(new).consensus();
    consensus.transfer_leader(old, WITHIN).await.unwrap();
    assert_eq!(cluster.leader().await, old);
    let late = propose(&leading, "late").await;
    assert!(
        matches!(late, Err(ProposeError::NotLeader { .. })),
        "{late:?}"
    );
    leading.round(WITHIN).await.unwrap_err();
    for id in cluster.ids() {
        cluster.node(id).barrier().await;
        assert_eq!(cluster.node(id).groups(), ["a", "b"]);
    }
    cluster.stop_all().await;
}

/// A clock that brings one more event whenever the leader is about to wait: it always finds one.
#[derive(Debug)]
struct Eventful {
    hub: Arc<Hub>,
    revision: AtomicU64,
}

impl Clock for Eventful {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn sleep_until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        let revision = Revision(self.revision.fetch_add(1, Ordering::Relaxed));
        let serving = Event::Serving {
            group: GroupId(0),
            shard: ShardIndex(0),
            epoch: Epoch::FIRST,
            owner: SessionId(0),
        };
        self.hub.publish(revision, &Envelope::default(), &[serving]);
        SystemClock.sleep_until(moment)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_of_events_without_end_keeps_no_worker_waiting() {
    let mut cluster = Cluster::start(1).await;
    let leader = cluster.leader().await;
    let node = cluster.node(leader);
    node.propose_group("g").await;
    // A history of its own, far ahead of what the node applies.
    let hub = Arc::new(Hub::new(1_000));
    hub.loaded(Revision(0));
    let clock = Eventful {
        hub: Arc::clone(&hub),
        revision: AtomicU64::new(1_000_000),
    };
    let control = lead(node, hub, Arc::new(clock));
    let mut worker = Worker::register(&control).await;
    for _ in 0..3 {
        worker.is_acknowledged().await;
    }
    control.shutdown().await;
    cluster.stop_all().await;
}
