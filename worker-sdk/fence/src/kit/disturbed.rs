//! A store whose calls are paused, lose their answers, or come late.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use tokio::task::JoinHandle;

use crate::admission::Fence;
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::random::Random;

/// How often a [`DisturbedStore`] disturbs a call. Zero is never, one is always.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbances {
    /// Each time a call waits for something, it lets other tasks go first up to this many times more:
    /// so it is stopped for a while at every point at which it can be stopped.
    pub pauses_max: u64,
    /// One call in so many is not made at all: it ends in [`CheckpointError::Unavailable`].
    pub refused_one_in: u64,
    /// One call in so many is made, and its answer is lost: [`CheckpointError::OutcomeUnknown`].
    pub lost_one_in: u64,
    /// One call in so many is answered with [`CheckpointError::OutcomeUnknown`] at once, and made
    /// later, beside whatever follows it.
    pub late_one_in: u64,
}

/// A store behind a network that misbehaves, as its callers would meet it.
///
/// The kit drives the store it checks through one; an owner's own code can be tested with it too. It
/// disturbs seals, writes and deletions; reads are only paused.
pub struct DisturbedStore {
    inner: Arc<dyn CheckpointStore>,
    disturbances: Disturbances,
    random: Mutex<Random>,
    /// Calls that are still to come.
    late: Mutex<VecDeque<JoinHandle<()>>>,
}

/// What happens to one call.
enum Fate {
    Made,
    Refused,
    Lost,
    Late,
}

impl DisturbedStore {
    /// Puts disturbances between callers and a store. The same seed makes the same choices.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStore>, disturbances: Disturbances, seed: u64) -> Self {
        Self {
            inner,
            disturbances,
            random: Mutex::new(Random::new(seed)),
            late: Mutex::default(),
        }
    }

    /// Waits until every call that was to come late has come.
    ///
    /// # Panics
    ///
    /// When one of them panicked.
    pub async fn settled(&self) {
        loop {
            let next = locked(&self.late).pop_front();
            let Some(late) = next else { return };
            if let Err(error) = late.await {
                panic!("a late call did not end: {error}");
            }
        }
    }

    fn fate(&self) -> Fate {
        let mut random = locked(&self.random);
        let mut drawn = |one_in: u64| one_in > 0 && random.below(one_in) == 0;
        if drawn(self.disturbances.refused_one_in) {
            return Fate::Refused;
        }
        if drawn(self.disturbances.lost_one_in) {
            return Fate::Lost;
        }
        if drawn(self.disturbances.late_one_in) {
            return Fate::Late;
        }
        Fate::Made
    }

    /// Makes a call, or does not, as chance has it.
    async fn disturbed<T, F>(&self, call: F) -> Result<T, CheckpointError>
    where
        F: Future<Output = Result<T, CheckpointError>> + Send + 'static,
        T: Send,
    {
        let pauses = self.pauses();
        match self.fate() {
            Fate::Made => paused(call, pauses).await,
            Fate::Refused => Err(CheckpointError::Unavailable {
                source: "disturbed: the call was not made".into(),
            }),
            Fate::Lost => {
                // Also a refusal is lost: nobody can tell the two apart.
                let _lost = paused(call, pauses).await.is_ok();
                Err(unknown("disturbed: the answer was lost"))
            }
            Fate::Late => {
                let call = async move {
                    let _unheard = paused(call, pauses).await.is_ok();
                };
                locked(&self.late).push_back(tokio::spawn(call));
                Err(unknown("disturbed: the call comes late"))
            }
        }
    }

    /// Draws the pauses of one call.
    fn pauses(&self) -> Pauses {
        Pauses {
            random: Random::new(locked(&self.random).number()),
            each_max: self.disturbances.pauses_max,
        }
    }
}

/// How often one call lets others go first, at each point at which it waits.
struct Pauses {
    random: Random,
    each_max: u64,
}

impl Pauses {
    fn next(&mut self) -> u64 {
        self.random.below(self.each_max + 1)
    }
}

/// Drives a call, which is stopped for a while before it begins and whenever it has waited.
async fn paused<F: Future>(call: F, mut pauses: Pauses) -> F::Output {
    let mut call = pin!(call);
    let mut left = pauses.next();
    poll_fn(move |context: &mut Context<'_>| {
        if left > 0 {
            left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = call.as_mut().poll(context);
        if polled.is_pending() {
            left = pauses.next();
        }
        polled
    })
    .await
}

fn unknown(what: &'static str) -> CheckpointError {
    CheckpointError::OutcomeUnknown {
        source: what.into(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl CheckpointStore for DisturbedStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let (store, token) = (Arc::clone(&self.inner), token.clone());
        self.disturbed(async move { store.seal(&token).await })
            .await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        let (store, token) = (Arc::clone(&self.inner), token.clone());
        self.disturbed(async move { store.write(&token, write).await })
            .await
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let (store, token) = (Arc::clone(&self.inner), token.clone());
        self.disturbed(async move { store.delete(&token, deletion).await })
            .await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        paused(self.inner.read(resource), self.pauses()).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        paused(self.inner.fence(resource), self.pauses()).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.inner.probe().await
    }

    fn max_value_bytes(&self) -> usize {
        self.inner.max_value_bytes()
    }
}
