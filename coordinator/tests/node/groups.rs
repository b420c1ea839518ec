//! Groups, policy, workers.

use prost_types::FieldMask;
use tenure_proto::reason;
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tonic::Code;
use tonic::transport::Channel;

use crate::support::{Owned, Single, field_of, reason_of};

fn mask(path: &str) -> Option<FieldMask> {
    Some(FieldMask {
        paths: vec![path.to_owned()],
    })
}

async fn create(client: &mut AdminServiceClient<Channel>, name: &str) -> pb::CreateGroupResponse {
    let request = pb::CreateGroupRequest {
        name: name.to_owned(),
        shard_count: 64,
        ..Default::default()
    };
    client.create_group(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_created_listed_page_by_page_and_deleted() {
    let single = Single::start().await;
    let mut client = AdminServiceClient::new(single.channel.clone());
    for name in ["c", "a", "b"] {
        let created = create(&mut client, name).await;
        let group = created.group.unwrap();
        assert_eq!(
            (group.name.as_str(), group.unowned, group.workers),
            (name, 64, 0)
        );
        assert_eq!(group.policy.unwrap().ttl_ms, 10_000);
    }
    let first = pb::ListGroupsRequest {
        after: String::new(),
        page_size: 2,
    };
    let page = client.list_groups(first).await.unwrap().into_inner();
    let names: Vec<&str> = page
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!((names, page.next.as_str()), (vec!["a", "b"], "b"));
    let second = pb::ListGroupsRequest {
        after: page.next,
        page_size: 2,
    };
    let page = client.list_groups(second).await.unwrap().into_inner();
    assert_eq!((page.groups.len(), page.next.as_str()), (1, ""));

    let again = pb::CreateGroupRequest {
        name: "a".to_owned(),
        shard_count: 1,
        ..Default::default()
    };
    let status = client.create_group(again).await.unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::AlreadyExists, reason::GROUP_EXISTS)
    );

    client
        .delete_group(pb::DeleteGroupRequest {
            name: "a".to_owned(),
        })
        .await
        .unwrap();
    let got = client
        .get_group(pb::GetGroupRequest {
            name: "a".to_owned(),
        })
        .await;
    // Nothing is owned: it goes as soon as somebody removes it.
    assert!(got.is_err() || got.unwrap().into_inner().group.unwrap().deleting);
    let status = client
        .get_group(pb::GetGroupRequest {
            name: "nobody".to_owned(),
        })
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::NotFound, reason::GROUP_NOT_FOUND)
    );
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_changes_by_named_fields_and_says_which_one_is_wrong() {
    let single = Single::start().await;
    let mut client = AdminServiceClient::new(single.channel.clone());
    let created = create(&mut client, "orders").await.group.unwrap();
    let set = |policy: pb::Policy, path: &str, seen_revision| pb::SetPolicyRequest {
        group: "orders".to_owned(),
        policy: Some(policy),
        policy_mask: mask(path),
        seen_revision,
    };

    let longer = pb::Policy {
        ttl_ms: 20_000,
        ..Default::default()
    };
    let first = client
        .set_policy(set(longer, "ttl_ms", 0))
        .await
        .unwrap()
        .into_inner();
    let policy = first.policy.unwrap();
    assert_eq!((policy.ttl_ms, policy.drain_timeout_ms), (20_000, 30_000));

    // Made from the policy as it was before.
    let drain = pb::Policy {
        drain_timeout_ms: 1,
        ..Default::default()
    };
    let stale = set(drain.clone(), "drain_timeout_ms", created.policy_revision);
    let status = client.set_policy(stale).await.unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::Aborted, reason::STALE_EPOCH)
    );
    let fresh = set(drain.clone(), "drain_timeout_ms", first.revision);
    let policy = client
        .set_policy(fresh)
        .await
        .unwrap()
        .into_inner()
        .policy
        .unwrap();
    assert_eq!((policy.ttl_ms, policy.drain_timeout_ms), (20_000, 1));

    for (path, policy, field) in [
        (
            "ttl_ms",
            pb::Policy {
                ttl_ms: 1,
                ..Default::default()
            },
            "policy.ttl_ms",
        ),
        (
            "disconnect_grace_ms",
            pb::Policy {
                disconnect_grace_ms: 30_000,
                ..Default::default()
            },
            "policy.disconnect_grace_ms",
        ),
        ("time_to_live", pb::Policy::default(), "policy_mask"),
    ] {
        let status = client.set_policy(set(policy, path, 0)).await.unwrap_err();
        assert_eq!(field_of(&status), field);
    }
    let unknown = pb::SetPolicyRequest {
        group: "nobody".to_owned(),
        ..set(drain, "drain_timeout_ms", 0)
    };
    let status = client.set_policy(unknown).await.unwrap_err();
    assert_eq!(reason_of(&status), reason::GROUP_NOT_FOUND);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_different_fields_at_one_time_all_take_effect() {
    let single = Single::start().await;
    let mut client = AdminServiceClient::new(single.channel.clone());
    create(&mut client, "orders").await;
    let edits = [
        (
            "ttl_ms",
            pb::Policy {
                ttl_ms: 20_000,
                ..Default::default()
            },
        ),
        (
            "drain_timeout_ms",
            pb::Policy {
                drain_timeout_ms: 1,
                ..Default::default()
            },
        ),
        (
            "lock_delay_ms",
            pb::Policy {
                lock_delay_ms: 2,
                ..Default::default()
            },
        ),
    ];
    let mut tasks = tokio::task::JoinSet::new();
    for (path, policy) in edits {
        let mut client = client.clone();
        tasks.spawn(async move {
            let request = pb::SetPolicyRequest {
                group: "orders".to_owned(),
                policy: Some(policy),
                policy_mask: mask(path),
                seen_revision: 0,
            };
            client.set_policy(request).await.unwrap();
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let group = client
        .get_group(pb::GetGroupRequest {
            name: "orders".to_owned(),
        })
        .await
        .unwrap();
    let policy = group.into_inner().group.unwrap().policy.unwrap();
    let edited = (policy.ttl_ms, policy.drain_timeout_ms, policy.lock_delay_ms);
    assert_eq!(edited, (20_000, 1, 2));
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_with_their_sessions_and_modes() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 8).await;
    owned.grant(&single.node, 0..3, None, owned.session).await;
    let mut client = AdminServiceClient::new(single.channel.clone());
    let drain = pb::SetWorkerModeRequest {
        group: "orders".to_owned(),
        worker: "worker-0".to_owned(),
        mode: pb::WorkerMode::Draining.into(),
        pause_timeout_ms: 0,
    };
    client.set_worker_mode(drain.clone()).await.unwrap();
    let request = pb::ListWorkersRequest {
        group: "orders".to_owned(),
        worker: String::new(),
    };
    let workers = client
        .list_workers(request)
        .await
        .unwrap()
        .into_inner()
        .workers;
    assert_eq!(workers.len(), 2);
    assert_eq!(workers[0].name, "worker-0");
    assert_eq!(workers[0].mode(), pb::WorkerMode::Draining);
    assert_eq!(workers[0].session, None);
    assert_eq!(workers[1].session, Some(owned.owner(owned.session)));
    assert_eq!((workers[1].shards, workers[1].window_ms), (3, 750));
    assert_eq!(workers[1].address, "worker-1:80");

    let nothing = pb::SetWorkerModeRequest { mode: 0, ..drain };
    assert_eq!(
        field_of(&client.set_worker_mode(nothing).await.unwrap_err()),
        "mode"
    );
    single.stop().await;
}
