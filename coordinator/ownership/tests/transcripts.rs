//! Transcripts: commands in, events and refusals out, as text that people review.
//!
//! A script is `tests/scripts/NAME.txt`: blocks of comment, command, `----` and what came of it. To
//! write the outcomes anew run `UPDATE=1 cargo test -p tenure-ownership --test transcripts` and judge
//! the difference by eye. The words of the commands are in `tests/transcript/command.rs`.
//!
//! After every command the runner also checks every invariant, that a refused command changed
//! nothing, and that the records written so far give back the state.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod transcript;

use transcript::run;

#[test]
fn nothing_happens_before_the_cluster_has_an_identity() {
    run("nothing_happens_before_the_cluster_has_an_identity");
}

#[test]
fn a_stale_plan_cannot_undo_a_handoff() {
    run("a_stale_plan_cannot_undo_a_handoff");
}

#[test]
fn a_grant_to_a_dead_session_is_refused() {
    run("a_grant_to_a_dead_session_is_refused");
}

#[test]
fn an_ended_session_is_never_heard_again() {
    run("an_ended_session_is_never_heard_again");
}

#[test]
fn a_stale_release_leaves_the_next_tenure_alone() {
    run("a_stale_release_leaves_the_next_tenure_alone");
}

#[test]
fn a_late_callback_is_refused_by_its_epoch() {
    run("a_late_callback_is_refused_by_its_epoch");
}

#[test]
fn a_frozen_group_says_why() {
    run("a_frozen_group_says_why");
}

#[test]
fn the_shards_of_a_paused_worker_come_home() {
    run("the_shards_of_a_paused_worker_come_home");
}

#[test]
fn a_zombie_does_not_touch_its_successor() {
    run("a_zombie_does_not_touch_its_successor");
}

#[test]
fn a_restart_in_place_keeps_the_shards_at_the_next_epoch() {
    run("a_restart_in_place_keeps_the_shards_at_the_next_epoch");
}

#[test]
fn of_two_processes_of_one_name_the_later_wins_once() {
    run("of_two_processes_of_one_name_the_later_wins_once");
}

#[test]
fn a_replacement_waits_for_the_session_it_names() {
    run("a_replacement_waits_for_the_session_it_names");
}

#[test]
fn a_stuck_drain_ends_as_a_release_would() {
    run("a_stuck_drain_ends_as_a_release_would");
}

#[test]
fn a_release_and_the_next_tenure_are_told_apart() {
    run("a_release_and_the_next_tenure_are_told_apart");
}

#[test]
fn a_deleted_group_created_again_goes_on_above_its_epochs() {
    run("a_deleted_group_created_again_goes_on_above_its_epochs");
}

#[test]
fn a_policy_applies_to_later_sessions() {
    run("a_policy_applies_to_later_sessions");
}

#[test]
fn a_shard_that_cannot_be_opened_is_given_back_with_the_reason() {
    run("a_shard_that_cannot_be_opened_is_given_back_with_the_reason");
}

#[test]
fn a_lock_delay_keeps_a_shard_from_everybody_after_an_unclean_end() {
    run("a_lock_delay_keeps_a_shard_from_everybody_after_an_unclean_end");
}

#[test]
fn a_leaving_worker_hands_its_shards_on() {
    run("a_leaving_worker_hands_its_shards_on");
}

#[test]
fn a_draining_worker_takes_no_shards() {
    run("a_draining_worker_takes_no_shards");
}

#[test]
fn one_command_is_judged_shard_by_shard() {
    run("one_command_is_judged_shard_by_shard");
}

#[test]
fn a_grant_fences_the_old_owner_of_a_checkpoint_at_once() {
    run("a_grant_fences_the_old_owner_of_a_checkpoint_at_once");
}

#[test]
fn a_seal_returns_the_last_write_of_all_earlier_epochs() {
    run("a_seal_returns_the_last_write_of_all_earlier_epochs");
}

#[test]
fn an_epoch_has_one_owner() {
    run("an_epoch_has_one_owner");
}

#[test]
fn fenced_is_final_and_the_next_tenure_writes_normally() {
    run("fenced_is_final_and_the_next_tenure_writes_normally");
}

#[test]
fn a_sequence_belongs_to_one_content_for_ever() {
    run("a_sequence_belongs_to_one_content_for_ever");
}

#[test]
fn a_late_deletion_cannot_remove_a_later_write() {
    run("a_late_deletion_cannot_remove_a_later_write");
}

#[test]
fn the_fence_outlives_the_data() {
    run("the_fence_outlives_the_data");
}

#[test]
fn checkpoints_keep_within_the_policy() {
    run("checkpoints_keep_within_the_policy");
}

#[test]
fn a_removed_group_refuses_every_write() {
    run("a_removed_group_refuses_every_write");
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    run("what_is_out_of_bounds_is_refused");
}

#[test]
fn the_largest_epoch_is_never_wrapped() {
    run("the_largest_epoch_is_never_wrapped");
}

#[test]
fn a_shard_in_quarantine_is_granted_to_nobody_until_it_is_retried() {
    run("a_shard_in_quarantine_is_granted_to_nobody_until_it_is_retried");
}

#[test]
fn a_late_quarantine_leaves_the_next_tenure_alone() {
    run("a_late_quarantine_leaves_the_next_tenure_alone");
}

#[test]
fn a_quarantined_shard_on_its_way_goes_to_nobody() {
    run("a_quarantined_shard_on_its_way_goes_to_nobody");
}

#[test]
fn pins_are_kept_and_taken_back() {
    run("pins_are_kept_and_taken_back");
}

#[test]
fn what_is_said_of_a_place_is_checked() {
    run("what_is_said_of_a_place_is_checked");
}

#[test]
fn no_script_is_left_out() {
    let source = include_str!("transcripts.rs");
    for name in transcript::scripts() {
        let calls = source.matches(&format!("run(\"{name}\")")).count();
        assert_eq!(calls, 1, "{name}.txt is run by {calls} tests");
    }
}

#[test]
fn a_restore_ends_all_sessions_and_repeats_no_epoch() {
    run("a_restore_ends_all_sessions_and_repeats_no_epoch");
}

#[test]
fn a_restore_raises_floors_to_the_number_given_and_those_of_deleted_groups() {
    run("a_restore_raises_floors_to_the_number_given_and_those_of_deleted_groups");
}
