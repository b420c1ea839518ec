//! Deletions: the data goes, the fence stays.

use super::rule;
use super::stage::Stage;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    fence_outlives_deleted_data(stage).await;
    used_sequences_outlive_deleted_data(stage).await;
    deleting_nothing_succeeds(stage).await;
    next_owner_finds_nothing_after_a_deletion(stage).await;
}

async fn fence_outlives_deleted_data(stage: &mut Stage<'_>) {
    stage.begin("fence_outlives_deleted_data", rule::FENCE_STAYS);
    let old = stage.sealed().await;
    let write = stage.content(1, "old owner's");
    stage.write(&old, &write).await;
    let (new, _) = stage.succeeded(&old).await;
    stage.delete(&new).await;
    stage.holds(&new.resource, None).await;

    let stale = stage.content(2, "into the void");
    let answer = stage.store.write(&old, stale).await;
    stage.fenced("a write after the deletion", &old, &new, answer);
    let answer = stage.store.seal(&old).await;
    stage.fenced("a seal after the deletion", &old, &new, answer);
    let answer = stage.store.delete(&old).await;
    stage.fenced("a deletion after the deletion", &old, &new, answer);
    stage.holds(&new.resource, None).await;

    // The owner itself is still sealed.
    let write = stage.content(1, "new owner's");
    let written = stage.write(&new, &write).await;
    stage.holds(&new.resource, Some(&written)).await;
}

async fn used_sequences_outlive_deleted_data(stage: &mut Stage<'_>) {
    stage.begin("used_sequences_outlive_deleted_data", rule::FENCE_STAYS);
    let token = stage.sealed().await;
    let write = stage.content(5, "deleted soon");
    stage.write(&token, &write).await;
    stage.delete(&token).await;

    let other = stage.content(5, "other");
    stage.sequence_refused(&token, &other, 5).await;
    let lower = stage.content(4, "lower");
    stage.sequence_refused(&token, &lower, 5).await;
    // The retry had landed before the deletion: it succeeds, and brings nothing back.
    let retried = stage.store.write(&token, write).await;
    stage.success("the retry of a write that was deleted since", retried);
    stage.holds(&token.resource, None).await;
    let found = stage.seal(&token).await;
    stage.same("a seal after the deletion", found.as_ref(), None);
    // Sealing again has not forgotten them either.
    stage.sequence_refused(&token, &other, 5).await;

    let next = stage.content(6, "next");
    let written = stage.write(&token, &next).await;
    stage.holds(&token.resource, Some(&written)).await;
}

async fn deleting_nothing_succeeds(stage: &mut Stage<'_>) {
    stage.begin("deleting_nothing_succeeds", rule::FENCE_STAYS);
    let token = stage.sealed().await;
    stage.delete(&token).await;
    let write = stage.content(1, "written after a deletion of nothing");
    stage.write(&token, &write).await;
    stage.delete(&token).await;
    stage.delete(&token).await;
    stage.holds(&token.resource, None).await;
}

async fn next_owner_finds_nothing_after_a_deletion(stage: &mut Stage<'_>) {
    stage.begin(
        "next_owner_finds_nothing_after_a_deletion",
        rule::FENCE_STAYS,
    );
    let old = stage.sealed().await;
    let write = stage.content(8, "deleted");
    stage.write(&old, &write).await;
    stage.delete(&old).await;
    let (new, found) = stage.succeeded(&old).await;
    stage.same("the next owner's seal", found.as_ref(), None);
    let answer = stage.store.delete(&old).await;
    stage.fenced("the old owner's deletion", &old, &new, answer);
    let write = stage.content(1, "the next owner's");
    let written = stage.write(&new, &write).await;
    stage.holds(&new.resource, Some(&written)).await;
}
