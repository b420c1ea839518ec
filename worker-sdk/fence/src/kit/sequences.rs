//! The order of an owner's own writes, and their retries.

use crate::sequence::Sequence;

use super::rule;
use super::stage::{Stage, sequence};

pub(super) async fn cases(stage: &mut Stage<'_>) {
    retry_of_a_landed_write_succeeds(stage).await;
    sequence_belongs_to_one_content(stage).await;
    sequences_rise_with_gaps_up_to_the_largest(stage).await;
    new_epoch_starts_its_sequences_afresh(stage).await;
    write_of_an_earlier_epoch_is_no_retry(stage).await;
    unknown_write_that_landed_is_replaced_by_a_higher_one(stage).await;
    unknown_write_that_comes_late_is_refused(stage).await;
    unknown_write_cannot_share_its_sequence(stage).await;
}

async fn retry_of_a_landed_write_succeeds(stage: &mut Stage<'_>) {
    stage.begin("retry_of_a_landed_write_succeeds", rule::RETRY);
    let token = stage.sealed().await;
    let write = stage.content(1, "answered too late");
    let written = stage.write(&token, &write).await;
    for _ in 0..3 {
        let retried = stage.store.write(&token, write.clone()).await;
        stage.success("the retry of a write that landed", retried);
        stage.holds(&token.resource, Some(&written)).await;
    }
    let next = stage.content(2, "next");
    let written = stage.write(&token, &next).await;
    stage.holds(&token.resource, Some(&written)).await;
}

async fn sequence_belongs_to_one_content(stage: &mut Stage<'_>) {
    stage.begin("sequence_belongs_to_one_content", rule::ONE_CONTENT);
    let token = stage.sealed().await;
    let first = stage.content(10, "first");
    stage.write(&token, &first).await;
    let second = stage.content(20, "second");
    let written = stage.write(&token, &second).await;

    // Equal data does not make it the same write; a lower sequence is refused even to the write that
    // had it, for the owner has gone past it.
    let twin = stage.content(20, "second");
    stage.sequence_refused(&token, &twin, 20).await;
    let other = stage.content(20, "other");
    stage.sequence_refused(&token, &other, 20).await;
    for number in [1, 10, 19] {
        let lower = stage.content(number, "lower");
        stage.sequence_refused(&token, &lower, 20).await;
    }
    stage.sequence_refused(&token, &first, 20).await;
    stage.holds(&token.resource, Some(&written)).await;

    // A refused content has not taken the place of the one that was written.
    let retried = stage.store.write(&token, second).await;
    stage.success("the retry of the latest write", retried);
}

async fn sequences_rise_with_gaps_up_to_the_largest(stage: &mut Stage<'_>) {
    stage.begin(
        "sequences_rise_with_gaps_up_to_the_largest",
        rule::ONE_CONTENT,
    );
    let token = stage.sealed().await;
    let largest = Sequence::MAX.get();
    // Where text, 32 bits and floating-point numbers stop comparing right.
    let numbers = [
        1,
        2,
        9,
        10,
        1 << 32,
        (1 << 53) + 1,
        (1 << 53) + 2,
        largest - 1,
        largest,
    ];
    let mut latest: Option<u64> = None;
    for number in numbers {
        let write = stage.content(number, format!("write {number}"));
        let written = stage.write(&token, &write).await;
        stage.holds(&token.resource, Some(&written)).await;
        if let Some(lower) = latest {
            let lower = stage.content(lower, "lower");
            stage.sequence_refused(&token, &lower, number).await;
        }
        latest = Some(number);
    }
}

async fn new_epoch_starts_its_sequences_afresh(stage: &mut Stage<'_>) {
    stage.begin("new_epoch_starts_its_sequences_afresh", rule::AFRESH);
    let old = stage.sealed().await;
    let write = stage.content(900, "old owner's");
    stage.write(&old, &write).await;

    let (new, _) = stage.succeeded(&old).await;
    let first = stage.content(1, "new owner's");
    let written = stage.write(&new, &first).await;
    stage.holds(&new.resource, Some(&written)).await;

    let again = stage.grant_again(&new).await;
    stage.seal(&again).await;
    let first = stage.content(1, "the same owner's next tenure");
    let written = stage.write(&again, &first).await;
    stage.holds(&again.resource, Some(&written)).await;
}

async fn write_of_an_earlier_epoch_is_no_retry(stage: &mut Stage<'_>) {
    stage.begin("write_of_an_earlier_epoch_is_no_retry", rule::AFRESH);
    let old = stage.sealed().await;
    let write = stage.content(5, "the same in both epochs");
    stage.write(&old, &write).await;

    // The very same write in the next tenure is a new one, and belongs to the new epoch.
    let new = stage.grant_again(&old).await;
    stage.seal(&new).await;
    let written = stage.write(&new, &write).await;
    stage.holds(&new.resource, Some(&written)).await;
    let other = stage.content(5, "other");
    stage.sequence_refused(&new, &other, 5).await;
}

async fn unknown_write_that_landed_is_replaced_by_a_higher_one(stage: &mut Stage<'_>) {
    stage.begin(
        "unknown_write_that_landed_is_replaced_by_a_higher_one",
        rule::UNKNOWN,
    );
    let token = stage.sealed().await;
    let unknown = stage.content(10, "X");
    stage.write(&token, &unknown).await;
    let other = stage.content(11, "Y");
    let written = stage.write(&token, &other).await;
    stage.holds(&token.resource, Some(&written)).await;
    let (_, found) = stage.succeeded(&token).await;
    stage.same("the next owner's seal", found.as_ref(), Some(&written));
}

async fn unknown_write_that_comes_late_is_refused(stage: &mut Stage<'_>) {
    stage.begin("unknown_write_that_comes_late_is_refused", rule::UNKNOWN);
    let token = stage.sealed().await;
    let unknown = stage.content(10, "X");
    let other = stage.content(11, "Y");
    let written = stage.write(&token, &other).await;
    stage.sequence_refused(&token, &unknown, 11).await;
    stage.holds(&token.resource, Some(&written)).await;
    let retried = stage.store.write(&token, other).await;
    stage.success(
        "the retry of the write that went past the unknown one",
        retried,
    );
    let (_, found) = stage.succeeded(&token).await;
    stage.same("the next owner's seal", found.as_ref(), Some(&written));
}

async fn unknown_write_cannot_share_its_sequence(stage: &mut Stage<'_>) {
    stage.begin("unknown_write_cannot_share_its_sequence", rule::UNKNOWN);
    // X landed unseen: Y at its sequence is refused, and X is not lost.
    let token = stage.sealed().await;
    let unknown = stage.content(10, "X");
    let landed = stage.write(&token, &unknown).await;
    let other = stage.content(10, "Y");
    stage.sequence_refused(&token, &other, 10).await;
    stage.holds(&token.resource, Some(&landed)).await;

    // X is still on its way: whichever comes first owns the sequence, and the other is refused.
    let token = stage.sealed().await;
    let unknown = stage.content(10, "X");
    let other = stage.content(10, "Y");
    let written = stage.write(&token, &other).await;
    stage.sequence_refused(&token, &unknown, 10).await;
    stage.holds(&token.resource, Some(&written)).await;
    if written.sequence != sequence(10) {
        stage.broken("the sequence of a write was changed");
    }
}
