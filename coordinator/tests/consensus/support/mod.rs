//! Nodes in one process, on real folders and loopback sockets that can be cut.

mod net;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_coordinator::consensus::{
    Consensus, ConsensusOptions, Envelope, NodeAddresses, NodeId, Observer, Outcome, Role,
};
use tenure_coordinator::storage::{RocksOptions, RocksStorage, StorageError};
use tenure_coordinator::watch::Hub;
use tenure_ownership::State;
use tenure_ownership::command::{Command, CreateGroup, Register};
use tenure_ownership::ids::{ClusterId, ProcessNonce, Revision, WorkerName};
use tenure_ownership::policy::Policy;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use net::{Switchboard, SwitchedConnector, serve};

/// Longer than anything takes that succeeds.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

/// More events than any of these tests causes.
const HISTORY_EVENTS_MAX: usize = 1_000_000;

const CLUSTER: ClusterId = ClusterId(0x1234_5678_9abc_def0);

pub(crate) fn create_group(name: &str, shard_count: u32) -> Command {
    Command::CreateGroup(CreateGroup {
        name: name.parse().unwrap(),
        shard_count,
        policy: Policy::default(),
    })
}

/// Waits until a condition holds.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(value) = condition() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// Follows what is applied, and passes it on to the node's history of events.
pub(crate) struct Recorder {
    seen: Mutex<Seen>,
    pub(crate) hub: Arc<Hub>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            seen: Mutex::default(),
            hub: Arc::new(Hub::new(HISTORY_EVENTS_MAX)),
        }
    }
}

#[derive(Default)]
struct Seen {
    last: Revision,
    disordered: bool,
    replacements: usize,
}

impl Recorder {
    pub(crate) fn last(&self) -> Revision {
        self.seen.lock().unwrap().last
    }

    pub(crate) fn is_ordered(&self) -> bool {
        !self.seen.lock().unwrap().disordered
    }

    pub(crate) fn replacements(&self) -> usize {
        self.seen.lock().unwrap().replacements
    }
}

impl Observer for Recorder {
    fn applied(&self, revision: Revision, envelope: &Envelope, outcome: &Outcome) {
        {
            let mut seen = self.seen.lock().unwrap();
            seen.disordered |= revision <= seen.last;
            seen.last = revision;
        }
        self.hub.applied(revision, envelope, outcome);
    }

    fn replaced(&self, revision: Revision) {
        {
            let mut seen = self.seen.lock().unwrap();
            seen.replacements += 1;
            seen.last = revision;
        }
        self.hub.replaced(revision);
    }
}

pub(crate) struct Node {
    pub(crate) addresses: NodeAddresses,
    pub(crate) observer: Arc<Recorder>,
    folder: PathBuf,
    id: Option<NodeId>,
    running: Option<Up>,
    applied: Revision,
}

struct Up {
    consensus: Consensus,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Node {
    pub(crate) fn consensus(&self) -> &Consensus {
        &self.running.as_ref().unwrap().consensus
    }

    pub(crate) async fn propose_group(&self, name: &str) -> Revision {
        self.propose_sized(name, 1).await
    }

    pub(crate) async fn propose_sized(&self, name: &str, shard_count: u32) -> Revision {
        let command = create_group(name, shard_count);
        let applied = self.consensus().propose(&command, WITHIN).await.unwrap();
        applied.outcome.unwrap();
        applied.revision
    }

    pub(crate) async fn propose_worker(&self, group: &str, worker: &str) {
        let register = Register {
            group: group.parse().unwrap(),
            worker: WorkerName::new(worker).unwrap(),
            nonce: ProcessNonce(1),
            first: None,
            replaces: None,
            ttl: None,
            weight: 1,
            labels: BTreeMap::new(),
            address: String::new(),
        };
        let command = Command::Register(Box::new(register));
        let applied = self.consensus().propose(&command, WITHIN).await.unwrap();
        applied.outcome.unwrap();
    }

    /// Reads what every other node has acknowledged, however long that takes to be possible.
    pub(crate) async fn barrier(&self) -> Revision {
        let reading = async {
            loop {
                match self.consensus().read_barrier(Duration::from_secs(1)).await {
                    Ok(revision) => return revision,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(WITHIN, reading)
            .await
            .expect("no barrier")
    }

    pub(crate) fn groups(&self) -> Vec<String> {
        self.consensus().read(|state| {
            state
                .groups()
                .map(|group| group.header.name.to_string())
                .collect()
        })
    }

    pub(crate) fn state(&self) -> State {
        self.consensus().state()
    }

    async fn start(
        &mut self,
        switchboard: &Arc<Switchboard>,
        configure: fn(&mut ConsensusOptions),
    ) {
        let mut options = ConsensusOptions::new(self.addresses.clone());
        configure(&mut options);
        let small = RocksOptions {
            write_buffer_bytes: 4 << 20,
            background_jobs: 1,
        };
        // The last references of the node that ran before may still be on their way out.
        let storage = eventually("release of the data folder", || {
            match RocksStorage::open(&self.folder, small) {
                Ok(storage) => Some(storage),
                Err(StorageError::Locked { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        self.observer = Arc::new(Recorder::default());
        let connector = SwitchedConnector {
            own: self.addresses.raft.clone(),
            switchboard: Arc::clone(switchboard),
        };
        let observer: Arc<Recorder> = Arc::clone(&self.observer);
        let (consensus, service) =
            Consensus::start(options, Arc::new(storage), Arc::new(connector), observer)
                .await
                .unwrap();
        let found = consensus.read(|state| state.revision());
        self.observer.hub.loaded(found);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(self.addresses.raft.clone(), service, stopped));
        self.running = Some(Up {
            consensus,
            stop,
            server,
        });
    }

    async fn stop(&mut self) {
        let Some(up) = self.running.take() else {
            return;
        };
        self.applied = up.consensus.applied();
        let _ = up.stop.send(());
        let stopping = up.consensus.shutdown();
        tokio::time::timeout(WITHIN, stopping)
            .await
            .expect("node does not stop");
        let server = tokio::time::timeout(WITHIN, up.server).await;
        server.expect("peer service does not stop").unwrap();
    }
}

pub(crate) struct Cluster {
    nodes: Vec<Node>,
    switchboard: Arc<Switchboard>,
    configure: fn(&mut ConsensusOptions),
    folder: TempDir,
}

impl Cluster {
    pub(crate) async fn start(size: usize) -> Self {
        Self::start_with(size, |_| {}).await
    }

    pub(crate) async fn start_with(size: usize, configure: fn(&mut ConsensusOptions)) -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            switchboard: Arc::default(),
            configure,
            folder: TempDir::new().unwrap(),
        };
        for _ in 0..size {
            cluster.start_node().await;
        }
        let others = cluster
            .nodes
            .iter()
            .skip(1)
            .map(|node| node.addresses.clone())
            .collect();
        cluster.nodes[0]
            .consensus()
            .initialize(CLUSTER, others, WITHIN)
            .await
            .unwrap();
        for node in &mut cluster.nodes {
            let identity = node.consensus().identity().unwrap();
            assert_eq!(identity.cluster, CLUSTER);
            node.id = Some(identity.node);
        }
        cluster
    }

    async fn start_node(&mut self) -> usize {
        let slot = self.nodes.len();
        let mut node = Node {
            addresses: NodeAddresses {
                raft: free_address().await,
                client: free_address().await,
                http: String::new(),
            },
            observer: Arc::default(),
            folder: self.folder.path().join(format!("node{slot}")),
            id: None,
            running: None,
            applied: Revision(0),
        };
        node.start(&self.switchboard, self.configure).await;
        self.nodes.push(node);
        slot
    }

    fn slot(&self, id: NodeId) -> usize {
        self.nodes
            .iter()
            .position(|node| node.id == Some(id))
            .unwrap()
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[self.slot(id)]
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.iter().filter_map(|node| node.id).collect()
    }

    pub(crate) fn others(&self, id: NodeId) -> Vec<NodeId> {
        self.ids()
            .into_iter()
            .filter(|other| *other != id)
            .collect()
    }

    /// Waits until a node leads and all others that run follow it.
    pub(crate) async fn leader(&self) -> NodeId {
        self.leader_where(|_| true).await
    }

    pub(crate) async fn leader_other_than(&self, id: NodeId) -> NodeId {
        self.leader_where(|other| other != id).await
    }

    async fn leader_where(&self, counts: impl Fn(NodeId) -> bool) -> NodeId {
        eventually("an election", || {
            let known: Vec<_> = self
                .nodes
                .iter()
                .filter(|node| node.running.is_some() && node.id.is_some_and(&counts))
                .map(|node| node.consensus().leadership().borrow().clone())
                .collect();
            let leader = known.iter().find(|known| known.is_leader)?;
            let is_agreed = known
                .iter()
                .all(|other| other.term == leader.term && other.leader == leader.leader);
            is_agreed
                .then(|| leader.leader.as_ref().map(|leader| leader.id))
                .flatten()
        })
        .await
    }

    pub(crate) fn voters(&self, seen_by: NodeId) -> usize {
        let status = self.node(seen_by).consensus().status();
        status
            .nodes
            .iter()
            .filter(|node| node.role != Role::Learner)
            .count()
    }

    /// What a node had applied when it was stopped.
    pub(crate) fn last_seen(&self, id: NodeId) -> Option<Revision> {
        Some(self.node(id).applied)
    }

    pub(crate) async fn stop(&mut self, id: NodeId) {
        let slot = self.slot(id);
        self.nodes[slot].stop().await;
    }

    pub(crate) async fn stop_all(&mut self) {
        for node in &mut self.nodes {
            node.stop().await;
        }
    }

    pub(crate) async fn restart(&mut self, id: NodeId) {
        let slot = self.slot(id);
        self.nodes[slot]
            .start(&self.switchboard, self.configure)
            .await;
    }

    /// Starts another node and adds it.
    pub(crate) async fn add(&mut self, leader: NodeId) -> NodeId {
        let slot = self.start_node().await;
        self.add_slot(leader, slot).await
    }

    /// Empties a node and starts it.
    pub(crate) async fn wipe(&mut self, id: NodeId) {
        let slot = self.slot(id);
        self.nodes[slot].stop().await;
        let folder = self.nodes[slot].folder.clone();
        eventually("release of the data folder", || {
            match RocksStorage::open(&folder, RocksOptions::default()) {
                Ok(_) => Some(()),
                Err(StorageError::Locked { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        std::fs::remove_dir_all(&folder).unwrap();
        self.nodes[slot]
            .start(&self.switchboard, self.configure)
            .await;
    }

    /// Adds a node that runs and was emptied.
    pub(crate) async fn add_existing(&mut self, leader: NodeId, old: NodeId) -> NodeId {
        let slot = self.slot(old);
        self.add_slot(leader, slot).await
    }

    async fn add_slot(&mut self, leader: NodeId, slot: usize) -> NodeId {
        let addresses = self.nodes[slot].addresses.clone();
        let id = self
            .node(leader)
            .consensus()
            .add_node(addresses, WITHIN)
            .await
            .unwrap();
        self.nodes[slot].id = Some(id);
        assert_eq!(self.nodes[slot].consensus().identity().unwrap().node, id);
        id
    }

    /// Cuts every connection to and from a node.
    pub(crate) fn cut_off(&self, id: NodeId) {
        self.switchboard.cut(&self.node(id).addresses.raft);
    }

    /// Cuts the connections between two nodes, and no others.
    pub(crate) fn cut_between(&self, one: NodeId, other: NodeId) {
        let [one, other] = [one, other].map(|id| &self.node(id).addresses.raft);
        self.switchboard.cut_between(one, other);
    }

    /// Ends every cut that concerns a node.
    pub(crate) fn heal(&self, id: NodeId) {
        self.switchboard.heal(&self.node(id).addresses.raft);
    }
}

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}
