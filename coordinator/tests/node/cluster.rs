//! Several nodes, and nodes that must not start.

use std::path::Path;

use tempfile::TempDir;
use tenure_coordinator::node::{Node, NodeError};
use tenure_proto::reason;
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::support::{
    Owned, Single, config, connect, field_of, metadata_of, ready, reason_of, soon,
};

/// Three nodes of one cluster, made through the service.
struct Trio {
    nodes: Vec<Node>,
    _data: TempDir,
}

fn described(node: &Node) -> pb::Node {
    let addresses = node.addresses();
    pb::Node {
        id: 0,
        peer_address: addresses.raft.clone(),
        client_address: addresses.client.clone(),
        http_address: addresses.http.clone(),
    }
}

impl Trio {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut nodes = Vec::new();
        for number in 0..3 {
            let folder = data.path().join(number.to_string());
            nodes.push(Node::start(&config(folder)).await.unwrap());
        }
        let channel = connect(&nodes[0].addresses().client).await;
        let request = pb::InitRequest {
            nodes: nodes.iter().map(described).collect(),
        };
        let made = ClusterServiceClient::new(channel)
            .init(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(made.cluster_id.len(), 16);
        for node in &nodes {
            ready(node).await;
        }
        Self { nodes, _data: data }
    }

    /// Takes the leader out, once every node knows it.
    async fn take_leader(&mut self) -> Node {
        let mut leadership = self.nodes[0].consensus().leadership();
        let leader = soon(leadership.wait_for(|now| now.leader.is_some()))
            .await
            .unwrap();
        let id = leader.leader.as_ref().unwrap().id;
        drop(leader);
        let at = self
            .nodes
            .iter()
            .position(|node| node.consensus().identity().unwrap().node == id);
        let node = self.nodes.remove(at.unwrap());
        let mut leadership = node.consensus().leadership();
        soon(leadership.wait_for(|now| now.is_leader))
            .await
            .unwrap();
        node
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_points_to_the_leader_serves_watches_and_asks_a_quorum() {
    let mut trio = Trio::start().await;
    let leader = trio.take_leader().await;
    let owned = Owned::create(&leader, "orders", 2).await;
    owned.grant(&leader, 0..1, None, owned.session).await;
    let follower = &trio.nodes[0];
    let channel = connect(&follower.addresses().client).await;

    let create = pb::CreateGroupRequest {
        name: "more".to_owned(),
        shard_count: 1,
        ..Default::default()
    };
    let status = AdminServiceClient::new(channel.clone())
        .create_group(create)
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::Unavailable, reason::NOT_LEADER)
    );
    assert_eq!(
        metadata_of(&status, reason::LEADER_ADDRESS),
        leader.addresses().client
    );

    // The group was made a moment ago; a node that is behind asks a quorum before it says no.
    let mut client = OwnershipServiceClient::new(channel);
    let request = pb::WatchRequest {
        group: "orders".to_owned(),
        after: None,
    };
    let mut stream = client.watch(request).await.unwrap().into_inner();
    let first = soon(stream.message())
        .await
        .unwrap()
        .unwrap()
        .message
        .unwrap();
    assert!(matches!(first, Message::State(_)), "{first:?}");
    let token = Some(owned.token(0, 1, owned.session));
    let answer = client
        .check_token(pb::CheckTokenRequest { token })
        .await
        .unwrap()
        .into_inner();
    assert!(answer.current, "{answer:?}");
    let shard = Some(pb::ShardRef {
        group: "orders".to_owned(),
        index: 0,
    });
    let request = pb::GetShardRequest {
        shard,
        linearizable: true,
    };
    let answer = client.get_shard(request).await.unwrap().into_inner();
    assert_eq!(answer.shard.unwrap().epoch, 1);
    leader.shutdown().await;
    for node in trio.nodes {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_no_token_is_current_and_no_node_is_ready() {
    let mut trio = Trio::start().await;
    let leader = trio.take_leader().await;
    let owned = Owned::create(&leader, "orders", 1).await;
    owned.grant(&leader, 0..1, None, owned.session).await;
    let channel = connect(&leader.addresses().client).await;
    let mut client = OwnershipServiceClient::new(channel);
    let token = Some(owned.token(0, 1, owned.session));
    let request = pb::CheckTokenRequest { token };
    assert!(
        client
            .check_token(request.clone())
            .await
            .unwrap()
            .into_inner()
            .current
    );

    for node in trio.nodes {
        soon(node.shutdown()).await;
    }
    for _ in 0..3 {
        let status = client.check_token(request.clone()).await.unwrap_err();
        assert_eq!(
            (status.code(), reason_of(&status).as_str()),
            (Code::Unavailable, reason::UNAVAILABLE)
        );
    }
    // What it has applied it still serves, and says of which revision it is.
    let list = pb::ListShardsRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    assert!(
        client
            .list_shards(list)
            .await
            .unwrap()
            .into_inner()
            .revision
            > 0
    );
    soon(leader.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_stopped_hands_over_first() {
    let mut trio = Trio::start().await;
    let leader = trio.take_leader().await;
    let term = leader.consensus().leadership().borrow().term;
    soon(leader.shutdown()).await;
    let mut leadership = trio.nodes[0].consensus().leadership();
    let next = soon(leadership.wait_for(|now| now.term > term && now.leader.is_some())).await;
    let next = next.unwrap().clone();
    // By a transfer, so in the very next term.
    assert_eq!(next.term, term + 1);
    for node in trio.nodes {
        soon(node.shutdown()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_service_adds_removes_and_transfers_and_says_why_not() {
    let mut trio = Trio::start().await;
    let leader = trio.take_leader().await;
    let channel = connect(&leader.addresses().client).await;
    let mut client = ClusterServiceClient::new(channel);

    let again = pb::InitRequest {
        nodes: vec![described(&leader)],
    };
    let status = client.init(again).await.unwrap_err();
    assert_eq!(reason_of(&status), reason::CLUSTER_EXISTS);
    let two = pb::InitRequest {
        nodes: vec![described(&leader), described(&trio.nodes[0])],
    };
    assert_eq!(field_of(&client.init(two).await.unwrap_err()), "nodes");

    let folder = tempfile::tempdir().unwrap();
    let fourth = Node::start(&config(folder.path().join("data")))
        .await
        .unwrap();
    let request = pb::AddNodeRequest {
        node: Some(described(&fourth)),
    };
    let added = soon(client.add_node(request)).await.unwrap().into_inner();
    ready(&fourth).await;
    let status = client
        .status(pb::StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    let voters: Vec<u64> = status
        .members
        .iter()
        .filter(|member| member.voter)
        .map(|member| member.node.as_ref().unwrap().id)
        .collect();
    assert_eq!((voters.len(), voters.last()), (4, Some(&added.id)));
    assert_eq!(fourth.consensus().identity().unwrap().node.0, added.id);

    soon(client.remove_node(pb::RemoveNodeRequest { id: added.id }))
        .await
        .unwrap();
    let unknown = client
        .remove_node(pb::RemoveNodeRequest { id: added.id })
        .await
        .unwrap_err();
    assert_eq!(
        (unknown.code(), reason_of(&unknown).as_str()),
        (Code::NotFound, reason::CLUSTER_CHANGE_REFUSED)
    );

    let to = trio.nodes[0].consensus().identity().unwrap().node.0;
    let term = soon(client.transfer_leader(pb::TransferLeaderRequest { to }))
        .await
        .unwrap();
    assert!(term.into_inner().term > status.term);
    soon(fourth.shutdown()).await;
    soon(leader.shutdown()).await;
    for node in trio.nodes {
        soon(node.shutdown()).await;
    }
}

async fn health(channel: &tonic::transport::Channel, service: &str) -> HealthCheckResponse {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    HealthClient::new(channel.clone())
        .check(request)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_serves_only_with_a_leader_and_reflection_lists_the_services() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(&config(data.path().join("data")))
        .await
        .unwrap();
    let channel = connect(&node.addresses().client).await;
    assert_eq!(
        health(&channel, "").await.status(),
        ServingStatus::NotServing
    );
    let cluster = health(&channel, "tenure.v1.ClusterService").await;
    assert_eq!(cluster.status(), ServingStatus::Serving);

    let request = pb::InitRequest {
        nodes: vec![described(&node)],
    };
    ClusterServiceClient::new(channel.clone())
        .init(request)
        .await
        .unwrap();
    let request = HealthCheckRequest {
        service: "tenure.v1.OwnershipService".to_owned(),
    };
    let watching = HealthClient::new(channel.clone())
        .watch(request)
        .await
        .unwrap();
    let mut watching = watching.into_inner();
    while soon(watching.message()).await.unwrap().unwrap().status() != ServingStatus::Serving {}

    let mut reflection =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel);
    let list = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            tonic_reflection::pb::v1::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            ),
        ),
    };
    let requests = futures::stream::iter([list]);
    let mut answers = reflection
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    let answer = format!("{:?}", soon(answers.message()).await.unwrap().unwrap());
    for service in [
        "AdminService",
        "CheckpointService",
        "OwnershipService",
        "WorkerService",
    ] {
        assert!(answer.contains(&format!("tenure.v1.{service}")), "{answer}");
    }
    soon(node.shutdown()).await;
}

async fn refused(
    data_dir: &Path,
    change: impl FnOnce(&mut tenure_coordinator::config::Config),
) -> NodeError {
    let mut settings = config(data_dir.to_owned());
    change(&mut settings);
    let error = Node::start(&settings).await.expect_err("it must not start");
    let line = error.line();
    assert!(!line.contains('\n'), "{line}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_one_line_and_touches_no_folder() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let error = refused(&folder, |config| config.peer.listen = address).await;
    assert!(
        matches!(error, NodeError::Listen { port: "peer", .. }),
        "{error:?}"
    );
    assert!(
        error.line().contains(&address.to_string()),
        "{}",
        error.line()
    );
    assert!(error.line().contains("in use"), "{}", error.line());
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_another_node_or_cluster_is_refused() {
    let trio = Trio::start().await;
    let expected = trio.nodes[1].consensus().identity().unwrap();
    for node in trio.nodes {
        soon(node.shutdown()).await;
    }
    let folder = trio._data.path().join("1");

    // Another port than the one the cluster knows: the folder was mixed up.
    let error = refused(&folder, |_| {}).await;
    assert!(matches!(&error, NodeError::OtherNode { .. }), "{error:?}");

    let identity = |cluster_id: String, node_id| {
        Some(tenure_coordinator::config::ExpectedIdentity {
            cluster_id,
            node_id,
        })
    };
    let cluster = expected.cluster.to_string();
    let other_node = identity(cluster.clone(), expected.node.0 + 1);
    let error = refused(&folder, |config| config.identity = other_node).await;
    assert!(
        error.line().contains("belongs to node 2"),
        "{}",
        error.line()
    );
    let other_cluster = identity("0".repeat(32), expected.node.0);
    let error = refused(&folder, |config| config.identity = other_cluster).await;
    assert!(error.line().contains(&cluster), "{}", error.line());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_of_a_newer_format_or_of_something_else_is_refused_unchanged() {
    let single = Single::start().await;
    let data = single.data_dir();
    let error = refused(&data, |_| {}).await;
    assert!(
        error.line().contains("in use by another process"),
        "{}",
        error.line()
    );
    single.stop().await;

    let parent = tempfile::tempdir().unwrap();
    let newer = parent.path().join("newer");
    std::fs::create_dir(&newer).unwrap();
    std::fs::write(newer.join("FORMAT"), "tenure-data 99\n").unwrap();
    let error = refused(&newer, |_| {}).await;
    assert!(error.line().contains("format 99"), "{}", error.line());
    assert_eq!(std::fs::read_dir(&newer).unwrap().count(), 1);

    let foreign = parent.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("letter.txt"), "dear reader").unwrap();
    let error = refused(&foreign, |_| {}).await;
    assert!(
        error.line().contains("is not a data folder"),
        "{}",
        error.line()
    );
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 3).await;
    owned.grant(&single.node, 0..3, None, owned.session).await;
    let single = single.restart().await;
    let mut client = OwnershipServiceClient::new(single.channel.clone());
    let request = pb::ListShardsRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    let shards = client
        .list_shards(request)
        .await
        .unwrap()
        .into_inner()
        .shards;
    assert!(
        shards
            .iter()
            .all(|shard| shard.epoch == 1 && shard.worker == "worker-1"),
        "{shards:?}"
    );
    single.stop().await;
}
