//! The replicated store over the network.

use prost::Message as _;
use tenure_fence::Epoch;
use tenure_ownership::Command;
use tenure_proto::reason;
use tenure_proto::v1 as pb;
use tenure_proto::v1::checkpoint_service_client::CheckpointServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::{Owned, Single, field_of, metadata_of, reason_of};

const MEBIBYTE: usize = 1 << 20;

fn client(channel: &Channel) -> CheckpointServiceClient<Channel> {
    CheckpointServiceClient::new(channel.clone())
}

fn seal(owned: &Owned, shards: std::ops::Range<u32>, epoch: u64) -> pb::SealRequest {
    pb::SealRequest {
        group: owned.name.to_string(),
        owner: Some(owned.owner(owned.session)),
        tenures: shards
            .map(|shard| pb::SealTenure { shard, epoch })
            .collect(),
    }
}

fn write(owned: &Owned, shard: u32, sequence: u64, data: &[u8]) -> pb::WriteRequest {
    pb::WriteRequest {
        token: Some(owned.token(shard, 1, owned.session)),
        sequence,
        write_id: u128::from(sequence).to_be_bytes().to_vec().into(),
        data: data.to_vec().into(),
    }
}

fn delete(owned: &Owned, shard: u32, sequence: u64) -> pb::DeleteRequest {
    let pb::WriteRequest {
        token,
        sequence,
        write_id,
        ..
    } = write(owned, shard, sequence, b"");
    pb::DeleteRequest {
        token,
        sequence,
        write_id,
    }
}

fn statuses(response: &pb::SealResponse) -> Vec<pb::SealStatus> {
    response
        .outcomes
        .iter()
        .map(pb::SealOutcome::status)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_sealed_written_read_and_deleted_and_its_fence_stays() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 4).await;
    owned.grant(&single.node, 0..1, None, owned.session).await;
    let mut client = client(&single.channel);

    let unsealed = client.write(write(&owned, 0, 1, b"x")).await.unwrap_err();
    assert_eq!(reason_of(&unsealed), reason::NOT_SEALED);
    let sealed = client
        .seal(seal(&owned, 0..1, 1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(statuses(&sealed), [pb::SealStatus::Sealed]);
    assert_eq!(sealed.outcomes[0].checkpoint, None);

    client.write(write(&owned, 0, 1, b"one")).await.unwrap();
    client.write(write(&owned, 0, 2, b"two")).await.unwrap();
    // The retry of a write that landed is no other write.
    client.write(write(&owned, 0, 2, b"two")).await.unwrap();
    let reused = pb::WriteRequest {
        write_id: vec![9; 16].into(),
        ..write(&owned, 0, 2, b"2")
    };
    let status = client.write(reused).await.unwrap_err();
    assert_eq!(
        (
            reason_of(&status).as_str(),
            metadata_of(&status, reason::LATEST).as_str()
        ),
        (reason::SEQUENCE_REUSED, "2")
    );
    let status = client.write(write(&owned, 0, 1, b"one")).await.unwrap_err();
    assert_eq!(reason_of(&status), reason::SEQUENCE_REUSED);

    let shard = pb::ShardRef {
        group: "orders".to_owned(),
        index: 0,
    };
    let read = client
        .read(pb::ReadRequest {
            shard: Some(shard.clone()),
            linearizable: true,
        })
        .await
        .unwrap();
    let checkpoint = read.into_inner().checkpoint.unwrap();
    assert_eq!(
        (checkpoint.sequence, &checkpoint.data[..]),
        (2, &b"two"[..])
    );
    let sealed = client
        .seal(seal(&owned, 0..1, 1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(sealed.outcomes[0].checkpoint.as_ref(), Some(&checkpoint));

    let late = client.delete(delete(&owned, 0, 1)).await.unwrap_err();
    assert_eq!(
        (
            reason_of(&late).as_str(),
            metadata_of(&late, reason::LATEST).as_str()
        ),
        (reason::SEQUENCE_REUSED, "2")
    );
    client.delete(delete(&owned, 0, 3)).await.unwrap();
    // The retry of a deletion that landed is no other deletion.
    client.delete(delete(&owned, 0, 3)).await.unwrap();
    let read = client
        .read(pb::ReadRequest {
            shard: Some(shard),
            linearizable: false,
        })
        .await
        .unwrap();
    assert_eq!(read.into_inner().checkpoint, None);
    let status = client.write(write(&owned, 0, 2, b"two")).await.unwrap_err();
    assert_eq!(
        (
            reason_of(&status).as_str(),
            metadata_of(&status, reason::LATEST).as_str()
        ),
        (reason::SEQUENCE_REUSED, "3")
    );
    client.write(write(&owned, 0, 4, b"four")).await.unwrap();
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_owner_is_fenced_from_the_moment_of_the_next_grant() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 1).await;
    owned.grant(&single.node, 0..1, None, owned.session).await;
    let mut client = client(&single.channel);
    client.seal(seal(&owned, 0..1, 1)).await.unwrap();
    client.write(write(&owned, 0, 1, b"old")).await.unwrap();

    single.propose(Command::Expire(vec![owned.session])).await;
    let second = owned.register(&single.node, "worker-2").await;
    owned
        .grant(&single.node, 0..1, Some(Epoch::FIRST), second)
        .await;
    let status = client
        .write(write(&owned, 0, 2, b"stale"))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::FailedPrecondition, reason::FENCED)
    );
    assert_eq!(metadata_of(&status, reason::PRESENTED), "1");
    assert_eq!(metadata_of(&status, reason::CURRENT), "2");
    let late = client
        .seal(seal(&owned, 0..1, 1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(statuses(&late), [pb::SealStatus::Fenced]);
    assert_eq!(late.outcomes[0].current_epoch, 2);

    // The new owner reads the last write of the old one.
    let request = pb::SealRequest {
        owner: Some(owned.owner(second)),
        ..seal(&owned, 0..1, 2)
    };
    let sealed = client.seal(request).await.unwrap().into_inner();
    let checkpoint = sealed.outcomes[0].checkpoint.as_ref().unwrap();
    assert_eq!((checkpoint.epoch, &checkpoint.data[..]), (1, &b"old"[..]));
    let never = client
        .seal(seal(&owned, 0..1, 7))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(statuses(&never), [pb::SealStatus::NeverGranted]);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_whose_checkpoints_do_not_fit_one_answer_are_deferred_and_come_with_the_next() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 8).await;
    owned.grant(&single.node, 0..8, None, owned.session).await;
    let mut client = client(&single.channel);
    client.seal(seal(&owned, 0..8, 1)).await.unwrap();
    for shard in 0..5 {
        let data = vec![u8::try_from(shard).unwrap(); MEBIBYTE];
        client.write(write(&owned, shard, 1, &data)).await.unwrap();
    }
    let mut from = 0;
    let mut answers = Vec::new();
    while from < 8 {
        let response = client
            .seal(seal(&owned, from..8, 1))
            .await
            .unwrap()
            .into_inner();
        let done: Vec<_> = response
            .outcomes
            .iter()
            .take_while(|outcome| outcome.status() != pb::SealStatus::Deferred)
            .cloned()
            .collect();
        assert!(!done.is_empty() && done.len() <= response.outcomes.len());
        from += u32::try_from(done.len()).unwrap();
        answers.push(done.len());
        for outcome in done {
            assert_eq!(outcome.status(), pb::SealStatus::Sealed);
        }
    }
    assert_eq!(answers, [2, 2, 4]);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_too_large_is_refused_by_size_and_policy() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 1).await;
    owned.grant(&single.node, 0..1, None, owned.session).await;
    let mut client = client(&single.channel);
    client.seal(seal(&owned, 0..1, 1)).await.unwrap();
    client
        .write(write(&owned, 0, 1, &vec![1; MEBIBYTE]))
        .await
        .unwrap();
    let status = client
        .write(write(&owned, 0, 2, &vec![1; MEBIBYTE + 1]))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status).as_str()),
        (Code::ResourceExhausted, reason::TOO_LARGE)
    );
    assert_eq!(
        metadata_of(&status, reason::MAX_BYTES),
        MEBIBYTE.to_string()
    );
    let unnamed = pb::WriteRequest {
        token: None,
        ..write(&owned, 0, 2, b"x")
    };
    assert_eq!(field_of(&client.write(unnamed).await.unwrap_err()), "token");
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_of_one_shard_never_see_a_torn_checkpoint() {
    const WRITES: u64 = 150;
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 1).await;
    owned.grant(&single.node, 0..1, None, owned.session).await;
    let mut writer = client(&single.channel);
    writer.seal(seal(&owned, 0..1, 1)).await.unwrap();
    let writing = async {
        for sequence in 1..=WRITES {
            let byte = u8::try_from(sequence % 251).unwrap();
            let length = usize::try_from(sequence % 7 + 1).unwrap() * 5_000;
            writer
                .write(write(&owned, 0, sequence, &vec![byte; length]))
                .await
                .unwrap();
        }
    };
    let reading = async {
        let mut reader = client(&single.channel);
        let mut latest = 0;
        while latest < WRITES {
            let shard = pb::ShardRef {
                group: "orders".to_owned(),
                index: 0,
            };
            let request = pb::ReadRequest {
                shard: Some(shard),
                linearizable: false,
            };
            match reader.read(request).await {
                Ok(read) => {
                    let Some(checkpoint) = read.into_inner().checkpoint else {
                        continue;
                    };
                    assert!(checkpoint.sequence >= latest, "reads do not go back");
                    latest = checkpoint.sequence;
                    let byte = u8::try_from(latest % 251).unwrap();
                    assert!(checkpoint.data.iter().all(|found| *found == byte));
                }
                // Overwritten again and again while it was read.
                Err(status) => assert_eq!(reason_of(&status), reason::UNAVAILABLE, "{status:?}"),
            }
        }
    };
    tokio::join!(writing, reading);
    single.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_writes_each_is_decided_by_itself_and_in_their_order() {
    let single = Single::start().await;
    let owned = Owned::create(&single.node, "orders", 4).await;
    owned.grant(&single.node, 0..3, None, owned.session).await;
    let mut client = client(&single.channel);
    client.seal(seal(&owned, 0..2, 1)).await.unwrap();

    let writes = vec![
        write(&owned, 0, 1, b"one"),
        // Not sealed; and a shard that is not owned.
        write(&owned, 2, 1, b"x"),
        write(&owned, 3, 1, b"x"),
        pb::WriteRequest {
            token: None,
            ..write(&owned, 1, 1, b"x")
        },
        write(&owned, 0, 2, b"two"),
        write(&owned, 0, 1, b"one"),
        write(&owned, 1, 1, b"other"),
    ];
    let request = pb::WriteManyRequest { writes };
    let answer = client.write_many(request).await.unwrap().into_inner();
    let reasons: Vec<String> = answer.outcomes.iter().map(reason_in).collect();
    assert_eq!(
        reasons,
        [
            "",
            reason::NOT_SEALED,
            reason::NEVER_GRANTED,
            reason::INVALID_ARGUMENT,
            "",
            reason::SEQUENCE_REUSED,
            "",
        ]
    );
    let revisions: Vec<u64> = answer
        .outcomes
        .iter()
        .map(|outcome| outcome.revision)
        .collect();
    assert!(0 < revisions[0] && revisions[0] < revisions[4] && revisions[4] < revisions[6]);

    let nothing = client.write_many(pb::WriteManyRequest::default()).await;
    assert_eq!(nothing.unwrap().into_inner().outcomes, []);
    let bytes = vec![1; MEBIBYTE / 2 + 1];
    let large = vec![write(&owned, 0, 3, &bytes), write(&owned, 1, 3, &bytes)];
    let many = vec![write(&owned, 0, 3, b"x"); 257];
    for writes in [large, many] {
        let request = pb::WriteManyRequest { writes };
        let status = client.write_many(request).await.unwrap_err();
        assert_eq!(field_of(&status), "writes");
    }
    single.stop().await;
}

fn reason_in(outcome: &pb::WriteOutcome) -> String {
    if outcome.error.is_empty() {
        return String::new();
    }
    let error = tonic_types::pb::Status::decode(outcome.error.clone()).unwrap();
    let details = outcome.error.clone();
    reason_of(&Status::with_details(
        error.code.into(),
        error.message,
        details,
    ))
}
