//! Three coordinators, and owners whose checkpoints they keep.

use std::sync::Arc;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use tenure::ReplicatedStore;
use tenure::connection::{Connection, ConnectionOptions};
use tenure_fence::{CheckpointStore, Epoch, FencingToken, Owner};
use tenure_proto::v1 as pb;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::attach_response::Message as Down;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::fenced::{Fenced, Held};

const GROUP: &str = "bench";

/// Three coordinators and a worker that holds all shards of a group.
pub(crate) struct Coordinators {
    // Kept for as long as the worker is to live.
    _ups: mpsc::Sender<pb::AttachRequest>,
    _downs: Streaming<pb::AttachResponse>,
    cluster: Cluster,
    owners: Arc<[Held]>,
}

impl Coordinators {
    /// Starts three, and grants a shard for each writer to one worker, which seals them.
    pub(crate) async fn start(writers: usize) -> Result<Self, Failure> {
        let cluster = Cluster::start().await?;
        let leader = cluster.leader().await?;
        let channel = cluster.client().channel(cluster.node(leader)?.address())?;
        // The worker sends no heartbeats and never says that it is ready: it has as long as there is.
        let policy = pb::Policy {
            ttl_ms: 600_000,
            opening_deadline_ms: 3_600_000,
            ..pb::Policy::default()
        };
        let fields = ["ttl_ms", "opening_deadline_ms"];
        let shards = u32::try_from(writers)?;
        let created = cluster
            .client()
            .create_group(GROUP, shards, policy, &fields);
        created.await?;

        let (ups, queue) = mpsc::channel(8);
        let register = pb::Register {
            group: GROUP.to_owned(),
            nonce: vec![7; 16].into(),
            worker: "bench".to_owned(),
            attempt: 1,
            ..pb::Register::default()
        };
        ups.send(pb::AttachRequest {
            message: Some(Up::Register(register)),
        })
        .await?;
        let mut client = WorkerServiceClient::new(channel);
        let mut downs = client
            .attach(ReceiverStream::new(queue))
            .await?
            .into_inner();
        let tokens = granted(&mut downs, writers).await?;
        for sealed in store(&cluster)?.seal_many(&tokens).await {
            sealed?;
        }
        Ok(Self {
            _ups: ups,
            _downs: downs,
            cluster,
            owners: tokens.into_iter().map(Held::new).collect(),
        })
    }

    /// Writes to all shards, over so many connections.
    pub(crate) fn fenced(&self, connections: usize) -> Result<Fenced, Failure> {
        let mut stores: Vec<Arc<dyn CheckpointStore>> = Vec::with_capacity(connections);
        for _ in 0..connections {
            stores.push(Arc::new(store(&self.cluster)?));
        }
        Ok(Fenced::hold(stores, Arc::clone(&self.owners)))
    }
}

/// The store, over a connection of its own.
fn store(cluster: &Cluster) -> Result<ReplicatedStore, Failure> {
    let options = ConnectionOptions::new(cluster.addresses());
    Ok(ReplicatedStore::new(Connection::new(options)?))
}

/// Waits until so many shards are granted, and returns their tokens.
async fn granted(
    downs: &mut Streaming<pb::AttachResponse>,
    shards: usize,
) -> Result<Vec<FencingToken>, Failure> {
    let mut owner = None;
    let mut tokens = Vec::with_capacity(shards);
    while tokens.len() < shards {
        let message = downs.message().await?.and_then(|down| down.message);
        match message.ok_or_else(|| Failure::new("the worker's stream has ended"))? {
            Down::Registered(registered) => {
                let session = registered.session.unwrap_or_default();
                owner = Some(Owner {
                    cluster: u128::from_be_bytes(session.cluster_id.as_ref().try_into()?),
                    session: session.number,
                });
            }
            Down::Granted(granted) => {
                let owner = owner.ok_or_else(|| Failure::new("granted to nobody"))?;
                for grant in granted.grants {
                    let tenure = grant.tenure.unwrap_or_default();
                    tokens.push(FencingToken {
                        resource: format!("shard/{GROUP}/{}", tenure.shard).parse()?,
                        epoch: Epoch::try_from(tenure.epoch)?,
                        owner,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(tokens)
}
