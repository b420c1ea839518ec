//! Writes and deletions whose answers are lost, late or misleading.

use std::time::Duration;

use tenure::{
    CheckpointError, CheckpointStore, Deletion, ReplicatedStore, Sequence, Write, WriteId,
};
use tenure_proto::reason;
use tokio::net::TcpListener;
use tonic::{Code, Status};

use crate::script::error;
use crate::service::{Fault, Node, shard_token, store_at, write};

// Scenario 6, in transport: the retry presents the very same write.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_repeated_and_lands_once() {
    let node = Node::start().await;
    let store = node.store();
    store.seal(&shard_token(1, 1)).await.unwrap();
    node.fail([
        Fault::DoneBut(error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[])),
        Fault::DoneBut(Status::unavailable("the connection broke")),
        Fault::Refuse(error(Code::Unavailable, reason::UNAVAILABLE, &[])),
    ]);
    store
        .write(&shard_token(1, 1), write(1, "x"))
        .await
        .unwrap();
    let writes = node.backing.writes.lock().unwrap().clone();
    assert_eq!(writes.len(), 4);
    assert!(writes.iter().all(|write| *write == writes[0]));
    node.stop().await;
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_repeated_as_it_was() {
    let node = Node::start().await;
    let (store, token) = (node.store(), shard_token(1, 1));
    store.seal(&token).await.unwrap();
    store.write(&token, write(1, "x")).await.unwrap();
    let deletion = Deletion {
        sequence: Sequence::new(2).unwrap(),
        write_id: WriteId::new(0xdead),
    };
    node.fail([
        Fault::DoneBut(Status::unavailable("the connection broke")),
        Fault::Refuse(error(Code::Unavailable, reason::UNAVAILABLE, &[])),
    ]);
    store.delete(&token, deletion).await.unwrap();
    assert_eq!(store.read(&token.resource).await.unwrap(), None);
    let deletions = node.backing.deletions.lock().unwrap().clone();
    assert_eq!(deletions.len(), 3);
    assert!(deletions.iter().all(|repeated| *repeated == deletions[0]));

    // Once more, too late: the refusal names both sequences.
    store.write(&token, write(3, "y")).await.unwrap();
    let late = store.delete(&token, deletion).await;
    assert!(
        matches!(
            late,
            Err(CheckpointError::SequenceReused { presented, latest, .. })
                if presented.get() == 2 && latest.get() == 3
        ),
        "{late:?}"
    );
    node.stop().await;
}

// Scenario 7.
#[tokio::test]
async fn a_write_that_may_have_happened_once_is_never_reported_as_not_happened() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_millis(600));
    store.seal(&shard_token(1, 1)).await.unwrap();
    let unknown = error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[]);
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    node.fail([Fault::Refuse(unknown)]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::OutcomeUnknown { .. })),
        "{written:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_landed_before_the_fence_rose_is_not_reported_as_refused() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_secs(10));
    let old = shard_token(1, 1);
    store.seal(&old).await.unwrap();
    let unknown = || error(Code::Unknown, reason::OUTCOME_UNKNOWN, &[]);
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    // It lands, and nobody hears of it; the next owner seals before it is repeated.
    node.fail([Fault::DoneBut(unknown())]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let writing = store.write(&old, write(1, "x"));
    let sealing = async {
        while node.backing.writes.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let found = node.backing.store.seal(&shard_token(1, 2)).await.unwrap();
        node.backing.faults.lock().unwrap().clear();
        found
    };
    let (written, found) = tokio::join!(writing, sealing);
    assert_eq!(found.unwrap().data, "x");
    assert!(
        matches!(written, Err(CheckpointError::OutcomeUnknown { .. })),
        "{written:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_surely_did_not_happen_is_reported_so() {
    let node = Node::start().await;
    let store = store_at(&[&node.address], Duration::from_millis(600));
    let unavailable = || error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    node.fail((0..1_000).map(|_| Fault::Refuse(unavailable())));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::Unavailable { .. })),
        "{written:?}"
    );
    node.stop().await;

    // Nobody listens there: nothing was ever sent.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let store = store_at(&[&address], Duration::from_millis(300));
    let written = store.write(&shard_token(1, 1), write(1, "x")).await;
    assert!(
        matches!(written, Err(CheckpointError::Unavailable { .. })),
        "{written:?}"
    );
}

#[tokio::test]
async fn a_write_to_a_node_that_does_not_lead_goes_to_the_leader() {
    let (follower, leader) = (Node::start().await, Node::start().await);
    let hint = [(reason::LEADER_ADDRESS, leader.address.as_str())];
    follower.fail([Fault::Refuse(error(
        Code::FailedPrecondition,
        reason::NOT_LEADER,
        &hint,
    ))]);
    leader.backing.store.seal(&shard_token(1, 1)).await.unwrap();
    let store = follower.store();
    store
        .write(&shard_token(1, 1), write(1, "x"))
        .await
        .unwrap();
    // From now on it asks the leader first.
    store
        .write(&shard_token(1, 1), write(2, "y"))
        .await
        .unwrap();
    assert_eq!(follower.backing.writes.lock().unwrap().len(), 1);
    assert_eq!(leader.backing.writes.lock().unwrap().len(), 2);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_node_that_takes_calls_and_never_answers_leaves_time_for_another() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let node = Node::start().await;
    let store = store_at(&[&address, &node.address], Duration::from_secs(2));
    store.seal(&shard_token(1, 1)).await.unwrap();
    assert_eq!(node.backing.seals.lock().unwrap().len(), 1);
    node.stop().await;

    // With nobody else to ask the outcome is unknown: the call was taken.
    let store = store_at(&[&address], Duration::from_millis(300));
    let sealed = store.seal(&shard_token(1, 2)).await;
    assert!(
        matches!(sealed, Err(CheckpointError::OutcomeUnknown { .. })),
        "{sealed:?}"
    );
}

#[tokio::test]
async fn an_epoch_that_was_never_granted_is_final() {
    let node = Node::start().await;
    let never = || Fault::Refuse(error(Code::FailedPrecondition, reason::NEVER_GRANTED, &[]));
    node.fail([never()]);
    let written = node.store().write(&shard_token(1, 5), write(1, "x")).await;
    assert!(written.unwrap_err().is_final());
    node.stop().await;
}

#[tokio::test]
async fn leases_and_large_values_are_refused_before_anything_is_sent() {
    let node = Node::start().await;
    let store = node.store();
    let lease = format!("lease/nightly@1:{}/5", "0".repeat(32))
        .parse()
        .unwrap();
    let refused = store.write(&lease, write(1, "x")).await;
    assert!(matches!(refused, Err(CheckpointError::Unsupported { .. })));
    let data = vec![0; ReplicatedStore::MAX_VALUE_BYTES + 1].into();
    let large = store
        .write(
            &shard_token(1, 1),
            Write {
                data,
                ..write(1, "")
            },
        )
        .await;
    assert!(matches!(large, Err(CheckpointError::TooLarge { .. })));
    assert!(node.backing.writes.lock().unwrap().is_empty());
    store.probe().await.unwrap();
    node.stop().await;
}
