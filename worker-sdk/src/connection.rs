//! Calls to the coordinator cluster: finds the leader, follows it, bounds every call in time.
//!
//! For whatever is not the worker stream itself: the replicated store, the router, operator commands.
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

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_proto::reason;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorInfo, StatusExt};

use crate::backoff::Backoff;

/// How long to wait for a connection. A node that is there answers within milliseconds; one that is
/// gone must not use up the time in which another could be asked.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// How long one call may take with all its repetitions: long enough to outlast a change of leader,
/// about two seconds.
const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Silence after which a peer is asked whether it is still there, and how long it may take to say so.
/// A connection whose other end vanished without a word is noticed after the sum.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many hints in a row are followed without waiting. Two nodes that each take the other for the
/// leader would otherwise be asked in turn as fast as they answer.
const HINTS_MAX: u32 = 3;

/// Certificates for talking to a coordinator that uses TLS.
#[derive(Clone, Default)]
pub struct TlsOptions {
    authority_pem: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl TlsOptions {
    /// Creates options that trust servers certified by the given authority, in PEM.
    #[must_use]
    pub fn new(authority_pem: impl Into<Vec<u8>>) -> Self {
        Self {
            authority_pem: Some(authority_pem.into()),
            ..Self::default()
        }
    }

    /// Presents a certificate to the server (mutual TLS): the chain and its private key, in PEM.
    #[must_use]
    pub fn identity(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Expects this name in the servers' certificates instead of the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    fn client_config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some(authority) = &self.authority_pem {
            config = config.ca_certificate(Certificate::from_pem(authority));
        }
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }
}

/// Without the private key.
impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TlsOptions")
            .field("authority", &self.authority_pem.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// Where the coordinators are and how long to wait for them.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    pub(crate) addresses: Vec<String>,
    pub(crate) tls: Option<TlsOptions>,
    connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

impl ConnectionOptions {
    /// Creates options with the client addresses of some or all coordinators, each "host:port".
    ///
    /// One that answers is enough: the leader is found from there.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            tls: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
        }
    }

    /// Uses TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets how long to wait for a connection to one node; 1 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one call may take with all its repetitions; 5 s unless set.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Makes the description of a connection to one address.
    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint, ConnectionError> {
        let refused = |source| ConnectionError::Address {
            address: address.to_owned(),
            source,
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(refused)?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.client_config()).map_err(refused)?;
        }
        Ok(endpoint)
    }

    /// Checks that every address can be used at all.
    pub(crate) fn validate(&self) -> Result<(), ConnectionError> {
        if self.addresses.is_empty() {
            return Err(ConnectionError::NoAddress);
        }
        for address in &self.addresses {
            self.endpoint(address)?;
        }
        Ok(())
    }
}

/// Why a connection cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// No address was given.
    #[error("no coordinator address is given")]
    NoAddress,
    /// An address is malformed, or the certificates do not fit.
    #[error("{address} cannot be used")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Why a call failed.
#[derive(Debug)]
pub struct CallError {
    status: Status,
    info: Option<ErrorInfo>,
    may_have_happened: bool,
}

impl CallError {
    /// Reads a status that a coordinator, or the way to it, answered with.
    #[must_use]
    pub fn from_status(status: Status) -> Self {
        let info = status
            .get_details_error_info()
            .filter(|info| info.domain == reason::DOMAIN);
        let may_have_happened = match &info {
            Some(info) => info.reason == reason::OUTCOME_UNKNOWN,
            None => !is_connect_error(&status) && is_transport(status.code()),
        };
        Self {
            status,
            info,
            may_have_happened,
        }
    }

    fn local(code: Code, message: String) -> Self {
        Self {
            status: Status::new(code, message),
            info: None,
            may_have_happened: false,
        }
    }

    /// Returns the reason, one of [`tenure_proto::reason`]; empty if no coordinator gave one.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.info.as_ref().map_or("", |info| info.reason.as_str())
    }

    /// Returns a field of the error's metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.info.as_ref()?.metadata.get(key).map(String::as_str)
    }

    /// Returns the gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.status.code()
    }

    /// Returns what was said, for people.
    #[must_use]
    pub fn message(&self) -> &str {
        self.status.message()
    }

    /// Returns the whole status, with all its details.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Returns whether the call, or an earlier repetition of it, may have happened nevertheless.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        self.may_have_happened
    }

    /// Returns the leader's address, if a node that does not lead named it.
    #[must_use]
    pub fn leader_hint(&self) -> Option<&str> {
        self.metadata(reason::LEADER_ADDRESS)
            .filter(|address| !address.is_empty())
    }

    /// Returns whether another try, perhaps at another node, may be answered differently.
    fn is_passing(&self) -> bool {
        match self.reason() {
            reason::NOT_LEADER | reason::UNAVAILABLE | reason::OUTCOME_UNKNOWN => true,
            "" => is_transport(self.code()),
            _ => false,
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status.message() {
            "" => write!(formatter, "{}", self.status.code()),
            message => formatter.write_str(message),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.status.source()
    }
}

/// Codes with which the way to a node fails, as well as the node.
fn is_transport(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
    )
}

/// Returns whether no connection came about, so that nothing was sent.
fn is_connect_error(status: &Status) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = status.source();
    while let Some(source) = next {
        if source.is::<tonic::ConnectError>() {
            return true;
        }
        next = source.source();
    }
    false
}

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
        self.call(Target::Leader, repeat, call).await
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
        self.call(Target::Any, repeat, call).await
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

    async fn call<T, F, Fut>(&self, target: Target, repeat: Repeat, call: F) -> Result<T, CallError>
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
                    Ok(value) => return Ok(value),
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
        if let Ok(outcome) = tokio::time::timeout(timeout, trying).await {
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
        let endpoint = self
            .inner
            .options
            .endpoint(address)
            .map_err(|error| unreachable(&error))?;
        let channel = endpoint
            .connect()
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

#[derive(Clone, Copy)]
enum Target {
    Leader,
    Any,
}
