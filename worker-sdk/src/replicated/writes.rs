//! Writes on their way: those that wait at the same time share a request.
//!
//! ```text
//!   write ─▶ waiting ─┬─ a request may go: takes what waits, its own write with it, and sends it
//!                     └─ another took it along: waits for its outcome
//! ```
//!
//! A lone write leaves at once and by itself. While [`REQUESTS_MAX`] requests are under way writes gather,
//! and one request takes them all: many shards cost the coordinators and the network little more than one.
//!
//! # Invariants
//!
//! * Nothing runs in the background: whoever waits for a write sends it. A sender that is given up loses
//!   nothing, because those whose writes it carried send them again; a write is the same however often it
//!   is sent.
//! * Every write is over within the connection's call timeout.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_proto::v1::{WriteManyRequest, WriteOutcome, WriteRequest};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tonic::Code;

use super::client;
use crate::connection::{Answered, CallError, Connection};

/// Requests with several writes that are under way at one time.
const REQUESTS_MAX: usize = 2;

/// Writes in one request.
const WRITES_MAX: usize = 128;

/// Bytes of checkpoints in one request. One that is larger travels by itself.
const BYTES_MAX: usize = 256 << 10;

/// The writes of one store. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Writes {
    connection: Connection,
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    // Never held across an await.
    waiting: Mutex<Waiting>,
    requests: Semaphore,
}

/// Writes that no request has taken yet, in the order in which they came.
#[derive(Debug, Default)]
struct Waiting {
    writes: VecDeque<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    request: WriteRequest,
    outcome: oneshot::Sender<Outcome>,
}

/// What became of a write in the request that carried it.
#[derive(Debug)]
enum Outcome {
    Final(Result<(), CallError>),
    /// Another try may be answered differently, as after a change of the leader.
    Passing(CallError),
}

impl Writes {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            queue: Arc::new(Queue {
                waiting: Mutex::default(),
                requests: Semaphore::new(REQUESTS_MAX),
            }),
        }
    }

    /// Writes one checkpoint.
    pub(super) async fn write(&self, request: WriteRequest) -> Result<(), CallError> {
        let time_is_over = tokio::time::sleep(self.connection.call_timeout());
        let deadline = time_is_over.deadline();
        if request.data.len() > BYTES_MAX {
            return self.alone(request, deadline).await;
        }
        let (outcome, mut decided) = oneshot::channel();
        let number = self.queue.add(request.clone(), outcome);
        tokio::pin!(time_is_over);
        let outcome = loop {
            let place = tokio::select! {
                biased;
                outcome = &mut decided => break outcome,
                place = self.queue.requests.acquire() => place,
                () = &mut time_is_over => return Err(self.late(self.queue.was_taken(number))),
            };
            let batch = self.queue.take_up_to(number);
            if !batch.is_empty() {
                self.send(batch, deadline).await;
                continue;
            }
            // Another request carries it: the place is for the next in line.
            drop(place);
            tokio::select! {
                outcome = &mut decided => break outcome,
                () = &mut time_is_over => return Err(self.late(true)),
            }
        };
        let error = match outcome {
            Ok(Outcome::Final(written)) => return written,
            Ok(Outcome::Passing(error)) => error,
            // Whoever sent it was given up.
            Err(_) => self.late(true),
        };
        let again = self.alone(request, deadline).await;
        again.map_err(|again| again.after(error.may_have_happened()))
    }

    /// Sends what was taken and tells each its outcome.
    async fn send(&self, batch: Vec<Entry>, deadline: Instant) {
        let (requests, waiters): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|entry| (entry.request, entry.outcome))
            .unzip();
        let outcomes = match <[WriteRequest; 1]>::try_from(requests) {
            Ok([request]) => vec![Outcome::Final(self.alone(request, deadline).await)],
            Err(requests) => self.together(requests, deadline).await,
        };
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            // Who does not wait any more is not told.
            drop(waiter.send(outcome));
        }
    }

    async fn alone(&self, request: WriteRequest, deadline: Instant) -> Result<(), CallError> {
        let written = self
            .connection
            .leader_until(deadline, |service| {
                let request = request.clone();
                async move { client(service).write(request).await }
            })
            .await;
        written.map(drop)
    }

    /// Sends several in one request and returns as many outcomes.
    async fn together(&self, writes: Vec<WriteRequest>, deadline: Instant) -> Vec<Outcome> {
        let count = writes.len();
        let request = WriteManyRequest { writes };
        let answered = self
            .connection
            .leader_until(deadline, |service| {
                let request = request.clone();
                async move { client(service).write_many(request).await }
            })
            .await;
        let Answered {
            value,
            earlier_may_have_happened,
        } = match answered {
            Ok(answered) => answered,
            Err(error) => {
                let failed = || Outcome::Final(Err(error.clone()));
                return std::iter::repeat_with(failed).take(count).collect();
            }
        };
        let outcomes = value.outcomes.into_iter();
        let mut outcomes: Vec<Outcome> = outcomes
            .map(|outcome| read(outcome, earlier_may_have_happened))
            .collect();
        outcomes.resize_with(count, || Outcome::Passing(unanswered()));
        outcomes
    }

    fn late(&self, may_have_happened: bool) -> CallError {
        let timeout = self.connection.call_timeout();
        let message = format!("no answer within {timeout:?}");
        CallError::local(Code::DeadlineExceeded, message).after(may_have_happened)
    }
}

impl Queue {
    fn add(&self, request: WriteRequest, outcome: oneshot::Sender<Outcome>) -> u64 {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.writes.push_back(Entry {
            number,
            request,
            outcome,
        });
        number
    }

    fn was_taken(&self, number: u64) -> bool {
        self.waiting().was_taken(number)
    }

    /// Takes what one request carries, from the oldest; nothing if that of this number was taken already.
    fn take_up_to(&self, number: u64) -> Vec<Entry> {
        let mut waiting = self.waiting();
        if waiting.was_taken(number) {
            return Vec::new();
        }
        let mut batch: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        while let Some(entry) = waiting.writes.pop_front() {
            // Who gave it up before it was sent does not want it any more.
            if entry.outcome.is_closed() {
                continue;
            }
            bytes += entry.request.data.len();
            if batch.len() == WRITES_MAX || (bytes > BYTES_MAX && !batch.is_empty()) {
                waiting.writes.push_front(entry);
                break;
            }
            batch.push(entry);
        }
        batch
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Every change leaves it whole, whoever panicked with the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn was_taken(&self, number: u64) -> bool {
        self.writes
            .front()
            .is_none_or(|oldest| oldest.number > number)
    }
}

fn read(outcome: WriteOutcome, earlier_may_have_happened: bool) -> Outcome {
    if outcome.error.is_empty() {
        return Outcome::Final(Ok(()));
    }
    let error = CallError::from_encoded(outcome.error).after(earlier_may_have_happened);
    match error.is_passing() {
        true => Outcome::Passing(error),
        false => Outcome::Final(Err(error)),
    }
}

fn unanswered() -> CallError {
    let message = "the coordinator answered too few writes";
    CallError::local(Code::Internal, message.to_owned()).after(true)
}
