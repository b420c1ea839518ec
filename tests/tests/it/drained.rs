//! A worker is drained while requests come in: nobody notices.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use tenure::connection::ConnectionOptions;
use tenure::{
    AttemptError, CheckpointStore as _, Dispatcher, HeldShard, HoldOptions, MemoryStore, NotOwner,
    Route, Router, ShardError, ShardHandler, Worker, WorkerError, WorkerHandle,
};
use tenure_proto::v1::{Policy, WorkerMode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const SHARDS: u32 = 1_000;
const WORKERS: [&str; 4] = ["worker-1", "worker-2", "worker-3", "worker-4"];

/// Requests that are sent at once, and how often: 2,000 a second.
const BATCH: u32 = 20;
const EVERY: Duration = Duration::from_millis(10);

/// Requests that may wait for one shard at its worker.
const INBOX_MAX: usize = 16;

/// One write of a client.
struct Request {
    number: u32,
    answer: oneshot::Sender<Result<(), NotOwner>>,
}

/// What clients and workers of the story share: the way of requests to workers, and when shards were served.
#[derive(Default)]
struct Shared {
    // Never held across an await.
    inboxes: Mutex<BTreeMap<(String, u32), mpsc::Sender<Request>>>,
    closed: Mutex<BTreeMap<u32, Instant>>,
    unavailable: Mutex<Vec<Duration>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn open(&self, worker: &str, shard: u32) -> mpsc::Receiver<Request> {
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        lock(&self.inboxes).insert((worker.to_owned(), shard), sender);
        if let Some(closed) = lock(&self.closed).remove(&shard) {
            lock(&self.unavailable).push(closed.elapsed());
        }
        inbox
    }

    fn close(&self, worker: &str, shard: u32) {
        lock(&self.inboxes).remove(&(worker.to_owned(), shard));
        lock(&self.closed).insert(shard, Instant::now());
    }

    /// Sends a request to the worker of a route, as a transport would.
    async fn attempt(&self, route: Route, number: u32) -> Result<(), AttemptError<String>> {
        let inbox = lock(&self.inboxes)
            .get(&(route.worker.clone(), route.shard.index))
            .cloned();
        let Some(inbox) = inbox else {
            return Err(AttemptError::NotOwner(NotOwner::default()));
        };
        let (answer, answered) = oneshot::channel();
        if inbox.send(Request { number, answer }).await.is_err() {
            return Err(AttemptError::NotOwner(NotOwner::default()));
        }
        match answered.await {
            Ok(answer) => answer.map_err(AttemptError::NotOwner),
            Err(_) => Err(AttemptError::Failed(format!(
                "{} dropped a request",
                route.worker
            ))),
        }
    }
}

/// Keeps the numbers of all requests of a shard, in a checkpoint that is written before each is answered.
struct Ledger {
    worker: String,
    shared: Arc<Shared>,
}

impl Ledger {
    async fn keep(
        shard: &HeldShard,
        inbox: &mut mpsc::Receiver<Request>,
        mut numbers: Vec<u8>,
    ) -> Result<(), ShardError> {
        while let Some(Some(request)) = shard.until_revoked(inbox.recv()).await? {
            numbers.extend(request.number.to_be_bytes());
            shard.write(Bytes::copy_from_slice(&numbers)).await?;
            // Whoever has given up is told nothing.
            let _gone = request.answer.send(Ok(()));
        }
        Ok(())
    }
}

impl ShardHandler for Ledger {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        let found = shard.claim().await?;
        let numbers = found.map_or_else(Vec::new, |checkpoint| checkpoint.data.to_vec());
        let index = shard.id().index;
        let mut inbox = self.shared.open(&self.worker, index);
        let kept = Self::keep(&shard, &mut inbox, numbers).await;
        self.shared.close(&self.worker, index);
        inbox.close();
        // What still waits was not done: it is for the next owner.
        while let Some(request) = inbox.recv().await {
            let _gone = request.answer.send(Err(NotOwner::default()));
        }
        Ok(kept?)
    }
}

/// What became of the requests.
#[derive(Default)]
struct Load {
    /// Numbers that were acknowledged, by shard.
    done: BTreeMap<u32, Vec<u32>>,
    failed: Vec<String>,
    latencies: Vec<Duration>,
}

/// Sends requests at a steady pace, to every shard in turn, until it is told to stop.
async fn send_all(dispatcher: Arc<Dispatcher>, shared: Arc<Shared>, stop: Arc<AtomicBool>) -> Load {
    let mut pace = tokio::time::interval(EVERY);
    let mut calls = JoinSet::new();
    let mut load = Load::default();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        for _ in 0..BATCH {
            let (shard, number) = (sent % SHARDS, sent / SHARDS);
            sent += 1;
            let (dispatcher, shared) = (Arc::clone(&dispatcher), Arc::clone(&shared));
            calls.spawn(async move {
                let begun = Instant::now();
                let attempt = |route| shared.attempt(route, number);
                let outcome = dispatcher.call_shard(shard, 4, attempt).await;
                (shard, number, outcome, begun.elapsed())
            });
        }
        while let Some(ended) = calls.try_join_next() {
            load.note(ended);
        }
    }
    while let Some(ended) = calls.join_next().await {
        load.note(ended);
    }
    load
}

type Ended = (
    u32,
    u32,
    Result<(), tenure::DispatchError<String>>,
    Duration,
);

impl Load {
    fn note(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok((shard, number, Ok(()), took)) => {
                self.done.entry(shard).or_default().push(number);
                self.latencies.push(took);
            }
            Ok((shard, number, Err(error), _)) => {
                self.failed.push(format!("{shard}:{number}: {error:?}"));
            }
            Err(error) => self.failed.push(error.to_string()),
        }
    }
}

/// Returns the value that so many in a hundred are not above.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get(last * percent / 100).copied().unwrap_or_default()
}

fn worker(
    stage: &Stage,
    name: &str,
    store: &Arc<MemoryStore>,
    shared: &Arc<Shared>,
) -> Result<WorkerHandle, Failure> {
    let handler = Ledger {
        worker: name.to_owned(),
        shared: Arc::clone(shared),
    };
    let worker = Worker::builder()
        .coordinators(stage.cluster.addresses())
        .group(GROUP)
        .name(name)
        .address(format!("{name}:9000"))
        .store("memory", Arc::<MemoryStore>::clone(store))
        .handler(handler)
        .build()?;
    Ok(worker.spawn())
}

/// Must show 1 of the issue on operations.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_under_load_fails_no_write_and_repeats_none() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, SHARDS, Policy::default(), &[]).await?;
    let (shared, store) = (Arc::new(Shared::default()), Arc::new(MemoryStore::new()));
    let mut workers = Vec::new();
    for name in WORKERS {
        workers.push(worker(&stage, name, &store, &shared)?);
    }
    let before = stage
        .shared_by(&WORKERS, SHARDS as usize / WORKERS.len())
        .await?;
    let router = Router::connect(ConnectionOptions::new(stage.cluster.addresses()), GROUP).await?;
    let options = HoldOptions {
        requests_max: 4_000,
        ..HoldOptions::default()
    };
    let dispatcher = Arc::new(Dispatcher::new(Arc::new(router), options));
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(send_all(dispatcher, Arc::clone(&shared), Arc::clone(&stop)));
    // What moved while the workers came is not measured.
    wait::until("some load", PATIENCE, async || {
        match lock(&shared.closed).len() {
            0 => Ok(()),
            closed => Err(format!("{closed} shards are not served")),
        }
    })
    .await?;
    lock(&shared.unavailable).clear();

    let begun = Instant::now();
    let drained = WORKERS[0];
    let client = stage.cluster.client();
    client
        .set_worker_mode(GROUP, drained, WorkerMode::Draining)
        .await?;
    let after = stage.at_rest().await?;
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut load = load.await?;

    assert!(after.of(drained).is_empty(), "it is drained");
    assert_eq!(load.failed, Vec::<String>::new());
    for shard in 0..SHARDS {
        let resource = format!("shard/{GROUP}/{shard}").parse()?;
        let found = store.read(&resource).await?;
        let data = found.map_or_else(Vec::new, |checkpoint| checkpoint.data.to_vec());
        let kept: Vec<u32> = data
            .chunks_exact(4)
            .filter_map(|number| Some(u32::from_be_bytes(number.try_into().ok()?)))
            .collect();
        let mut done = load.done.remove(&shard).unwrap_or_default();
        done.sort_unstable();
        let mut sorted = kept.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, done, "shard {shard}: each write once");
    }
    let mut unavailable = lock(&shared.unavailable).clone();
    assert_eq!(
        unavailable.len(),
        before.of(drained).len(),
        "each moved once"
    );
    measured(format_args!(
        "drained 1 of {} workers in {took:?} under {} writes: {} shards moved, each unavailable for p50 {:?}, \
         p99 {:?}; writes took p50 {:?}, p99 {:?}, at most {:?}; 0 failed, 0 twice",
        WORKERS.len(),
        load.latencies.len(),
        unavailable.len(),
        percentile(&mut unavailable, 50),
        percentile(&mut unavailable, 99),
        percentile(&mut load.latencies, 50),
        percentile(&mut load.latencies, 99),
        percentile(&mut load.latencies, 100),
    ));
    for worker in workers {
        worker.shutdown().await?;
    }
    stage.end().await
}
