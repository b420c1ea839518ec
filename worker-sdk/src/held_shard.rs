//! The handle of one tenure of one shard: the only way to write.

mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{self, Either};
use tenure_fence::{Checkpoint, CheckpointError, Epoch, FencingToken, Resource, ShardRef};
use tokio::sync::{Mutex, mpsc, watch};

use self::writer::Writer;
use crate::backoff::Backoff;
use crate::clock::{Clock, Moment};
use crate::connection::Connection;
use crate::error::{LostReason, ShardError};
use crate::load::Loads;
use crate::session::belief::BeliefView;
use crate::session::tenure::TenureId;
use crate::status::{RefusedWrite, Tally};
use crate::stores::{AttachedStore, Stores};
use crate::token_checker;

/// Where a tenure stands, as its handle sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleState {
    /// The shard is held.
    Held,
    /// The shard is to be given back: write a last checkpoint and return.
    Revoked,
    /// The handle is dead.
    Lost(LostReason),
}

/// What a store answered to a call that was made until it said something definite.
struct Repeated<T> {
    answer: Result<T, CheckpointError>,
    /// A try before the last one may have been carried out.
    may_have_happened: bool,
}

/// What a handle tells the session.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) shard: u32,
    pub(crate) epoch: Epoch,
    pub(crate) kind: ReportKind,
}

#[derive(Debug)]
pub(crate) enum ReportKind {
    /// All stores are sealed and read.
    Claimed,
    /// The handle died of what a store said.
    Dead(LostReason),
}

/// What all handles of a worker share.
pub(crate) struct HandleContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) belief: Arc<BeliefView>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) connection: Connection,
    pub(crate) tally: Arc<Tally>,
    pub(crate) loads: Loads,
    /// How long a call on a store is repeated before its failure is reported to the handler.
    pub(crate) store_timeout: Duration,
    pub(crate) reports: mpsc::Sender<Report>,
}

/// One tenure of one shard. Only the SDK makes one, and without it nothing can be written.
///
/// Seal first, read second, write third: [`claim`](Self::claim) does the first two, and what is
/// written before it is refused. Every write carries the tenure's token; when a store answers that a
/// newer tenure has begun, the handle is dead for ever, on this machine and without asking anybody.
///
/// Clones are the same handle: what ends one ends all, and returning from the handler ends it.
#[derive(Clone)]
pub struct HeldShard {
    inner: Arc<Inner>,
}

struct Inner {
    token: FencingToken,
    shard: ShardRef,
    /// Per store, by name, the highest epoch it was ever reported ready at.
    recorded: BTreeMap<String, Epoch>,
    context: Arc<HandleContext>,
    state: watch::Sender<HandleState>,
    /// Nanoseconds of the moment at which the time to drain is over.
    drain_until: AtomicU64,
    /// One for each store, in their order. Held across the store's calls: one change at a time.
    writers: Vec<Mutex<Writer>>,
}

impl HeldShard {
    pub(crate) fn new(
        token: FencingToken,
        shard: ShardRef,
        recorded: BTreeMap<String, Epoch>,
        context: Arc<HandleContext>,
    ) -> Self {
        let writers = context.stores.iter().map(|_| Mutex::default()).collect();
        let state = watch::Sender::new(HandleState::Held);
        let drain_until = AtomicU64::new(Moment::NEVER.as_nanos());
        let inner = Inner {
            token,
            shard,
            recorded,
            context,
            state,
            drain_until,
            writers,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns which shard it is.
    #[must_use]
    pub fn id(&self) -> &ShardRef {
        &self.inner.shard
    }

    /// Returns the number of this tenure.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.token.epoch
    }

    /// Returns the token, for a resource of one's own that checks tokens.
    #[must_use]
    pub fn token(&self) -> &FencingToken {
        &self.inner.token
    }

    /// Seals every attached store, then returns the latest checkpoint of the default one.
    ///
    /// What it returns is the last write of all earlier tenures: none of them can land any more. When
    /// it has returned the shard is reported ready and served. It may be called again.
    ///
    /// # Errors
    ///
    /// [`ShardError::Lost`] when the tenure is over, or a store is ahead of it or fell back;
    /// [`ShardError::Store`] when a store cannot be sealed or read.
    pub async fn claim(&self) -> Result<Option<Checkpoint>, ShardError> {
        let mut found = self.seal_all().await?;
        if found.is_empty() {
            return Ok(None);
        }
        Ok(found.swap_remove(0))
    }

    /// Seals every attached store, then returns the latest checkpoint of each, by name.
    ///
    /// # Errors
    ///
    /// Like [`claim`](Self::claim).
    pub async fn claim_all(&self) -> Result<BTreeMap<String, Option<Checkpoint>>, ShardError> {
        let found = self.seal_all().await?;
        Ok(self
            .inner
            .context
            .stores
            .names()
            .into_iter()
            .zip(found)
            .collect())
    }

    /// Replaces the checkpoint in the default store.
    ///
    /// A store that does not answer is asked again, with the very same write, until the builder's
    /// `store_timeout` is over. One write or deletion at a time: a second one waits for the first.
    ///
    /// # Errors
    ///
    /// [`ShardError::Lost`] when the handle is dead: stop working. [`ShardError::NotClaimed`].
    /// [`ShardError::Store`] otherwise; in particular with [`CheckpointError::OutcomeUnknown`] the
    /// write may have landed or may still land. Then the same bytes are the retry of it, and other
    /// bytes go on above it.
    pub async fn write(&self, data: impl Into<Bytes>) -> Result<(), ShardError> {
        self.write_at(0, data.into()).await
    }

    /// Replaces the checkpoint in the store of that name.
    ///
    /// # Errors
    ///
    /// Like [`write`](Self::write), and [`ShardError::UnknownStore`].
    pub async fn write_to(&self, store: &str, data: impl Into<Bytes>) -> Result<(), ShardError> {
        self.write_at(self.position(store)?, data.into()).await
    }

    /// Deletes the checkpoint in the default store, whichever tenure wrote it: the next claim finds
    /// none. Where there is none it succeeds.
    ///
    /// To the store it is a write whose content is nothing, and it is repeated and waits its turn as
    /// [`write`](Self::write) does.
    ///
    /// # Errors
    ///
    /// Like [`write`](Self::write). With [`CheckpointError::OutcomeUnknown`] a second deletion is the
    /// retry of the first; a write goes on above it, and the deletion can never remove it.
    pub async fn delete(&self) -> Result<(), ShardError> {
        self.change_at(0, None).await
    }

    /// Deletes the checkpoint in the store of that name; otherwise like [`delete`](Self::delete).
    ///
    /// # Errors
    ///
    /// Like [`delete`](Self::delete), and [`ShardError::UnknownStore`].
    pub async fn delete_from(&self, store: &str) -> Result<(), ShardError> {
        self.change_at(self.position(store)?, None).await
    }

    /// Reads the latest checkpoint of the default store to answer from it, as its exclusive owner.
    ///
    /// It checks after reading that no other worker can have become the owner meanwhile.
    ///
    /// # Errors
    ///
    /// [`ShardError::AtRisk`] when that cannot be said, [`ShardError::Lost`], [`ShardError::Store`].
    pub async fn read(&self) -> Result<Option<Checkpoint>, ShardError> {
        self.read_at(0).await
    }

    /// Reads the latest checkpoint of the store of that name; otherwise like [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// Like [`read`](Self::read), and [`ShardError::UnknownStore`].
    pub async fn read_from(&self, store: &str) -> Result<Option<Checkpoint>, ShardError> {
        self.read_at(self.position(store)?).await
    }

    /// Runs a read of one's own, then checks that no other worker can have become the owner
    /// meanwhile: what it returns may be answered.
    ///
    /// # Errors
    ///
    /// [`ShardError::AtRisk`] and [`ShardError::Lost`].
    pub async fn exclusively<F: Future>(&self, read: F) -> Result<F::Output, ShardError> {
        let answer = read.await;
        self.require_current()?;
        Ok(answer)
    }

    /// Reports how much load the shard is, in a unit that all workers of the group share: requests a second,
    /// bytes, anything that adds up.
    ///
    /// What was reported last goes to the coordinator about every second, and counts until something else is
    /// reported; of a handle that is dead nothing is sent. A group whose policy has `balance_by=load` evens
    /// it out among its workers, any other ignores it. Returns at once and never fails.
    pub fn report_load(&self, load: u64) {
        let tenure = TenureId {
            shard: self.inner.shard.index,
            epoch: self.inner.token.epoch,
        };
        self.inner.context.loads.report(tenure, load);
    }

    /// Returns whether no other worker can own the shard at this moment.
    ///
    /// To be called *after* reading and before answering. It asks nobody: it is false while no
    /// heartbeat has been acknowledged lately, although writes may go on.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.require_current().is_ok()
    }

    /// Asks the coordinator whether the tenure is current, after a round that a quorum answered.
    ///
    /// For a resource that cannot check a token itself. The answer is true of a moment between the
    /// call and its return.
    ///
    /// # Errors
    ///
    /// [`ShardError::Coordinator`] when no leader with a quorum answers, [`ShardError::Lost`].
    pub async fn verify(&self) -> Result<bool, ShardError> {
        self.require_alive()?;
        let answer = token_checker::check(&self.inner.context.connection, &self.inner.token)
            .await
            .map_err(ShardError::Coordinator)?;
        Ok(answer.current)
    }

    /// Returns where the tenure stands.
    #[must_use]
    pub fn state(&self) -> HandleState {
        // Looks at the clock first, so that a tenure is never reported held past its deadlines.
        let _alive = self.require_alive();
        self.inner.state.borrow().clone()
    }

    /// Resolves when the shard is to be given back, or is lost.
    pub async fn revoked(&self) {
        let mut state = self.inner.state.subscribe();
        // The sender lives as long as this handle.
        let _revoked = state.wait_for(|state| *state != HandleState::Held).await;
    }

    /// Resolves when the handle is dead, with the reason.
    pub async fn lost(&self) -> LostReason {
        let mut state = self.inner.state.subscribe();
        let lost = state
            .wait_for(|state| matches!(state, HandleState::Lost(_)))
            .await;
        match lost.as_deref() {
            Ok(HandleState::Lost(reason)) => reason.clone(),
            _ => LostReason::Stopped,
        }
    }

    /// Waits for a future, or for the shard to be revoked: then `None`, and the future is dropped.
    ///
    /// # Errors
    ///
    /// [`ShardError::Lost`] when the handle is dead.
    pub async fn until_revoked<F: Future>(
        &self,
        future: F,
    ) -> Result<Option<F::Output>, ShardError> {
        let revoked = std::pin::pin!(self.revoked());
        let future = std::pin::pin!(future);
        // Revoked first: a future that is always ready must not keep the shard for ever.
        let output = match future::select(revoked, future).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        };
        self.require_alive()?;
        Ok(output)
    }

    /// Ends the handle. The first reason stays.
    pub(crate) fn kill(&self, reason: LostReason) {
        self.inner.state.send_if_modified(|state| {
            if matches!(state, HandleState::Lost(_)) {
                return false;
            }
            *state = HandleState::Lost(reason);
            true
        });
    }

    /// Asks for the shard back. At `until` the handle dies, whatever the handler does; a later
    /// deadline than an earlier one's changes nothing.
    pub(crate) fn revoke(&self, until: Moment) {
        self.inner
            .drain_until
            .fetch_min(until.as_nanos(), Ordering::AcqRel);
        self.inner.state.send_if_modified(|state| {
            let held = *state == HandleState::Held;
            if held {
                *state = HandleState::Revoked;
            }
            held
        });
    }

    /// Fails if the handle is dead, and lets it die if its time is over: at this very moment, whether
    /// or not any task of the session has run.
    fn require_alive(&self) -> Result<(), ShardError> {
        let now = self.inner.context.clock.now();
        if now.as_nanos() >= self.inner.drain_until.load(Ordering::Acquire) {
            self.kill(LostReason::DrainDeadline);
        }
        if !self.inner.context.belief.is_leased(now) {
            self.kill(LostReason::LeaseEnded);
        }
        match &*self.inner.state.borrow() {
            HandleState::Lost(reason) => Err(ShardError::Lost(reason.clone())),
            HandleState::Held | HandleState::Revoked => Ok(()),
        }
    }

    fn require_current(&self) -> Result<(), ShardError> {
        self.require_alive()?;
        if self
            .inner
            .context
            .belief
            .is_current(self.inner.context.clock.now())
        {
            return Ok(());
        }
        Err(ShardError::AtRisk)
    }

    fn position(&self, store: &str) -> Result<usize, ShardError> {
        let position = self.inner.context.stores.position(store);
        position.ok_or_else(|| ShardError::UnknownStore {
            store: store.to_owned(),
        })
    }

    fn store(&self, position: usize) -> Result<(&AttachedStore, &Mutex<Writer>), ShardError> {
        let attached = self.inner.context.stores.at(position);
        attached
            .zip(self.inner.writers.get(position))
            .ok_or_else(|| ShardError::UnknownStore {
                store: String::new(),
            })
    }

    async fn seal_all(&self) -> Result<Vec<Option<Checkpoint>>, ShardError> {
        let positions = 0..self.inner.context.stores.len();
        let found = future::try_join_all(positions.map(|position| self.seal_at(position))).await?;
        self.require_alive()?;
        self.report(ReportKind::Claimed).await;
        Ok(found)
    }

    async fn seal_at(&self, position: usize) -> Result<Option<Checkpoint>, ShardError> {
        let (attached, writer) = self.store(position)?;
        let mut writer = writer.lock().await;
        self.require_not_regressed(attached).await?;
        let sealed = self
            .repeated(|| attached.seal(self.inner.token.clone()))
            .await?;
        match sealed.answer {
            Ok(found) => {
                writer.claim(self.epoch(), found.as_ref());
                Ok(found)
            }
            // What was granted is below what the store has seen: only a higher grant can open it.
            Err(CheckpointError::Fenced { current, .. }) if current > self.epoch() => {
                let store = attached.name.clone();
                Err(self
                    .die(LostReason::StoreAhead {
                        store,
                        fence: current,
                    })
                    .await)
            }
            Err(error) => Err(self.failed(attached, error).await),
        }
    }

    /// Refuses a store whose fence is below what was once reported ready with it: it was restored to
    /// an older state, and its data with it. Fences only rise, so reading it before the seal is early
    /// enough.
    async fn require_not_regressed(&self, attached: &AttachedStore) -> Result<(), ShardError> {
        let Some(&recorded) = self.inner.recorded.get(&attached.name) else {
            return Ok(());
        };
        let resource = &self.inner.token.resource;
        let fence = self.repeated(|| attached.store.fence(resource)).await?;
        let fence = match fence.answer {
            Ok(fence) => fence,
            // The store keeps fences but cannot show them.
            Err(CheckpointError::Unsupported { .. }) => return Ok(()),
            Err(error) => return Err(self.failed(attached, error).await),
        };
        let found = fence.map_or(0, |fence| fence.epoch.get());
        if found >= recorded.get() {
            return Ok(());
        }
        let store = attached.name.clone();
        Err(self
            .die(LostReason::StoreRegressed {
                store,
                recorded,
                found,
            })
            .await)
    }

    async fn write_at(&self, position: usize, data: Bytes) -> Result<(), ShardError> {
        self.require_alive()?;
        let (attached, _) = self.store(position)?;
        let max_bytes = attached.store.max_value_bytes();
        if data.len() > max_bytes {
            let length_bytes = data.len();
            let source = CheckpointError::TooLarge {
                length_bytes,
                max_bytes,
            };
            return Err(ShardError::Store {
                store: attached.name.clone(),
                source,
            });
        }
        self.change_at(position, Some(data)).await
    }

    /// Replaces what a store has by `content`; `None` deletes it.
    async fn change_at(&self, position: usize, content: Option<Bytes>) -> Result<(), ShardError> {
        self.require_alive()?;
        let (attached, writer) = self.store(position)?;
        let mut writer = writer.lock().await;
        let change = writer.begin(content)?;
        let token = &self.inner.token;
        let changed = self
            .repeated(|| change.present(attached.store.as_ref(), token))
            .await?;
        match changed.answer {
            Ok(()) => {
                writer.settle();
                self.inner.context.tally.wrote();
                Ok(())
            }
            Err(error) => {
                // One that may have landed before the fence rose was not a stale write.
                if let CheckpointError::Fenced {
                    presented, current, ..
                } = error
                    && !changed.may_have_happened
                {
                    self.inner.context.tally.refused(RefusedWrite {
                        shard: self.inner.shard.clone(),
                        store: attached.name.clone(),
                        presented,
                        current,
                    });
                }
                Err(self.failed(attached, error).await)
            }
        }
    }

    async fn read_at(&self, position: usize) -> Result<Option<Checkpoint>, ShardError> {
        let (attached, _) = self.store(position)?;
        let resource: &Resource = &self.inner.token.resource;
        let read = self.repeated(|| attached.store.read(resource)).await?;
        match read.answer {
            Ok(found) => {
                // After reading: whatever was true before it may not be true any more.
                self.require_current()?;
                Ok(found)
            }
            Err(source) => Err(ShardError::Store {
                store: attached.name.clone(),
                source,
            }),
        }
    }

    /// Calls a store until it says something definite, the handle dies, or the store timeout is over.
    ///
    /// The check of the handle is the last thing before each call and nothing follows it: from there
    /// on the store decides.
    async fn repeated<T, F, Fut>(&self, call: F) -> Result<Repeated<T>, ShardError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, CheckpointError>>,
    {
        let clock = &self.inner.context.clock;
        let give_up = clock.now() + self.inner.context.store_timeout;
        let mut backoff = Backoff::new();
        let mut may_have_happened = false;
        loop {
            self.require_alive()?;
            let error = match call().await {
                Err(error) if error.is_retryable() => error,
                answer => {
                    return Ok(Repeated {
                        answer,
                        may_have_happened,
                    });
                }
            };
            // Once a try may have happened, the whole may have, whatever later ones say.
            may_have_happened |= error.may_have_happened();
            let pause = clock.now() + backoff.next();
            if pause >= give_up {
                let error = match may_have_happened {
                    true => error.in_doubt(),
                    false => error,
                };
                return Ok(Repeated {
                    answer: Err(error),
                    may_have_happened,
                });
            }
            self.pause_until(pause).await;
        }
    }

    /// Waits, but not longer than the handle lives.
    async fn pause_until(&self, moment: Moment) {
        let lost = std::pin::pin!(self.lost());
        let pause = self.inner.context.clock.sleep_until(moment);
        future::select(lost, pause).await;
    }

    /// Judges what a store said. What is final ends the handle.
    async fn failed(&self, attached: &AttachedStore, source: CheckpointError) -> ShardError {
        let store = attached.name.clone();
        let reason = match &source {
            CheckpointError::Fenced { current, .. } => LostReason::Fenced {
                store: store.clone(),
                current: *current,
            },
            CheckpointError::EpochConflict { .. } => LostReason::EpochConflict {
                store: store.clone(),
            },
            // It was sealed with this epoch, by this handle.
            CheckpointError::NotSealed { epoch, .. } => LostReason::StoreRegressed {
                store: store.clone(),
                recorded: *epoch,
                found: 0,
            },
            _ => return ShardError::Store { store, source },
        };
        self.die(reason).await
    }

    /// Ends the handle and tells the session.
    async fn die(&self, reason: LostReason) -> ShardError {
        self.kill(reason.clone());
        self.report(ReportKind::Dead(reason.clone())).await;
        ShardError::Lost(reason)
    }

    async fn report(&self, kind: ReportKind) {
        let report = Report {
            shard: self.inner.shard.index,
            epoch: self.epoch(),
            kind,
        };
        // Nobody listens after the worker has stopped, and nobody needs to.
        let _stopped = self.inner.context.reports.send(report).await;
    }
}

/// So that a shard can be presented to whatever takes a token, such as the transaction of a SQL store.
impl AsRef<FencingToken> for HeldShard {
    fn as_ref(&self) -> &FencingToken {
        self.token()
    }
}

impl fmt::Debug for HeldShard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HeldShard")
            .field("token", &format_args!("{}", self.inner.token))
            .field("state", &*self.inner.state.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
