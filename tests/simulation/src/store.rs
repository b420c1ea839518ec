//! A fenced store outside of the coordinators, shared by all workers: requests travel to it and answers
//! back, either can be lost, and what a dead or paused worker has sent still arrives.
//!
//! It keeps an account of its own of what it has accepted, and checks what the fence's rules answer
//! against that (P2, P3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tenure::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, MemoryStore,
    Owner, Resource, Write, WriteId,
};
use tokio::sync::oneshot;

use crate::dice::Dice;

/// How long a worker waits for an answer.
const ANSWER_MAX: Duration = Duration::from_millis(800);

type Answer = Result<Option<Checkpoint>, CheckpointError>;

enum Request {
    Seal(FencingToken),
    Write(FencingToken, Write),
    Delete(FencingToken, Deletion),
    Read(Resource),
}

struct OnItsWay {
    request: Request,
    /// `None` if the answer is lost.
    reply: Option<oneshot::Sender<Answer>>,
    back_ns: u64,
}

struct Replied {
    answer: Answer,
    reply: oneshot::Sender<Answer>,
}

/// The store and everything that travels.
pub struct SharedStore {
    state: Mutex<State>,
}

struct State {
    now_ns: u64,
    number: u64,
    requests: BTreeMap<(u64, u64), OnItsWay>,
    replies: BTreeMap<(u64, u64), Replied>,
    store: MemoryStore,
    accounts: BTreeMap<Resource, Account>,
    complaints: Vec<String>,
    /// Until when requests are lost, in nanoseconds of true time.
    out_until_ns: u64,
    refused: u64,
    dice: Dice,
}

/// What the store has done for one resource, by its own account.
#[derive(Default)]
struct Account {
    sealed: Option<(Epoch, Owner)>,
    accepted: Option<Accepted>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Accepted {
    epoch: Epoch,
    write_id: WriteId,
    deleted: bool,
}

impl SharedStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(dice: Dice) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                now_ns: 0,
                number: 0,
                requests: BTreeMap::new(),
                replies: BTreeMap::new(),
                store: MemoryStore::new(),
                accounts: BTreeMap::new(),
                complaints: Vec::new(),
                out_until_ns: 0,
                refused: 0,
                dice,
            }),
        })
    }

    /// Loses all requests until a moment, in nanoseconds of true time.
    pub fn fail_until(&self, moment_ns: u64) {
        let mut state = self.state();
        state.out_until_ns = state.out_until_ns.max(moment_ns);
    }

    /// Ends every failure.
    pub fn heal(&self) {
        self.state().out_until_ns = 0;
    }

    /// Does what is due by now, in nanoseconds of true time, and returns what broke a promise.
    pub fn step(&self, now_ns: u64) -> Vec<String> {
        let mut state = self.state();
        state.now_ns = now_ns;
        while let Some(entry) = state.requests.first_entry()
            && entry.key().0 <= now_ns
        {
            let OnItsWay {
                request,
                reply,
                back_ns,
            } = entry.remove();
            let answer = state.serve(request);
            if let Some(reply) = reply {
                let key = (now_ns + back_ns, state.next());
                state.replies.insert(key, Replied { answer, reply });
            }
        }
        while let Some(entry) = state.replies.first_entry()
            && entry.key().0 <= now_ns
        {
            let Replied { answer, reply } = entry.remove();
            // Who asked may have died meanwhile.
            let _gone = reply.send(answer);
        }
        std::mem::take(&mut state.complaints)
    }

    /// Returns how many writes were refused because their tenure was over.
    pub fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Returns what is stored.
    ///
    /// # Errors
    ///
    /// Never: it is in memory.
    pub fn look(&self, resource: &Resource) -> Answer {
        self.state().serve(Request::Read(resource.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. The receiver is dropped at once where nothing will ever come back.
    fn send(&self, request: Request) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        let lost_there = state.now_ns < state.out_until_ns || state.dice.chance(5);
        let lost_back = state.dice.chance(10);
        // Most are quick; some hang on their way while their sender may be given up.
        let slow = state.dice.chance(15);
        let there = state.dice.millis(if slow { 500..=4_000 } else { 1..=20 });
        let back = state.dice.millis(1..=20);
        let key = (state.now_ns + nanos(there), state.next());
        let reply = (!lost_back).then_some(reply);
        if !lost_there {
            let back_ns = nanos(back);
            state.requests.insert(
                key,
                OnItsWay {
                    request,
                    reply,
                    back_ns,
                },
            );
        }
        answer
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn at_once(answer: impl Future<Output = Answer>) -> Answer {
    answer.now_or_never().unwrap_or_else(|| {
        Err(CheckpointError::Unavailable {
            source: "a store in memory was not ready".into(),
        })
    })
}

impl State {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn serve(&mut self, request: Request) -> Answer {
        match request {
            Request::Seal(token) => {
                let answer = at_once(self.store.seal(&token));
                if let Ok(found) = &answer {
                    self.sealed(&token, found.as_ref());
                }
                answer
            }
            Request::Write(token, write) => {
                let id = write.write_id;
                let answer = self.store.write(&token, write);
                let answer = at_once(answer.map(|done| done.map(|()| None)));
                self.judged(&token, id, false, &answer);
                answer
            }
            Request::Delete(token, deletion) => {
                let id = deletion.write_id;
                let answer = self.store.delete(&token, deletion);
                let answer = at_once(answer.map(|done| done.map(|()| None)));
                self.judged(&token, id, true, &answer);
                answer
            }
            Request::Read(resource) => at_once(self.store.read(&resource)),
        }
    }

    fn sealed(&mut self, token: &FencingToken, found: Option<&Checkpoint>) {
        tracing::debug!(target: "simulation", %token, "shared store sealed");
        let account = self.accounts.entry(token.resource.clone()).or_default();
        let (epoch, owner) = (token.epoch, token.owner);
        match account.sealed {
            Some(sealed) if sealed > (epoch, owner) || (sealed.0 == epoch && sealed.1 != owner) => {
                self.complaints
                    .push(format!("P2: {token} sealed below {}", sealed.0));
            }
            _ => account.sealed = Some((epoch, owner)),
        }
        let expected = account
            .accepted
            .filter(|accepted| !accepted.deleted)
            .map(|accepted| accepted.write_id);
        if found.map(|found| found.write_id) != expected {
            self.complaints.push(format!(
                "P3: the seal of {token} returned {found:?}, accepted last was {expected:?}"
            ));
        }
    }

    fn judged(&mut self, token: &FencingToken, id: WriteId, deleted: bool, answer: &Answer) {
        match answer {
            Ok(_) => {}
            Err(CheckpointError::Fenced { .. } | CheckpointError::EpochConflict { .. }) => {
                tracing::debug!(target: "simulation", %token, "shared store refused a write");
                self.refused += 1;
                return;
            }
            Err(_) => return,
        }
        let account = self.accounts.entry(token.resource.clone()).or_default();
        if account.sealed != Some((token.epoch, token.owner)) {
            self.complaints.push(format!(
                "P2: a write of {token} was accepted, sealed is {:?}",
                account.sealed
            ));
        }
        account.accepted = Some(Accepted {
            epoch: token.epoch,
            write_id: id,
            deleted,
        });
    }
}

/// A worker's way to the shared store.
pub struct StoreClient {
    store: Arc<SharedStore>,
}

impl StoreClient {
    /// Creates one.
    #[must_use]
    pub fn new(store: Arc<SharedStore>) -> Self {
        Self { store }
    }

    async fn ask(&self, request: Request, changes: bool) -> Answer {
        let asked = tokio::time::timeout(ANSWER_MAX, self.store.send(request)).await;
        match asked {
            Ok(Ok(answer)) => answer,
            _ if changes => Err(CheckpointError::OutcomeUnknown {
                source: "no answer".into(),
            }),
            _ => Err(CheckpointError::Unavailable {
                source: "no answer".into(),
            }),
        }
    }
}

impl fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClient").finish_non_exhaustive()
    }
}

#[async_trait]
impl CheckpointStore for StoreClient {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        // A seal may be repeated by its owner, so one that is not answered simply did not happen yet.
        self.ask(Request::Seal(token.clone()), false).await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        self.ask(Request::Write(token.clone(), write), true)
            .await
            .map(|_| ())
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        self.ask(Request::Read(resource.clone()), false).await
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        self.ask(Request::Delete(token.clone(), deletion), true)
            .await
            .map(|_| ())
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn max_value_bytes(&self) -> usize {
        1 << 20
    }
}
