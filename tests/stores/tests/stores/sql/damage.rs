//! Rows that were changed by hand.

use cluster_tests::failure::Failure;
use tenure_fence::{CheckpointError, CheckpointStore, FencingToken, SqlOptions};

use super::database::Database;
use super::{data, two_owners};
use crate::case::write;

/// A row that was changed by hand is refused.
pub(crate) async fn what_was_changed_by_hand_is_corrupt<D: Database>(
    database: &D,
    table: &str,
) -> Result<(), Failure> {
    let store = database.open_with(SqlOptions::default()).await?;
    let (old, new) = two_owners(&store).await;
    store.write(&old, write(1, "offset 1")).await?;
    store.seal(&new).await?;
    let resource = &old.resource;
    let change = async |change: &str| {
        let statement = format!("UPDATE {table} SET {change} WHERE resource = '{resource}'");
        database.operate(&statement).await;
    };
    let corrupt = |answer: &Result<(), CheckpointError>| match answer {
        Err(CheckpointError::Corrupt {
            resource: named, ..
        }) => named == resource,
        _ => false,
    };

    // The fence is lowered to the old owner's, in all of its parts but the one that nobody knows.
    let (epoch, session) = (old.epoch, old.owner.session);
    change(&format!("epoch = {epoch}, session = {session}")).await;
    let answer = store.write(&old, write(2, "let in by an operator")).await;
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.transaction(&old, async |_| Ok(())).await;
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.fence(resource).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let answer = store.list(None, 10).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let (epoch, session) = (new.epoch, new.owner.session);
    change(&format!("epoch = {epoch}, session = {session}")).await;
    store.write(&new, write(2, "offset 2")).await?;

    // What was written is damaged: also a seal says so, after it has raised the fence.
    change("checksum = checksum + 1").await;
    let answer = store.read(resource).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    let next = FencingToken {
        epoch: new.epoch.next().unwrap(),
        ..new.clone()
    };
    let answer = store.seal(&next).await.map(drop);
    assert!(corrupt(&answer), "{answer:?}");
    assert_eq!(store.fence(resource).await?.unwrap().epoch, next.epoch);
    // The new owner may decide to begin anew.
    store.write(&next, write(1, "anew")).await?;
    assert_eq!(data(store.read(resource).await?).unwrap(), "anew");
    Ok(())
}
