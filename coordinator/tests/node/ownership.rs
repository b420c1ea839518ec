//! Shards, keys and tokens.

use std::collections::BTreeMap;

use tenure_fence::Epoch;
use tenure_ownership::Command;
use tenure_ownership::command::Ready;
use tenure_ownership::ids::SessionId;
use tenure_proto::reason;
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;

use crate::support::{Owned, Single, field_of, reason_of, tenures};

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_listed_by_page_worker_and_phase() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 10).await;
    owned.grant(&single.node, 2..6, None, owned.session).await;
    let ready = Ready {
        session: owned.session,
        stores: Vec::new(),
        tenures: tenures(2..4, Epoch::FIRST),
    };
    single.propose(Command::Ready(ready)).await;
    let mut client = OwnershipServiceClient::new(single.channel.clone());
    let all = pb::ListShardsRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    let indices = |page: &pb::ListShardsResponse| -> Vec<u32> {
        page.shards
            .iter()
            .map(|shard| shard.shard.as_ref().unwrap().index)
            .collect()
    };

    let mut seen = Vec::new();
    let mut from_index = 0;
    loop {
        let request = pb::ListShardsRequest {
            from_index,
            page_size: 4,
            ..all.clone()
        };
        let page = client.list_shards(request).await.unwrap().into_inner();
        seen.extend(indices(&page));
        from_index = page.next_index;
        if from_index == 0 {
            break;
        }
    }
    assert_eq!(seen, (0..10).collect::<Vec<u32>>());

    let of_worker = pb::ListShardsRequest {
        worker: "worker-1".to_owned(),
        ..all.clone()
    };
    let page = client
        .list_shards(of_worker.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(indices(&page), [2, 3, 4, 5]);
    assert_eq!(page.shards[0].phase(), pb::ShardPhase::Serving);
    assert_eq!(page.shards[0].address, "worker-1:80");
    assert_eq!(page.shards[0].owner, Some(owned.owner(owned.session)));
    let opening = pb::ListShardsRequest {
        phase: pb::ShardPhase::Opening.into(),
        ..all.clone()
    };
    assert_eq!(
        indices(&client.list_shards(opening).await.unwrap().into_inner()),
        [4, 5]
    );
    let nobody = pb::ListShardsRequest {
        worker: "worker-9".to_owned(),
        ..all
    };
    assert!(
        client
            .list_shards(nobody)
            .await
            .unwrap()
            .into_inner()
            .shards
            .is_empty()
    );

    let shard = pb::ShardRef {
        group: "orders".to_owned(),
        index: 10,
    };
    let request = pb::GetShardRequest {
        shard: Some(shard),
        linearizable: true,
    };
    assert_eq!(
        field_of(&client.get_shard(request).await.unwrap_err()),
        "shard.index"
    );
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_looked_up_as_the_published_vectors_say() {
    let single = Single::start().await;
    let mut admin = AdminServiceClient::new(single.channel.clone());
    let mut client = OwnershipServiceClient::new(single.channel.clone());
    let mut by_count: BTreeMap<u32, Vec<(Vec<u8>, u32)>> = BTreeMap::new();
    let vectors = include_str!("../../../proto/testdata/keys.txt");
    for line in vectors
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.split(' ').collect();
        let digits = fields[0].strip_prefix("0x").unwrap();
        let key = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        let shard = fields[3].parse().unwrap();
        by_count
            .entry(fields[2].parse().unwrap())
            .or_default()
            .push((key, shard));
    }
    let mut checked = 0;
    for (shard_count, keys) in by_count {
        let name = format!("of-{shard_count}");
        let group = pb::CreateGroupRequest {
            name: name.clone(),
            shard_count,
            ..Default::default()
        };
        admin.create_group(group).await.unwrap();
        for (key, expected) in keys {
            let request = pb::LookupKeyRequest {
                group: name.clone(),
                key: key.into(),
            };
            let shard = client
                .lookup_key(request)
                .await
                .unwrap()
                .into_inner()
                .shard
                .unwrap();
            assert_eq!(shard.shard.unwrap().index, expected, "{name}");
            checked += 1;
        }
    }
    assert!(checked >= 30, "{checked}");
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_current_only_for_the_live_owner_at_its_epoch() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 4).await;
    owned.grant(&single.node, 0..1, None, owned.session).await;
    let mut client = OwnershipServiceClient::new(single.channel.clone());
    let mut check = async |token| {
        let request = pb::CheckTokenRequest { token: Some(token) };
        let answer = client.check_token(request).await.unwrap().into_inner();
        assert_eq!(answer.current, answer.reason.is_empty(), "{answer:?}");
        (answer.current, answer.current_epoch)
    };
    let session = owned.session;
    assert_eq!(check(owned.token(0, 1, session)).await, (true, 1));
    assert_eq!(check(owned.token(0, 2, session)).await, (false, 1));
    assert_eq!(
        check(owned.token(0, 1, SessionId(session.0 + 1))).await,
        (false, 1)
    );
    // Unowned and unknown are stale.
    assert_eq!(check(owned.token(1, 1, session)).await, (false, 0));
    assert_eq!(check(owned.token(9, 1, session)).await, (false, 0));
    let lease = pb::FencingToken {
        resource: "lease/x".to_owned(),
        ..owned.token(0, 1, session)
    };
    assert_eq!(check(lease).await, (false, 0));
    let foreign = pb::FencingToken {
        owner: Some(pb::Session {
            cluster_id: vec![0; 16].into(),
            number: session.0,
        }),
        ..owned.token(0, 1, session)
    };
    assert_eq!(check(foreign).await, (false, 0));

    single.propose(Command::Expire(vec![session])).await;
    assert_eq!(check(owned.token(0, 1, session)).await, (false, 1));
    let nonsense = pb::FencingToken {
        resource: "orders/0".to_owned(),
        ..owned.token(0, 1, session)
    };
    let request = pb::CheckTokenRequest {
        token: Some(nonsense),
    };
    let status = client.check_token(request).await.unwrap_err();
    assert_eq!(field_of(&status), "token.resource");
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_cluster_says_unavailable_and_not_that_nothing_exists() {
    let data = tempfile::tempdir().unwrap();
    let config = crate::support::config(data.path().join("data"));
    let node = tenure_coordinator::node::Node::start(&config)
        .await
        .unwrap();
    let channel = crate::support::connect(&node.addresses().client).await;
    let mut client = OwnershipServiceClient::new(channel);
    let request = pb::ListShardsRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    let status = client.list_shards(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(reason_of(&status), reason::UNAVAILABLE);
    node.shutdown().await;
}
