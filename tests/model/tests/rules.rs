//! Each rule is needed: without it the checker finds what the rule prevents, and with it nothing within
//! as many steps.
//!
//! A test is called after what is right, and shows, with `--nocapture`, how it goes wrong. Where one
//! rule stands behind another, so that nothing comes of its absence alone, the test says so and takes
//! both away.

use protocol_model::removals::Removal;
use protocol_model::removals::removal;

fn named(rule: &str) -> Removal {
    removal(rule).unwrap_or_else(|| panic!("no removal is called {rule}"))
}

/// Without the rule something is violated, which with it is not.
#[track_caller]
fn is_needed(rule: &str) {
    let removal = named(rule);
    let outcome = removal.check();
    let Some(violation) = outcome.violation else {
        panic!(
            "nothing is violated without {rule} in {} states",
            outcome.states
        );
    };
    println!(
        "without {rule}, found in {} states:\n{violation}",
        outcome.states
    );
    assert_eq!(Some(violation.property), removal.violates);
    let with_it = removal.check_with_the_rule(violation.steps.len());
    assert!(
        with_it.violation.is_none(),
        "{rule} does not help:\n{:?}",
        with_it.violation
    );
}

/// Without the rule alone nothing is violated: another prevents the same.
#[track_caller]
fn is_a_second_line(rule: &str) {
    let removal = named(rule);
    assert_eq!(removal.violates, None);
    let outcome = removal.check();
    if let Some(violation) = outcome.violation {
        panic!("without {rule} alone:\n{violation}");
    }
    println!(
        "without {rule} alone nothing is violated in {} states",
        outcome.states
    );
}

// --- leases and leaders ---

// Scenarios 24, 25 and 33: the old leader is cut off with a worker, whoever elected the new one.
#[test]
fn a_leader_that_was_replaced_acknowledges_nothing() {
    is_needed("acknowledgement_needs_a_round");
}

// Scenario 34.
#[test]
fn a_heartbeat_is_acknowledged_only_after_a_round_begun_after_it_came() {
    is_needed("acknowledgement_needs_a_later_round");
}

// Scenario 31.
#[test]
fn between_the_decision_and_its_outcome_no_heartbeat_is_acknowledged() {
    is_needed("undecided_is_not_acknowledged");
}

// Scenario 31.
#[test]
fn between_the_decision_and_its_outcome_no_session_is_resumed() {
    is_a_second_line("undecided_is_not_resumed");
    is_needed("undecided_is_not_resumed, undecided_is_not_acknowledged");
}

#[test]
fn a_session_whose_stream_broke_ends_only_when_belief_is_over() {
    is_needed("expiry_waits_for_belief");
}

// Scenario 35.
#[test]
fn a_drain_shorter_than_the_window_still_waits_for_belief_to_end() {
    is_needed("force_waits_for_belief");
}

// Scenario 37.
#[test]
fn a_group_created_again_grants_nothing_inside_an_old_owners_belief() {
    is_needed("force_waits_for_belief, of a deleted group");
}

// Scenarios 17 and 26.
#[test]
fn a_replacement_waits_until_the_replaced_process_cannot_believe_any_more() {
    is_needed("replacement_waits_for_belief");
}

// Scenario 14.
#[test]
fn a_new_leader_gives_every_session_a_full_fresh_ttl() {
    is_needed("new_leader_gives_a_fresh_ttl");
}

// Scenario 32.
#[test]
fn a_replacement_waits_anew_under_the_next_leader() {
    is_needed("new_leader_gives_a_fresh_ttl, to a process that is replaced");
}

// Scenario 35: the revoke died with its stream.
#[test]
fn a_new_leader_counts_a_drain_anew() {
    is_needed("new_leader_restarts_drains");
}

// Scenario 15.
#[test]
fn a_leader_that_stood_still_ends_nobody_on_waking() {
    is_needed("woken_leader_moves_its_deadlines");
}

// Scenario 34.
#[test]
fn a_new_leader_first_settles_what_the_one_before_left_behind() {
    is_needed("leader_settles_before_it_serves");
}

// Scenarios 24 and 25.
#[test]
fn a_node_without_a_quorum_calls_no_token_current() {
    is_needed("token_check_needs_a_quorum");
}

// --- streams, and the worker's half ---

// Scenario 36.
#[test]
fn the_late_break_of_an_old_stream_ends_nothing_that_lives_on_a_new_one() {
    is_needed("break_names_its_stream");
}

// Scenario 36: a stream that is not the session's is not acknowledged either, so this saves reconnections only.
#[test]
fn resumes_in_the_wrong_order_harm_nobody() {
    is_a_second_line("highest_attempt_wins");
}

// Scenario 30.
#[test]
fn a_late_answer_to_a_set_says_nothing_of_shards_granted_after_it() {
    is_needed("answer_names_its_set");
}

// Scenario 30.
#[test]
fn a_tenure_that_was_given_up_is_not_opened_again() {
    is_needed("closed_tenure_stays_closed");
}

#[test]
fn belief_counts_from_when_the_heartbeat_was_sent() {
    is_needed("belief_counts_from_sending");
}

// Scenario 27.
#[test]
fn the_drain_of_a_late_revoke_counts_from_before_it_was_sent() {
    is_needed("drain_counts_from_the_acknowledged");
}

// Scenario 28.
#[test]
fn a_ready_that_was_lost_is_said_again() {
    is_needed("ready_is_said_again");
}

// Scenarios 28 and 29.
#[test]
fn a_shard_that_nobody_holds_is_taken_back() {
    is_a_second_line("release_is_said_again");
    is_a_second_line("what_is_not_held_is_taken_back");
    is_needed("release_is_said_again, what_is_not_held_is_taken_back");
}

// --- preconditions of commands ---

// The epoch that a plan names stands behind the rule that only an unowned shard is granted.
#[test]
fn a_late_plan_grants_no_shard_that_is_owned() {
    is_a_second_line("grant_names_its_epoch");
    is_needed("grant_names_its_epoch, grant_takes_unowned_shards");
}

// Scenario 11.
#[test]
fn a_session_that_ended_is_granted_nothing() {
    is_needed("grant_needs_a_live_session");
}

// Scenario 13.
#[test]
fn a_stale_release_leaves_the_next_tenure_alone() {
    is_needed("release_names_its_epoch");
}

// Scenario 19. What one leader proposes commits in its order, so that only a deletion, which names no epoch, comes
// between a release and the end of the drain before it.
#[test]
fn the_end_of_a_drain_leaves_the_next_tenure_alone() {
    is_a_second_line("force_names_its_epoch");
    is_needed("force_names_its_epoch, of a deleted group");
}

// Scenario 19.
#[test]
fn a_late_ready_does_not_make_the_next_tenure_served() {
    is_needed("ready_names_its_epoch");
}

// Scenario 18.
#[test]
fn of_two_registrations_under_one_name_one_is_refused() {
    is_needed("registration_names_the_holder");
}

// Scenarios 18 and 39.
#[test]
fn a_process_that_was_replaced_does_not_come_back() {
    is_needed("only_a_new_process_replaces");
}

// Scenario 37.
#[test]
fn epochs_outlive_the_group() {
    is_needed("epochs_outlive_the_group");
}

// --- the store ---

// Scenario 3.
#[test]
fn an_owner_seals_before_it_reads() {
    is_needed("seal_before_read");
}

// Scenario 2.
#[test]
fn a_late_seal_does_not_lower_the_fence() {
    is_needed("seal_refused_below_the_fence");
}

// Scenarios 1 and 8.
#[test]
fn a_write_below_the_fence_is_refused() {
    is_needed("write_refused_below_the_fence");
}

#[test]
fn an_owner_that_forgot_to_seal_cannot_write() {
    is_needed("write_refused_above_the_fence");
}

// Scenario 5. Epochs that are never repeated prevent the same.
#[test]
fn one_epoch_has_one_owner_in_the_store() {
    is_a_second_line("equal_epoch_needs_the_same_owner");
    is_needed("equal_epoch_needs_the_same_owner, epochs_outlive_the_group");
}
