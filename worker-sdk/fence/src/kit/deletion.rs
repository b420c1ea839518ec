//! Deletions: the data goes, the fence stays, and the sequence is one of the writes'.

use super::rule;
use super::stage::{Stage, sequence};
use crate::checkpoint::{Deletion, Write};

pub(super) async fn cases(stage: &mut Stage<'_>) {
    fence_outlives_deleted_data(stage).await;
    late_deletion_cannot_remove_a_later_write(stage).await;
    late_write_cannot_come_back_after_a_deletion(stage).await;
    used_sequences_outlive_deleted_data(stage).await;
    sequence_of_a_deletion_stays_used_after_a_seal(stage).await;
    retry_of_a_landed_deletion_succeeds(stage).await;
    deletion_at_a_used_sequence_is_refused(stage).await;
    equal_sequence_and_id_are_a_retry(stage).await;
    deleting_nothing_succeeds(stage).await;
    next_owner_finds_nothing_after_a_deletion(stage).await;
}

async fn fence_outlives_deleted_data(stage: &mut Stage<'_>) {
    stage.begin("fence_outlives_deleted_data", rule::FENCE_STAYS);
    let old = stage.sealed().await;
    let write = stage.content(9, "old owner's");
    stage.write(&old, &write).await;
    let (new, _) = stage.succeeded(&old).await;
    // What is deleted was written in an earlier epoch, whose sequences do not count in this one.
    let deletion = stage.deletion(1);
    stage.delete(&new, deletion).await;
    stage.holds(&new.resource, None).await;

    let stale = stage.content(10, "into the void");
    let answer = stage.store.write(&old, stale).await;
    stage.fenced("a write after the deletion", &old, &new, answer);
    let answer = stage.store.seal(&old).await;
    stage.fenced("a seal after the deletion", &old, &new, answer);
    let stale = stage.deletion(11);
    let answer = stage.store.delete(&old, stale).await;
    stage.fenced("a deletion after the deletion", &old, &new, answer);
    stage.holds(&new.resource, None).await;

    // The owner itself is still sealed.
    let write = stage.content(2, "new owner's");
    let written = stage.write(&new, &write).await;
    stage.holds(&new.resource, Some(&written)).await;
}

async fn late_deletion_cannot_remove_a_later_write(stage: &mut Stage<'_>) {
    stage.begin(
        "late_deletion_cannot_remove_a_later_write",
        rule::DELETION_IN_SEQUENCE,
    );
    let token = stage.sealed().await;
    let write = stage.content(1, "to be deleted");
    stage.write(&token, &write).await;
    // Its outcome is unknown, and its owner goes on above it; then it arrives.
    let unknown = stage.deletion(10);
    let write = stage.content(11, "written after the deletion");
    let written = stage.write(&token, &write).await;
    stage.deletion_refused(&token, unknown, 11).await;
    stage.holds(&token.resource, Some(&written)).await;

    // This one had landed when it arrives for the second time.
    let unknown = stage.deletion(20);
    stage.delete(&token, unknown).await;
    stage.holds(&token.resource, None).await;
    let write = stage.content(21, "written after the second deletion");
    let written = stage.write(&token, &write).await;
    stage.deletion_refused(&token, unknown, 21).await;
    stage.holds(&token.resource, Some(&written)).await;
    let (_, found) = stage.succeeded(&token).await;
    stage.same("the next owner's seal", found.as_ref(), Some(&written));
}

async fn late_write_cannot_come_back_after_a_deletion(stage: &mut Stage<'_>) {
    stage.begin(
        "late_write_cannot_come_back_after_a_deletion",
        rule::DELETION_IN_SEQUENCE,
    );
    let token = stage.sealed().await;
    let unknown = stage.content(10, "still on its way");
    let deletion = stage.deletion(11);
    stage.delete(&token, deletion).await;
    stage.sequence_refused(&token, &unknown, 11).await;
    stage.holds(&token.resource, None).await;
    let (_, found) = stage.succeeded(&token).await;
    stage.same("the next owner's seal", found.as_ref(), None);
}

async fn used_sequences_outlive_deleted_data(stage: &mut Stage<'_>) {
    stage.begin("used_sequences_outlive_deleted_data", rule::FENCE_STAYS);
    let token = stage.sealed().await;
    let write = stage.content(5, "deleted soon");
    stage.write(&token, &write).await;
    let deletion = stage.deletion(7);
    stage.delete(&token, deletion).await;

    // Not even the write that had landed: the owner has gone past it.
    stage.sequence_refused(&token, &write, 7).await;
    for number in [4, 5, 6, 7] {
        let other = stage.content(number, "other");
        stage.sequence_refused(&token, &other, 7).await;
    }
    stage.holds(&token.resource, None).await;

    let next = stage.content(8, "next");
    let written = stage.write(&token, &next).await;
    stage.holds(&token.resource, Some(&written)).await;
}

async fn sequence_of_a_deletion_stays_used_after_a_seal(stage: &mut Stage<'_>) {
    stage.begin(
        "sequence_of_a_deletion_stays_used_after_a_seal",
        rule::DELETION_IN_SEQUENCE,
    );
    let token = stage.sealed().await;
    let write = stage.content(1, "deleted soon");
    stage.write(&token, &write).await;
    let deletion = stage.deletion(5);
    stage.delete(&token, deletion).await;
    let found = stage.seal(&token).await;
    stage.same("a seal after the deletion", found.as_ref(), None);

    let other = stage.content(5, "other");
    stage.sequence_refused(&token, &other, 5).await;
    stage.sequence_refused(&token, &write, 5).await;
    let another = stage.deletion(5);
    stage.deletion_refused(&token, another, 5).await;
    stage.delete(&token, deletion).await;
    stage.holds(&token.resource, None).await;

    // The next epoch starts afresh.
    let next = stage.grant_again(&token).await;
    let found = stage.seal(&next).await;
    stage.same("the seal of the next tenure", found.as_ref(), None);
    let first = stage.content(1, "the next tenure's");
    let written = stage.write(&next, &first).await;
    stage.holds(&next.resource, Some(&written)).await;
}

async fn retry_of_a_landed_deletion_succeeds(stage: &mut Stage<'_>) {
    stage.begin("retry_of_a_landed_deletion_succeeds", rule::RETRY);
    let token = stage.sealed().await;
    let write = stage.content(1, "deleted soon");
    stage.write(&token, &write).await;
    // Its reply is lost, and its owner asks again.
    let deletion = stage.deletion(2);
    for _ in 0..4 {
        stage.delete(&token, deletion).await;
        stage.holds(&token.resource, None).await;
    }
    let next = stage.content(3, "next");
    let written = stage.write(&token, &next).await;
    stage.holds(&token.resource, Some(&written)).await;
}

async fn deletion_at_a_used_sequence_is_refused(stage: &mut Stage<'_>) {
    stage.begin(
        "deletion_at_a_used_sequence_is_refused",
        rule::DELETION_IN_SEQUENCE,
    );
    let token = stage.sealed().await;
    let write = stage.content(10, "kept");
    let written = stage.write(&token, &write).await;
    for number in [1, 9, 10] {
        let deletion = stage.deletion(number);
        stage.deletion_refused(&token, deletion, 10).await;
        stage.holds(&token.resource, Some(&written)).await;
    }
    // What was refused has not taken the place of the write.
    let retried = stage.store.write(&token, write).await;
    stage.success("the retry of the latest write", retried);

    // Nor has one deletion the place of another.
    let deletion = stage.deletion(11);
    stage.delete(&token, deletion).await;
    let other = stage.deletion(11);
    stage.deletion_refused(&token, other, 11).await;
    stage.delete(&token, deletion).await;
    stage.holds(&token.resource, None).await;
}

async fn equal_sequence_and_id_are_a_retry(stage: &mut Stage<'_>) {
    stage.begin("equal_sequence_and_id_are_a_retry", rule::RETRY);
    // An owner never does this: an id is chosen once for each content. A store cannot tell.
    let token = stage.sealed().await;
    let write = stage.content(1, "written");
    let written = stage.write(&token, &write).await;
    let same = Deletion {
        sequence: write.sequence,
        write_id: write.write_id,
    };
    stage.delete(&token, same).await;
    stage.holds(&token.resource, Some(&written)).await;

    let deletion = stage.deletion(2);
    stage.delete(&token, deletion).await;
    let same = Write {
        sequence: sequence(2),
        write_id: deletion.write_id,
        data: "not written".into(),
    };
    let retried = stage.store.write(&token, same).await;
    stage.success("a write with the id of the latest deletion", retried);
    stage.holds(&token.resource, None).await;
}

async fn deleting_nothing_succeeds(stage: &mut Stage<'_>) {
    stage.begin("deleting_nothing_succeeds", rule::DELETION_IN_SEQUENCE);
    let token = stage.sealed().await;
    let first = stage.deletion(3);
    stage.delete(&token, first).await;
    let low = stage.content(2, "below the deletion of nothing");
    stage.sequence_refused(&token, &low, 3).await;
    let write = stage.content(4, "written after a deletion of nothing");
    stage.write(&token, &write).await;
    for number in [5, 6] {
        let deletion = stage.deletion(number);
        stage.delete(&token, deletion).await;
    }
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
    let deletion = stage.deletion(9);
    stage.delete(&old, deletion).await;
    let (new, found) = stage.succeeded(&old).await;
    stage.same("the next owner's seal", found.as_ref(), None);
    // Not even as a retry.
    let answer = stage.store.delete(&old, deletion).await;
    stage.fenced("the old owner's deletion", &old, &new, answer);
    let write = stage.content(1, "the next owner's");
    let written = stage.write(&new, &write).await;
    stage.holds(&new.resource, Some(&written)).await;
}
