//! Answers that are lost, errors after the fact, and conflicts that are no verdict.

use std::net::SocketAddr;
use std::time::Duration;

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::http_faults::{Fault, FaultProxy};
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use tenure_fence::object_store::{ObjectStore, ObjectStoreOptions};
use tenure_fence::{Checkpoint, CheckpointError, CheckpointStore};

use super::places::{Bucketed, Tenures, open, options};
use crate::case::write;

/// What the names of all manifests hold.
const MANIFEST: &str = "tenure/manifest/";

/// A place behind a proxy, and the method that a put is.
struct Behind<P> {
    place: P,
    proxy: FaultProxy,
    put: &'static str,
    store: ObjectStore,
}

impl<P: Bucketed> Behind<P> {
    async fn new(place: P, server: SocketAddr, put: &'static str) -> Result<Self, Failure> {
        let proxy = FaultProxy::start(server).await?;
        let bucket = place.bucket_at(Some(proxy.address()))?;
        let options = ObjectStoreOptions {
            deadline: Duration::from_secs(30),
            ..options()
        };
        let store = ObjectStore::open(bucket, options).await?;
        Ok(Self {
            place,
            proxy,
            put,
            store,
        })
    }
}

/// Scenario 6. Whatever becomes of the answer, the write is reported as what it is, and is there once.
async fn lost_answers_are_settled<P: Bucketed>(behind: Behind<P>) -> Result<(), Failure> {
    let Behind {
        place,
        proxy,
        put,
        store,
    } = behind;
    let direct = open(&place).await?;
    let mut tenures = Tenures::new();
    let mut number = 0;
    for fault in [Fault::LoseAnswer, Fault::FailAfterwards, Fault::LoseRequest] {
        let token = tenures.next();
        proxy.meet(put, MANIFEST, 1, fault);
        store.seal(&token).await?;
        assert_eq!(proxy.heal(), 1, "the seal met no {fault:?}");
        let fence = direct.fence(tenures.resource()).await?;
        assert_eq!(fence.map(|fence| fence.epoch), Some(token.epoch));

        for data in [vec![1; 10], vec![2; 250_000]] {
            number += 1;
            let written = write(number, data);
            proxy.meet(put, MANIFEST, 1, fault);
            store.write(&token, written.clone()).await?;
            assert_eq!(proxy.heal(), 1, "the write met no {fault:?}");
            // A retry changes nothing, and one version exists.
            store.write(&token, written.clone()).await?;
            let found = direct.read(tenures.resource()).await?;
            assert_eq!(found, Some(Checkpoint::of(&token, written)));
        }
    }
    Ok(())
}

/// Scenario 6, the other half. What is there is somebody else's, so the put whose answer was lost did
/// not happen: the owner is told that it was replaced.
async fn a_lost_write_of_a_replaced_owner_is_fenced<P: Bucketed>(
    behind: Behind<P>,
) -> Result<(), Failure> {
    let Behind {
        place,
        proxy,
        put,
        store,
    } = behind;
    let direct = open(&place).await?;
    let mut tenures = Tenures::new();
    for fault in [Fault::LoseAnswer, Fault::FailAfterwards, Fault::LoseRequest] {
        let old = tenures.next();
        store.seal(&old).await?;
        let left = write(1, "left by the old owner");
        store.write(&old, left.clone()).await?;
        let new = tenures.next();
        let found = direct.seal(&new).await?;
        assert_eq!(found, Some(Checkpoint::of(&old, left)));

        // By the handle that does not know yet that there is a new owner.
        proxy.meet(put, MANIFEST, 1, fault);
        let refused = store.write(&old, write(2, "too late")).await;
        assert_eq!(proxy.heal(), 1, "the write met no {fault:?}");
        assert!(
            matches!(refused, Err(CheckpointError::Fenced { .. })),
            "{fault:?}: {refused:?}"
        );
        let other = write(1, "the new owner's");
        direct.write(&new, other.clone()).await?;
        let found = direct.read(tenures.resource()).await?;
        assert_eq!(found, Some(Checkpoint::of(&new, other)));
    }
    Ok(())
}

/// Scenario 7. When nothing can be found out, that is what is said; and the very same write settles it.
async fn what_cannot_be_settled_is_unknown<P: Bucketed>(behind: Behind<P>) -> Result<(), Failure> {
    let Behind {
        proxy, put, store, ..
    } = behind;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    for (number, fault) in (1..).zip([Fault::LoseAnswer, Fault::LoseRequest, Fault::FailAfterwards])
    {
        let written = write(number, format!("{fault:?}"));
        proxy.meet(put, MANIFEST, usize::MAX, fault);
        proxy.meet("GET", MANIFEST, usize::MAX, Fault::LoseRequest);
        let answer = store.write(&token, written.clone()).await;
        assert!(proxy.heal() > 1, "it was given up at once");
        assert!(
            matches!(answer, Err(CheckpointError::OutcomeUnknown { .. })),
            "{fault:?}: {answer:?}"
        );
        store.write(&token, written.clone()).await?;
        let found = store.read(tenures.resource()).await?;
        assert_eq!(found, Some(Checkpoint::of(&token, written)));
    }
    // Or the owner goes on with a higher sequence, whatever became of the other.
    let unknown = write(10, "X");
    proxy.meet(put, MANIFEST, usize::MAX, Fault::LoseAnswer);
    proxy.meet("GET", MANIFEST, usize::MAX, Fault::LoseRequest);
    let answer = store.write(&token, unknown.clone()).await;
    assert!(matches!(
        answer,
        Err(CheckpointError::OutcomeUnknown { .. })
    ));
    proxy.heal();
    let higher = write(11, "Y");
    store.write(&token, higher.clone()).await?;
    let late = store.write(&token, unknown).await;
    assert!(matches!(late, Err(CheckpointError::SequenceReused { .. })));
    let found = store.read(tenures.resource()).await?;
    assert_eq!(found, Some(Checkpoint::of(&token, higher)));
    Ok(())
}

/// Scenario 10. A conflict says that two requests met, not that anybody holds anything.
async fn a_conflict_is_not_a_holder<P: Bucketed>(behind: Behind<P>) -> Result<(), Failure> {
    let Behind {
        proxy, put, store, ..
    } = behind;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    // The key is absent.
    proxy.meet(put, MANIFEST, 2, Fault::Conflict);
    assert_eq!(store.seal(&token).await?, None);
    assert_eq!(proxy.heal(), 2);
    // The key is there.
    let written = write(1, "after a conflict");
    proxy.meet(put, MANIFEST, 2, Fault::Conflict);
    store.write(&token, written.clone()).await?;
    assert_eq!(proxy.heal(), 2);
    let found = store.read(tenures.resource()).await?;
    assert_eq!(found, Some(Checkpoint::of(&token, written)));
    // Nothing but conflicts: it did not happen, and is not somebody else's.
    proxy.meet(put, MANIFEST, usize::MAX, Fault::Conflict);
    let answer = store.write(&token, write(2, "never")).await;
    proxy.heal();
    assert!(
        matches!(answer, Err(CheckpointError::Unavailable { .. })),
        "{answer:?}"
    );
    Ok(())
}

async fn on_seaweedfs() -> Result<Behind<impl Bucketed>, Failure> {
    let server = Seaweedfs::start().await?;
    let address = server.address();
    Behind::new(server, address, "PUT").await
}

async fn on_moto() -> Result<Behind<impl Bucketed>, Failure> {
    let server = Moto::start().await?;
    let address = server.address();
    Behind::new(server, address, "PUT").await
}

async fn on_azurite() -> Result<Behind<impl Bucketed>, Failure> {
    let server = Azurite::start().await?;
    let address = server.address();
    Behind::new(server, address, "PUT").await
}

async fn on_fake_gcs() -> Result<Behind<impl Bucketed>, Failure> {
    let server = FakeGcs::start().await?;
    let address = server.address();
    Behind::new(server, address, "POST").await
}

#[tokio::test]
async fn seaweedfs_settles_lost_answers() -> Result<(), Failure> {
    lost_answers_are_settled(on_seaweedfs().await?).await
}

#[tokio::test]
async fn moto_settles_lost_answers() -> Result<(), Failure> {
    lost_answers_are_settled(on_moto().await?).await
}

#[tokio::test]
async fn azurite_settles_lost_answers() -> Result<(), Failure> {
    lost_answers_are_settled(on_azurite().await?).await
}

#[tokio::test]
async fn fake_gcs_settles_lost_answers() -> Result<(), Failure> {
    lost_answers_are_settled(on_fake_gcs().await?).await
}

#[tokio::test]
async fn seaweedfs_fences_a_lost_write_of_a_replaced_owner() -> Result<(), Failure> {
    a_lost_write_of_a_replaced_owner_is_fenced(on_seaweedfs().await?).await
}

#[tokio::test]
async fn azurite_fences_a_lost_write_of_a_replaced_owner() -> Result<(), Failure> {
    a_lost_write_of_a_replaced_owner_is_fenced(on_azurite().await?).await
}

#[tokio::test]
async fn fake_gcs_fences_a_lost_write_of_a_replaced_owner() -> Result<(), Failure> {
    a_lost_write_of_a_replaced_owner_is_fenced(on_fake_gcs().await?).await
}

#[tokio::test]
async fn seaweedfs_says_unknown_of_what_cannot_be_settled() -> Result<(), Failure> {
    what_cannot_be_settled_is_unknown(on_seaweedfs().await?).await
}

#[tokio::test]
async fn azurite_says_unknown_of_what_cannot_be_settled() -> Result<(), Failure> {
    what_cannot_be_settled_is_unknown(on_azurite().await?).await
}

#[tokio::test]
async fn fake_gcs_says_unknown_of_what_cannot_be_settled() -> Result<(), Failure> {
    what_cannot_be_settled_is_unknown(on_fake_gcs().await?).await
}

#[tokio::test]
async fn seaweedfs_takes_a_conflict_for_no_holder() -> Result<(), Failure> {
    a_conflict_is_not_a_holder(on_seaweedfs().await?).await
}

#[tokio::test]
async fn moto_takes_a_conflict_for_no_holder() -> Result<(), Failure> {
    a_conflict_is_not_a_holder(on_moto().await?).await
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_nothing_happened() -> Result<(), Failure> {
    let mut server = Moto::start().await?;
    let store = open(&server).await?;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    server.kill().await?;
    let answers = [
        store.write(&token, write(1, "small")).await,
        store.write(&token, write(2, vec![0; 500_000])).await,
        store.seal(&token).await.map(drop),
        store.read(tenures.resource()).await.map(drop),
    ];
    for answer in answers {
        assert!(
            matches!(answer, Err(CheckpointError::Unavailable { .. })),
            "{answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_says_nothing_is_unknown_in_time() -> Result<(), Failure> {
    let server = Moto::start().await?;
    let options = ObjectStoreOptions {
        deadline: Duration::from_secs(8),
        ..options()
    };
    let store = ObjectStore::open(server.bucket_at(None)?, options).await?;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    server.freeze()?;
    let answer = store
        .write(&token, write(1, "sent, and never answered"))
        .await;
    let read = store.read(tenures.resource()).await;
    server.thaw()?;
    assert!(
        matches!(answer, Err(CheckpointError::OutcomeUnknown { .. })),
        "{answer:?}"
    );
    assert!(
        matches!(read, Err(CheckpointError::Unavailable { .. })),
        "{read:?}"
    );
    Ok(())
}
