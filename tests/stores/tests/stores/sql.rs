//! What the SQL stores are held to beside the kit: the user's own transaction, damage, batches.

mod batch;
mod damage;
mod database;
mod layout;
mod transaction;

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{Checkpoint, CheckpointStore, FencingToken, Isolation, SqlBackend, SqlStore};

use crate::case::Case;

pub(crate) use batch::seals_of_a_batch_are_independent;
pub(crate) use damage::what_was_changed_by_hand_is_corrupt;
pub(crate) use database::{Database, InDatabase, RemoteDatabase};
pub(crate) use layout::{first_openings_at_once_make_one_layout, newer_layout_is_refused};
pub(crate) use transaction::{
    SinkError, idle_transaction_is_ended_by_the_server,
    rows_and_offset_commit_together_or_not_at_all, seal_and_transaction_that_wait_together_agree,
    seal_waits_for_a_transaction_in_flight, transaction_after_a_seal_delivers_nothing,
    transaction_that_has_ended_inside_is_no_success,
};

/// How long anything that is waited for may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the kit at the isolations that are not the default.
pub(crate) async fn keeps_the_contract_under_stricter_isolation<D: Database>(
    mut database: D,
) -> Result<(), Failure> {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let place = InDatabase {
            database,
            isolation,
        };
        let mut case = Case::new(place).await?;
        case.check(200).await;
        database = case.place.database;
    }
    Ok(())
}

fn data(checkpoint: Option<Checkpoint>) -> Option<Bytes> {
    checkpoint.map(|checkpoint| checkpoint.data)
}

/// An owner that has sealed, and the next owner, which has not.
async fn two_owners<B: SqlBackend>(store: &SqlStore<B>) -> (FencingToken, FencingToken) {
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let old = grants.next_tenure(&resource, Holder::New);
    let new = grants.next_tenure(&resource, Holder::New);
    store.seal(&old).await.unwrap();
    (old, new)
}

pub(crate) async fn until_waiting<D: Database>(database: &D, count: i64) -> Result<(), Failure> {
    wait::until(
        "statements that wait for the fence",
        PATIENCE,
        async || match database.waiting().await {
            waiting if waiting >= count => Ok(()),
            waiting => Err(format!("{waiting} of {count} wait")),
        },
    )
    .await
}
