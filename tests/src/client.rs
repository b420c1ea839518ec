//! What stories ask the coordinators.

mod operations;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost_types::FieldMask;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::checkpoint_service_client::CheckpointServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::{
    AddNodeRequest, CheckTokenRequest, CheckTokenResponse, Checkpoint, CreateGroupRequest,
    FencingToken, GetGroupRequest, GetShardRequest, Group, InitRequest, ListShardsRequest, Member,
    Node, Policy, ReadRequest, RemoveNodeRequest, Shard, ShardRef, StatusRequest, StatusResponse,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::failure::Failure;
use crate::ownership::Ownership;
use crate::wait;

/// How long one call to one node may take. A node that is stopped takes all of it.
const CALL_TIME: Duration = Duration::from_secs(2);

/// How long a call to whoever leads may take with all repetitions: outlasts several elections.
const LEADER_TIME: Duration = Duration::from_secs(30);

/// How long one try of it may take: a listing of 100,000 shards on a busy machine does.
const TRY_TIME: Duration = Duration::from_secs(10);

/// How long one try of a change of members may take: a new node catches up first.
const CHANGE_TRY_TIME: Duration = Duration::from_secs(20);

/// Shards per page of a listing: the largest there is.
const PAGE: u32 = 10_000;

/// A client of all services, for the leader and for single nodes. Clones share connections.
///
/// It does not follow hints to the leader as the SDK does, because it must not be led through a proxy,
/// and because any node answers reads: a story wants the answer of the one that leads now.
#[derive(Clone, Debug)]
pub struct Client {
    nodes: Arc<BTreeMap<String, Channel>>,
}

impl Client {
    /// Creates a client of the nodes with these client addresses. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// When an address is malformed.
    pub fn new(addresses: impl IntoIterator<Item = String>) -> Result<Self, Failure> {
        let mut nodes = BTreeMap::new();
        for address in addresses {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))?
                .connect_timeout(CALL_TIME)
                .tcp_nodelay(true);
            nodes.insert(address, endpoint.connect_lazy());
        }
        Ok(Self {
            nodes: Arc::new(nodes),
        })
    }

    /// Returns the connection to one node.
    ///
    /// # Errors
    ///
    /// When the client was not made with that address.
    pub fn channel(&self, address: &str) -> Result<Channel, Status> {
        let channel = self.nodes.get(address).cloned();
        channel.ok_or_else(|| Status::not_found(format!("there is no node at {address}")))
    }

    /// Returns the client addresses of the nodes.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Returns the cluster as one node sees it.
    ///
    /// # Errors
    ///
    /// What the node, or the way to it, answered.
    pub async fn status(&self, address: &str) -> Result<StatusResponse, Status> {
        let mut service = ClusterServiceClient::new(self.channel(address)?);
        within(service.status(timed(StatusRequest {}))).await
    }

    /// Makes a cluster.
    ///
    /// # Errors
    ///
    /// What the node answered.
    pub async fn init(&self, address: &str, request: InitRequest) -> Result<(), Failure> {
        // Electing the first leader is part of the answer.
        let mut request = Request::new(request);
        request.set_timeout(LEADER_TIME);
        ClusterServiceClient::new(self.channel(address)?)
            .init(request)
            .await?;
        Ok(())
    }

    /// Makes a node, which runs and is empty, a voting member. Asked again until it is one.
    ///
    /// # Errors
    ///
    /// When it is none in time; with what was answered last.
    pub async fn add_member(&self, node: &Node, within: Duration) -> Result<(), Failure> {
        wait::until("a new member", within, async || {
            let (channel, known) = self.leader_and_member(node).await?;
            if known.is_some_and(|member| member.voter) {
                return Ok(());
            }
            let mut request = Request::new(AddNodeRequest {
                node: Some(node.clone()),
            });
            request.set_timeout(CHANGE_TRY_TIME);
            let mut service = ClusterServiceClient::new(channel);
            let answer = tokio::time::timeout(CHANGE_TRY_TIME, service.add_node(request)).await;
            let answer = answer.map_err(|_| "no answer in time")?;
            answer.map(drop).map_err(|status| status.to_string())
        })
        .await
    }

    /// Takes a node out of the cluster. Asked again until it is no member.
    ///
    /// # Errors
    ///
    /// When it still is one when the time is over; with what was answered last.
    pub async fn remove_member(&self, node: &Node, within: Duration) -> Result<(), Failure> {
        wait::until("a member less", within, async || {
            let (channel, known) = self.leader_and_member(node).await?;
            let Some(id) = known.and_then(|member| member.node).map(|node| node.id) else {
                return Ok(());
            };
            let mut request = Request::new(RemoveNodeRequest { id });
            request.set_timeout(CHANGE_TRY_TIME);
            let mut service = ClusterServiceClient::new(channel);
            let answer = tokio::time::timeout(CHANGE_TRY_TIME, service.remove_node(request)).await;
            let answer = answer.map_err(|_| "no answer in time")?;
            answer.map(drop).map_err(|status| status.to_string())
        })
        .await
    }

    /// Returns the connection to the leader, and what it says of the member at a node's address.
    async fn leader_and_member(&self, node: &Node) -> Result<(Channel, Option<Member>), String> {
        let leader = self.leader().await.ok_or("nobody leads")?;
        let channel = self.channel(&leader).map_err(|status| status.to_string())?;
        let status = self.status(&leader).await;
        let members = status.map_err(|status| status.to_string())?.members;
        let is_it = |member: &Member| {
            let known = member.node.as_ref();
            known.is_some_and(|known| known.peer_address == node.peer_address)
        };
        Ok((channel, members.into_iter().find(is_it)))
    }

    /// Creates a group with a policy of which the named fields are set.
    ///
    /// A group of that name counts as this one: names are chosen once in a story, and a call that was
    /// repeated may find what it made.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn create_group(
        &self,
        name: &str,
        shard_count: u32,
        policy: Policy,
        fields: &[&str],
    ) -> Result<(), Failure> {
        let request = CreateGroupRequest {
            name: name.to_owned(),
            shard_count,
            policy: Some(policy),
            policy_mask: mask(fields),
        };
        self.at_leader(async |channel| {
            let mut service = AdminServiceClient::new(channel);
            match service.create_group(request.clone()).await {
                Err(status) if status.code() != Code::AlreadyExists => Err(status),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Returns a group, as the leader has applied it.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn group(&self, name: &str) -> Result<Group, Failure> {
        self.at_leader(async |channel| {
            let name = name.to_owned();
            let request = GetGroupRequest { name };
            let answer = AdminServiceClient::new(channel).get_group(request).await?;
            let group = answer.into_inner().group;
            group.ok_or_else(|| Status::internal("an answer without a group"))
        })
        .await
    }

    /// Returns who owns what in a group: everything that was committed when it was called, at least.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn ownership(&self, group: &str) -> Result<Ownership, Failure> {
        self.at_leader(async |channel| {
            // After a quorum read the node has applied all that was committed before.
            quorum_read(channel.clone(), group, 0).await?;
            list(channel, group).await
        })
        .await
    }

    /// Returns one shard after a quorum read.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn shard(&self, group: &str, index: u32) -> Result<Shard, Failure> {
        self.at_leader(async |channel| quorum_read(channel, group, index).await)
            .await
    }

    /// Returns the checkpoint of a shard in the replicated store, the latest that was accepted when it
    /// was called, at least; `None` if there is none.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn checkpoint(&self, group: &str, index: u32) -> Result<Option<Checkpoint>, Failure> {
        self.at_leader(async |channel| {
            let request = ReadRequest {
                shard: Some(shard_of(group, index)),
                linearizable: true,
            };
            let mut service = CheckpointServiceClient::new(channel);
            let answer = service.read(request).await?;
            Ok(answer.into_inner().checkpoint)
        })
        .await
    }

    /// Returns the checkpoint of a shard as one node has it after a quorum read.
    ///
    /// # Errors
    ///
    /// What the node, or the way to it, answered: only the leader makes quorum reads.
    pub async fn checkpoint_at(
        &self,
        address: &str,
        group: &str,
        index: u32,
    ) -> Result<Option<Checkpoint>, Status> {
        let channel = self.channel(address)?;
        within(async {
            let request = ReadRequest {
                shard: Some(shard_of(group, index)),
                linearizable: true,
            };
            CheckpointServiceClient::new(channel).read(request).await
        })
        .await
        .map(|answer| answer.checkpoint)
    }

    /// Asks one node whether a token is current.
    ///
    /// # Errors
    ///
    /// What the node, or the way to it, answered.
    pub async fn check_token(
        &self,
        address: &str,
        token: FencingToken,
    ) -> Result<CheckTokenResponse, Status> {
        let mut service = OwnershipServiceClient::new(self.channel(address)?);
        within(service.check_token(timed(CheckTokenRequest { token: Some(token) }))).await
    }

    /// Calls the node that leads, again and again until it answers. `call` must be safe to repeat.
    async fn at_leader<T>(
        &self,
        call: impl AsyncFn(Channel) -> Result<T, Status>,
    ) -> Result<T, Failure> {
        let answered = wait::until("an answer of the leader", LEADER_TIME, async || {
            let leader = self.leader().await.ok_or("nobody leads")?;
            let channel = self.channel(&leader).map_err(|status| status.to_string())?;
            match tokio::time::timeout(TRY_TIME, call(channel)).await {
                Ok(Err(status)) if !is_final(&status) => Err(status.to_string()),
                Ok(answer) => Ok(answer),
                Err(_) => Err(format!("no answer within {TRY_TIME:?}")),
            }
        });
        Ok(answered.await??)
    }

    /// Returns the address of the node that leads in the highest term anybody knows of.
    async fn leader(&self) -> Option<String> {
        let asked = self.nodes.keys().map(|address| async move {
            let status = self.status(address).await.ok()?;
            let leads = status.leader_id == status.node_id && status.node_id != 0;
            leads.then(|| (status.term, address.clone()))
        });
        let leaders = futures::future::join_all(asked).await;
        let latest = leaders.into_iter().flatten().max();
        latest.map(|(_, address)| address)
    }
}

/// Returns whether the answer will be the same whoever is asked.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::NotFound | Code::PermissionDenied | Code::Unimplemented
    )
}

async fn quorum_read(channel: Channel, group: &str, index: u32) -> Result<Shard, Status> {
    let request = GetShardRequest {
        shard: Some(shard_of(group, index)),
        linearizable: true,
    };
    let answer = OwnershipServiceClient::new(channel)
        .get_shard(request)
        .await?;
    let shard = answer.into_inner().shard;
    shard.ok_or_else(|| Status::internal("an answer without a shard"))
}

async fn list(channel: Channel, group: &str) -> Result<Ownership, Status> {
    let mut service = OwnershipServiceClient::new(channel).max_decoding_message_size(16 << 20);
    let mut ownership = Ownership::default();
    let mut from_index = 0;
    loop {
        let request = ListShardsRequest {
            group: group.to_owned(),
            from_index,
            page_size: PAGE,
            ..ListShardsRequest::default()
        };
        let page = service.list_shards(request).await?.into_inner();
        for shard in page.shards {
            let inserted = ownership.insert(shard);
            inserted.map_err(|failure| Status::internal(failure.to_string()))?;
        }
        if page.next_index == 0 {
            return Ok(ownership);
        }
        from_index = page.next_index;
    }
}

fn shard_of(group: &str, index: u32) -> ShardRef {
    ShardRef {
        group: group.to_owned(),
        index,
    }
}

/// Gives a request its deadline.
fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIME);
    request
}

/// Bounds a call to one node, which may be stopped and accept connections nevertheless.
async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no answer within {CALL_TIME:?}"
        ))),
    }
}

fn mask(fields: &[&str]) -> Option<FieldMask> {
    Some(FieldMask {
        paths: fields.iter().map(|&field| field.to_owned()).collect(),
    })
}
