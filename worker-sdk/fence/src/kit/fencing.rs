//! Owners that were replaced and do not know it.

use crate::checkpoint::Checkpoint;

use super::rule;
use super::stage::Stage;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    stale_write_is_fenced_and_changes_nothing(stage).await;
    seal_alone_fences_the_old_owner(stage).await;
    zombie_cannot_overwrite_a_newer_checkpoint(stage).await;
    fenced_is_final(stage).await;
    fenced_worker_writes_again_with_a_new_epoch(stage).await;
    every_older_epoch_is_fenced(stage).await;
    resources_are_independent(stage).await;
}

async fn stale_write_is_fenced_and_changes_nothing(stage: &mut Stage<'_>) {
    stage.begin("stale_write_is_fenced_and_changes_nothing", rule::STALE);
    let old = stage.sealed().await;
    let write = stage.content(1, "old owner's");
    stage.write(&old, &write).await;
    let (new, _) = stage.succeeded(&old).await;
    let write = stage.content(2, "new owner's");
    let written = stage.write(&new, &write).await;

    let stale = stage.content(3, "old owner's, too late");
    let answer = stage.store.write(&old, stale).await;
    stage.fenced("a write", &old, &new, answer);
    stage.holds(&new.resource, Some(&written)).await;
    let stale = stage.deletion(4);
    let answer = stage.store.delete(&old, stale).await;
    stage.fenced("a deletion", &old, &new, answer);
    stage.holds(&new.resource, Some(&written)).await;
    let answer = stage.store.seal(&old).await;
    stage.fenced("a seal", &old, &new, answer);

    // The refusals have not touched the new owner's fence or sequences.
    let next = stage.content(3, "new owner's next");
    stage.write(&new, &next).await;
}

async fn seal_alone_fences_the_old_owner(stage: &mut Stage<'_>) {
    stage.begin("seal_alone_fences_the_old_owner", rule::EAGER_SEAL);
    let old = stage.sealed().await;
    let write = stage.content(1, "before the handoff");
    let written = stage.write(&old, &write).await;
    let (new, found) = stage.succeeded(&old).await;
    stage.same("the new owner's seal", found.as_ref(), Some(&written));

    let stale = stage.content(2, "after the handoff");
    let answer = stage.store.write(&old, stale).await;
    stage.fenced("a write", &old, &new, answer);
    stage.holds(&new.resource, Some(&written)).await;

    // Likewise where there is no data at all that could carry an epoch.
    let old = stage.sealed().await;
    let (new, found) = stage.succeeded(&old).await;
    stage.same("the new owner's seal", found.as_ref(), None);
    let stale = stage.content(1, "after the handoff");
    let answer = stage.store.write(&old, stale).await;
    stage.fenced("a first write", &old, &new, answer);
    stage.holds(&new.resource, None).await;
}

async fn zombie_cannot_overwrite_a_newer_checkpoint(stage: &mut Stage<'_>) {
    stage.begin("zombie_cannot_overwrite_a_newer_checkpoint", rule::ZOMBIE);
    let zombie = stage.sealed().await;
    let write = stage.content(40, "offset 440");
    stage.write(&zombie, &write).await;
    // It stalls here, having made up its mind to checkpoint offset 450.
    let stalled = stage.content(41, "offset 450");

    let (owner, _) = stage.succeeded(&zombie).await;
    let write = stage.content(50, "offset 500");
    let written = stage.write(&owner, &write).await;

    let answer = stage.store.write(&zombie, stalled).await;
    stage.fenced("the zombie's checkpoint", &zombie, &owner, answer);
    stage.holds(&owner.resource, Some(&written)).await;
}

async fn fenced_is_final(stage: &mut Stage<'_>) {
    stage.begin("fenced_is_final", rule::FINAL);
    let old = stage.sealed().await;
    let landed = stage.content(1, "landed");
    stage.write(&old, &landed).await;
    let (new, _) = stage.succeeded(&old).await;
    let write = stage.content(9, "new owner's");
    let written = stage.write(&new, &write).await;

    for attempt in 0..3 {
        // Not even the retry of a write that had landed: the owner must learn that it is over.
        let answer = stage.store.write(&old, landed.clone()).await;
        stage.fenced("the retry of a write that had landed", &old, &new, answer);
        let higher = stage.content(100 + attempt, "at a higher sequence");
        let answer = stage.store.write(&old, higher).await;
        stage.fenced("a write at a higher sequence", &old, &new, answer);
        let answer = stage.store.seal(&old).await;
        stage.fenced("a seal", &old, &new, answer);
        let higher = stage.deletion(200 + attempt);
        let answer = stage.store.delete(&old, higher).await;
        stage.fenced("a deletion", &old, &new, answer);
    }
    stage.holds(&new.resource, Some(&written)).await;
}

async fn fenced_worker_writes_again_with_a_new_epoch(stage: &mut Stage<'_>) {
    stage.begin("fenced_worker_writes_again_with_a_new_epoch", rule::FINAL);
    let first = stage.sealed().await;
    let write = stage.content(3, "first tenure");
    let written = stage.write(&first, &write).await;

    // Granted again to the same owner: it must seal, and its old token is as dead as anyone's.
    let second = stage.grant_again(&first).await;
    let write = stage.content(4, "unsealed");
    let answer = stage.store.write(&second, write).await;
    stage.not_sealed("a write", &second, answer);
    let found = stage.seal(&second).await;
    stage.same(
        "the seal of the second tenure",
        found.as_ref(),
        Some(&written),
    );
    let stale = stage.content(5, "with the old token");
    let answer = stage.store.write(&first, stale).await;
    stage.fenced(
        "a write with the owner's old token",
        &first,
        &second,
        answer,
    );

    let write = stage.content(6, "second tenure");
    let written = stage.write(&second, &write).await;
    stage.holds(&second.resource, Some(&written)).await;
}

async fn every_older_epoch_is_fenced(stage: &mut Stage<'_>) {
    stage.begin("every_older_epoch_is_fenced", rule::STALE);
    // Several resources, because a source may begin each at another epoch; and more than ten tenures
    // of each, so that epochs compared as text are found out.
    for _ in 0..4 {
        let oldest = stage.sealed().await;
        let mut old = oldest.clone();
        let mut written: Option<Checkpoint> = None;
        for tenure in 1..=11 {
            let (new, found) = stage.succeeded(&old).await;
            stage.same("a seal", found.as_ref(), written.as_ref());
            let write = stage.content(tenure, format!("epoch {}", new.epoch));
            written = Some(stage.write(&new, &write).await);
            for stale in [&oldest, &old] {
                let write = stage.content(tenure + 1, "too late");
                let answer = stage.store.write(stale, write).await;
                stage.fenced("a write", stale, &new, answer);
                let answer = stage.store.seal(stale).await;
                stage.fenced("a seal", stale, &new, answer);
            }
            stage.holds(&new.resource, written.as_ref()).await;
            old = new;
        }
    }
}

async fn resources_are_independent(stage: &mut Stage<'_>) {
    stage.begin("resources_are_independent", rule::INDEPENDENT);
    let mut owners = Vec::new();
    for place in 0..12_u64 {
        let token = stage.sealed().await;
        let write = stage.content(place + 1, format!("value {place}"));
        let written = stage.write(&token, &write).await;
        owners.push((token, written));
    }
    for (token, written) in &owners {
        stage.holds(&token.resource, Some(written)).await;
    }

    // One is handed over, one is emptied; the others notice nothing.
    let [(moved, last), (emptied, deleted), others @ ..] = owners.as_slice() else {
        return;
    };
    let (new, found) = stage.succeeded(moved).await;
    stage.same("the new owner's seal", found.as_ref(), Some(last));
    let deletion = stage.deletion(deleted.sequence.get() + 1);
    stage.delete(emptied, deletion).await;
    stage.holds(&emptied.resource, None).await;
    stage.holds(&new.resource, Some(last)).await;
    for (token, written) in others {
        stage.holds(&token.resource, Some(written)).await;
        let next = stage.content(written.sequence.get() + 1, "next");
        stage.write(token, &next).await;
    }
}
