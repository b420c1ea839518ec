//! Seals: what they return, and that they may be repeated.

use crate::token::FencingToken;

use super::rule;
use super::stage::Stage;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    first_seal_finds_nothing(stage).await;
    seal_returns_the_last_write_of_the_old_owner(stage).await;
    seal_returns_the_last_write_over_tenures_without_one(stage).await;
    same_owner_seals_twice(stage).await;
    other_owners_of_the_same_epoch_are_a_conflict(stage).await;
    unsealed_writes_are_refused(stage).await;
    many_seals_at_once_are_answered_in_place(stage).await;
}

pub(super) async fn the_store_passes_its_own_probe(stage: &mut Stage<'_>) {
    stage.begin("the_store_passes_its_own_probe", rule::PROBE);
    let probed = stage.store.probe().await;
    stage.success("the probe", probed);
}

async fn first_seal_finds_nothing(stage: &mut Stage<'_>) {
    stage.begin("first_seal_finds_nothing", rule::UNFENCED_READ);
    let token = stage.grant().await;
    stage.holds(&token.resource, None).await;
    let found = stage.seal(&token).await;
    stage.same("the first seal", found.as_ref(), None);
    stage.holds(&token.resource, None).await;
}

async fn seal_returns_the_last_write_of_the_old_owner(stage: &mut Stage<'_>) {
    stage.begin(
        "seal_returns_the_last_write_of_the_old_owner",
        rule::SEAL_BEFORE_READ,
    );
    let old = stage.sealed().await;
    let first = stage.content(1, "first");
    stage.write(&old, &first).await;
    let last = stage.content(2, "last");
    let last = stage.write(&old, &last).await;

    let (new, found) = stage.succeeded(&old).await;
    stage.same("the new owner's seal", found.as_ref(), Some(&last));

    let late = stage.content(3, "too late");
    let answer = stage.store.write(&old, late).await;
    stage.fenced("a write after the seal", &old, &new, answer);
    stage.holds(&new.resource, Some(&last)).await;
}

async fn seal_returns_the_last_write_over_tenures_without_one(stage: &mut Stage<'_>) {
    stage.begin(
        "seal_returns_the_last_write_over_tenures_without_one",
        rule::SEAL_BEFORE_READ,
    );
    let writer = stage.sealed().await;
    let write = stage.content(1, "the only one");
    let written = stage.write(&writer, &write).await;

    // Two owners open the shard and lose it again before they have written; one never even seals.
    let (second, found) = stage.succeeded(&writer).await;
    stage.same("the second owner's seal", found.as_ref(), Some(&written));
    let third = stage.hand_over(&second).await;
    let (_, found) = stage.succeeded(&third).await;
    stage.same("the fourth owner's seal", found.as_ref(), Some(&written));
}

async fn same_owner_seals_twice(stage: &mut Stage<'_>) {
    stage.begin("same_owner_seals_twice", rule::SEAL_AGAIN);
    let old = stage.sealed().await;
    let again = stage.seal(&old).await;
    stage.same("the repeated seal", again.as_ref(), None);

    let write = stage.content(5, "written between seals");
    let written = stage.write(&old, &write).await;
    let again = stage.seal(&old).await;
    stage.same("the repeated seal", again.as_ref(), Some(&written));

    // The fence is where it was, and so are the sequences.
    let lower = stage.content(4, "a lower sequence");
    stage.sequence_refused(&old, &lower, 5).await;
    let other = stage.content(5, "other content");
    stage.sequence_refused(&old, &other, 5).await;
    stage.write(&old, &write).await;

    // The same owner in its next tenure is a new tenure all the same.
    let new = stage.grant_again(&old).await;
    let found = stage.seal(&new).await;
    stage.same(
        "the seal of the next tenure",
        found.as_ref(),
        Some(&written),
    );
    let answer = stage.store.seal(&old).await;
    stage.fenced("a seal of the tenure before", &old, &new, answer);
}

async fn other_owners_of_the_same_epoch_are_a_conflict(stage: &mut Stage<'_>) {
    stage.begin(
        "other_owners_of_the_same_epoch_are_a_conflict",
        rule::ONE_OWNER,
    );
    // A source may have several ways to be wrong, and takes turns.
    for _ in 0..3 {
        let token = stage.sealed().await;
        let Some(other) = stage.conflicting(&token).await else {
            stage.leave_out();
            return;
        };
        conflict_changes_nothing(stage, &token, &other).await;
    }
}

async fn conflict_changes_nothing(
    stage: &mut Stage<'_>,
    token: &FencingToken,
    other: &FencingToken,
) {
    let write = stage.content(1, "the owner's");
    let written = stage.write(token, &write).await;

    let answer = stage.store.seal(other).await;
    stage.conflict("a seal", other, answer);
    let foreign = stage.content(2, "not the owner's");
    let answer = stage.store.write(other, foreign).await;
    stage.conflict("a write", other, answer);
    // Not even as the retry of the owner's own write.
    let answer = stage.store.write(other, write).await;
    stage.conflict("the owner's write", other, answer);
    let foreign = stage.deletion(2);
    let answer = stage.store.delete(other, foreign).await;
    stage.conflict("a deletion", other, answer);

    stage.holds(&token.resource, Some(&written)).await;
    let next = stage.content(2, "the owner's next");
    stage.write(token, &next).await;
}

async fn unsealed_writes_are_refused(stage: &mut Stage<'_>) {
    stage.begin("unsealed_writes_are_refused", rule::SEALED_FIRST);
    // Where no one has ever sealed.
    let token = stage.grant().await;
    let eager = stage.content(1, "eager");
    let answer = stage.store.write(&token, eager.clone()).await;
    stage.not_sealed("a write", &token, answer);
    let deletion = stage.deletion(2);
    let answer = stage.store.delete(&token, deletion).await;
    stage.not_sealed("a deletion", &token, answer);
    stage.holds(&token.resource, None).await;
    let found = stage.seal(&token).await;
    stage.same("the seal after a refused write", found.as_ref(), None);

    // Above the fence of an old owner: were it let through, what the old owner wrote would be lost.
    let last = stage.content(7, "the old owner's last");
    let last = stage.write(&token, &last).await;
    let new = stage.hand_over(&token).await;
    let answer = stage.store.write(&new, eager).await;
    stage.not_sealed("a write", &new, answer);
    let answer = stage.store.delete(&new, deletion).await;
    stage.not_sealed("a deletion", &new, answer);
    stage.holds(&token.resource, Some(&last)).await;
    let found = stage.seal(&new).await;
    stage.same(
        "the seal after a refused write",
        found.as_ref(),
        Some(&last),
    );
    let write = stage.content(8, "after the seal");
    stage.write(&new, &write).await;
}

/// How many resources are sealed at once: more than a small batch, few enough for any store.
const SEALED_AT_ONCE: usize = 48;

async fn many_seals_at_once_are_answered_in_place(stage: &mut Stage<'_>) {
    stage.begin("many_seals_at_once_are_answered_in_place", rule::BATCH);
    let none = stage.store.seal_many(&[]).await;
    if !none.is_empty() {
        stage.broken(format_args!(
            "no seals were answered with {} answers",
            none.len()
        ));
    }

    // Three kinds in turn: never written, written by an old owner, and stale.
    let mut batch = Vec::new();
    for place in 0..SEALED_AT_ONCE {
        let old = stage.grant().await;
        if place % 3 == 0 {
            batch.push((old, None, None));
            continue;
        }
        stage.seal(&old).await;
        let write = stage.content(1, format!("value {place}"));
        let written = stage.write(&old, &write).await;
        let new = stage.hand_over(&old).await;
        if place % 3 == 1 {
            batch.push((new, Some(written), None));
            continue;
        }
        stage.seal(&new).await;
        batch.push((old, None, Some(new)));
    }

    // Twice: a batch whose answer was lost is repeated.
    let tokens: Vec<_> = batch.iter().map(|(token, ..)| token.clone()).collect();
    for _ in 0..2 {
        let answers = stage.store.seal_many(&tokens).await;
        if answers.len() != batch.len() {
            let (asked, answered) = (batch.len(), answers.len());
            stage.broken(format_args!(
                "{asked} seals were answered with {answered} answers"
            ));
        }
        for (answer, (token, written, newer)) in answers.into_iter().zip(&batch) {
            if let Some(newer) = newer {
                stage.fenced("a seal among many", token, newer, answer);
                continue;
            }
            let what = format!("a seal among many, {token},");
            let found = stage.success(&what, answer);
            stage.same(&what, found.as_ref(), written.as_ref());
        }
    }
    for (token, _, newer) in &batch {
        let owner = newer.as_ref().unwrap_or(token);
        let write = stage.content(1, "after many seals");
        stage.write(owner, &write).await;
    }
}
