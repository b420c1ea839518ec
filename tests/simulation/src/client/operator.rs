//! What operators do, against the real services.

use std::sync::Arc;
use std::time::Duration;

use tenure::connection::{CallError, Connection, ConnectionOptions, Repeat, Service};
use tenure::{CheckpointStore as _, ReplicatedStore, Resource, ShardRef};
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tokio::sync::mpsc;
use tonic::{Response, Status};

use super::{Change, ClientSetup, Order, Pin, RETRY, Terms, lock};
use crate::node::{CLIENT_PORT, PEER_PORT};
use crate::worker::{GROUP, STORES, count_of};

/// How long the shards of a paused worker wait for it: shorter than many restarts and pauses of workers.
const PAUSE_MS: u64 = 3_000;

pub(super) struct Operator {
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

/// Returns where the node on a host is reached.
fn addresses(host: &str) -> pb::Node {
    pb::Node {
        id: 0,
        peer_address: format!("{host}:{PEER_PORT}"),
        client_address: format!("{host}:{CLIENT_PORT}"),
        http_address: String::new(),
    }
}

impl Operator {
    pub(super) fn new(setup: ClientSetup, connection: Connection) -> Self {
        Self { setup, connection }
    }

    pub(super) async fn carry_out(self, order: Order) {
        tracing::info!(target: "simulation", ?order, "ordered");
        match order {
            Order::Init(hosts) => self.init(hosts).await,
            Order::CreateGroup(shards, terms) => self.create(shards, terms).await,
            Order::SetTerms(terms) => self.set_terms(terms).await,
            Order::Transfer(to) => self.transfer(to).await,
            Order::AddNode(host) => self.add_node(host).await,
            Order::RemoveNode(host) => self.remove_node(host).await,
            Order::ReadBack(shards) => self.read_back(shards).await,
        }
    }

    async fn init(&self, hosts: Vec<String>) {
        let nodes: Vec<pb::Node> = hosts.iter().map(|host| addresses(host)).collect();
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
                let mut done = lock(&self.setup.done);
                done.initialized = true;
                // In the order in which they are named.
                done.members = hosts.into_iter().zip(1..).collect();
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
                .admin(&request, |mut admin, request| async move {
                    admin.create_group(request).await
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

    /// Asks the leader for a change of a group, again until it is known what became of it.
    async fn admin<R, T, F>(
        &self,
        request: &R,
        call: impl Fn(AdminServiceClient<Service>, R) -> F,
    ) -> Result<T, CallError>
    where
        R: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let ask = |service| call(AdminServiceClient::new(service), request.clone());
        self.connection.leader(Repeat::Always, ask).await
    }

    /// Makes changes until the run ends, one after the other.
    pub(super) async fn change_all(self, mut changes: mpsc::Receiver<Change>) {
        while let Some(change) = changes.recv().await {
            tracing::info!(target: "simulation", ?change, "ordered");
            while let Err(error) = self.change(&change).await {
                tracing::info!(target: "simulation", ?error, "not changed yet");
                // Whoever still wants workers evened out says so again.
                if matches!(change, Change::Rebalance(_)) {
                    break;
                }
                tokio::time::sleep(RETRY).await;
            }
            lock(&self.setup.done).pending_changes -= 1;
        }
    }

    async fn change(&self, change: &Change) -> Result<(), CallError> {
        let group = GROUP.to_owned();
        match change {
            Change::Mode(worker, mode) => {
                let paused = *mode == pb::WorkerMode::Paused;
                let request = pb::SetWorkerModeRequest {
                    group,
                    worker: worker.clone(),
                    mode: (*mode).into(),
                    pause_timeout_ms: if paused { PAUSE_MS } else { 0 },
                };
                self.admin(&request, |mut admin, request| async move {
                    admin.set_worker_mode(request).await
                })
                .await
                .map(drop)
            }
            Change::Freeze(frozen) => {
                let reason = if *frozen { "a release" } else { "" };
                let request = pb::SetFreezeRequest {
                    group,
                    reason: reason.to_owned(),
                };
                self.admin(&request, |mut admin, request| async move {
                    admin.set_freeze(request).await
                })
                .await
                .map(drop)
            }
            Change::Pin(index, pin) => self.pin(*index, pin.as_ref()).await,
            Change::Rebalance(moves_max) => {
                let moves_max = *moves_max;
                let request = pb::RebalanceRequest { group, moves_max };
                self.admin(&request, |mut admin, request| async move {
                    admin.rebalance(request).await
                })
                .await
                .map(drop)
            }
        }
    }

    async fn pin(&self, index: u32, pin: Option<&Pin>) -> Result<(), CallError> {
        let group = GROUP.to_owned();
        let shard = Some(pb::ShardRef { group, index });
        let Some(pin) = pin else {
            let request = pb::UnpinShardRequest { shard };
            return self
                .admin(&request, |mut admin, request| async move {
                    admin.unpin_shard(request).await
                })
                .await
                .map(drop);
        };
        let (to, kept_off) = match pin {
            Pin::To(worker) => (worker.clone(), Vec::new()),
            Pin::KeptOff(worker) => (String::new(), vec![worker.clone()]),
        };
        let request = pb::PinShardRequest {
            shard,
            to,
            kept_off,
        };
        self.admin(&request, |mut admin, request| async move {
            admin.pin_shard(request).await
        })
        .await
        .map(drop)
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
            .admin(&request, |mut admin, request| async move {
                admin.set_policy(request).await
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

    /// Takes a node in. A call that failed is repeated, and goes on where it stopped.
    async fn add_node(&self, host: String) {
        let node = addresses(&host);
        let id = loop {
            let answer = self
                .connection
                .leader(Repeat::Always, |service| {
                    let node = Some(node.clone());
                    async move {
                        let request = pb::AddNodeRequest { node };
                        ClusterServiceClient::new(service).add_node(request).await
                    }
                })
                .await;
            match answer {
                Ok(added) => break added.id,
                Err(error) => tracing::info!(target: "simulation", ?error, "not added yet"),
            }
            tokio::time::sleep(RETRY).await;
        };
        lock(&self.setup.done).members.insert(host, id);
    }

    /// Removes a node. A call that failed is repeated until the node is not known any more.
    async fn remove_node(&self, host: String) {
        let Some(id) = lock(&self.setup.done).members.get(&host).copied() else {
            return;
        };
        loop {
            let answer = self
                .connection
                .leader(Repeat::Always, |service| async move {
                    let request = pb::RemoveNodeRequest { id };
                    ClusterServiceClient::new(service)
                        .remove_node(request)
                        .await
                })
                .await;
            match answer {
                Ok(_) => break,
                Err(error) if error.status().code() == tonic::Code::NotFound => break,
                Err(error) => tracing::info!(target: "simulation", ?error, "not removed yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
        lock(&self.setup.done).members.remove(&host);
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
