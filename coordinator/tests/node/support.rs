//! Nodes on free ports, and what tests do with them.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tenure_coordinator::config::{Config, LocalPorts};
use tenure_coordinator::node::Node;
use tenure_coordinator::readiness::Readiness;
use tenure_fence::{Epoch, GroupName};
use tenure_ownership::Command;
use tenure_ownership::command::{Assign, CreateGroup, Grant, Register, Tenure};
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, WorkerName,
};
use tenure_ownership::policy::Policy;
use tenure_proto::reason;
use tenure_proto::v1 as pb;
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

/// How long anything may take before the test fails. Nothing is expected to take as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a future that must not take longer than [`PATIENCE`].
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

/// Settings of a node on free ports of this machine.
pub(crate) fn config(data_dir: PathBuf) -> Config {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut config = Config::local(
        data_dir,
        LocalPorts {
            client: any,
            peer: any,
            http: any,
        },
    );
    config.limits.watch_history_events = 1_000;
    config.storage.write_buffer_bytes = 4 << 20;
    config
}

/// A cluster of one node with its data.
pub(crate) struct Single {
    pub(crate) node: Node,
    pub(crate) channel: Channel,
    data: TempDir,
}

impl Single {
    pub(crate) async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let node = Node::start(&config(data.path().join("data")))
            .await
            .unwrap();
        let cluster = ClusterId(rand::random());
        soon(node.consensus().initialize(cluster, Vec::new(), PATIENCE))
            .await
            .unwrap();
        ready(&node).await;
        let channel = connect(&node.addresses().client).await;
        Self {
            node,
            channel,
            data,
        }
    }

    /// Stops the node and starts it again on the same data.
    pub(crate) async fn restart(self) -> Self {
        let Self { node, data, .. } = self;
        soon(node.shutdown()).await;
        let node = Node::start(&config(data.path().join("data")))
            .await
            .unwrap();
        ready(&node).await;
        let channel = connect(&node.addresses().client).await;
        Self {
            node,
            channel,
            data,
        }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data.path().join("data")
    }

    pub(crate) async fn stop(self) {
        soon(self.node.shutdown()).await;
    }

    /// Proposes a command that must be accepted, for every one of its shards.
    pub(crate) async fn propose(&self, command: Command) -> Revision {
        propose(&self.node, command).await
    }
}

pub(crate) async fn propose(node: &Node, command: Command) -> Revision {
    let applied = node.consensus().propose(&command, PATIENCE).await.unwrap();
    let effect = applied.outcome.unwrap();
    assert_eq!(effect.refused, [], "{command}");
    applied.revision
}

pub(crate) async fn ready(node: &Node) {
    let mut readiness = node.readiness();
    soon(readiness.wait_for(|readiness| *readiness == Readiness::Ready))
        .await
        .unwrap();
}

pub(crate) async fn connect(address: &str) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    soon(endpoint.connect()).await.unwrap()
}

pub(crate) fn group_name(name: &str) -> GroupName {
    GroupName::try_from(name).unwrap()
}

/// A group with one registered worker.
pub(crate) struct Owned {
    pub(crate) name: GroupName,
    pub(crate) group: GroupId,
    pub(crate) session: SessionId,
    pub(crate) cluster: ClusterId,
}

impl Owned {
    /// Creates a group and registers a worker.
    pub(crate) async fn create(node: &Node, name: &str, shard_count: u32) -> Self {
        let name = group_name(name);
        // The sessions have no streams: nothing must happen to them while a test runs.
        let policy = Policy {
            ttl: Duration::from_secs(600),
            opening_deadline: Duration::from_secs(3600),
            drain_timeout: Duration::from_secs(3600),
            ..Policy::default()
        };
        let create = CreateGroup {
            name: name.clone(),
            shard_count,
            policy,
        };
        let group = GroupId(propose(node, Command::CreateGroup(create)).await.0);
        let cluster = node.consensus().read(|state| state.cluster()).unwrap();
        let mut owned = Self {
            name,
            group,
            session: SessionId(0),
            cluster,
        };
        owned.session = owned.register(node, "worker-1").await;
        owned
    }

    pub(crate) async fn register(&self, node: &Node, worker: &str) -> SessionId {
        let register = Register {
            group: self.name.clone(),
            worker: WorkerName::new(worker).unwrap(),
            nonce: ProcessNonce(rand::random()),
            first: None,
            replaces: None,
            ttl: None,
            weight: 1,
            labels: Default::default(),
            address: format!("{worker}:80"),
        };
        SessionId(propose(node, Command::Register(Box::new(register))).await.0)
    }

    /// Grants shards, whose epochs are `seen`, in one command.
    pub(crate) async fn grant(
        &self,
        node: &Node,
        shards: std::ops::Range<u32>,
        seen: Option<Epoch>,
        to: SessionId,
    ) -> Revision {
        let grants = shards
            .map(|shard| Grant {
                shard: ShardIndex(shard),
                seen,
                to,
            })
            .collect();
        let assign = Assign {
            group: self.group,
            grants,
            revokes: Vec::new(),
        };
        propose(node, Command::Assign(assign)).await
    }

    pub(crate) fn owner(&self, session: SessionId) -> pb::Session {
        pb::Session {
            cluster_id: self.cluster.0.to_be_bytes().to_vec().into(),
            number: session.0,
        }
    }

    pub(crate) fn token(&self, shard: u32, epoch: u64, session: SessionId) -> pb::FencingToken {
        pb::FencingToken {
            resource: format!("shard/{}/{shard}", self.name),
            epoch,
            owner: Some(self.owner(session)),
        }
    }
}

pub(crate) fn tenures(shards: std::ops::Range<u32>, epoch: Epoch) -> Vec<Tenure> {
    shards
        .map(|shard| Tenure {
            shard: ShardIndex(shard),
            epoch,
        })
        .collect()
}

/// The reason an error gives to programs.
pub(crate) fn reason_of(status: &Status) -> String {
    let info = status
        .get_details_error_info()
        .unwrap_or_else(|| panic!("no reason: {status:?}"));
    assert_eq!(info.domain, reason::DOMAIN);
    info.reason
}

pub(crate) fn metadata_of(status: &Status, key: &str) -> String {
    let info = status.get_details_error_info().unwrap();
    info.metadata.get(key).cloned().unwrap_or_default()
}

/// The field an error blames.
pub(crate) fn field_of(status: &Status) -> String {
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    assert_eq!(reason_of(status), reason::INVALID_ARGUMENT);
    status.get_details_bad_request().unwrap().field_violations[0]
        .field
        .clone()
}
