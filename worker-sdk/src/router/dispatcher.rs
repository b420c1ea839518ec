//! Requests that are sent to the owner of their shard, and wait while it is handed over.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::Epoch;
use tokio::time::Instant;

use super::line::{Full, Lines, Place};
use super::not_owner::NotOwner;
use super::{Route, Router};
use crate::backoff::Backoff;

/// How many hints in a row are followed without asking the router. Two workers that each take the other for
/// the owner would otherwise be asked in turn as fast as they answer.
const HINTS_MAX: u32 = 3;

/// Bounds of what waits for shards that are handed over, over all shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOptions {
    /// Requests that wait at one time, at most. 0 holds none.
    pub requests_max: usize,
    /// Their bytes together, at most, as callers name them.
    pub bytes_max: usize,
    /// How long after its call a request may still be sent, at most.
    pub time_max: Duration,
}

impl Default for HoldOptions {
    /// Ten seconds: longer than any handoff of workers that keep their drain timeout, and the default ttl,
    /// after which a worker that died is replaced. A thousand requests with 16 MiB, so that they cannot
    /// take the memory of whoever holds them.
    fn default() -> Self {
        Self {
            requests_max: 1_000,
            bytes_max: 16 << 20,
            time_max: Duration::from_secs(10),
        }
    }
}

/// How one attempt failed, as the caller's transport tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptError<E> {
    /// The worker does not own the shard and did nothing: it is tried elsewhere.
    NotOwner(NotOwner),
    /// It was certainly not done, for example because no connection was made: it is tried again.
    NotDone(E),
    /// It failed, or it may have been done: the caller gets it.
    Failed(E),
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError<E> {
    /// As many requests wait as may. This one was not done.
    #[error("too many requests wait for shards that are handed over")]
    Full,
    /// Nobody could be asked within the time. The request was not done.
    #[error("no owner of the shard was found in time")]
    TimedOut {
        /// What kept the last attempt from being done, if there was one.
        last: Option<E>,
    },
    /// The attempt failed.
    #[error("the request failed")]
    Failed(E),
}

/// Sends requests to the owners of their shards. While a shard is handed over its requests wait, within
/// bounds, and go to the new owner, so that callers see a pause instead of an error.
///
/// The transport is the caller's: an attempt is a future that is made with a [`Route`]. What fails is tried
/// again only if the attempt says that nothing was done. Requests that wait for one shard are sent in the
/// order in which they were called.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use tenure::connection::ConnectionOptions;
/// use tenure::{AttemptError, Dispatcher, HoldOptions, Route, Router};
///
/// # #[derive(Debug)] enum HttpError { Refused, Status(u16, String), Broken }
/// # async fn post(_: &str, _: &[u8]) -> Result<String, HttpError> { Ok(String::new()) }
/// async fn attempt(route: Route, body: &[u8]) -> Result<String, AttemptError<HttpError>> {
///     match post(&route.address, body).await {
///         Ok(answer) => Ok(answer),
///         // The worker answers with the text of a `NotOwner`, before it has done anything.
///         Err(HttpError::Status(421, text)) => Err(AttemptError::NotOwner(text.parse().unwrap_or_default())),
///         Err(error @ HttpError::Refused) => Err(AttemptError::NotDone(error)),
///         Err(error) => Err(AttemptError::Failed(error)),
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = ConnectionOptions::new(["127.0.0.1:7001", "127.0.0.1:7002"]);
/// let router = Arc::new(Router::connect(options, "orders").await?);
/// let dispatcher = Dispatcher::new(router, HoldOptions::default());
/// let body = b"one more of 4711";
/// let answer = dispatcher
///     .call(b"customer-4711", body.len(), |route| attempt(route, body))
///     .await;
/// # let _ = answer;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dispatcher {
    router: Arc<Router>,
    options: HoldOptions,
    lines: Arc<Lines>,
}

/// One call on its way.
struct Call {
    shard: u32,
    ticket: u64,
    bytes: usize,
    until: Instant,
    backoff: Backoff,
    /// The tenure whose worker did not do it: a later one is waited for, and after a pause it is asked
    /// again, since its worker may only have been out of touch for a moment.
    refused: Option<Epoch>,
}

impl Dispatcher {
    /// Creates a dispatcher that asks a router.
    #[must_use]
    pub fn new(router: Arc<Router>, options: HoldOptions) -> Self {
        Self {
            router,
            options,
            lines: Arc::new(Lines::new(options.requests_max, options.bytes_max)),
        }
    }

    /// Sends a request for a key. `bytes` is what it counts for while it waits.
    ///
    /// # Errors
    ///
    /// [`DispatchError`]; all but [`DispatchError::Failed`] say that it was not done.
    pub async fn call<T, E, F, Fut>(
        &self,
        key: &[u8],
        bytes: usize,
        attempt: F,
    ) -> Result<T, DispatchError<E>>
    where
        F: Fn(Route) -> Fut,
        Fut: Future<Output = Result<T, AttemptError<E>>>,
    {
        self.call_shard(self.router.shard_of(key), bytes, attempt)
            .await
    }

    /// As [`call`](Dispatcher::call), for a shard.
    ///
    /// # Errors
    ///
    /// As [`call`](Dispatcher::call).
    pub async fn call_shard<T, E, F, Fut>(
        &self,
        shard: u32,
        bytes: usize,
        attempt: F,
    ) -> Result<T, DispatchError<E>>
    where
        F: Fn(Route) -> Fut,
        Fut: Future<Output = Result<T, AttemptError<E>>>,
    {
        let mut call = Call {
            shard,
            ticket: self.lines.ticket(),
            bytes,
            until: tokio::time::sleep(self.options.time_max).deadline(),
            backoff: Backoff::new(),
            refused: None,
        };
        let (mut hinted, mut hints) = (None, 0);
        let mut last = None;
        loop {
            let route = match hinted.take() {
                Some(route) => route,
                None => {
                    hints = 0;
                    let route = tokio::time::timeout_at(call.until, self.route(&mut call)).await;
                    match route {
                        Ok(Ok(route)) => route,
                        Ok(Err(Full)) => {
                            metrics::counter!(HOLDS_REFUSED, "reason" => "full").increment(1);
                            return Err(DispatchError::Full);
                        }
                        Err(_) => {
                            metrics::counter!(HOLDS_REFUSED, "reason" => "time").increment(1);
                            return Err(DispatchError::TimedOut { last });
                        }
                    }
                }
            };
            let asked = route.epoch;
            let not_done = match attempt(route).await {
                Ok(answer) => return Ok(answer),
                Err(AttemptError::Failed(error)) => return Err(DispatchError::Failed(error)),
                Err(AttemptError::NotOwner(told)) => {
                    metrics::counter!(NOT_OWNER).increment(1);
                    let hint = told.hint.filter(|hint| hint.epoch > asked);
                    if let Some(hint) = hint.filter(|_| hints < HINTS_MAX) {
                        hints += 1;
                        hinted = Some(hint.route(self.router.shard_ref(shard)));
                    }
                    None
                }
                Err(AttemptError::NotDone(error)) => Some(error),
            };
            last = not_done.or(last);
            call.refused = call.refused.max(Some(asked));
        }
    }

    /// Returns where to send it, after those that waited before it, as soon as there is an owner.
    async fn route(&self, call: &mut Call) -> Result<Route, Full> {
        if call.refused.is_none()
            && self.lines.is_empty(call.shard)
            && let Some(route) = self.router.route_shard(call.shard)
        {
            return Ok(route);
        }
        let place = Place::take(&self.lines, call.shard, call.ticket, call.bytes)?;
        metrics::counter!(HOLDS).increment(1);
        let mut news = self.router.shared.news.subscribe();
        // The same worker may be asked again after a pause.
        let pause = tokio::time::sleep(call.backoff.next());
        tokio::pin!(pause);
        loop {
            news.mark_unchanged();
            if !place.is_first() {
                place.moved_up().await;
                continue;
            }
            let waited = pause.is_elapsed();
            let later = |route: &Route| {
                call.refused
                    .is_none_or(|epoch| waited || route.epoch > epoch)
            };
            if let Some(route) = self.router.route_shard(call.shard).filter(later) {
                return Ok(route);
            }
            tokio::select! {
                changed = news.changed() => {
                    // The router is held, and with it the sender.
                    debug_assert!(changed.is_ok());
                }
                () = &mut pause, if !waited => {}
            }
        }
    }
}

/// Requests that waited for a shard.
const HOLDS: &str = "tenure_router_holds_total";
/// Requests that could not wait, or not long enough.
const HOLDS_REFUSED: &str = "tenure_router_holds_refused_total";
/// Answers of workers that do not own the shard.
const NOT_OWNER: &str = "tenure_router_not_owner_total";
