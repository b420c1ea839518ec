//! Every bucket keeps the contract, also through a kill in the middle of 200 writers.

use std::sync::Arc;

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use store_tests::writers;
use tenure_fence::kit::{self, Options};

use super::places::{InPlace, Place, TestFolder, open};

/// Runs the whole kit. `handles` of the store take turns.
async fn keeps_the_contract<P: Place>(place: P, handles: usize) -> Result<(), Failure> {
    let mut harness = InPlace::new(place, handles).await?;
    let report = kit::run(&mut harness, Options::default()).await;
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    assert_eq!(report.race.rounds, 1_000);
    // A race that only ever ends one way shows nothing.
    assert!(report.race.landed > 100, "{:?}", report.race);
    assert!(report.race.fenced > 100, "{:?}", report.race);
    println!("{:?}", report.race);
    Ok(())
}

/// Kills the server in the middle of 200 writers.
async fn survives_a_kill<P: Place>(mut place: P) -> Result<(), Failure> {
    let store = Arc::new(open(&place).await?);
    writers::survive_a_crash(store, async || place.crash()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_keeps_the_contract() -> Result<(), Failure> {
    keeps_the_contract(Seaweedfs::start().await?, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_keeps_the_contract_for_three_that_know_nothing_of_each_other()
-> Result<(), Failure> {
    keeps_the_contract(Seaweedfs::start().await?, 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    survives_a_kill(Seaweedfs::start().await?).await
}

// Loses everything with its process, so nothing is killed.
#[tokio::test(flavor = "multi_thread")]
async fn moto_keeps_the_contract() -> Result<(), Failure> {
    keeps_the_contract(Moto::start().await?, 1).await
}

// Loses what it has acknowledged when it is killed, so nothing is killed.
#[tokio::test(flavor = "multi_thread")]
async fn azurite_keeps_the_contract() -> Result<(), Failure> {
    keeps_the_contract(Azurite::start().await?, 1).await
}

// Keeps what it has acknowledged when it is killed at rest, as here, but loses an object that is being
// replaced at that moment, so it is not killed in the middle of writers.
#[tokio::test(flavor = "multi_thread")]
async fn fake_gcs_keeps_the_contract() -> Result<(), Failure> {
    keeps_the_contract(FakeGcs::start().await?, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_folder_keeps_the_contract() -> Result<(), Failure> {
    keeps_the_contract(TestFolder::new()?, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_folder_keeps_the_contract_for_three_that_know_nothing_of_each_other()
-> Result<(), Failure> {
    keeps_the_contract(TestFolder::new()?, 3).await
}
