//! The way to a coordinator that can answer: any of them for reads, the leader for changes.
//!
//! A request goes to one address after another until one answers for good. An answer that says that
//! nothing was done (not the leader, no quorum) and a connection that could not be made are followed
//! by the next address, which is the leader's where the answer names it. Once a change may have
//! arrived it is not sent again: its outcome is then unknown, and a person decides.
//!
//! All attempts of a command together take at most its timeout.

use std::collections::VecDeque;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tenure_proto::reason;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;

use crate::error::{self, CliError};
use crate::settings::{Settings, Tls};

/// A host that does not even refuse is left after this long; loss of a packet costs 1 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after all addresses were asked in vain: an election takes several of these.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// A follower that is behind may name an old leader; beyond this many hops the list is asked again.
const HOPS_MAX: usize = 4;

/// What a request is for, which decides who is asked and whether it may be sent again when it is not
/// known whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It reads what the node asked has applied.
    Read,
    /// It opens a stream, which goes on after the timeout.
    Subscribe,
    /// It changes something.
    Change,
}

/// How to reach the coordinators. Connects anew for each request: a command makes few.
pub(crate) struct Connection {
    addresses: Vec<String>,
    timeout: Duration,
    tls: Option<ClientTlsConfig>,
}

/// What is known when the time runs out.
#[derive(Default)]
struct Trail {
    last: Option<String>,
    /// A change was sent and not answered yet.
    in_flight: bool,
}

/// What to do after one attempt.
enum Next {
    Done(Status),
    AskOther { hint: Option<String> },
}

impl Connection {
    /// # Errors
    /// [`CliError::Usage`] if a file for TLS cannot be read.
    pub(crate) fn new(settings: &Settings) -> Result<Self, CliError> {
        Ok(Self {
            addresses: settings.addresses.clone(),
            timeout: settings.timeout,
            tls: settings.tls.as_ref().map(tls_config).transpose()?,
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
        F: Fn(Channel, Request<Q>) -> S,
        S: Future<Output = Result<Response<A>, Status>>,
    {
        let mut trail = Trail::default();
        let followed = self.follow(intent, request, send, &mut trail);
        match tokio::time::timeout(self.timeout, followed).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.out_of_time(trail)),
        }
    }

    async fn follow<Q, A, F, S>(
        &self,
        intent: Intent,
        request: Q,
        send: F,
        trail: &mut Trail,
    ) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> S,
        S: Future<Output = Result<Response<A>, Status>>,
    {
        loop {
            let mut queue: VecDeque<String> = self.addresses.iter().cloned().collect();
            let mut hops = 0;
            while let Some(address) = queue.pop_front() {
                let channel = match self.connect(&address).await {
                    Ok(channel) => channel,
                    Err(cause) => {
                        trail.last = Some(format!("{address}: {cause}"));
                        continue;
                    }
                };
                let mut request = Request::new(request.clone());
                if intent != Intent::Subscribe {
                    request.set_timeout(self.timeout);
                }
                trail.in_flight = intent == Intent::Change;
                let sent = send(channel, request);
                let answer = match self.patience(intent) {
                    None => sent.await,
                    Some(patience) => tokio::time::timeout(patience, sent)
                        .await
                        .unwrap_or_else(|_| Err(Status::unavailable("no answer"))),
                };
                trail.in_flight = false;
                let status = match answer {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => status,
                };
                trail.last = Some(format!("{address}: {}", transport_text(&status)));
                match judge(intent, status) {
                    Next::Done(status) => return Err(CliError::from_status(&status)),
                    Next::AskOther { hint: Some(leader) } if hops < HOPS_MAX => {
                        hops += 1;
                        queue.push_front(leader);
                    }
                    Next::AskOther { .. } => {}
                }
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    /// How long one node may take to answer. A read goes on to the next node, so that a node that
    /// hangs does not use up all the time; a change cannot, so it waits.
    fn patience(&self, intent: Intent) -> Option<Duration> {
        let parts = u32::try_from(self.addresses.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        (intent != Intent::Change).then(|| self.timeout / parts)
    }

    async fn connect(&self, address: &str) -> Result<Channel, String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|error| deepest(&error))?
            .connect_timeout(CONNECT_TIMEOUT.min(self.timeout));
        if let Some(tls) = &self.tls {
            endpoint = endpoint
                .tls_config(tls.clone())
                .map_err(|error| deepest(&error))?;
        }
        endpoint.connect().await.map_err(|error| deepest(&error))
    }

    fn out_of_time(&self, trail: Trail) -> CliError {
        let after = humantime::format_duration(self.timeout);
        if trail.in_flight {
            return CliError::OutcomeUnknown {
                message: format!("no answer within {after}"),
            };
        }
        let asked = self.addresses.join(", ");
        let last = trail
            .last
            .map_or_else(String::new, |last| format!("; last, {last}"));
        CliError::Unavailable {
            message: format!("no coordinator could answer within {after}, asked {asked}{last}"),
        }
    }
}

/// Decides what follows an answer that is not a success.
fn judge(intent: Intent, status: Status) -> Next {
    let reason = error::reason(&status);
    if reason == reason::NOT_LEADER {
        return Next::AskOther {
            hint: leader(&status),
        };
    }
    if reason == reason::UNAVAILABLE {
        return Next::AskOther { hint: None };
    }
    let lost = reason.is_empty()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled
        );
    match intent {
        // The connection broke after the change was sent: nobody here knows whether it arrived.
        Intent::Change if lost => Next::Done(Status::deadline_exceeded(transport_text(&status))),
        Intent::Change => Next::Done(status),
        _ if lost || status.code() == Code::Unavailable => Next::AskOther { hint: None },
        _ => Next::Done(status),
    }
}

/// The leader's address, if the answer names it in a form that can be asked.
fn leader(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    let address = info.metadata.get(reason::LEADER_ADDRESS)?;
    crate::settings::address(address).ok()
}

fn tls_config(tls: &Tls) -> Result<ClientTlsConfig, CliError> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|error| CliError::Usage {
            message: format!("TLS file {} cannot be read: {error}", path.display()),
        })
    };
    let mut config = ClientTlsConfig::new();
    if let Some(ca) = &tls.ca {
        config = config.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}

/// What went wrong at the bottom: the layers above say only "transport error".
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn transport_text(status: &Status) -> String {
    let text = match std::error::Error::source(status) {
        Some(source) => deepest(source),
        None => status.message().to_owned(),
    };
    if text.is_empty() {
        format!("{:?}", status.code())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_whose_answer_was_lost_is_never_sent_again() {
        let lost = || Status::unavailable("connection reset");
        assert!(matches!(
            judge(Intent::Read, lost()),
            Next::AskOther { hint: None }
        ));
        let Next::Done(status) = judge(Intent::Change, lost()) else {
            panic!("sent again");
        };
        assert!(matches!(
            CliError::from_status(&status),
            CliError::OutcomeUnknown { .. }
        ));
    }
}
