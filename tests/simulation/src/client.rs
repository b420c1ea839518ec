//! Operators and watchers, in one process on a machine of their own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::connection::{CallError, Connection, ConnectionOptions, Repeat};
use tenure::{CheckpointStore as _, ReplicatedStore, Resource, ShardRef};
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tenure_proto::v1::event::Event;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tokio::sync::mpsc;

use crate::history::{History, Position};
use crate::network::MachineNetwork;
use crate::node::{CLIENT_PORT, PEER_PORT};
use crate::worker::{GROUP, STORES, count_of};

/// Orders that may wait.
pub const ORDERS_MAX: usize = 256;

/// Watchers that follow the group.
const WATCHERS: usize = 2;

/// Silence after which a watcher goes to another node.
const SILENCE_MAX: Duration = Duration::from_secs(8);

/// Pause before an order that could not be carried out is given again.
const RETRY: Duration = Duration::from_millis(200);

/// A group's policy, as far as runs differ in it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Life of a session without a heartbeat.
    pub ttl: Duration,
    /// Life of a session after its stream broke.
    pub disconnect_grace: Duration,
    /// How long an ended worker's shards wait for it.
    pub restart_grace: Duration,
    /// How long a shard is granted to nobody after an unclean end.
    pub lock_delay: Duration,
    /// How long a worker may take to release a revoked shard.
    pub drain_timeout: Duration,
}

/// What operators are told to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Make a cluster of the nodes, given by their hosts.
    Init(Vec<String>),
    /// Create the group.
    CreateGroup(u32, Terms),
    /// Drain a worker, or no longer.
    Drain(String, bool),
    /// Change the group's policy.
    SetTerms(Terms),
    /// Hand leadership to the node with that id.
    Transfer(u64),
    /// Read every shard of the replicated store and say so when it is done.
    ReadBack(u32),
}

/// What the client process needs.
#[derive(Clone)]
pub struct ClientSetup {
    /// Hosts of the coordinators.
    pub hosts: Vec<String>,
    /// Its machine's network.
    pub network: MachineNetwork,
    /// What is recorded.
    pub history: Arc<Mutex<History>>,
    /// What was carried out.
    pub done: Arc<Mutex<Done>>,
}

/// What operators have carried out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// The cluster exists.
    pub initialized: bool,
    /// The group exists.
    pub created: bool,
    /// Orders to drain or not that are not carried out yet.
    pub pending_drains: usize,
    /// Everything was read back.
    pub read_back: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until the run ends.
pub async fn run(setup: ClientSetup, mut orders: mpsc::Receiver<Order>) {
    let addresses: Vec<String> = setup
        .hosts
        .iter()
        .map(|host| format!("{host}:{CLIENT_PORT}"))
        .collect();
    let connect = |addresses: Vec<String>| {
        let options = ConnectionOptions::new(addresses).dialer(Arc::new(setup.network.clone()));
        Connection::new(options)
    };
    for watcher in 0..WATCHERS {
        // Each begins with another node.
        let mut addresses = addresses.clone();
        let begin = watcher % addresses.len().max(1);
        addresses.rotate_left(begin);
        if let Ok(connection) = connect(addresses) {
            tokio::spawn(watch(connection, Arc::clone(&setup.history)));
        }
    }
    while let Some(order) = orders.recv().await {
        let operator = connect(addresses.clone()).map(|connection| Operator {
            setup: setup.clone(),
            connection,
        });
        if let Ok(operator) = operator {
            tokio::spawn(operator.carry_out(order));
        }
    }
}

struct Operator {
    setup: ClientSetup,
    connection: Connection,
}

fn policy(terms: &Terms) -> (Option<pb::Policy>, Option<prost_types::FieldMask>) {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let policy = pb::Policy {
        ttl_ms: millis(terms.ttl),
        disconnect_grace_ms: millis(terms.disconnect_grace),
        restart_grace_ms: millis(terms.restart_grace),
        lock_delay_ms: millis(terms.lock_delay),
        drain_timeout_ms: millis(terms.drain_timeout),
        opening_deadline_ms: 5_000,
        ..pb::Policy::default()
    };
    let paths = [
        "ttl_ms",
        "disconnect_grace_ms",
        "restart_grace_ms",
        "lock_delay_ms",
        "drain_timeout_ms",
        "opening_deadline_ms",
    ];
    let mask = prost_types::FieldMask {
        paths: paths.map(str::to_owned).to_vec(),
    };
    (Some(policy), Some(mask))
}

impl Operator {
    async fn carry_out(self, order: Order) {
        tracing::info!(target: "simulation", ?order, "ordered");
        match order {
            Order::Init(hosts) => self.init(hosts).await,
            Order::CreateGroup(shards, terms) => self.create(shards, terms).await,
            Order::Drain(worker, drain) => self.drain(worker, drain).await,
            Order::SetTerms(terms) => self.set_terms(terms).await,
            Order::Transfer(to) => self.transfer(to).await,
            Order::ReadBack(shards) => self.read_back(shards).await,
        }
    }

    async fn init(&self, hosts: Vec<String>) {
        let nodes: Vec<pb::Node> = hosts
            .iter()
            .map(|host| pb::Node {
                id: 0,
                peer_address: format!("{host}:{PEER_PORT}"),
                client_address: format!("{host}:{CLIENT_PORT}"),
                http_address: String::new(),
            })
            .collect();
        let Some(first) = hosts.first() else { return };
        let options = ConnectionOptions::new([format!("{first}:{CLIENT_PORT}")])
            .dialer(Arc::new(self.setup.network.clone()));
        let Ok(connection) = Connection::new(options) else {
            return;
        };
        loop {
            let request = pb::InitRequest {
                nodes: nodes.clone(),
            };
            let answer = connection
                .any(Repeat::Always, |service| {
                    let request = request.clone();
                    async move { ClusterServiceClient::new(service).init(request).await }
                })
                .await;
            let exists = |error: &CallError| error.reason() == "CLUSTER_EXISTS";
            if answer.is_ok() || answer.as_ref().err().is_some_and(exists) {
                lock(&self.setup.done).initialized = true;
                return;
            }
            tracing::info!(target: "simulation", error = ?answer.err(), "no cluster yet");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn create(&self, shards: u32, terms: Terms) {
        let (policy, policy_mask) = policy(&terms);
        let request = pb::CreateGroupRequest {
            name: GROUP.to_owned(),
            shard_count: shards,
            policy,
            policy_mask,
        };
        loop {
            let answer = self
                .connection
                .leader(Repeat::Always, |service| {
                    let request = request.clone();
                    async move { AdminServiceClient::new(service).create_group(request).await }
                })
                .await;
            let exists = |error: &CallError| error.reason() == "GROUP_EXISTS";
            if answer.is_ok() || answer.as_ref().err().is_some_and(exists) {
                lock(&self.setup.done).created = true;
                return;
            }
            tracing::info!(target: "simulation", error = ?answer.err(), "no group yet");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn drain(&self, worker: String, drain: bool) {
        let mode = if drain {
            pb::WorkerMode::Draining
        } else {
            pb::WorkerMode::Active
        };
        let request = pb::SetWorkerModeRequest {
            group: GROUP.to_owned(),
            worker,
            mode: mode.into(),
            pause_timeout_ms: 0,
        };
        loop {
            let answer = self
                .connection
                .leader(Repeat::Always, |service| {
                    let request = request.clone();
                    async move {
                        AdminServiceClient::new(service)
                            .set_worker_mode(request)
                            .await
                    }
                })
                .await;
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        lock(&self.setup.done).pending_drains -= 1;
    }

    async fn set_terms(&self, terms: Terms) {
        let (policy, policy_mask) = policy(&terms);
        let request = pb::SetPolicyRequest {
            group: GROUP.to_owned(),
            policy,
            policy_mask,
            seen_revision: 0,
        };
        let answer = self
            .connection
            .leader(Repeat::Always, |service| {
                let request = request.clone();
                async move { AdminServiceClient::new(service).set_policy(request).await }
            })
            .await;
        tracing::info!(target: "simulation", error = ?answer.err(), "terms set");
    }

    async fn transfer(&self, to: u64) {
        let answer = self
            .connection
            .leader(Repeat::UntilSent, |service| async move {
                let request = pb::TransferLeaderRequest { to };
                ClusterServiceClient::new(service)
                    .transfer_leader(request)
                    .await
            })
            .await;
        tracing::info!(target: "simulation", error = ?answer.err(), "leadership handed over");
    }

    async fn read_back(&self, shards: u32) {
        let store = ReplicatedStore::new(self.connection.clone());
        for index in 0..shards {
            let Ok(group) = GROUP.parse() else { return };
            let resource = Resource::Shard(ShardRef { group, index });
            loop {
                let known = lock(&self.setup.history).acknowledged(STORES[0], index);
                match store.read(&resource).await {
                    Ok(found) => {
                        let count = count_of(found.as_ref());
                        lock(&self.setup.history).left(STORES[0], index, known, count);
                        break;
                    }
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            }
        }
        lock(&self.setup.done).read_back = true;
    }
}

/// Why a watch begins anew.
enum Anew {
    /// From where it was.
    Resume,
    /// From the state.
    State,
}

/// Follows the group for ever, from node to node.
async fn watch(connection: Connection, history: Arc<Mutex<History>>) {
    let mut after = None;
    loop {
        if let Ok((address, channel)) = connection.open_any().await {
            match follow(channel, &mut after, &history).await {
                Anew::Resume => {}
                Anew::State => after = None,
            }
            connection.leave(&address);
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(
    channel: tonic::transport::Channel,
    after: &mut Option<pb::Cursor>,
    history: &Mutex<History>,
) -> Anew {
    let request = pb::WatchRequest {
        group: GROUP.to_owned(),
        after: *after,
    };
    let mut client = OwnershipServiceClient::new(channel);
    let opened = tokio::time::timeout(SILENCE_MAX, client.watch(request)).await;
    let Ok(Ok(stream)) = opened else {
        return Anew::Resume;
    };
    let mut stream = stream.into_inner();
    loop {
        let message = tokio::time::timeout(SILENCE_MAX, stream.message()).await;
        let Ok(Ok(Some(message))) = message else {
            return Anew::Resume;
        };
        let Some(message) = message.message else {
            continue;
        };
        match message {
            Message::State(state) => {
                lock(history).shown(&state);
                // A state that is cut off half way has to be asked for again.
                *after = if state.last { state.at } else { None };
            }
            Message::Events(events) => {
                let kinds: Vec<(Position, String)> =
                    events.events.iter().filter_map(told).collect();
                if let (Some(before), Some(at)) = (*after, events.at) {
                    lock(history).watched(position(&before), position(&at), &kinds);
                }
                *after = events.at;
            }
            Message::Progress(at) => {
                if let Some(before) = *after
                    && position(&before) < position(&at)
                {
                    lock(history).watched(position(&before), position(&at), &[]);
                }
                *after = Some(at);
            }
            Message::Resync(_) => return Anew::State,
        }
    }
}

fn position(cursor: &pb::Cursor) -> Position {
    (cursor.revision, cursor.ordinal)
}

/// Returns an event as the coordinator's own text begins.
fn told(event: &pb::Event) -> Option<(Position, String)> {
    let at = position(event.cursor.as_ref()?);
    let text = match event.event.as_ref()? {
        Event::Registered(e) => format!("registered worker={} session={}", e.worker, e.session),
        Event::SessionEnded(e) => {
            format!("session ended worker={} session={}", e.worker, e.session)
        }
        Event::Granted(e) => format!(
            "granted shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::Serving(e) => format!(
            "serving shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::Revoking(e) => format!(
            "revoking shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::TenureEnded(e) => format!(
            "tenure ended shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::FloorRaised(e) => format!("floor raised shard={} floor={}", e.shard, e.floor),
        Event::GroupChanged(e) => match e.change() {
            pb::GroupChange::Created => "group created".to_owned(),
            pb::GroupChange::PolicySet => "policy set".to_owned(),
            _ => "group".to_owned(),
        },
        Event::WorkerModeSet(e) => format!("mode set worker={}", e.worker),
        Event::ShardPinned(e) => format!("pinned shard={}", e.shard),
        Event::ShardQuarantined(e) => {
            format!("quarantined shard={} crashes={}", e.shard, e.crashes)
        }
        Event::QuarantineEnded(e) => format!("quarantine ended shard={}", e.shard),
    };
    Some((at, text))
}
