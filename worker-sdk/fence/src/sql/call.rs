//! One call: its deadline, its retries, and what its failure means.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::time;

use super::backend::{SqlBackend, Verdict};
use crate::error::{CheckpointError, StoreError};
use crate::resource::Resource;

/// How often what the server rolled back is repeated. Under contention for one row each attempt has
/// a fair chance, so more would only hide a server that never lets it through.
const CONTENDED_RETRIES_MAX: u32 = 10;

/// How often a call is repeated whose connection broke: once, which is enough for a connection that
/// had died unnoticed while it was idle.
const LOST_RETRIES_MAX: u32 = 1;

/// The longest pause before the first retry; it doubles with each.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Whether a call can change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

/// Why an attempt gave no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It did: this one.
    Answer(CheckpointError),
    /// There was no connection, so nothing was sent.
    NotReached(StoreError),
    /// The database said something, or fell silent.
    Sql(Verdict, StoreError),
}

impl Failure {
    pub(super) fn of<B: SqlBackend>(error: sqlx::Error) -> Self {
        Self::Sql(B::verdict(&error), error.into())
    }

    /// Returns whether the connection is not to be used again.
    pub(super) fn breaks_connection(&self) -> bool {
        matches!(self, Self::Sql(Verdict::Lost, _))
    }
}

impl From<CheckpointError> for Failure {
    fn from(answer: CheckpointError) -> Self {
        Self::Answer(answer)
    }
}

/// Why a call could not be settled.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no answer within {deadline:?}")]
    Overdue { deadline: Duration },
    #[error("the row changed again and again between two statements")]
    Unsettled,
}

/// One call.
#[derive(Debug)]
pub(super) struct Call {
    effect: Effect,
    /// A request of this call may be on its way.
    sent: AtomicBool,
    /// An attempt may have happened, so that a later failure does not make it undone.
    unknown: AtomicBool,
    contended: AtomicU32,
    lost: AtomicU32,
}

impl Call {
    pub(super) fn new(effect: Effect) -> Self {
        Self {
            effect,
            sent: AtomicBool::new(false),
            unknown: AtomicBool::new(false),
            contended: AtomicU32::new(0),
            lost: AtomicU32::new(0),
        }
    }

    /// Notes that from here on a request may be on its way.
    pub(super) fn sends(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Runs the attempts of a call within its deadline.
    pub(super) async fn within<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let Ok(answer) = time::timeout(deadline, work).await else {
            if self.sent.load(Ordering::Relaxed) {
                self.unknown.store(true, Ordering::Relaxed);
            }
            return Err(self.undone(CallError::Overdue { deadline }.into()));
        };
        answer
    }

    /// Waits until the call is to be tried again, if it is; otherwise returns its outcome.
    pub(super) async fn again(
        &self,
        failure: Failure,
        resource: Option<&Resource>,
    ) -> Result<(), CheckpointError> {
        let (verdict, source) = match failure {
            Failure::Answer(answer) => return Err(self.outcome(answer)),
            Failure::NotReached(source) => return Err(self.undone(source)),
            Failure::Sql(verdict, source) => (verdict, source),
        };
        let retries = match verdict {
            Verdict::NotDone | Verdict::TransactionGone => return Err(self.undone(source)),
            Verdict::Unreadable => return Err(self.outcome(unreadable(resource, source))),
            Verdict::Contended => self.contended.fetch_add(1, Ordering::Relaxed),
            Verdict::Lost => {
                self.unknown.store(true, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed)
            }
        };
        let retries_max = match verdict {
            Verdict::Contended => CONTENDED_RETRIES_MAX,
            _ => LOST_RETRIES_MAX,
        };
        if retries >= retries_max {
            return Err(self.undone(source));
        }
        time::sleep(pause(retries)).await;
        Ok(())
    }

    /// The outcome of a call that gave no answer.
    fn undone(&self, source: StoreError) -> CheckpointError {
        self.outcome(CheckpointError::Unavailable { source })
    }

    /// The outcome of a call whose last attempt ended so.
    pub(super) fn outcome(&self, last: CheckpointError) -> CheckpointError {
        if self.effect == Effect::Changes && self.unknown.load(Ordering::Relaxed) {
            return last.in_doubt();
        }
        last
    }
}

fn unreadable(resource: Option<&Resource>, source: StoreError) -> CheckpointError {
    match resource {
        Some(resource) => CheckpointError::Corrupt {
            resource: resource.clone(),
            source,
        },
        // Not a row that is damaged, but a table that is not the one this version made.
        None => CheckpointError::Unsupported { source },
    }
}

/// A random pause, so that callers which collided do not collide again.
fn pause(retries: u32) -> Duration {
    let longest = PAUSE_MAX * 2_u32.pow(retries.min(5));
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(entropy() % longest.max(1))
}

/// A number that no other call returns: the standard library's source of hash keys is random enough,
/// and needs no crate.
pub(super) fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;

    fn lost() -> Failure {
        Failure::Sql(Verdict::Lost, "broken pipe".into())
    }

    fn resource() -> Resource {
        "shard/orders/7".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_change_is_repeated_once_and_stays_unknown() {
        let call = Call::new(Effect::Changes);
        call.again(lost(), Some(&resource())).await.unwrap();
        // That the server is gone now does not undo what it may have done before.
        let refused = Failure::NotReached("refused".into());
        let answer = call.again(refused, Some(&resource())).await;
        assert!(answer.unwrap_err().may_have_happened());

        let call = Call::new(Effect::Changes);
        call.again(lost(), Some(&resource())).await.unwrap();
        let answer = call.again(lost(), Some(&resource())).await;
        assert!(answer.unwrap_err().may_have_happened());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_lost_change_does_not_say_that_nothing_was_changed() {
        let refused = || {
            Failure::Answer(CheckpointError::NotSealed {
                resource: resource(),
                epoch: Epoch::FIRST,
            })
        };
        for (effect, unknown) in [(Effect::Changes, true), (Effect::Reads, false)] {
            let call = Call::new(effect);
            call.again(lost(), Some(&resource())).await.unwrap();
            let error = call.again(refused(), Some(&resource())).await.unwrap_err();
            assert_eq!(error.may_have_happened(), unknown, "{effect:?}");
        }
        let call = Call::new(Effect::Changes);
        let error = call.again(refused(), Some(&resource())).await.unwrap_err();
        assert!(matches!(error, CheckpointError::NotSealed { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_rolled_back_has_not_happened() {
        let call = Call::new(Effect::Changes);
        let contended = || Failure::Sql(Verdict::Contended, "deadlock".into());
        for _ in 0..CONTENDED_RETRIES_MAX {
            call.again(contended(), Some(&resource())).await.unwrap();
        }
        let answer = call.again(contended(), Some(&resource())).await;
        assert!(matches!(answer, Err(CheckpointError::Unavailable { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_overdue_may_have_happened_once_it_was_sent() {
        let deadline = Duration::from_secs(1);
        for (effect, sent, unknown) in [
            (Effect::Changes, false, false),
            (Effect::Changes, true, true),
            (Effect::Reads, true, false),
        ] {
            let call = Call::new(effect);
            if sent {
                call.sends();
            }
            let never = std::future::pending::<Result<(), CheckpointError>>();
            let error = call.within(deadline, never).await.unwrap_err();
            assert_eq!(error.may_have_happened(), unknown);
            assert!(error.is_retryable());
        }
    }
}
