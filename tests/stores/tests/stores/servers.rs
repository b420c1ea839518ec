//! The servers themselves: they start, survive a kill, and leave nothing behind.

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::dynalite::Dynalite;
use store_tests::etcd::EtcdCluster;
use store_tests::fake_gcs::FakeGcs;
use store_tests::gcp_storage_emulator::GcpStorageEmulator;
use store_tests::mariadb::Mariadb;
use store_tests::moto::Moto;
use store_tests::postgres::Postgres;
use store_tests::redis::Redis;
use store_tests::seaweedfs::Seaweedfs;
use store_tests::server::{Program, Server};

/// Kills the server and starts it again, then drops it and requires that its folder is unused.
async fn survives_a_kill<P: Program>(server: Result<Server<P>, Failure>) -> Result<(), Failure> {
    let mut server = server?;
    server.crash().await?;
    let folder = server.folder().to_owned();
    server.kill().await?;
    drop(server);
    assert!(!folder.exists(), "{} is left behind", folder.display());
    Ok(())
}

#[tokio::test]
async fn postgresql_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Postgres::start().await).await
}

#[tokio::test]
async fn mariadb_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Mariadb::start().await).await
}

#[tokio::test]
async fn redis_starts_again_after_a_kill_and_so_does_its_replica() -> Result<(), Failure> {
    let primary = Redis::start().await?;
    survives_a_kill(Redis::start_replica_of(primary.address()).await).await?;
    survives_a_kill(Redis::start_evicting().await).await?;
    survives_a_kill(Ok(primary)).await
}

#[tokio::test]
async fn three_etcd_members_start_again_after_a_kill() -> Result<(), Failure> {
    let mut cluster = EtcdCluster::start().await?;
    cluster.member_mut(0).crash().await?;
    cluster.kill_all().await?;
    cluster.restart_all().await
}

#[tokio::test]
async fn seaweedfs_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Seaweedfs::start().await).await
}

#[tokio::test]
async fn moto_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Moto::start().await).await?;
    survives_a_kill(Moto::start_threaded().await).await
}

#[tokio::test]
async fn azurite_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Azurite::start().await).await
}

#[tokio::test]
async fn fake_gcs_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(FakeGcs::start().await).await
}

#[tokio::test]
async fn gcp_storage_emulator_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(GcpStorageEmulator::start().await).await
}

#[tokio::test]
async fn dynalite_starts_again_after_a_kill() -> Result<(), Failure> {
    survives_a_kill(Dynalite::start().await).await
}
