//! Watches: scenarios 44 and 46, and what follows from promise P8.

use tenure_fence::Epoch;
use tenure_ownership::Command;
use tenure_ownership::command::{Ready, Release, ReleaseCause, Released};
use tenure_ownership::ids::Revision;
use tenure_proto::v1 as pb;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::support::{Owned, Single, reason_of, soon, tenures};

type Watch = Streaming<pb::WatchResponse>;

async fn watch(channel: &Channel, after: Option<pb::Cursor>) -> Watch {
    let request = pb::WatchRequest {
        group: "orders".to_owned(),
        after,
    };
    soon(OwnershipServiceClient::new(channel.clone()).watch(request))
        .await
        .unwrap()
        .into_inner()
}

async fn next(watch: &mut Watch) -> Message {
    soon(watch.message())
        .await
        .unwrap()
        .expect("the stream goes on")
        .message
        .unwrap()
}

async fn events(watch: &mut Watch) -> pb::WatchEvents {
    match next(watch).await {
        Message::Events(events) => events,
        other => panic!("events are expected: {other:?}"),
    }
}

/// Reads the state that begins a watch, all parts of it.
async fn state(watch: &mut Watch) -> (pb::Cursor, Vec<pb::WatchShard>, Vec<pb::WatchWorker>) {
    let (mut shards, mut workers) = (Vec::new(), Vec::new());
    loop {
        let Message::State(part) = next(watch).await else {
            panic!("state comes first")
        };
        shards.extend(part.shards);
        workers.extend(part.workers);
        if part.last {
            assert_eq!(u32::try_from(shards.len()).unwrap(), part.shard_count);
            return (part.at.unwrap(), shards, workers);
        }
    }
}

fn ordinals(events: &pb::WatchEvents) -> Vec<u32> {
    events
        .events
        .iter()
        .map(|event| event.cursor.unwrap().ordinal)
        .collect()
}

fn ready(owned: &Owned, shards: std::ops::Range<u32>, epoch: Epoch) -> Command {
    let tenures = tenures(shards, epoch);
    Command::Ready(Ready {
        session: owned.session,
        stores: Vec::new(),
        tenures,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_begins_with_the_state_and_goes_on_with_every_event_after_it() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 25_000).await;
    let granted = owned.grant(&single.node, 0..3, None, owned.session).await;
    let mut stream = watch(&single.channel, None).await;
    let (at, shards, workers) = state(&mut stream).await;
    assert_eq!(at.revision, granted.0);
    assert_eq!(
        (shards[2].phase(), shards[2].epoch),
        (pb::ShardPhase::Opening, 1)
    );
    assert_eq!(shards[3].phase(), pb::ShardPhase::Unowned);
    assert_eq!(
        (workers[0].session, workers[0].address.as_str()),
        (owned.session.0, "worker-1:80")
    );

    let second = owned.register(&single.node, "worker-2").await;
    let registered = events(&mut stream).await;
    let Some(pb::event::Event::Registered(worker)) = &registered.events[0].event else {
        panic!("a worker registered: {registered:?}");
    };
    assert_eq!(
        (worker.session, worker.address.as_str()),
        (second.0, "worker-2:80")
    );
    let revision = single.propose(ready(&owned, 0..3, Epoch::FIRST)).await;
    let serving = events(&mut stream).await;
    assert_eq!(
        serving.at,
        Some(pb::Cursor {
            revision: revision.0,
            ordinal: 2
        })
    );
    assert_eq!(ordinals(&serving), [0, 1, 2]);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_cut_off_inside_a_revision_and_resumed_sees_every_later_event_once() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 300).await;
    let granted = owned.grant(&single.node, 0..300, None, owned.session).await;
    let serving = single.propose(ready(&owned, 0..5, Epoch::FIRST)).await;
    for ordinal in [0, 100, 298, 299] {
        let mut stream = watch(
            &single.channel,
            Some(pb::Cursor {
                revision: granted.0,
                ordinal,
            }),
        )
        .await;
        if ordinal < 299 {
            let rest = events(&mut stream).await;
            assert_eq!(ordinals(&rest), (ordinal + 1..300).collect::<Vec<u32>>());
            assert_eq!(
                rest.at,
                Some(pb::Cursor {
                    revision: granted.0,
                    ordinal: 299
                })
            );
        }
        let next = events(&mut stream).await;
        assert_eq!(
            next.events[0].cursor,
            Some(pb::Cursor {
                revision: serving.0,
                ordinal: 0
            })
        );
        assert_eq!(next.events.len(), 5);
    }
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_is_too_late_is_told_to_resync() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 600).await;
    let granted = owned.grant(&single.node, 0..600, None, owned.session).await;
    let serving = single.propose(ready(&owned, 0..600, Epoch::FIRST)).await;
    // The history holds 1,000 events: those of the grant are gone.
    let late = pb::Cursor {
        revision: granted.0,
        ordinal: 0,
    };
    let mut stream = watch(&single.channel, Some(late)).await;
    let Message::Resync(resync) = next(&mut stream).await else {
        panic!("resync is expected")
    };
    let oldest = resync.oldest.unwrap();
    assert_eq!((oldest.revision, oldest.ordinal), (granted.0, 599));
    assert!(
        soon(stream.message()).await.unwrap().is_none(),
        "the stream ends"
    );

    let mut stream = watch(&single.channel, Some(oldest)).await;
    assert_eq!(events(&mut stream).await.at.unwrap().revision, serving.0);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_watcher_resumes_at_the_end_and_resyncs_from_before_it() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 4).await;
    let granted = owned.grant(&single.node, 0..4, None, owned.session).await;
    let single = single.restart().await;
    let revision = single.node.consensus().read(|state| state.revision());
    assert_eq!(revision, granted);

    let before = pb::Cursor {
        revision: granted.0 - 1,
        ordinal: 0,
    };
    let mut stream = watch(&single.channel, Some(before)).await;
    assert!(matches!(next(&mut stream).await, Message::Resync(_)));
    let at_end = pb::Cursor {
        revision: granted.0,
        ordinal: u32::MAX,
    };
    let mut stream = watch(&single.channel, Some(at_end)).await;
    let serving = single.propose(ready(&owned, 0..1, Epoch::FIRST)).await;
    assert_eq!(events(&mut stream).await.at.unwrap().revision, serving.0);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_readable_once_it_is_seen() {
    const ROUNDS: u64 = 200;
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 1).await;
    let mut stream = watch(&single.channel, None).await;
    state(&mut stream).await;
    let proposing = async {
        let mut seen = None;
        for number in 1..=ROUNDS {
            owned.grant(&single.node, 0..1, seen, owned.session).await;
            let epoch = Epoch::new(number).unwrap();
            let tenure = tenures(0..1, epoch)[0];
            let releases = vec![Released {
                tenure,
                cause: ReleaseCause::Finished,
            }];
            single
                .propose(Command::Release(Release {
                    session: owned.session,
                    releases,
                }))
                .await;
            seen = Some(epoch);
        }
    };
    let watching = async {
        let mut client = OwnershipServiceClient::new(single.channel.clone());
        let (mut grants, mut last) = (0, (0, 0));
        while grants < ROUNDS {
            for event in events(&mut stream).await.events {
                let cursor = event.cursor.unwrap();
                assert!(
                    (cursor.revision, cursor.ordinal) > last,
                    "in order, none twice"
                );
                last = (cursor.revision, cursor.ordinal);
                let Some(pb::event::Event::Granted(granted)) = event.event else {
                    continue;
                };
                grants += 1;
                assert_eq!(granted.epoch, grants, "none missing");
                let shard = pb::ShardRef {
                    group: "orders".to_owned(),
                    index: 0,
                };
                let request = pb::GetShardRequest {
                    shard: Some(shard),
                    linearizable: false,
                };
                let read = client.get_shard(request).await.unwrap().into_inner();
                assert!(read.revision >= cursor.revision);
                assert!(read.shard.unwrap().epoch >= granted.epoch);
            }
        }
    };
    tokio::join!(proposing, watching);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watchers_that_come_and_go_see_every_grant_once() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 400).await;
    let mut watchers = tokio::task::JoinSet::new();
    for number in 0..8_u32 {
        let channel = single.channel.clone();
        watchers.spawn(async move {
            let mut granted = vec![false; 400];
            let mut cursor = None;
            let mut left = 400;
            while left > 0 {
                let mut stream = watch(&channel, cursor).await;
                if cursor.is_none() {
                    let (at, shards, _) = state(&mut stream).await;
                    for shard in shards.iter().filter(|shard| shard.epoch > 0) {
                        granted[usize::try_from(shard.index).unwrap()] = true;
                        left -= 1;
                    }
                    cursor = Some(at);
                }
                // Cut off after a few events, in the middle of what a message brought.
                let mut budget = 5 + number;
                while budget > 0 && left > 0 {
                    for event in events(&mut stream).await.events {
                        if budget == 0 {
                            break;
                        }
                        budget -= 1;
                        cursor = event.cursor;
                        if let Some(pb::event::Event::Granted(grant)) = event.event {
                            let seen = &mut granted[usize::try_from(grant.shard).unwrap()];
                            assert!(
                                !std::mem::replace(seen, true),
                                "shard {} twice",
                                grant.shard
                            );
                            left -= 1;
                        }
                    }
                }
            }
        });
    }
    for first in (0..400).step_by(10) {
        owned
            .grant(&single.node, first..first + 10, None, owned.session)
            .await;
    }
    while let Some(watcher) = soon(watchers.join_next()).await {
        watcher.unwrap();
    }
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_deleted_group_does_not_resume_in_its_successor() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 2).await;
    let mut stream = watch(&single.channel, None).await;
    let (at, ..) = state(&mut stream).await;
    single
        .propose(Command::DeleteGroup(owned.name.clone()))
        .await;
    // The leader removes it once nothing is owned.
    let mut changes = Vec::new();
    while changes.last() != Some(&pb::GroupChange::Removed) {
        let events = events(&mut stream).await.events;
        changes.extend(events.iter().filter_map(|event| match &event.event {
            Some(pb::event::Event::GroupChanged(changed)) => Some(changed.change()),
            _ => None,
        }));
    }
    assert_eq!(
        changes,
        [pb::GroupChange::Deleting, pb::GroupChange::Removed]
    );
    assert!(
        soon(stream.message()).await.unwrap().is_none(),
        "the stream of a gone group ends"
    );

    let request = pb::WatchRequest {
        group: "orders".to_owned(),
        after: Some(at),
    };
    let mut client = OwnershipServiceClient::new(single.channel.clone());
    let status = client.watch(request).await.unwrap_err();
    assert_eq!(reason_of(&status), tenure_proto::reason::GROUP_NOT_FOUND);
    let again = Owned::create(&single.node, "orders", 2).await;
    assert!(again.group > owned.group);
    let mut stream = watch(&single.channel, Some(at)).await;
    assert!(matches!(next(&mut stream).await, Message::Resync(_)));
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_watcher_is_told_how_far_it_is() {
    let single = Single::start().await;
    Owned::create(&single.node, "orders", 1).await;
    let mut stream = watch(&single.channel, None).await;
    state(&mut stream).await;
    // Another group changes; this one does not.
    let other = Owned::create(&single.node, "others", 1).await;
    let Message::Progress(progress) = next(&mut stream).await else {
        panic!("progress is expected")
    };
    assert!(Revision(progress.revision) >= Revision(other.session.0));
    let mut stream = watch(&single.channel, Some(progress)).await;
    let owned = single.node.consensus().read(|state| state.revision());
    assert!(owned.0 <= progress.revision);
    single
        .propose(Command::DeleteGroup(crate::support::group_name("orders")))
        .await;
    assert!(events(&mut stream).await.at.unwrap().revision > progress.revision);
    single.stop().await;
}
