//! The replicated store under the conformance kit: real grants of a real cluster of three.
//!
//! Scenarios 1, 2, 3, 5, 8, 9 and 38.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a harness that cannot do what the kit asks panics, as the kit's contract says"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use tenure::ReplicatedStore;
use tenure::connection::{Connection, ConnectionOptions};
use tenure_fence::CheckpointStore;
use tenure_fence::Epoch;
use tenure_fence::FencingToken;
use tenure_fence::GroupName;
use tenure_fence::Owner;
use tenure_fence::Resource;
use tenure_fence::ShardRef;
use tenure_fence::kit;
use tenure_fence::kit::Harness;
use tenure_fence::kit::Holder;
use tenure_proto::v1 as pb;
use tonic::transport::Channel;

use crate::bare_owner::BareOwner;
use crate::story::turn;

fn group_name(number: u32) -> String {
    format!("kit-{number}")
}

/// Tokens from a real coordinator: one group of one shard per resource.
struct Grants {
    cluster: Cluster,
    /// The leader. Nothing happens to it here.
    leader: Channel,
    store: Arc<ReplicatedStore>,
    /// Groups handed out.
    groups: u32,
    workers: u32,
    owners: BTreeMap<Resource, BareOwner>,
}

impl Grants {
    async fn start() -> Self {
        let cluster = Cluster::start().await.unwrap();
        let leader = cluster.leader().await.unwrap();
        let address = cluster.node(leader).unwrap().address().to_owned();
        // Bare owners send no heartbeats, so they live as long as the policy allows.
        let policy = pb::Policy {
            ttl_ms: 600_000,
            ..pb::Policy::default()
        };
        for group in 1..=u32::try_from(kit::RESOURCES_MAX).unwrap() {
            let (name, fields) = (group_name(group), ["ttl_ms"]);
            let created = cluster
                .client()
                .create_group(&name, 1, policy.clone(), &fields);
            created.await.unwrap();
        }
        let leader = cluster.client().channel(&address).unwrap();
        let connection = Connection::new(ConnectionOptions::new(cluster.addresses())).unwrap();
        let store = Arc::new(ReplicatedStore::new(connection));
        Self {
            cluster,
            leader,
            store,
            groups: 0,
            workers: 0,
            owners: BTreeMap::new(),
        }
    }
}

#[async_trait]
impl Harness for Grants {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.store) as Arc<dyn CheckpointStore>
    }

    async fn fresh_resource(&mut self) -> Resource {
        self.groups += 1;
        let group = GroupName::try_from(group_name(self.groups).as_str()).unwrap();
        Resource::Shard(ShardRef { group, index: 0 })
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        let Resource::Shard(shard) = resource else {
            panic!("{resource} is no shard")
        };
        let owner = match (self.owners.remove(resource), holder) {
            (Some(mut owner), Holder::Same) => {
                owner.release().await;
                owner.granted().await;
                owner
            }
            (previous, _) => {
                if let Some(previous) = previous {
                    previous.leave().await;
                }
                self.workers += 1;
                let worker = format!("bare-{}", self.workers);
                BareOwner::register(self.leader.clone(), shard.group.as_str(), worker).await
            }
        };
        let session = &owner.session;
        let cluster = u128::from_be_bytes(session.cluster_id.as_ref().try_into().unwrap());
        let token = FencingToken {
            resource: resource.clone(),
            epoch: Epoch::try_from(owner.tenure.epoch).unwrap(),
            owner: Owner {
                cluster,
                session: session.number,
            },
        };
        self.owners.insert(resource.clone(), owner);
        token
    }

    /// A seal is an entry of the log, and the bytes are read after it was applied.
    fn seals_in_two_steps(&self) -> bool {
        true
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        let owner = Owner {
            session: token.owner.session + 1,
            ..token.owner
        };
        Some(FencingToken {
            owner,
            ..token.clone()
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replicated_store_keeps_the_contract_of_checkpoint_stores() -> Result<(), Failure> {
    let _turn = turn().await;
    let mut grants = Grants::start().await;
    let report = kit::run(&mut grants, kit::Options::default()).await;
    println!("{report:?}");
    grants.cluster.shutdown().await
}
