//! The way to a coordinator that can answer: any of them for reads, the leader for the rest.
//!
//! The SDK finds it, follows hints and keeps to the timeout. Here is what operators see of that: what
//! a failure on the way means for them, and streams that open at another node when one is gone.
//!
//! Once a change may have arrived it is not sent again: its outcome is then unknown, and a person
//! decides.

use std::error::Error;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tenure::connection::{self, CallError, ConnectionOptions, Repeat, Service, TlsOptions};
use tenure_proto::reason;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::error::CliError;
use crate::origin::Origin;
use crate::settings::{Settings, Tls};

/// A host that does not even refuse is left after this long; loss of a packet costs 1 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before a stream is tried at another node.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// What a request is for, which decides who is asked and whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It reads what the node asked has applied.
    Read,
    /// It reads what a majority agrees on.
    QuorumRead,
    /// It changes something.
    Change,
}

/// How to reach the coordinators.
pub(crate) struct Connection {
    inner: connection::Connection,
    timeout: Duration,
    origin: Origin,
}

impl Connection {
    /// # Errors
    /// [`CliError::Usage`] if an address or a file for TLS cannot be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self, CliError> {
        let mut options = ConnectionOptions::new(&settings.addresses)
            .connect_timeout(CONNECT_TIMEOUT.min(settings.timeout))
            .call_timeout(settings.timeout);
        if let Some(tls) = &settings.tls {
            options = options.tls(tls_options(tls)?);
        }
        let inner = connection::Connection::new(options).map_err(|error| {
            let cause = error.source().map_or_else(String::new, deepest);
            CliError::Usage {
                message: format!("{error}: {cause}"),
            }
        })?;
        Ok(Self {
            inner,
            timeout: settings.timeout,
            origin: settings.origin.clone(),
        })
    }

    /// Sends a request until it is answered for good, and gives the answer.
    pub(crate) async fn call<Q, A, F, S>(
        &self,
        intent: Intent,
        request: Q,
        send: F,
    ) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Service, Request<Q>) -> S,
        S: Future<Output = Result<Response<A>, Status>>,
    {
        let send = |service| {
            let mut request = Request::new(request.clone());
            // What only reads leaves no trace.
            if intent == Intent::Change {
                self.origin.put(request.metadata_mut());
            }
            send(service, request)
        };
        let outcome = match intent {
            Intent::Read => self.inner.any(Repeat::Always, send).await,
            Intent::QuorumRead => self.inner.leader(Repeat::Always, send).await,
            Intent::Change => self.inner.leader(Repeat::UntilSent, send).await,
        };
        outcome.map_err(|error| self.explain(intent, &error))
    }

    /// Opens a stream at a node that answers. It goes on after the timeout, which is for opening it.
    pub(crate) async fn subscribe<Q, A, F, S>(&self, request: Q, send: F) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> S,
        S: Future<Output = Result<Response<A>, Status>>,
    {
        let mut last = None;
        let trying = async {
            loop {
                let opened = match self.inner.open_any().await {
                    Ok((address, channel)) => send(channel, Request::new(request.clone()))
                        .await
                        .map_err(|status| {
                            self.inner.leave(&address);
                            CallError::from_status(status)
                        }),
                    Err(error) => Err(error),
                };
                match opened {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(error) if !is_on_the_way(&error) => return Err(error),
                    Err(error) => last = Some(error),
                }
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
        };
        match tokio::time::timeout(self.timeout, trying).await {
            Ok(outcome) => outcome.map_err(|error| self.explain(Intent::Read, &error)),
            Err(_) => Err(self.unavailable(last.as_ref())),
        }
    }

    /// What a failed call means for an operator.
    fn explain(&self, intent: Intent, error: &CallError) -> CliError {
        if intent == Intent::Change && error.may_have_happened() {
            return CliError::OutcomeUnknown {
                message: said(error),
            };
        }
        if is_on_the_way(error) {
            return self.unavailable(Some(error));
        }
        CliError::from_status(error.status())
    }

    fn unavailable(&self, last: Option<&CallError>) -> CliError {
        let after = humantime::format_duration(self.timeout);
        let asked = self.inner.addresses().join(", ");
        let last = last.map_or_else(String::new, |last| format!("; last: {}", said(last)));
        CliError::Unavailable {
            message: format!("no coordinator could answer within {after}, asked {asked}{last}"),
        }
    }
}

/// Whether nobody who could decide has answered: another node or another time may bring an answer.
fn is_on_the_way(error: &CallError) -> bool {
    match error.reason() {
        reason::NOT_LEADER | reason::UNAVAILABLE | reason::OUTCOME_UNKNOWN => true,
        "" => matches!(
            error.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
        ),
        _ => false,
    }
}

fn tls_options(tls: &Tls) -> Result<TlsOptions, CliError> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|error| CliError::Usage {
            message: format!("TLS file {} cannot be read: {error}", path.display()),
        })
    };
    let mut options = match &tls.ca {
        Some(ca) => TlsOptions::new(read(ca)?),
        None => TlsOptions::default(),
    };
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        options = options.identity(read(cert)?, read(key)?);
    }
    if let Some(name) = &tls.server_name {
        options = options.server_name(name);
    }
    Ok(options)
}

/// What went wrong at the bottom: the layers of the transport say only "transport error".
fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn said(error: &CallError) -> String {
    error.source().map_or_else(|| error.to_string(), deepest)
}
