//! The kit can fail: it rejects every store that breaks the contract, and says which rule it broke.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what is wrong by panicking"
)]

mod broken;

use broken::{BrokenHarness, Fault};
use tenure_fence::kit::{self, Options};

/// Runs the kit; returns what it panicked with.
async fn verdict(mut harness: BrokenHarness) -> Option<String> {
    let run = tokio::spawn(async move {
        // One seed: what is shown here is that the kit fails, not how likely it is to.
        let options = Options {
            seed: Some(1),
            ..Options::default()
        };
        kit::run(&mut harness, options).await
    });
    match run.await {
        Ok(_) => None,
        Err(error) => Some(
            *error
                .into_panic()
                .downcast::<String>()
                .expect("a formatted message"),
        ),
    }
}

/// Requires that the kit rejects a store with one fault, and in which case.
async fn assert_rejected(fault: Fault, case: &str) {
    let Some(verdict) = verdict(BrokenHarness::new(fault)).await else {
        panic!("the kit passes a store with the fault {fault:?}");
    };
    let in_case = verdict.contains(&format!("case: {case}\n"));
    assert!(
        in_case,
        "{fault:?} was rejected in another case than {case}:\n{verdict}"
    );
    for part in ["rule: ", "from: architecture §", "seen: ", "seed: 1 "] {
        assert!(
            verdict.contains(part),
            "the verdict lacks {part:?}:\n{verdict}"
        );
    }
}

#[tokio::test]
async fn the_same_store_without_a_fault_passes() {
    assert_eq!(verdict(BrokenHarness::new(Fault::Nothing)).await, None);
}

#[tokio::test]
async fn a_source_that_repeats_epochs_is_not_blamed_on_the_store() {
    let mut harness = BrokenHarness::new(Fault::Nothing);
    harness.repeats_epochs = true;
    let verdict = verdict(harness)
        .await
        .expect("the kit passes a source that repeats epochs");
    assert!(
        verdict.contains("this is a fault of the harness"),
        "{verdict}"
    );
}

#[tokio::test]
async fn a_write_that_ignores_the_fence_is_rejected() {
    assert_rejected(
        Fault::WriteIgnoresTheFence,
        "stale_write_is_fenced_and_changes_nothing",
    )
    .await;
}

#[tokio::test]
async fn a_write_allowed_one_epoch_below_the_fence_is_rejected() {
    assert_rejected(
        Fault::WriteAllowsOneEpochBelow,
        "stale_write_is_fenced_and_changes_nothing",
    )
    .await;
}

#[tokio::test]
async fn a_write_allowed_above_the_fence_is_rejected() {
    assert_rejected(
        Fault::WriteAllowsAnEpochAbove,
        "fenced_worker_writes_again_with_a_new_epoch",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_owners_only_is_rejected() {
    assert_rejected(
        Fault::WriteComparesOwnersOnly,
        "fenced_worker_writes_again_with_a_new_epoch",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_epochs_only_is_rejected() {
    assert_rejected(
        Fault::WriteComparesEpochsOnly,
        "other_owners_of_the_same_epoch_are_a_conflict",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_epochs_as_text_is_rejected() {
    assert_rejected(
        Fault::WriteComparesEpochsAsText,
        "every_older_epoch_is_fenced",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_epochs_as_floats_is_rejected() {
    assert_rejected(
        Fault::WriteComparesEpochsAsFloats,
        "zombie_cannot_overwrite_a_newer_checkpoint",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_epochs_in_32_bits_is_rejected() {
    assert_rejected(
        Fault::WriteComparesEpochsIn32Bits,
        "seal_alone_fences_the_old_owner",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_compares_half_of_the_cluster_id_is_rejected() {
    assert_rejected(
        Fault::WriteKeepsHalfOfTheClusterId,
        "other_owners_of_the_same_epoch_are_a_conflict",
    )
    .await;
}

#[tokio::test]
async fn a_write_that_stores_before_it_refuses_is_rejected() {
    assert_rejected(
        Fault::WriteStoresBeforeItRefuses,
        "stale_write_is_fenced_and_changes_nothing",
    )
    .await;
}

#[tokio::test]
async fn a_check_that_is_not_one_step_with_the_write_is_rejected() {
    assert_rejected(
        Fault::WriteChecksThenWrites,
        "contents_that_race_for_a_sequence_have_one_winner",
    )
    .await;
}

#[tokio::test]
async fn a_seal_that_lowers_the_fence_is_rejected() {
    assert_rejected(
        Fault::SealIgnoresTheFence,
        "stale_write_is_fenced_and_changes_nothing",
    )
    .await;
}

#[tokio::test]
async fn a_seal_that_cannot_be_repeated_is_rejected() {
    assert_rejected(Fault::SealRefusesTheSameEpoch, "same_owner_seals_twice").await;
}

#[tokio::test]
async fn a_seal_that_accepts_another_owner_of_the_epoch_is_rejected() {
    assert_rejected(
        Fault::SealAcceptsAnotherOwner,
        "other_owners_of_the_same_epoch_are_a_conflict",
    )
    .await;
}

#[tokio::test]
async fn a_fence_that_rises_only_with_the_first_write_is_rejected() {
    assert_rejected(
        Fault::SealRaisesTheFenceOnTheFirstWrite,
        "seal_alone_fences_the_old_owner",
    )
    .await;
}

#[tokio::test]
async fn a_seal_that_reads_before_it_raises_the_fence_is_rejected() {
    assert_rejected(
        Fault::SealReadsBeforeItRaises,
        "seal_and_write_that_race_have_two_outcomes",
    )
    .await;
}

#[tokio::test]
async fn a_seal_that_forgets_the_data_is_rejected() {
    assert_rejected(Fault::SealForgetsTheData, "seal_alone_fences_the_old_owner").await;
}

#[tokio::test]
async fn a_seal_that_is_lost_in_a_restart_is_rejected() {
    assert_rejected(
        Fault::SealIsLostInARestart,
        "acknowledged_state_outlives_a_restart",
    )
    .await;
}

#[tokio::test]
async fn a_fence_shared_by_all_resources_is_rejected() {
    assert_rejected(
        Fault::FenceIsSharedByAllResources,
        "seal_alone_fences_the_old_owner",
    )
    .await;
}

#[tokio::test]
async fn a_batch_that_stops_at_the_first_refusal_is_rejected() {
    assert_rejected(
        Fault::BatchStopsAtTheFirstRefusal,
        "many_seals_at_once_are_answered_in_place",
    )
    .await;
}

#[tokio::test]
async fn a_batch_answered_in_another_order_is_rejected() {
    assert_rejected(
        Fault::BatchAnswersInAnotherOrder,
        "many_seals_at_once_are_answered_in_place",
    )
    .await;
}

#[tokio::test]
async fn an_ignored_sequence_is_rejected() {
    assert_rejected(Fault::SequenceIgnored, "sequence_belongs_to_one_content").await;
}

#[tokio::test]
async fn a_lower_sequence_that_is_allowed_is_rejected() {
    assert_rejected(
        Fault::SequenceAllowsALowerOne,
        "sequence_belongs_to_one_content",
    )
    .await;
}

#[tokio::test]
async fn an_equal_sequence_that_overwrites_is_rejected() {
    assert_rejected(
        Fault::EqualSequenceOverwrites,
        "sequence_belongs_to_one_content",
    )
    .await;
}

#[tokio::test]
async fn an_equal_sequence_taken_for_a_retry_whatever_its_write_id_is_rejected() {
    assert_rejected(
        Fault::EqualSequenceIsAlwaysARetry,
        "sequence_belongs_to_one_content",
    )
    .await;
}

#[tokio::test]
async fn a_retry_that_is_refused_is_rejected() {
    assert_rejected(Fault::RetryIsRefused, "retry_of_a_landed_write_succeeds").await;
}

#[tokio::test]
async fn a_retry_that_is_found_across_epochs_is_rejected() {
    assert_rejected(
        Fault::RetryIsFoundAcrossEpochs,
        "write_of_an_earlier_epoch_is_no_retry",
    )
    .await;
}

#[tokio::test]
async fn sequences_that_go_on_in_a_new_epoch_are_rejected() {
    assert_rejected(
        Fault::SequencesGoOnInANewEpoch,
        "new_epoch_starts_its_sequences_afresh",
    )
    .await;
}

#[tokio::test]
async fn sequences_that_start_afresh_on_every_seal_are_rejected() {
    assert_rejected(
        Fault::SequencesStartAfreshOnEverySeal,
        "same_owner_seals_twice",
    )
    .await;
}

#[tokio::test]
async fn sequences_kept_as_floats_are_rejected() {
    assert_rejected(
        Fault::SequencesAreKeptAsFloats,
        "sequences_rise_with_gaps_up_to_the_largest",
    )
    .await;
}

#[tokio::test]
async fn sequences_that_are_lost_in_a_restart_are_rejected() {
    assert_rejected(
        Fault::SequencesAreLostInARestart,
        "acknowledged_state_outlives_a_restart",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_that_ignores_the_fence_is_rejected() {
    assert_rejected(
        Fault::DeletionIgnoresTheFence,
        "stale_write_is_fenced_and_changes_nothing",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_that_drops_the_fence_is_rejected() {
    assert_rejected(Fault::DeletionDropsTheFence, "fence_outlives_deleted_data").await;
}

#[tokio::test]
async fn a_deletion_that_forgets_the_sequences_is_rejected() {
    assert_rejected(
        Fault::DeletionForgetsTheSequences,
        "late_write_cannot_come_back_after_a_deletion",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_that_ignores_its_sequence_is_rejected() {
    assert_rejected(
        Fault::DeletionIgnoresItsSequence,
        "late_deletion_cannot_remove_a_later_write",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_that_takes_no_sequence_is_rejected() {
    assert_rejected(
        Fault::DeletionTakesNoSequence,
        "late_write_cannot_come_back_after_a_deletion",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_whose_retry_is_refused_is_rejected() {
    assert_rejected(
        Fault::DeletionRetryIsRefused,
        "sequence_of_a_deletion_stays_used_after_a_seal",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_of_nothing_that_takes_no_sequence_is_rejected() {
    assert_rejected(
        Fault::DeletionOfNothingTakesNoSequence,
        "late_write_cannot_come_back_after_a_deletion",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_that_keeps_the_data_is_rejected() {
    assert_rejected(Fault::DeletionKeepsTheData, "resources_are_independent").await;
}

#[tokio::test]
async fn values_that_are_cut_off_are_rejected() {
    assert_rejected(Fault::ValuesAreCutOff, "values_come_back_as_written").await;
}

#[tokio::test]
async fn an_empty_value_taken_for_none_is_rejected() {
    assert_rejected(Fault::EmptyValueIsNone, "values_come_back_as_written").await;
}

#[tokio::test]
async fn a_limit_that_is_ignored_is_rejected() {
    assert_rejected(Fault::LimitIsIgnored, "values_above_the_limit_are_refused").await;
}
