//! What happened, asked of a real node: with a database, and across a restart.

use tenure_fence::Epoch;
use tenure_ownership::Command;
use tenure_ownership::command::{Assign, Ready, Release, ReleaseCause, Released, Revoke};
use tenure_ownership::group::GroupPhase;
use tenure_ownership::ids::{ShardIndex, StoreName};
use tenure_ownership::shard::RevokeReason;
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tenure_proto::v1::history_event::What;
use tenure_proto::v1::history_service_client::HistoryServiceClient;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::support::{Owned, Single, field_of, tenures};

/// A request of somebody who says who he is and why he asks.
fn asked<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    let metadata = request.metadata_mut();
    metadata.insert("tenure-by", "alice@laptop".parse().unwrap());
    metadata.insert_bin(
        "tenure-reason-bin",
        MetadataValue::from_bytes("größere Platten".as_bytes()),
    );
    request
}

async fn shard_history(single: &Single, index: u32) -> pb::ShardHistoryResponse {
    let request = pb::ShardHistoryRequest {
        shard: Some(pb::ShardRef {
            group: "orders".to_owned(),
            index,
        }),
        limit: 0,
    };
    HistoryServiceClient::new(single.channel.clone())
        .shard_history(request)
        .await
        .unwrap()
        .into_inner()
}

async fn list(single: &Single, request: pb::ListEventsRequest) -> pb::ListEventsResponse {
    HistoryServiceClient::new(single.channel.clone())
        .list_events(request)
        .await
        .unwrap()
        .into_inner()
}

fn revision(mark: Option<&pb::HistoryMark>) -> u64 {
    mark.and_then(|mark| mark.cursor).unwrap().revision
}

/// Scenario: at night somebody asks who owned a shard and why it moved, perhaps of a node that was
/// restarted since.
#[tokio::test(flavor = "multi_thread")]
async fn who_owned_a_shard_and_why_it_moved_is_known_after_a_restart() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 4).await;
    let granted = owned.grant(&single.node, 0..4, None, owned.session).await;
    let serving = single
        .propose(Command::Ready(Ready {
            session: owned.session,
            stores: vec![StoreName::new("main").unwrap()],
            tenures: tenures(0..4, Epoch::FIRST),
        }))
        .await;
    let drain = pb::SetWorkerModeRequest {
        group: "orders".to_owned(),
        worker: "worker-1".to_owned(),
        mode: pb::WorkerMode::Draining.into(),
        pause_timeout_ms: 0,
    };
    let drained = AdminServiceClient::new(single.channel.clone())
        .set_worker_mode(asked(drain))
        .await
        .unwrap()
        .into_inner()
        .revision;
    // As the leader would, who may have been quicker: then the shard is refused to this command.
    let revoke = Command::Assign(Assign {
        group: owned.group,
        grants: Vec::new(),
        revokes: vec![Revoke {
            shard: ShardIndex(2),
            seen: Epoch::FIRST,
            next: None,
            reason: RevokeReason::Draining,
        }],
    });
    let patience = crate::support::PATIENCE;
    let consensus = single.node.consensus();
    consensus.propose(&revoke, patience).await.unwrap();
    let release = Command::Release(Release {
        session: owned.session,
        releases: vec![Released {
            tenure: tenures(2..3, Epoch::FIRST)[0],
            cause: ReleaseCause::Finished,
        }],
    });
    let released = single.propose(release).await;

    let told = shard_history(&single, 2).await;
    let tenure = told.tenures.last().unwrap();
    assert_eq!((tenure.epoch, tenure.worker.as_str()), (1, "worker-1"));
    assert_eq!(revision(tenure.granted.as_ref()), granted.0);
    assert_eq!(revision(tenure.serving.as_ref()), serving.0);
    assert_eq!(revision(tenure.ended.as_ref()), released.0);
    assert_eq!(tenure.revoke_reason(), pb::RevokeReason::Draining);
    assert_eq!(tenure.end_cause(), pb::EndCause::Released);
    assert_eq!(
        (tenure.by.as_str(), tenure.reason.as_str()),
        ("alice@laptop", "größere Platten")
    );
    assert!(tenure.granted.as_ref().unwrap().at_ms > 1_700_000_000_000);

    let by_people = pb::ListEventsRequest {
        asked_for: true,
        ..Default::default()
    };
    let listed = list(&single, by_people.clone()).await;
    let [event] = listed.events.as_slice() else {
        panic!("{listed:?}");
    };
    assert_eq!(
        (event.kind.as_str(), event.group.as_str(), event.by.as_str()),
        ("worker-mode-set", "orders", "alice@laptop")
    );
    assert_eq!(event.cursor.unwrap().revision, drained);
    let everything = pb::ListEventsRequest {
        group: "orders".to_owned(),
        page_size: 1_000,
        ..Default::default()
    };
    let before = list(&single, everything.clone()).await.events;

    let single = single.restart().await;
    let again = shard_history(&single, 2).await;
    assert_eq!(again.tenures.last(), told.tenures.last());
    assert_eq!(again.since_revision, told.since_revision);
    let after = list(&single, everything).await.events;
    assert_eq!(after.get(..before.len()), Some(before.as_slice()));
    assert_eq!(list(&single, by_people).await.events, listed.events);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_the_cluster_itself_is_in_its_history() {
    let single = Single::start().await;
    let remove = pb::RemoveNodeRequest { id: 9 };
    ClusterServiceClient::new(single.channel.clone())
        .remove_node(asked(remove))
        .await
        .unwrap_err();
    let of_cluster = pb::ListEventsRequest {
        kinds: vec!["operation".to_owned(), "members-changed".to_owned()],
        ..Default::default()
    };
    let listed = list(&single, of_cluster).await.events;
    let [members, operation] = listed.as_slice() else {
        panic!("{listed:?}");
    };
    let Some(What::Members(first)) = &members.what else {
        panic!("{members:?}");
    };
    assert!(first.members.len() == 1 && first.members[0].voter);
    assert_eq!(
        (operation.what.clone(), operation.by.as_str()),
        (
            Some(What::Operation("remove node 9".to_owned())),
            "alice@laptop"
        )
    );
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_meant_are_refused_by_field() {
    let single = Single::start().await;
    Owned::create(&single.node, "orders", 4).await;
    let mut client = HistoryServiceClient::new(single.channel.clone());
    let without_group = pb::ListEventsRequest {
        shard: Some(1),
        ..Default::default()
    };
    let status = client.list_events(without_group).await.unwrap_err();
    assert_eq!(field_of(&status), "group");
    let too_many = pb::ListEventsRequest {
        page_size: 1_001,
        ..Default::default()
    };
    let status = client.list_events(too_many).await.unwrap_err();
    assert_eq!(field_of(&status), "page_size");
    let shard = Some(pb::ShardRef {
        group: "orders".to_owned(),
        index: 4,
    });
    let status = client
        .shard_history(pb::ShardHistoryRequest { shard, limit: 0 })
        .await
        .unwrap_err();
    assert_eq!(field_of(&status), "shard");

    let mut loud = asked(pb::DeleteGroupRequest {
        name: "orders".to_owned(),
    });
    let reason = MetadataValue::from_bytes(b"\x1b[31m");
    loud.metadata_mut().insert_bin("tenure-reason-bin", reason);
    let status = AdminServiceClient::new(single.channel.clone())
        .delete_group(loud)
        .await
        .unwrap_err();
    assert_eq!(field_of(&status), "tenure-reason-bin");
    let phase = single
        .node
        .consensus()
        .read(|state| state.groups().next().unwrap().header.phase);
    assert_eq!(phase, GroupPhase::Active);
    single.stop().await;
}
