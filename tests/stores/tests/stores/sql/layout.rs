//! The tables: made once, and left alone when they are newer.

use cluster_tests::failure::Failure;
use tenure_fence::{CheckpointError, CheckpointStore, SqlOptions};

use super::database::Database;
use super::two_owners;
use crate::case::write;

/// A layout that is newer than this version is left alone.
pub(crate) async fn newer_layout_is_refused<D: Database>(
    database: &D,
    table: &str,
) -> Result<(), Failure> {
    let open = async || database.open_with(SqlOptions::default()).await;
    open().await?;
    // Again, and many at once: what is there is found.
    for opened in futures::future::join_all((0..5).map(|_| open())).await {
        opened?;
    }
    database
        .operate(&format!("UPDATE {table} SET version = 1000"))
        .await;
    let error = open().await.unwrap_err();
    assert!(
        matches!(error, CheckpointError::Unsupported { .. }),
        "{error:?}"
    );
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        source,
        "the tables have layout 1000, this version knows layouts up to 1"
    );
    Ok(())
}

/// Many processes that open the store for the first time at once make one layout.
pub(crate) async fn first_openings_at_once_make_one_layout<D: Database>(
    database: &D,
) -> Result<(), Failure> {
    let openings = (0..8).map(|_| database.open_with(SqlOptions::default()));
    let stores = futures::future::join_all(openings).await;
    let (token, _) = two_owners(stores[0].as_ref().unwrap()).await;
    for (number, store) in (1..).zip(stores) {
        store?.write(&token, write(number, "shared")).await?;
    }
    Ok(())
}
