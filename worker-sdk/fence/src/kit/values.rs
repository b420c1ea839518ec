//! Values: what is written comes back, up to the limit.

use crate::error::CheckpointError;

use super::rule;
use super::stage::Stage;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    values_come_back_as_written(stage).await;
    values_above_the_limit_are_refused(stage).await;
    reading_changes_nothing(stage).await;
}

async fn values_come_back_as_written(stage: &mut Stage<'_>) {
    stage.begin("values_come_back_as_written", rule::VALUES);
    let largest = stage.store.max_value_bytes().min(stage.value_bytes_max);
    let token = stage.sealed().await;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let lengths = [1, 4_096, 65_536, largest];
    let random = lengths.map(|length| stage.random.bytes(length.min(largest)));
    // An empty value is a value: it is not the same as none.
    let values = [Vec::new(), b"\0".to_vec(), every_byte]
        .into_iter()
        .chain(random);
    for (number, value) in (1..).zip(values) {
        if value.len() > largest {
            continue;
        }
        let write = stage.content(number, value);
        let written = stage.write(&token, &write).await;
        stage.holds(&token.resource, Some(&written)).await;
        let found = stage.seal(&token).await;
        stage.same("a seal", found.as_ref(), Some(&written));
    }
}

async fn values_above_the_limit_are_refused(stage: &mut Stage<'_>) {
    stage.begin("values_above_the_limit_are_refused", rule::VALUES);
    let limit = stage.store.max_value_bytes();
    if limit >= stage.value_bytes_max {
        stage.leave_out();
        return;
    }
    let token = stage.sealed().await;
    let write = stage.content(1, "small");
    let written = stage.write(&token, &write).await;

    let value = stage.random.bytes(limit + 1);
    let write = stage.content(2, value);
    let answer = stage.store.write(&token, write).await;
    let right = matches!(
        answer,
        Err(CheckpointError::TooLarge { length_bytes, max_bytes })
            if length_bytes == limit + 1 && max_bytes == limit
    );
    if !right {
        stage.broken(format_args!(
            "a value of {} bytes, one more than the limit, was answered with {answer:?}",
            limit + 1
        ));
    }
    stage.holds(&token.resource, Some(&written)).await;

    // Nothing was changed, so the sequence is still free.
    let write = stage.content(2, "small again");
    stage.write(&token, &write).await;
}

async fn reading_changes_nothing(stage: &mut Stage<'_>) {
    stage.begin("reading_changes_nothing", rule::UNFENCED_READ);
    let resource = stage.resource().await;
    stage.holds(&resource, None).await;

    let old = stage.sealed().await;
    let write = stage.content(1, "seen by anyone");
    let written = stage.write(&old, &write).await;
    stage.holds(&old.resource, Some(&written)).await;
    // An owner that has been granted but not sealed may look; that neither seals nor unseals.
    let new = stage.hand_over(&old).await;
    stage.holds(&new.resource, Some(&written)).await;
    let eager = stage.content(1, "without a seal");
    let answer = stage.store.write(&new, eager).await;
    stage.not_sealed("a write after a read", &new, answer);
}
