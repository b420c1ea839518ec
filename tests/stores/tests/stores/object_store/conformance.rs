//! Every bucket keeps the contract, also through a kill in the middle of 200 writers.

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;

use super::places::{Bucketed, InBucket, TestFolder};
use crate::case::Case;

async fn case<B: Bucketed>(bucket: B, handles: usize) -> Result<Case<InBucket<B>>, Failure> {
    Case::new(InBucket { bucket, handles }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_keeps_the_contract() -> Result<(), Failure> {
    case(Seaweedfs::start().await?, 1)
        .await?
        .keeps_the_contract()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_keeps_the_contract_for_three_that_know_nothing_of_each_other()
-> Result<(), Failure> {
    let case = case(Seaweedfs::start().await?, 3).await?;
    case.keeps_the_contract_here_too().await
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    case(Seaweedfs::start().await?, 1)
        .await?
        .survives_a_kill()
        .await
}

/// A second dialect of S3.
#[tokio::test(flavor = "multi_thread")]
async fn moto_keeps_the_contract() -> Result<(), Failure> {
    case(Moto::start().await?, 1)
        .await?
        .keeps_the_contract_here_too()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_keeps_the_contract() -> Result<(), Failure> {
    case(Azurite::start().await?, 1)
        .await?
        .keeps_the_contract()
        .await
}

/// It is killed at rest, as the kit does it, but not in the middle of writers: see
/// `fake_gcs_loses_what_it_is_replacing_when_it_is_killed`.
#[tokio::test(flavor = "multi_thread")]
async fn fake_gcs_keeps_the_contract() -> Result<(), Failure> {
    case(FakeGcs::start().await?, 1)
        .await?
        .keeps_the_contract()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_folder_keeps_the_contract() -> Result<(), Failure> {
    case(TestFolder::new()?, 1)
        .await?
        .keeps_the_contract()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_folder_keeps_the_contract_for_three_that_know_nothing_of_each_other()
-> Result<(), Failure> {
    case(TestFolder::new()?, 3)
        .await?
        .keeps_the_contract_here_too()
        .await
}
