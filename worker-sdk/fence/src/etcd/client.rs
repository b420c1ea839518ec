//! Requests to a cluster: over its endpoints, with tries and a deadline.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::error::CheckpointError;

use super::failure::{Failure, Reason};
use super::keys;
use super::options::{EtcdStoreOptions, EtcdTls, EtcdUser, OptionsError};
use super::proto::auth_client::AuthClient;
use super::proto::kv_client::KvClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::{AuthenticateRequest, StatusRequest, TxnRequest, TxnResponse};

/// How often all endpoints are tried, within the deadline.
const ROUNDS: u32 = 8;

/// The longest pause before the second round; it doubles with each, up to a part of the deadline that
/// leaves time for the tries themselves.
const PAUSE_MS: u64 = 100;
const PAUSE_PART: u32 = 12;

/// A part of the deadline: how long one endpoint may take, so that there is time for others.
const ENDPOINT_PART: u32 = 3;

/// What an answer holds beside the value.
const ANSWER_OVERHEAD_BYTES: usize = 1 << 20;

/// etcd closes connections that are pinged more often than every 5 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Client {
    members: Vec<Member>,
    /// Which one to ask first: the one that has answered last.
    current: AtomicUsize,
    /// The cluster that the store was opened in. Another, which an endpoint may come to belong to, has
    /// other fences.
    cluster: OnceLock<u64>,
    user: Option<EtcdUser>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    deadline: Duration,
    answer_bytes_max: usize,
}

/// One endpoint. Connected when it is first needed, and again after the connection broke.
struct Member {
    endpoint: String,
    channel: Channel,
}

/// One call of the store: several requests under one deadline.
pub(super) struct Call<'a> {
    client: &'a Client,
    doubt: Doubt,
}

/// Whether a request of a call may have happened: it is on its way, or was not answered. Until a later
/// one settles it, the call must not say that nothing happened.
#[derive(Default)]
struct Doubt(AtomicBool);

impl Doubt {
    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn replace(&self, may_have_happened: bool) -> bool {
        self.0.swap(may_have_happened, Ordering::Relaxed)
    }
}

impl Client {
    pub(super) fn new(
        endpoints: &[&str],
        options: &EtcdStoreOptions,
    ) -> Result<Self, OptionsError> {
        if endpoints.is_empty() {
            return Err(OptionsError::NoEndpoint);
        }
        let members = endpoints.iter().map(|endpoint| member(endpoint, options));
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            user: options.user.clone(),
            token: Mutex::default(),
            deadline: options.deadline,
            answer_bytes_max: options.max_value_bytes + ANSWER_OVERHEAD_BYTES,
        })
    }

    /// Begins a call, whose deadline runs from [`Call::bounded`].
    pub(super) fn begin(&self) -> Call<'_> {
        Call {
            client: self,
            doubt: Doubt::default(),
        }
    }

    /// Reads, or does what may be done again, within the deadline.
    pub(super) async fn read(&self, request: TxnRequest) -> Result<TxnResponse, CheckpointError> {
        let answer = timeout(self.deadline, self.txn(&request, &Doubt::default())).await;
        let answer = answer.unwrap_or(Err(Failure::Unknown(Reason::Late(self.deadline))));
        answer.map_err(Failure::into_unavailable)
    }

    /// Asks every endpoint who it is. Fails when none answers, or one belongs to another cluster.
    pub(super) async fn check_members(&self) -> Result<(), CheckpointError> {
        let asked = self.members.iter().map(|member| self.cluster_id(member));
        let answers = join_all(asked).await;
        let mut failure = Some(Failure::NotReached(Reason::Untried));
        for (member, answer) in self.members.iter().zip(answers) {
            match answer {
                Ok(id) if self.is_known(id) => failure = None,
                Ok(_) => {
                    let other = Failure::Unsupported(other_cluster(member));
                    return Err(other.into_unavailable());
                }
                Err(error) => failure = failure.map(|_| error),
            }
        }
        failure.map_or(Ok(()), |failure| Err(failure.into_unavailable()))
    }

    /// Returns whether this is the store's cluster. The first that answers is.
    fn is_known(&self, cluster: u64) -> bool {
        *self.cluster.get_or_init(|| cluster) == cluster
    }

    async fn cluster_id(&self, member: &Member) -> Result<u64, Failure> {
        let mut client = MaintenanceClient::new(member.channel.clone());
        let status = client.status(StatusRequest {});
        let status = self.in_time(member, status).await?.into_inner();
        Ok(status
            .header
            .map(|header| header.cluster_id)
            .unwrap_or_default())
    }

    /// Runs a transaction, on one endpoint after the other until one answers.
    async fn txn(&self, request: &TxnRequest, doubt: &Doubt) -> Result<TxnResponse, Failure> {
        let mut last = Reason::Untried;
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(self.pause(round)).await;
            }
            for _ in 0..self.members.len() {
                let turn = self.current.load(Ordering::Relaxed);
                // The call may be stopped while this is on its way.
                let before = doubt.replace(true);
                match self.try_on(turn, request).await {
                    Err(Failure::NotReached(reason)) => {
                        doubt.replace(before);
                        last = reason;
                    }
                    Err(Failure::Unknown(reason)) => last = reason,
                    Err(refused) => {
                        doubt.replace(before);
                        return Err(refused);
                    }
                    Ok(answer) => {
                        // What it compared was not so any more: an earlier try of it may be why.
                        doubt.replace(before && !answer.succeeded);
                        return Ok(answer);
                    }
                }
                // Only the first of those that found this one silent moves on.
                let next = (turn + 1) % self.members.len();
                let (relaxed, current) = (Ordering::Relaxed, &self.current);
                let _ = current.compare_exchange(turn, next, relaxed, relaxed);
            }
        }
        Err(Failure::NotReached(last))
    }

    async fn try_on(&self, turn: usize, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        let member = &self.members[turn % self.members.len()];
        let known = self.token().clone();
        let token = match (&self.user, known) {
            (Some(user), None) => Some(self.authenticate(member, user).await?),
            (_, known) => known,
        };
        match (self.send(member, request, token).await, &self.user) {
            (Err(Failure::StaleToken(_)), Some(user)) => {
                let token = self.authenticate(member, user).await?;
                self.send(member, request, Some(token)).await
            }
            (answer, _) => answer,
        }
    }

    async fn send(
        &self,
        member: &Member,
        request: &TxnRequest,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<TxnResponse, Failure> {
        let mut request = Request::new(request.clone());
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        let client = KvClient::new(member.channel.clone());
        let mut client = client.max_decoding_message_size(self.answer_bytes_max);
        let answer = self.in_time(member, client.txn(request)).await?;
        let answer = answer.into_inner();
        // Whatever it has done there, in this cluster it did nothing.
        match &answer.header {
            Some(header) if self.is_known(header.cluster_id) => Ok(answer),
            _ => Err(Failure::NotReached(other_cluster(member))),
        }
    }

    async fn authenticate(
        &self,
        member: &Member,
        user: &EtcdUser,
    ) -> Result<MetadataValue<Ascii>, Failure> {
        let request = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.clone(),
        };
        let mut client = AuthClient::new(member.channel.clone());
        let answer = self.in_time(member, client.authenticate(request)).await;
        // Whatever became of this, the request it is for was not sent.
        let answer = answer.map_err(|failure| match failure {
            Failure::Unknown(reason) => Failure::NotReached(reason),
            failure => failure,
        })?;
        let token = answer.into_inner().token.parse();
        let token: MetadataValue<Ascii> = token.map_err(|_| {
            let status = Status::internal("the token cannot be sent back");
            Failure::NotReached(reason(member, status))
        })?;
        *self.token() = Some(token.clone());
        Ok(token)
    }

    /// Waits for an answer of one endpoint.
    async fn in_time<T>(
        &self,
        member: &Member,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        let patience = self.deadline / ENDPOINT_PART;
        match timeout(patience, answer).await {
            Ok(answer) => answer.map_err(|status| Failure::of(&member.endpoint, status)),
            Err(_) => Err(Failure::Unknown(Reason::Late(patience))),
        }
    }

    /// Chooses the pause before a round. The standard library's source of hash keys is random enough.
    fn pause(&self, round: u32) -> Duration {
        let most = Duration::from_millis(PAUSE_MS << round.min(8)).min(self.deadline / PAUSE_PART);
        let random = RandomState::new().hash_one(()) % 1_000;
        most * u32::try_from(random).unwrap_or(0) / 1_000
    }

    fn token(&self) -> MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    /// Lets the call come to an end within its deadline. Only what follows an unanswered change is in
    /// doubt: the write may have landed before the fence rose.
    pub(super) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let deadline = self.client.deadline;
        let late = || Failure::NotReached(Reason::Late(deadline));
        let done = timeout(deadline, work).await;
        let done = done.unwrap_or_else(|_| Err(late().into_unavailable()));
        if self.doubt.get() {
            return done.map_err(CheckpointError::in_doubt);
        }
        done
    }

    /// Runs a transaction that changes nothing.
    pub(super) async fn read(&self, request: TxnRequest) -> Result<TxnResponse, CheckpointError> {
        let answer = self.client.txn(&request, &Doubt::default()).await;
        answer.map_err(Failure::into_unavailable)
    }

    /// Runs a transaction that changes something if what it compares is so.
    ///
    /// It may be sent several times. The first that lands changes what it compares, so that no other
    /// does.
    pub(super) async fn change(&self, request: TxnRequest) -> Result<TxnResponse, CheckpointError> {
        let answer = self.client.txn(&request, &self.doubt).await;
        let length_bytes = keys::put_bytes(&request);
        answer.map_err(|failure| failure.into_outcome(length_bytes))
    }
}

/// The outcome when others changed what is compared each time.
pub(super) fn beaten() -> CheckpointError {
    Failure::Refused(Reason::Beaten).into_unavailable()
}

fn other_cluster(member: &Member) -> Reason {
    Reason::OtherCluster {
        endpoint: member.endpoint.clone(),
    }
}

/// Returns the revision at which a transaction was done.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

fn member(endpoint: &str, options: &EtcdStoreOptions) -> Result<Member, OptionsError> {
    let refused = |source| OptionsError::Endpoint {
        endpoint: endpoint.to_owned(),
        source,
    };
    let mut built = Endpoint::from_shared(endpoint.to_owned())
        .map_err(refused)?
        // Below what one endpoint may take: a host that does not answer is known not to have been
        // sent anything.
        .connect_timeout(options.deadline / (ENDPOINT_PART + 1))
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(options.deadline)
        .tcp_nodelay(true);
    if let Some(tls) = &options.tls {
        built = built.tls_config(tls_config(tls)).map_err(refused)?;
    } else if built.uri().scheme_str() == Some("https") {
        return Err(OptionsError::NoTls(endpoint.to_owned()));
    }
    Ok(Member {
        endpoint: endpoint.to_owned(),
        channel: built.connect_lazy(),
    })
}

fn tls_config(tls: &EtcdTls) -> ClientTlsConfig {
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.root_certificate_pem));
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    if let Some(identity) = &tls.identity {
        let identity = Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
        config = config.identity(identity);
    }
    config
}

fn reason(member: &Member, status: Status) -> Reason {
    Reason::Status {
        endpoint: member.endpoint.clone(),
        status: Box::new(status),
    }
}
