//! The replicated store beside what else could keep fenced checkpoints: three nodes each, all at once on
//! this machine, one of them busy at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use benches::rounds::{self, Load, Writes};
use benches::table::{self, Table};
use bytes::Bytes;
use cluster_tests::failure::Failure;
use store_tests::etcd::EtcdCluster;

use crate::VALUE_BYTES;
use crate::arguments::Arguments;
use crate::etcd::Client;
use crate::tenure_cluster::Coordinators;
use crate::zookeeper::{Ensemble, Session};

/// How many write at the same time.
const WRITERS: usize = 64;

/// How many connections they share: each has its own, or those of a few processes.
const CONNECTIONS: [usize; 2] = [WRITERS, 4];

/// Longer than for a store: the others go on with what they do in between.
const BLOCK: Duration = Duration::from_millis(1_000);

/// Compares the three.
pub(crate) async fn compare(arguments: &Arguments) -> Result<Table, Failure> {
    let mut table = Table::new(&[
        "three nodes, 64 writers",
        "connections",
        "fenced writes/s",
        "of Tenure's time",
        "target",
        "met",
    ]);
    eprintln!("three clusters");
    let coordinators = Coordinators::start(WRITERS).await?;
    let etcd = EtcdCluster::start().await?;
    let ensemble = Ensemble::start().await?;
    let nodes = nodes(&ensemble).await?;
    for connections in CONNECTIONS {
        eprintln!("three clusters, {connections} connections");
        let all: [Arc<dyn Writes>; 3] = [
            Arc::new(coordinators.fenced(connections)?),
            Arc::new(EtcdWriters::start(&etcd, connections).await?),
            Arc::new(ZookeeperWriters::start(&ensemble, &nodes, connections).await?),
        ];
        let load = Load {
            writers: WRITERS,
            value_bytes: VALUE_BYTES,
            rounds: arguments.rounds(),
            block: arguments.block_or(BLOCK),
        };
        let rates = rounds::run(&all, &load).await?;
        for (place, name) in ["Tenure", "etcd", "ZooKeeper"].into_iter().enumerate() {
            let rate = table::rate(rates.of(place)?.median);
            let mut row = vec![name.to_owned(), connections.to_string(), rate];
            if place == 0 {
                row.extend(["1", "–", "–"].map(str::to_owned));
            } else {
                let ratio = rates.time_ratio(place, 0)?;
                let met = if ratio.median > 1.0 { "yes" } else { "no" };
                row.extend([ratio.to_string(), "> 1".to_owned(), met.to_owned()]);
            }
            table.add(row);
        }
    }
    Ok(table)
}

/// Writers to etcd, connected to the leader: elsewhere each write would be forwarded to it.
struct EtcdWriters {
    clients: Vec<Client>,
    fences: Vec<Bytes>,
    names: Vec<Bytes>,
    token: Bytes,
}

impl EtcdWriters {
    async fn start(cluster: &EtcdCluster, connections: usize) -> Result<Self, Failure> {
        let leader = leader(cluster).await?;
        let clients: Result<Vec<_>, _> = (0..connections).map(|_| Client::new(&leader)).collect();
        let names = |kind| (0..WRITERS).map(move |writer| format!("{kind}/{writer}").into());
        let writers = Self {
            clients: clients?,
            fences: names("fence").collect(),
            names: names("data").collect(),
            token: Bytes::from_static(b"0000000000000002@00c0ffee/2"),
        };
        for fence in &writers.fences {
            let put = writers.clients[0].put(fence.clone(), writers.token.clone());
            put.await?;
        }
        let (fence, name) = (writers.fences[0].clone(), writers.names[0].clone());
        let stale = Bytes::from_static(b"0000000000000001@00c0ffee/1");
        let put = writers.clients[0].put_fenced(fence, stale, name, Bytes::new());
        if put.await? {
            return Err(Failure::new("etcd has accepted a stale token"));
        }
        Ok(writers)
    }
}

async fn leader(cluster: &EtcdCluster) -> Result<String, Failure> {
    for endpoint in cluster.endpoints() {
        let status = Client::new(&endpoint)?.status().await?;
        if status.member == status.leader {
            return Ok(endpoint);
        }
    }
    Err(Failure::new("etcd has no leader"))
}

#[async_trait]
impl Writes for EtcdWriters {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let client = &self.clients[writer % self.clients.len()];
        let put = client.put_fenced(
            self.fences[writer].clone(),
            self.token.clone(),
            self.names[writer].clone(),
            value,
        );
        if put.await? {
            return Ok(());
        }
        Err(Failure::new("etcd has refused the owner's token"))
    }
}

/// The nodes of a writer: its fence, whose version is the token, and its data.
struct Nodes {
    fence: String,
    data: String,
}

/// Creates the nodes of all writers, their fences at version 1.
async fn nodes(ensemble: &Ensemble) -> Result<Arc<[Nodes]>, Failure> {
    let session = Session::open(ensemble.address(0)).await?;
    let mut nodes = Vec::with_capacity(WRITERS);
    for writer in 0..WRITERS {
        let node = Nodes {
            fence: format!("/fence-{writer}"),
            data: format!("/data-{writer}"),
        };
        session.create(&node.fence).await?;
        session.create(&node.data).await?;
        session.set(&node.fence, b"the owner").await?;
        nodes.push(node);
    }
    let first = &nodes[0];
    if session
        .set_fenced(&first.fence, 0, &first.data, b"")
        .await?
    {
        return Err(Failure::new("ZooKeeper has accepted a stale version"));
    }
    Ok(nodes.into())
}

/// Writers to ZooKeeper, their sessions spread over the servers.
struct ZookeeperWriters {
    sessions: Vec<Session>,
    nodes: Arc<[Nodes]>,
}

impl ZookeeperWriters {
    async fn start(
        ensemble: &Ensemble,
        nodes: &Arc<[Nodes]>,
        connections: usize,
    ) -> Result<Self, Failure> {
        let mut sessions = Vec::with_capacity(connections);
        for turn in 0..connections {
            sessions.push(Session::open(ensemble.address(turn)).await?);
        }
        let nodes = Arc::clone(nodes);
        Ok(Self { sessions, nodes })
    }
}

#[async_trait]
impl Writes for ZookeeperWriters {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let (session, nodes) = (
            &self.sessions[writer % self.sessions.len()],
            &self.nodes[writer],
        );
        if session
            .set_fenced(&nodes.fence, 1, &nodes.data, &value)
            .await?
        {
            return Ok(());
        }
        Err(Failure::new("ZooKeeper has refused the owner's version"))
    }
}
