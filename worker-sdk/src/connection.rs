//! Calls to the coordinator cluster: finds the leader, follows it, bounds every call in time.
//!
//! For whatever is not the worker stream itself: the replicated store, the router, operator commands.
//! [`ConnectionOptions`] says where the nodes are, [`Connection`] makes the calls, and a [`CallError`] says
//! whether one that failed may have happened.
//!
//! ```no_run
//! use tenure::connection::{Connection, ConnectionOptions, Repeat};
//! use tenure_proto::v1::GetGroupRequest;
//! use tenure_proto::v1::admin_service_client::AdminServiceClient;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ConnectionOptions::new(["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]);
//! let connection = Connection::new(options)?;
//! let answer = connection
//!     .leader(Repeat::Always, |service| async {
//!         let request = GetGroupRequest { name: "orders".into() };
//!         AdminServiceClient::new(service).get_group(request).await
//!     })
//!     .await?;
//! println!("{} shards", answer.group.unwrap_or_default().shard_count);
//! # Ok(())
//! # }
//! ```

mod dialer;
mod error;
mod options;

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

pub use self::dialer::{Dialer, TcpDialer};
pub use self::error::CallError;
pub use self::options::{ConnectionError, ConnectionOptions, TlsOptions};
use crate::backoff::Backoff;

/// How many hints in a row are followed without waiting. Two nodes that each take the other for the
/// leader would otherwise be asked in turn as fast as they answer.
const HINTS_MAX: u32 = 3;

/// Whether a call may be sent again after it may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Twice is as good as once: reads, and whatever carries its own identity.
    Always,
    /// Only as long as it is certain that it did not happen.
    UntilSent,
}

/// Tells the server how long the caller will wait.
#[derive(Clone, Debug)]
pub struct Deadline(Duration);

impl Interceptor for Deadline {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.set_timeout(self.0);
        Ok(request)
    }
}

/// What a generated client is made with: a channel that tells the server the call's deadline.
pub type Service = InterceptedService<Channel, Deadline>;

/// A connection to the cluster. Clones share it.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: ConnectionOptions,
    // Never held across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    channels: HashMap<String, Channel>,
    leader: Option<String>,
    next: usize,
}

impl Connection {
    /// Creates a connection. Nothing is sent before the first call.
    ///
    /// # Errors
    ///
    /// When there is no address, or one is malformed, or the certificates cannot be used.
    pub fn new(options: ConnectionOptions) -> Result<Self, ConnectionError> {
        options.validate()?;
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                state: Mutex::default(),
            }),
        })
    }

    /// Returns the addresses it was created with.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.inner.options.addresses
    }

    /// Calls the leader. Nodes are asked in turn and their hints followed until it is found.
    ///
    /// `call` is made again, as far as `repeat` allows, with growing jittered pauses, until the call
    /// timeout is over. It has to make the same request each time.
    ///
    /// # Errors
    ///
    /// What the leader answered; or the last thing heard on the way to it.
    pub async fn leader<T, F, Fut>(&self, repeat: Repeat, call: F) -> Result<T, CallError>
    where
        F: Fn(Service) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let trying = self.call(Target::Leader, repeat, self.deadline(), call);
        trying.await.map(|answered| answered.value)
    }

    /// As [`leader`](Connection::leader), always repeated, until `deadline`; and says of what was answered
    /// whether an earlier try may have happened.
    pub(crate) async fn leader_until<T, F, Fut>(
        &self,
        deadline: Instant,
        call: F,
    ) -> Result<Answered<T>, CallError>
    where
        F: Fn(Service) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.call(Target::Leader, Repeat::Always, deadline, call)
            .await
    }

    /// Returns how long a call may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.inner.options.call_timeout
    }

    /// When a call that begins now is over.
    fn deadline(&self) -> Instant {
        tokio::time::sleep(self.call_timeout()).deadline()
    }

    /// Calls any node that answers: for reads of what that node has applied.
    ///
    /// # Errors
    ///
    /// What the node answered; or the last thing heard on the way to one.
    pub async fn any<T, F, Fut>(&self, repeat: Repeat, call: F) -> Result<T, CallError>
    where
        F: Fn(Service) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let trying = self.call(Target::Any, repeat, self.deadline(), call);
        trying.await.map(|answered| answered.value)
    }

    /// Opens a connection to the next node in turn, for a stream. Returns its address with it.
    ///
    /// # Errors
    ///
    /// When that node cannot be reached. The next call tries the next one.
    pub async fn open_any(&self) -> Result<(String, Channel), CallError> {
        let address = self.pick(Target::Any);
        match self.channel(&address).await {
            Ok(channel) => Ok((address, channel)),
            Err(error) => {
                self.failed(&address);
                Err(error)
            }
        }
    }

    /// Goes on to the next node at the next call to any.
    pub fn leave(&self, address: &str) {
        self.failed(address);
    }

    async fn call<T, F, Fut>(
        &self,
        target: Target,
        repeat: Repeat,
        deadline: Instant,
        call: F,
    ) -> Result<Answered<T>, CallError>
    where
        F: Fn(Service) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let timeout = self.inner.options.call_timeout;
        // A node that takes the call and does not answer leaves time to ask another.
        let patience = match repeat {
            Repeat::Always => timeout / 2,
            Repeat::UntilSent => timeout,
        };
        let mut may_have_happened = false;
        let mut asking = None;
        let mut last = None;
        let trying = async {
            let mut backoff = Backoff::new();
            let mut hints = 0;
            loop {
                let address = self.pick(target);
                asking = Some(address.clone());
                let answer = self
                    .try_one(&address, patience, &call, &mut may_have_happened)
                    .await;
                asking = None;
                let mut error = match answer {
                    Ok(value) => {
                        return Ok(Answered {
                            value,
                            earlier_may_have_happened: may_have_happened,
                        });
                    }
                    Err(error) => error,
                };
                may_have_happened |= error.may_have_happened;
                error.may_have_happened = may_have_happened;
                if !error.is_passing() || (repeat == Repeat::UntilSent && may_have_happened) {
                    return Err(error);
                }
                let hinted = self.learn(&address, &error);
                last = Some(error);
                if hinted && hints < HINTS_MAX {
                    hints += 1;
                    continue;
                }
                hints = 0;
                tokio::time::sleep(backoff.next()).await;
            }
        };
        if let Ok(outcome) = tokio::time::timeout_at(deadline, trying).await {
            return outcome;
        }
        if let Some(address) = asking {
            // It has had its time: the next call begins with another.
            self.failed(&address);
        }
        let mut error = last.unwrap_or_else(|| {
            CallError::local(
                Code::DeadlineExceeded,
                format!("no answer within {timeout:?}"),
            )
        });
        error.may_have_happened = may_have_happened;
        Err(error)
    }

    async fn try_one<T, F, Fut>(
        &self,
        address: &str,
        patience: Duration,
        call: &F,
        sent: &mut bool,
    ) -> Result<T, CallError>
    where
        F: Fn(Service) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let channel = self.channel(address).await?;
        // If the whole call runs out of time below, this one may have happened; if it answers, the
        // answer says so.
        let before = std::mem::replace(sent, true);
        let service = InterceptedService::new(channel, Deadline(patience));
        let answered = call(service).await;
        *sent = before;
        answered
            .map(Response::into_inner)
            .map_err(CallError::from_status)
    }

    fn pick(&self, target: Target) -> String {
        let state = self.state();
        let addresses = &self.inner.options.addresses;
        match (target, &state.leader) {
            (Target::Leader, Some(leader)) => leader.clone(),
            _ => addresses
                .get(state.next % addresses.len())
                .cloned()
                .unwrap_or_default(),
        }
    }

    /// Remembers what an error says about where the leader is. Returns whether it names another node.
    fn learn(&self, address: &str, error: &CallError) -> bool {
        if let Some(hint) = error.leader_hint().filter(|&hint| hint != address) {
            self.state().leader = Some(hint.to_owned());
            return true;
        }
        self.failed(address);
        false
    }

    fn failed(&self, address: &str) {
        let mut state = self.state();
        state.channels.remove(address);
        state.leader = None;
        let addresses = &self.inner.options.addresses;
        let position = addresses.iter().position(|known| known == address);
        state.next = position.map_or(state.next, |position| position + 1) % addresses.len();
    }

    async fn channel(&self, address: &str) -> Result<Channel, CallError> {
        if let Some(channel) = self.state().channels.get(address) {
            return Ok(channel.clone());
        }
        let unreachable = |error: &(dyn Error + 'static)| {
            // The layers above the cause say only "transport error".
            let mut cause = error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            CallError::local(
                Code::Unavailable,
                format!("{address} cannot be reached: {cause}"),
            )
        };
        let options = &self.inner.options;
        let endpoint = options
            .endpoint(address)
            .map_err(|error| unreachable(&error))?;
        let channel = options
            .dialer
            .dial(endpoint)
            .await
            .map_err(|error| unreachable(&error))?;
        self.state()
            .channels
            .insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so the state is whole whoever panicked with the lock.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer, and what is known of the tries before it.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    /// Whether an earlier try, which was not answered, may have happened.
    pub(crate) earlier_may_have_happened: bool,
}

#[derive(Clone, Copy)]
enum Target {
    Leader,
    Any,
}
