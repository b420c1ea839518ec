//! Messages in, steps out.

use super::*;

fn id(shard: u32, epoch: u64) -> TenureId {
    TenureId {
        shard,
        epoch: Epoch::new(epoch).unwrap(),
    }
}

fn set_shard(shard: u32, epoch: u64, phase: v1::ShardPhase) -> v1::SetShard {
    v1::SetShard {
        tenure: Some(id(shard, epoch).wire()),
        phase: phase.into(),
        drain_ms: if phase == v1::ShardPhase::Revoking {
            400
        } else {
            0
        },
        stores: Vec::new(),
    }
}

fn set(revision: u64, shards: &[(u32, u64)]) -> v1::Set {
    let shards = shards
        .iter()
        .map(|&(shard, epoch)| set_shard(shard, epoch, v1::ShardPhase::Opening))
        .collect();
    v1::Set { revision, shards }
}

fn granted(revision: u64, shard: u32, epoch: u64) -> v1::Granted {
    let tenure = Some(id(shard, epoch).wire());
    v1::Granted {
        revision,
        grants: vec![v1::Grant {
            tenure,
            stores: Vec::new(),
        }],
    }
}

fn revoke(revision: u64, shard: u32, epoch: u64) -> v1::Revoke {
    v1::Revoke {
        revision,
        tenures: vec![id(shard, epoch).wire()],
        drain_ms: 1_000,
        reason: 0,
    }
}

fn lost(revision: u64, shard: u32, epoch: u64) -> v1::Lost {
    v1::Lost {
        revision,
        tenures: vec![id(shard, epoch).wire()],
    }
}

fn open(shard: u32, epoch: u64) -> Step {
    Step::Open {
        tenure: id(shard, epoch),
        recorded: BTreeMap::new(),
    }
}

fn lose(shard: u32, epoch: u64) -> Step {
    Step::Lose {
        tenure: id(shard, epoch),
        reason: LostReason::Ended,
    }
}

fn release(shard: u32, epoch: u64, closing: Closing) -> Step {
    Step::Release {
        tenure: id(shard, epoch),
        closing,
    }
}

fn answer(set_revision: u64) -> Step {
    Step::Answer { set_revision }
}

/// Tenures that hold shard 1 at epoch 7, granted at revision 11 after a `Set` of 10.
fn holding() -> Tenures {
    let mut tenures = Tenures::default();
    assert_eq!(tenures.on_set(&set(10, &[])), [answer(10)]);
    assert_eq!(tenures.on_granted(&granted(11, 1, 7)), [open(1, 7)]);
    tenures
}

fn held(tenures: &Tenures) -> Vec<TenureId> {
    tenures.holding().collect()
}

#[test]
fn nothing_counts_before_the_set_of_a_stream() {
    let mut tenures = holding();
    tenures.begin_stream();
    assert!(!tenures.is_set());
    assert_eq!(tenures.on_granted(&granted(12, 2, 1)), []);
    assert_eq!(tenures.on_revoke(&revoke(12, 1, 7)), []);
    assert_eq!(tenures.on_lost(&lost(12, 1, 7)), []);
    assert_eq!(held(&tenures), [id(1, 7)]);
}

#[test]
fn a_message_out_of_order_does_not_count() {
    let mut tenures = holding();
    assert_eq!(tenures.on_granted(&granted(9, 2, 1)), []);
    assert_eq!(held(&tenures), [id(1, 7)]);
}

// Scenario 28: a grant, a revoke and a ready are lost with their stream.
#[test]
fn the_next_set_makes_up_for_a_lost_grant() {
    let mut tenures = holding();
    tenures.begin_stream();
    let steps = tenures.on_set(&set(20, &[(1, 7), (2, 3)]));
    assert_eq!(steps, [open(2, 3), answer(20)]);
    assert_eq!(held(&tenures), [id(1, 7), id(2, 3)]);
}

#[test]
fn the_next_set_makes_up_for_a_lost_revoke() {
    let mut tenures = holding();
    tenures.begin_stream();
    let revoking = set_shard(1, 7, v1::ShardPhase::Revoking);
    let steps = tenures.on_set(&v1::Set {
        revision: 20,
        shards: vec![revoking],
    });
    let drain = Duration::from_millis(400);
    assert_eq!(
        steps,
        [
            Step::Revoke {
                tenure: id(1, 7),
                drain
            },
            answer(20)
        ]
    );
    assert_eq!(held(&tenures), [id(1, 7)]);
}

#[test]
fn a_ready_that_was_lost_is_said_again_and_one_that_was_heard_is_not() {
    let mut tenures = holding();
    assert!(tenures.ready(id(1, 7)));
    tenures.begin_stream();
    let steps = tenures.on_set(&set(20, &[(1, 7)]));
    assert_eq!(steps, [Step::Ready { tenure: id(1, 7) }, answer(20)]);
    tenures.begin_stream();
    let serving = set_shard(1, 7, v1::ShardPhase::Serving);
    let steps = tenures.on_set(&v1::Set {
        revision: 21,
        shards: vec![serving],
    });
    assert_eq!(steps, [answer(21)]);
}

#[test]
fn a_release_that_was_lost_is_said_again_with_its_cause() {
    let mut tenures = holding();
    let closing = Closing::StoreAhead(Epoch::new(9).unwrap());
    assert!(tenures.close(id(1, 7), closing.clone()));
    tenures.begin_stream();
    let steps = tenures.on_set(&set(20, &[(1, 7)]));
    assert_eq!(steps, [release(1, 7, closing), answer(20)]);
    assert_eq!(held(&tenures), []);
}

#[test]
fn a_release_that_was_lost_keeps_its_cause_when_the_shard_was_asked_back_meanwhile() {
    let mut tenures = holding();
    let closing = Closing::StoreAhead(Epoch::new(9).unwrap());
    assert!(tenures.close(id(1, 7), closing.clone()));
    tenures.begin_stream();
    let steps = tenures.on_set(&v1::Set {
        revision: 20,
        shards: vec![set_shard(1, 7, v1::ShardPhase::Revoking)],
    });
    assert_eq!(steps, [release(1, 7, closing), answer(20)]);
}

// Scenario 30, the worker's half.
#[test]
fn a_released_tenure_is_not_opened_again_by_an_older_set() {
    let mut tenures = holding();
    tenures.close(id(1, 7), Closing::Finished);
    tenures.begin_stream();
    let steps = tenures.on_set(&set(20, &[(1, 7)]));
    assert_eq!(steps, [release(1, 7, Closing::Finished), answer(20)]);
    // Nor by a grant that comes late, nor at an earlier epoch; but at the next one.
    assert_eq!(tenures.on_granted(&granted(21, 1, 7)), []);
    assert_eq!(tenures.on_granted(&granted(21, 1, 6)), []);
    assert_eq!(tenures.on_granted(&granted(22, 1, 8)), [open(1, 8)]);
}

#[test]
fn a_set_says_nothing_about_what_was_granted_after_it() {
    let mut tenures = holding();
    tenures.begin_stream();
    assert_eq!(tenures.on_set(&set(10, &[])), [answer(10)]);
    assert_eq!(held(&tenures), [id(1, 7)]);
}

#[test]
fn what_is_not_in_the_set_is_lost() {
    let mut tenures = holding();
    tenures.begin_stream();
    assert_eq!(tenures.on_set(&set(20, &[])), [lose(1, 7), answer(20)]);
    assert_eq!(held(&tenures), []);
    // Lost is as final as released.
    assert_eq!(tenures.on_granted(&granted(21, 1, 7)), []);
}

#[test]
fn a_set_at_another_epoch_ends_the_old_handle_before_it_opens_the_new_one() {
    let mut tenures = holding();
    tenures.begin_stream();
    assert_eq!(
        tenures.on_set(&set(20, &[(1, 8)])),
        [lose(1, 7), open(1, 8), answer(20)]
    );
    let anew = Step::Lose {
        tenure: id(1, 8),
        reason: LostReason::GrantedAnew {
            epoch: Epoch::new(9).unwrap(),
        },
    };
    assert_eq!(tenures.on_granted(&granted(21, 1, 9)), [anew, open(1, 9)]);
}

#[test]
fn a_shard_that_is_asked_back_before_it_was_opened_is_given_back_unopened() {
    let mut tenures = Tenures::default();
    let revoking = set_shard(1, 7, v1::ShardPhase::Revoking);
    let steps = tenures.on_set(&v1::Set {
        revision: 20,
        shards: vec![revoking],
    });
    assert_eq!(steps, [release(1, 7, Closing::Finished), answer(20)]);
    assert_eq!(held(&tenures), []);
}

// Scenario 19, the worker's half.
#[test]
fn a_revoke_or_a_loss_of_an_earlier_tenure_does_not_touch_the_present_one() {
    let mut tenures = holding();
    assert_eq!(tenures.on_revoke(&revoke(12, 1, 6)), []);
    assert_eq!(tenures.on_lost(&lost(12, 1, 6)), []);
    assert!(tenures.holds(id(1, 7)));
    // A late report of a handle that is gone does not either.
    assert!(!tenures.ready(id(1, 6)));
    assert!(!tenures.close(id(1, 6), Closing::Lost));
    assert!(tenures.holds(id(1, 7)));
}

#[test]
fn the_end_of_a_later_tenure_ends_the_earlier_one() {
    let mut tenures = holding();
    assert_eq!(tenures.on_lost(&lost(12, 1, 8)), [lose(1, 7)]);
    assert_eq!(tenures.on_granted(&granted(13, 1, 8)), []);
    assert_eq!(tenures.on_granted(&granted(14, 1, 9)), [open(1, 9)]);
}

#[test]
fn what_was_held_when_the_session_ended_stays_closed_in_the_next_one() {
    let mut tenures = holding();
    let reason = LostReason::LeaseEnded;
    let steps = tenures.lose_all(&reason);
    assert_eq!(
        steps,
        [Step::Lose {
            tenure: id(1, 7),
            reason
        }]
    );
    tenures.begin_stream();
    let steps = tenures.on_set(&set(20, &[(1, 7)]));
    assert_eq!(steps, [release(1, 7, Closing::Lost), answer(20)]);
}
