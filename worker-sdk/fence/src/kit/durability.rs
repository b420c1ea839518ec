//! Restarts of the store.

use crate::checkpoint::Write;
use crate::error::CheckpointError;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::rule;
use super::stage::Stage;

/// How often the first call after a restart is made until it is answered.
const TRIES_MAX: u32 = 10;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    acknowledged_state_outlives_a_restart(stage).await;
}

async fn acknowledged_state_outlives_a_restart(stage: &mut Stage<'_>) {
    stage.begin("acknowledged_state_outlives_a_restart", rule::DURABLE);
    // One resource whose new owner has only sealed, one that was written, one that was emptied.
    let old = stage.sealed().await;
    let write = stage.content(1, "the old owner's");
    let left = stage.write(&old, &write).await;
    let (sealed, _) = stage.succeeded(&old).await;

    let writer = stage.sealed().await;
    let write = stage.content(7, "acknowledged");
    let written = stage.write(&writer, &write).await;

    let emptied = stage.sealed().await;
    let deleted = stage.content(3, "deleted");
    stage.write(&emptied, &deleted).await;
    let deletion = stage.deletion(4);
    stage.delete(&emptied, deletion).await;

    stage.reopen().await;

    let stale = stage.content(2, "after the restart");
    let answer = after_restart(stage.store.as_ref(), &old, &stale).await;
    stage.fenced("a write after a restart", &old, &sealed, answer);
    let answer = stage.store.seal(&old).await;
    stage.fenced("a seal after a restart", &old, &sealed, answer);
    stage.holds(&sealed.resource, Some(&left)).await;
    let first = stage.content(1, "sealed before the restart");
    stage.write(&sealed, &first).await;

    stage.holds(&writer.resource, Some(&written)).await;
    let retried = stage.store.write(&writer, write).await;
    stage.success("the retry of a write after a restart", retried);
    let other = stage.content(7, "other");
    stage.sequence_refused(&writer, &other, 7).await;

    stage.holds(&emptied.resource, None).await;
    stage.sequence_refused(&emptied, &deleted, 4).await;
    let other = stage.content(4, "other");
    stage.sequence_refused(&emptied, &other, 4).await;
    stage.delete(&emptied, deletion).await;
}

/// Writes until the store says something definite, as a caller does: the connections that the restart has
/// broken are noticed by the calls that use them, and then the outcome may not be known.
async fn after_restart(
    store: &dyn CheckpointStore,
    token: &FencingToken,
    write: &Write,
) -> Result<(), CheckpointError> {
    let mut tries = 1;
    loop {
        match store.write(token, write.clone()).await {
            Err(error) if error.is_retryable() && tries < TRIES_MAX => tries += 1,
            answer => return answer,
        }
    }
}
