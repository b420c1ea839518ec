//! What an answer of the service, or the lack of one, means; and what is asked again.

use std::collections::HashMap;
use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::AttributeValue;

use crate::error::{CheckpointError, StoreError};

/// How often a request is sent, at most. Twice more covers a lost connection or a moment of throttling;
/// whoever wants more asks again.
const ATTEMPTS_MAX: u32 = 3;

/// The pause before the second attempt; it doubles with each further one. A random part, up to as much
/// again, keeps many workers from asking in step.
const PAUSE: Duration = Duration::from_millis(25);

/// How a conditional change ended.
pub(super) enum Update {
    /// It was made. The item, if it was asked for.
    Done(HashMap<String, AttributeValue>),
    /// Its condition does not hold. The item as it was then, if the server says.
    Refused(Option<HashMap<String, AttributeValue>>),
}

/// Why a request has no answer that counts.
struct Failed {
    source: StoreError,
    may_have_happened: bool,
    may_be_repeated: bool,
}

/// One call of the store: all its requests under one deadline. Knows whether a change of it may have
/// been made, so that no later answer says that nothing was changed.
#[derive(Debug, Default)]
pub(super) struct Call {
    is_doubtful: AtomicBool,
}

impl Call {
    /// Lets the call come to an end within its deadline.
    pub(super) async fn bounded<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let answer = match tokio::time::timeout(deadline, work).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(CheckpointError::Unavailable {
                source: elapsed.into(),
            }),
        };
        if self.is_doubtful.load(Ordering::Relaxed) {
            return answer.map_err(CheckpointError::in_doubt);
        }
        answer
    }

    /// Makes a conditional change.
    ///
    /// It is repeated when its outcome is unknown, too: it has no effect the second time, because the
    /// first makes its condition false.
    pub(super) async fn update(
        &self,
        request: &UpdateItemFluentBuilder,
    ) -> Result<Update, CheckpointError> {
        let attempt = || {
            let sent = Box::pin(request.clone().send());
            self.changing(async move { updated(sent.await) })
        };
        let update = repeated(attempt).await;
        let update = update.map_err(Failed::into_unavailable)?;
        if matches!(update, Update::Done(_)) {
            // What the attempts before it may have done is done now.
            self.is_doubtful.store(false, Ordering::Relaxed);
        }
        Ok(update)
    }

    /// Makes one attempt at a change, and notes whether it may have been made.
    async fn changing<T>(
        &self,
        attempt: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        // The call may come to its deadline while this is on its way.
        let before = self.is_doubtful.swap(true, Ordering::Relaxed);
        let answer = attempt.await;
        let may_have_happened = matches!(&answer, Err(failed) if failed.may_have_happened);
        let is_doubtful = before || may_have_happened;
        self.is_doubtful.store(is_doubtful, Ordering::Relaxed);
        answer
    }
}

/// Makes a request that changes nothing, or does what may be done again.
pub(super) async fn read<T, E, F>(send: impl Fn() -> F) -> Result<T, CheckpointError>
where
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let attempt = || {
        let sent = Box::pin(send());
        async move { sent.await.map_err(failed) }
    };
    repeated(attempt).await.map_err(Failed::into_unavailable)
}

impl Failed {
    /// The outcome if no attempt has made a change.
    fn into_unavailable(self) -> CheckpointError {
        CheckpointError::Unavailable {
            source: self.source,
        }
    }
}

/// Repeats an attempt while that may help.
async fn repeated<T, F>(attempt: impl Fn() -> F) -> Result<T, Failed>
where
    F: Future<Output = Result<T, Failed>>,
{
    let mut number = 0;
    loop {
        let failed = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        number += 1;
        if !failed.may_be_repeated || number == ATTEMPTS_MAX {
            return Err(failed);
        }
        let pause = PAUSE * 2_u32.pow(number - 1);
        tokio::time::sleep(pause + pause.mul_f64(fraction())).await;
    }
}

fn updated(answer: Result<UpdateItemOutput, SdkError<UpdateItemError>>) -> Result<Update, Failed> {
    let error = match answer {
        Ok(done) => return Ok(Update::Done(done.attributes.unwrap_or_default())),
        Err(error) => error,
    };
    match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
            Ok(Update::Refused(refused.item.clone()))
        }
        _ => Err(failed(error)),
    }
}

/// Returns a random number from 0 to 1. The standard library's source of hash keys is random enough.
fn fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

fn failed<E>(error: SdkError<E, HttpResponse>) -> Failed
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let (may_have_happened, may_be_repeated) = match &error {
        SdkError::ConstructionFailure(_) => (false, false),
        SdkError::DispatchFailure(failure) if failure.is_user() => (false, false),
        SdkError::DispatchFailure(failure) => {
            let error = failure.as_connector_error();
            (!error.is_some_and(|error| never_connected(error)), true)
        }
        SdkError::ServiceError(refused) => {
            let code = refused.err().code().unwrap_or_default();
            answered(refused.raw().status().as_u16(), code)
        }
        // A timeout, an answer that cannot be read, and what a later version adds.
        _ => (true, true),
    };
    Failed {
        source: error.into(),
        may_have_happened,
        may_be_repeated,
    }
}

/// Says of an answer whether the request may have happened, and whether it may be repeated.
fn answered(status: u16, code: &str) -> (bool, bool) {
    const BUSY: [&str; 5] = [
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "TransactionConflictException",
    ];
    // The service documents of an internal error that the change may have been made. Answers of 500
    // and above also come from whatever stands between.
    if status >= 500 {
        return (true, true);
    }
    (false, BUSY.contains(&code) || status == 429)
}

/// Returns whether a request was never sent, because there was nobody to send it to.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            // Only what a connection that exists never says.
            return matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable
            );
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::epoch::Epoch;

    #[test]
    fn an_internal_error_leaves_the_outcome_open_and_a_refusal_does_not() {
        assert_eq!(answered(500, "InternalServerError"), (true, true));
        assert_eq!(answered(503, ""), (true, true));
        assert_eq!(answered(400, "ThrottlingException"), (false, true));
        assert_eq!(answered(400, "ValidationException"), (false, false));
        assert_eq!(answered(403, "AccessDeniedException"), (false, false));
    }

    #[test]
    fn only_a_connection_that_was_never_made_has_not_happened() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(never_connected(&refused));
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(!never_connected(&reset));
    }

    const DEADLINE: Duration = Duration::from_secs(10);

    fn failed_once(may_have_happened: bool) -> Failed {
        Failed {
            source: "no answer".into(),
            may_have_happened,
            may_be_repeated: true,
        }
    }

    fn fenced() -> CheckpointError {
        CheckpointError::Fenced {
            resource: "shard/orders/7".parse().unwrap(),
            presented: Epoch::FIRST,
            current: Epoch::MAX,
        }
    }

    /// The outcome of a call whose first attempt fails, and which then ends with `end`.
    async fn outcome(first_may_have_happened: bool, end: CheckpointError) -> CheckpointError {
        let (call, attempts) = (Call::default(), AtomicU32::new(0));
        let attempt = || {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            call.changing(std::future::ready(match number {
                0 => Err(failed_once(first_may_have_happened)),
                _ => Ok(()),
            }))
        };
        let work = async {
            let answer = repeated(attempt).await;
            answer.map_err(Failed::into_unavailable)?;
            Err::<(), _>(end)
        };
        call.bounded(DEADLINE, work).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_happened_once_may_have_happened() {
        let (call, attempts) = (Call::default(), AtomicU32::new(0));
        let attempt = || {
            let first = attempts.fetch_add(1, Ordering::Relaxed) == 0;
            call.changing(std::future::ready(Err::<(), _>(failed_once(first))))
        };
        let work = async { repeated(attempt).await.map_err(Failed::into_unavailable) };
        let answer = call.bounded(DEADLINE, work).await;
        assert!(answer.unwrap_err().may_have_happened());
        assert_eq!(attempts.into_inner(), ATTEMPTS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_lost_answer_does_not_say_that_nothing_was_changed() {
        let unavailable = CheckpointError::Unavailable {
            source: "it cannot be read".into(),
        };
        for end in [fenced(), unavailable] {
            assert!(outcome(true, end).await.may_have_happened());
        }
        let refused = outcome(false, fenced()).await;
        assert!(
            matches!(refused, CheckpointError::Fenced { .. }),
            "{refused:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline_however_many_requests_it_makes() {
        let call = Call::default();
        let endless = async {
            loop {
                let attempt = call.changing(std::future::pending::<Result<(), Failed>>());
                let _late = tokio::time::timeout(DEADLINE / 2, attempt).await;
            }
        };
        let ended = tokio::time::timeout(DEADLINE * 2, call.bounded(DEADLINE, endless)).await;
        let answer: Result<(), CheckpointError> = ended.unwrap();
        assert!(answer.unwrap_err().may_have_happened());
    }
}
