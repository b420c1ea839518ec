//! The rules of the protocol, each of which can be taken away.

/// Which rules are kept. All are, unless a check asks what happens without one.
///
/// Each names the place where the code keeps it. What happens without it is in `removals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A heartbeat is acknowledged only after a round that a quorum answered: a leader that was
    /// replaced completes none. `coordinator/src/control/core/ticking.rs`, `round_ended`; the round itself is
    /// `coordinator/src/consensus/leading.rs`, `round`.
    pub acknowledgement_needs_a_round: bool,
    /// That round began after the heartbeat arrived. `coordinator/src/control/rounds.rs`, `begin`.
    pub acknowledgement_needs_a_later_round: bool,
    /// From the decision to end a tenure until its outcome is known, the owner's session is not
    /// acknowledged. `coordinator/src/control/leases.rs`, `heard`; `core/ticking.rs`, `round_ended`.
    pub undecided_is_not_acknowledged: bool,
    /// Nor is it resumed. `coordinator/src/control/leases.rs`, `attach`.
    pub undecided_is_not_resumed: bool,
    /// A session whose stream broke is expired no earlier than a window after the break.
    /// `coordinator/src/control/leases.rs`, `deadline`.
    pub expiry_waits_for_belief: bool,
    /// A tenure is forced no earlier than a window after the revocation, however short the drain.
    /// `coordinator/src/control/handoffs.rs`, `drain`.
    pub force_waits_for_belief: bool,
    /// A replacing `Register` is proposed no earlier than a window after the last heartbeat of the process
    /// it replaces. `coordinator/src/control/core/opening.rs`, `decide_to_replace`.
    pub replacement_waits_for_belief: bool,
    /// A new leader counts silence from when it accepts streams. `coordinator/src/control/leases.rs`, `start`.
    pub new_leader_gives_a_fresh_ttl: bool,
    /// A new leader counts drains from then as well. `coordinator/src/control/core/committed.rs`,
    /// `adopt_group`.
    pub new_leader_restarts_drains: bool,
    /// A leader that stood still moves its deadlines by the gap. `coordinator/src/control/core.rs`,
    /// `notice_stop`.
    pub woken_leader_moves_its_deadlines: bool,
    /// A new leader serves only when an entry of its own term is applied, and with it whatever the leader
    /// before left behind. `coordinator/src/control/leader.rs`, `settle`.
    pub leader_settles_before_it_serves: bool,
    /// A break concerns the session only if its stream is the session's present one.
    /// `coordinator/src/control/leases.rs`, `detach`.
    pub break_names_its_stream: bool,
    /// Of a session's streams the one of the highest attempt counts. `coordinator/src/control/leases.rs`,
    /// `attach`.
    pub highest_attempt_wins: bool,
    /// What a worker holds is compared with the `Set` it answers, not with what is granted by now.
    /// `coordinator/src/control/core/reports.rs`, `holding`.
    pub answer_names_its_set: bool,
    /// Belief counts from when the acknowledged heartbeat was sent, not from when the acknowledgement came.
    /// `worker-sdk/src/session/belief.rs`, `acknowledge`.
    pub belief_counts_from_sending: bool,
    /// A worker counts its drain from the last message that was acknowledged before it was asked, not from
    /// when it was asked. `worker-sdk/src/session/belief.rs`, `drain_deadline`.
    pub drain_counts_from_the_acknowledged: bool,
    /// A tenure that was given up is never opened again. `worker-sdk/src/session/converge.rs`, `open`.
    pub closed_tenure_stays_closed: bool,
    /// A worker says again that it is ready when a `Set` shows that this was not heard.
    /// `worker-sdk/src/session/converge.rs`, `on_set_shard`.
    pub ready_is_said_again: bool,
    /// It says again that it gave a shard up, likewise.
    pub release_is_said_again: bool,
    /// A shard that a worker should hold, and by its answer does not, is taken back.
    /// `coordinator/src/control/core/reports.rs`, `holding`.
    pub what_is_not_held_is_taken_back: bool,
    /// A plan's grant names the epoch it was made for. `coordinator/ownership/src/apply/handoff.rs`, `grant`.
    pub grant_names_its_epoch: bool,
    /// Only a shard that nobody owns is granted. `coordinator/ownership/src/apply/handoff.rs`, `grant`.
    pub grant_takes_unowned_shards: bool,
    /// Only a live session is granted anything. `coordinator/ownership/src/apply/tenures.rs`,
    /// `require_receiver`.
    pub grant_needs_a_live_session: bool,
    /// A release ends the tenure it names and no later one. `coordinator/ownership/src/apply/handoff.rs`,
    /// `owned_by`.
    pub release_names_its_epoch: bool,
    /// So does the end of a drain. `coordinator/ownership/src/apply/release.rs`, `force_off`.
    pub force_names_its_epoch: bool,
    /// So does a report of readiness. `coordinator/ownership/src/apply/handoff.rs`, `serve`.
    pub ready_names_its_epoch: bool,
    /// A registration names the session it replaces, or none, and is refused if another holds the name.
    /// `coordinator/ownership/src/apply/sessions.rs`, `require_holder`.
    pub registration_names_the_holder: bool,
    /// A process that had a session does not take its name back from a newer process.
    /// `coordinator/ownership/src/apply/sessions.rs`, `judge_holder`.
    pub only_a_new_process_replaces: bool,
    /// Epochs outlive the deletion of a group. `coordinator/ownership/src/apply/groups.rs`, `remove`.
    pub epochs_outlive_the_group: bool,
    /// An owner raises the fence before it reads. `worker-sdk/src/stores.rs`, `seal`.
    pub seal_before_read: bool,
    /// The store refuses a seal below its fence. `worker-sdk/fence/src/admission.rs`, `admit_seal`.
    pub seal_refused_below_the_fence: bool,
    /// The store refuses a write below its fence. `worker-sdk/fence/src/admission.rs`, `admit_write`. Without it
    /// the comparison is off by one, as `<` for `<=` makes it.
    pub write_refused_below_the_fence: bool,
    /// The store refuses a write above its fence. `worker-sdk/fence/src/admission.rs`, `admit_write`.
    pub write_refused_above_the_fence: bool,
    /// The store refuses seals and writes of the fence's epoch by another owner.
    /// `worker-sdk/fence/src/admission.rs`, `admit_seal` and `admit_write`.
    pub equal_epoch_needs_the_same_owner: bool,
    /// Whether a token is current is said only after a round that a quorum answered.
    /// `coordinator/src/rpc/ownership.rs`, `check_token`.
    pub token_check_needs_a_quorum: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            acknowledgement_needs_a_round: true,
            acknowledgement_needs_a_later_round: true,
            undecided_is_not_acknowledged: true,
            undecided_is_not_resumed: true,
            expiry_waits_for_belief: true,
            force_waits_for_belief: true,
            replacement_waits_for_belief: true,
            new_leader_gives_a_fresh_ttl: true,
            new_leader_restarts_drains: true,
            woken_leader_moves_its_deadlines: true,
            leader_settles_before_it_serves: true,
            break_names_its_stream: true,
            highest_attempt_wins: true,
            answer_names_its_set: true,
            belief_counts_from_sending: true,
            drain_counts_from_the_acknowledged: true,
            closed_tenure_stays_closed: true,
            ready_is_said_again: true,
            release_is_said_again: true,
            what_is_not_held_is_taken_back: true,
            grant_names_its_epoch: true,
            grant_takes_unowned_shards: true,
            grant_needs_a_live_session: true,
            release_names_its_epoch: true,
            force_names_its_epoch: true,
            ready_names_its_epoch: true,
            registration_names_the_holder: true,
            only_a_new_process_replaces: true,
            epochs_outlive_the_group: true,
            seal_before_read: true,
            seal_refused_below_the_fence: true,
            write_refused_below_the_fence: true,
            write_refused_above_the_fence: true,
            equal_epoch_needs_the_same_owner: true,
            token_check_needs_a_quorum: true,
        }
    }
}
