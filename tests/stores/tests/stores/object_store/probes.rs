//! Servers that cannot fence are found out.

use std::error::Error;
use std::fs;

use cluster_tests::failure::Failure;
use store_tests::gcp_storage_emulator::GcpStorageEmulator;
use store_tests::moto::Moto;
use tenure_fence::CheckpointError;
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};

use super::places::{Bucketed, TestFolder, gcs, open, options};

/// What a refused store lacks.
fn lack(opened: Result<ObjectStore, CheckpointError>) -> String {
    match opened {
        Err(CheckpointError::Unsupported { source }) => source.to_string(),
        other => panic!("{other:?} instead of Unsupported"),
    }
}

#[tokio::test]
async fn a_server_that_ignores_preconditions_is_refused() -> Result<(), Failure> {
    let server = GcpStorageEmulator::start().await?;
    let bucket = gcs(&server.endpoint(), server.bucket())?;
    let lack = lack(ObjectStore::open(bucket, options()).await);
    assert!(lack.contains("creates an object that exists"), "{lack}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_checks_and_writes_in_two_steps_is_refused() -> Result<(), Failure> {
    let server = Moto::start_threaded().await?;
    let options = ObjectStoreOptions::default();
    let lack = lack(ObjectStore::open(server.bucket_at(None)?, options).await);
    assert!(lack.contains("two steps"), "{lack}");
    Ok(())
}

/// Each is atomic by itself, and neither knows of the other.
#[tokio::test]
async fn two_endpoints_that_are_not_one_bucket_are_refused() -> Result<(), Failure> {
    let (left, right) = (Moto::start().await?, Moto::start().await?);
    let options = ObjectStoreOptions {
        other_endpoints: vec![right.bucket_at(None)?],
        ..options()
    };
    lack(ObjectStore::open(left.bucket_at(None)?, options).await);
    // One bucket by two addresses is fine.
    let options = ObjectStoreOptions {
        other_endpoints: vec![left.bucket_at(None)?],
        ..self::options()
    };
    ObjectStore::open(left.bucket_at(None)?, options).await?;
    Ok(())
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_unavailable() -> Result<(), Failure> {
    let server = Moto::start().await?;
    let bucket = super::places::s3(server.endpoint(), "no-such-bucket", ("any", "thing"))?;
    let opened = ObjectStore::open(bucket, options()).await;
    assert!(
        matches!(opened, Err(CheckpointError::Unavailable { .. })),
        "{opened:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    open(&place).await?;
    open(&place).await?;
    let layout = place.path().join("tenure/layout");
    for (text, expected) in [
        ("tenure object store, layout 2\n", "says layout 2"),
        ("notes\n", "something else's"),
    ] {
        fs::write(&layout, text)?;
        let lack = lack(ObjectStore::open(place.bucket()?, options()).await);
        assert!(lack.contains(expected), "{lack}");
        assert_eq!(fs::read_to_string(&layout)?, text);
    }
    Ok(())
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    for prefix in ["", "../elsewhere", "a//b", "with space"] {
        let options = ObjectStoreOptions {
            prefix: prefix.to_owned(),
            ..options()
        };
        lack(ObjectStore::open(place.bucket()?, options).await);
    }
    Ok(())
}

#[tokio::test]
async fn what_a_bucket_shows_of_itself_holds_no_secret() -> Result<(), Failure> {
    let bucket: Bucket = super::places::s3(
        "http://127.0.0.1:1".to_owned(),
        "checkpoints",
        ("the-id", "the-secret"),
    )?;
    let shown = format!("{bucket:?}");
    assert!(shown.contains("checkpoints"), "{shown}");
    assert!(!shown.contains("the-secret"), "{shown}");
    let opened = ObjectStore::open(bucket, options()).await;
    let mut error: Option<&dyn Error> = opened.as_ref().err().map(|error| error as &dyn Error);
    while let Some(cause) = error {
        assert!(!cause.to_string().contains("the-secret"), "{cause}");
        error = cause.source();
    }
    Ok(())
}
