//! The stores attached to a worker, and the tasks that seal many shards in one call.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tenure_fence::{Checkpoint, CheckpointError, CheckpointStore, FencingToken};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Most shards in one call of [`CheckpointStore::seal_many`]: what the replicated store takes.
const BATCH_MAX: usize = 1_000;

/// Most calls to one store at a time. More than one, so that a single shard that is handed over does
/// not wait behind a slow batch; few, because while they are busy the next batch grows.
const FLIGHTS_MAX: usize = 4;

/// Seals that wait for a batch. A claim beyond it waits until there is room.
const WAITING_MAX: usize = 4 * BATCH_MAX;

/// What a seal answers.
type Sealed = Result<Option<Checkpoint>, CheckpointError>;

/// One seal on its way into a batch.
struct Request {
    token: FencingToken,
    answer: oneshot::Sender<Sealed>,
}

/// A store under the name by which handlers and the coordinator know it.
pub(crate) struct AttachedStore {
    /// The name.
    pub(crate) name: String,
    /// The store. Handles call it directly for everything but seals.
    pub(crate) store: Arc<dyn CheckpointStore>,
    seals: mpsc::Sender<Request>,
}

/// All stores of a worker. The first is the default one.
pub(crate) struct Stores {
    attached: Vec<AttachedStore>,
}

impl Stores {
    /// Attaches stores and starts a sealing task for each on `tasks`; they end at `stop`.
    pub(crate) fn attach(
        stores: Vec<(String, Arc<dyn CheckpointStore>)>,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> Self {
        let mut attached = Vec::with_capacity(stores.len());
        for (name, store) in stores {
            let (seals, requests) = mpsc::channel(WAITING_MAX);
            let sealing = seal_in_batches(Arc::clone(&store), requests);
            tasks.spawn(stop.clone().run_until_cancelled_owned(sealing).map_unit());
            attached.push(AttachedStore { name, store, seals });
        }
        Self { attached }
    }

    /// Returns the stores, the default one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AttachedStore> {
        self.attached.iter()
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.attached.len()
    }

    /// Returns a store by its position.
    pub(crate) fn at(&self, position: usize) -> Option<&AttachedStore> {
        self.attached.get(position)
    }

    /// Returns the position of a store.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.attached
            .iter()
            .position(|attached| attached.name == name)
    }

    /// Returns the names, the default store's first.
    pub(crate) fn names(&self) -> Vec<String> {
        self.attached
            .iter()
            .map(|attached| attached.name.clone())
            .collect()
    }
}

impl AttachedStore {
    /// Seals through the store's task, together with whatever else is to be sealed.
    pub(crate) async fn seal(&self, token: FencingToken) -> Sealed {
        let stopped = || CheckpointError::Unavailable {
            source: "the worker has stopped".into(),
        };
        let (answer, answered) = oneshot::channel();
        self.seals
            .send(Request { token, answer })
            .await
            .map_err(|_| stopped())?;
        // It may have been on its way when the task ended.
        answered.await.unwrap_or_else(|_| Err(stopped().in_doubt()))
    }
}

/// Drops the output of a future.
trait MapUnit: Future + Sized {
    /// Returns the future without its output.
    async fn map_unit(self) {
        let _output = self.await;
    }
}

impl<F: Future> MapUnit for F {}

/// Collects seals while earlier ones are under way, and seals them in one call.
async fn seal_in_batches(store: Arc<dyn CheckpointStore>, mut requests: mpsc::Receiver<Request>) {
    let mut waiting: Vec<Request> = Vec::new();
    let mut flights: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let mut open = true;
    loop {
        let room = BATCH_MAX.saturating_sub(waiting.len());
        tokio::select! {
            received = requests.recv_many(&mut waiting, room), if open && room > 0 => {
                open = received > 0;
                // The runtime lets a task receive only so many at a time; what is there is taken
                // all the same, so that it goes in one call.
                while waiting.len() < BATCH_MAX
                    && let Ok(request) = requests.try_recv()
                {
                    waiting.push(request);
                }
            }
            Some(()) = flights.next(), if !flights.is_empty() => {}
            else => return,
        }
        while flights.len() < FLIGHTS_MAX && !waiting.is_empty() {
            let batch = next_batch(&mut waiting);
            flights.push(Box::pin(seal_batch(Arc::clone(&store), batch)));
        }
    }
}

/// Takes the requests of one batch: each resource once, the rest stays for the next.
fn next_batch(waiting: &mut Vec<Request>) -> Vec<Request> {
    let mut resources = BTreeSet::new();
    let (batch, rest) = mem::take(waiting)
        .into_iter()
        .partition(|request: &Request| resources.insert(request.token.resource.clone()));
    *waiting = rest;
    batch
}

async fn seal_batch(store: Arc<dyn CheckpointStore>, batch: Vec<Request>) {
    let tokens: Vec<FencingToken> = batch.iter().map(|request| request.token.clone()).collect();
    let mut answers = store.seal_many(&tokens).await.into_iter();
    for request in batch {
        // A store that answers too little has not said what became of the rest.
        let answer = answers.next().unwrap_or_else(|| {
            Err(CheckpointError::OutcomeUnknown {
                source: "the store did not answer".into(),
            })
        });
        // Whoever asked may have given up.
        let _given_up = request.answer.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tenure_fence::{Deletion, MemoryStore, Resource, Write};
    use tokio::sync::Semaphore;

    use super::*;

    /// A store that counts its batches and seals only when it is let.
    struct Gated {
        store: MemoryStore,
        gate: Semaphore,
        batches: Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl CheckpointStore for Gated {
        async fn seal(&self, token: &FencingToken) -> Sealed {
            self.store.seal(token).await
        }

        async fn seal_many(&self, tokens: &[FencingToken]) -> Vec<Sealed> {
            self.batches.lock().unwrap().push(tokens.len());
            self.gate.acquire().await.unwrap().forget();
            self.store.seal_many(tokens).await
        }

        async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
            self.store.write(token, write).await
        }

        async fn read(&self, resource: &Resource) -> Sealed {
            self.store.read(resource).await
        }

        async fn delete(
            &self,
            token: &FencingToken,
            deletion: Deletion,
        ) -> Result<(), CheckpointError> {
            self.store.delete(token, deletion).await
        }

        async fn probe(&self) -> Result<(), CheckpointError> {
            Ok(())
        }

        fn max_value_bytes(&self) -> usize {
            self.store.max_value_bytes()
        }
    }

    fn token(shard: usize, epoch: u64) -> FencingToken {
        format!("shard/orders/{shard}@{epoch}:{}/5", "0".repeat(32))
            .parse()
            .unwrap()
    }

    struct Attached {
        store: Arc<Gated>,
        stores: Stores,
        tasks: JoinSet<()>,
        stop: CancellationToken,
    }

    fn attach() -> Attached {
        let gate = Semaphore::new(0);
        let store = Arc::new(Gated {
            store: MemoryStore::new(),
            gate,
            batches: Mutex::default(),
        });
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let named: (String, Arc<dyn CheckpointStore>) = ("gated".into(), store.clone());
        let stores = Stores::attach(vec![named], &mut tasks, &stop);
        Attached {
            store,
            stores,
            tasks,
            stop,
        }
    }

    #[tokio::test]
    async fn seals_that_come_together_go_in_few_calls_and_each_gets_its_answer() {
        let Attached {
            store,
            stores,
            mut tasks,
            stop,
        } = attach();
        let attached = stores.at(0).unwrap();
        let seals =
            futures::future::join_all((0..3_000).map(|shard| attached.seal(token(shard, 1))));
        let open = async {
            // On the one thread of this test everything has come as far as it can when nothing has
            // moved for so many turns.
            let flown = || store.batches.lock().unwrap().len();
            let (mut before, mut turns) = ((0, 0), 0);
            while turns < 100 {
                tokio::task::yield_now().await;
                let now = (flown(), attached.seals.capacity());
                turns = if now == before { turns + 1 } else { 0 };
                before = now;
            }
            store.gate.add_permits(1_000);
        };
        let (answers, ()) = futures::join!(seals, open);
        assert!(answers.iter().all(|answer| matches!(answer, Ok(None))));
        let batches = store.batches.lock().unwrap().clone();
        assert_eq!(batches.iter().sum::<usize>(), 3_000);
        assert!(
            batches.len() <= 8 && batches.iter().all(|&size| size <= BATCH_MAX),
            "{batches:?}"
        );
        stop.cancel();
        assert!(tasks.join_next().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn one_shard_is_never_twice_in_a_batch() {
        let (answer, _) = oneshot::channel();
        let (other, _) = oneshot::channel();
        let (third, _) = oneshot::channel();
        let mut waiting = vec![
            Request {
                token: token(1, 7),
                answer,
            },
            Request {
                token: token(1, 8),
                answer: other,
            },
            Request {
                token: token(2, 1),
                answer: third,
            },
        ];
        let batch = next_batch(&mut waiting);
        assert_eq!(batch.len(), 2);
        assert_eq!(waiting[0].token, token(1, 8));
        assert_eq!(next_batch(&mut waiting).len(), 1);
        assert!(waiting.is_empty());
    }

    #[tokio::test]
    async fn a_seal_of_a_stopped_worker_is_answered() {
        let Attached {
            stores,
            mut tasks,
            stop,
            ..
        } = attach();
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
        let sealed = stores.at(0).unwrap().seal(token(1, 1)).await;
        assert!(matches!(sealed, Err(CheckpointError::Unavailable { .. })));
    }
}
