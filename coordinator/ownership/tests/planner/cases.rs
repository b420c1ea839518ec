//! One situation each.

use std::collections::BTreeSet;

use tenure_fence::Epoch;
use tenure_ownership::command::{Assign, Command, Grant, ReleaseCause};
use tenure_ownership::ids::{GroupId, ShardIndex};
use tenure_ownership::planner::{NotDone, Observed, PauseReason, Reason};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::{RevokeReason, ShardState};

use crate::world::{World, name};

fn quiet() -> Observed {
    Observed::default()
}

#[test]
fn an_unknown_group_gets_no_moves() {
    let world = World::settled(4, &["a"]);
    let plan = tenure_ownership::planner::plan(&world.state, GroupId(99), &quiet());
    assert!(plan.is_empty() && plan.report.not_done.is_empty());
}

#[test]
fn without_workers_the_report_says_so() {
    let plan = World::new(20, Policy::default()).plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::NoWorker), 20);
    let left = &plan.report.not_done[&Reason::NoWorker];
    assert_eq!(left.sample.len(), NotDone::SAMPLE_MAX);
    assert_eq!(left.sample.first(), Some(&ShardIndex(0)));
}

#[test]
fn a_new_group_is_granted_at_once_whatever_the_limit_of_handoffs() {
    let mut world = World::new(
        500,
        Policy {
            handoffs_in_flight_max: Some(1),
            ..Policy::default()
        },
    );
    world.join("a", 1);
    world.join("b", 1);
    assert_eq!(world.plan(&quiet()).grants.len(), 500);
}

#[test]
fn a_group_under_deletion_is_granted_to_nobody() {
    let mut world = World::new(4, Policy::default());
    world.join("a", 1);
    world.apply(Command::DeleteGroup("orders".try_into().unwrap()));
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::GroupDeleting), 4);
}

#[test]
fn a_leaving_worker_moves_exactly_its_shards() {
    let mut world = World::settled(100, &["a", "b", "c", "d", "e", "f", "g"]);
    let before = world.owners();
    let had: BTreeSet<ShardIndex> = world.state.owned(world.session("c").unwrap()).collect();
    world.leave("c");
    world.settle(&quiet());
    assert_eq!(world.moved_since(&before), had);
}

#[test]
fn a_joining_worker_takes_its_share_and_nothing_else_moves() {
    let mut world = World::settled(100, &["a", "b", "c", "d"]);
    let before = world.owners();
    world.join("e", 1);
    world.settle(&quiet());
    let takes: BTreeSet<ShardIndex> = world.state.owned(world.session("e").unwrap()).collect();
    assert_eq!(takes.len(), 20);
    assert_eq!(world.moved_since(&before), takes);
}

#[test]
fn a_worker_that_registers_again_gets_back_what_it_had() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    let before = world.owners();
    world.expire("b");
    world.join("b", 1);
    world.carry_out(world.plan(&quiet()));
    assert_eq!(world.owners(), before);
    assert!(world.plan(&quiet()).is_empty());
}

#[test]
fn a_worker_with_more_than_its_share_gets_all_of_it_back() {
    // Shares of 3 or 4, and a cap of 7.
    let mut world = World::new(
        11,
        Policy {
            load_factor_permille: 2_000,
            ..Policy::default()
        },
    );
    let sessions = ["a", "b", "c"].map(|worker| world.join(worker, 1));
    let to = |shard| sessions[[0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2][shard]];
    let grant = |shard: usize| {
        let index = ShardIndex(u32::try_from(shard).unwrap());
        Grant {
            shard: index,
            seen: None,
            to: to(shard),
        }
    };
    let grants = (0..11).map(grant).collect();
    world.apply(Command::Assign(Assign {
        group: world.group,
        grants,
        revokes: Vec::new(),
    }));
    assert!(world.plan(&quiet()).is_empty());

    let before = world.owners();
    world.expire("a");
    world.join("a", 1);
    world.settle(&quiet());
    assert_eq!(world.owners(), before);
}

#[test]
fn restart_grace_keeps_the_shards_for_their_worker() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    let before = world.owners();
    let end = world.expire("b");
    let waiting = Observed {
        restart_graces: BTreeSet::from([end]),
        ..quiet()
    };
    let plan = world.plan(&waiting);
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::RestartGrace), 10);

    world.join("b", 1);
    world.carry_out(world.plan(&waiting));
    assert_eq!(world.owners(), before);
}

#[test]
fn restart_grace_does_not_wait_for_a_worker_that_drains() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Draining);
    let end = world.expire("b");
    let waiting = Observed {
        restart_graces: BTreeSet::from([end]),
        ..quiet()
    };
    assert_eq!(world.plan(&waiting).grants.len(), 10);
}

#[test]
fn lock_delay_holds_back_what_ended_uncleanly_and_nothing_else() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    let delays = BTreeSet::from([world.expire("b"), world.leave("c")]);
    let plan = world.plan(&Observed {
        lock_delays: delays,
        ..quiet()
    });
    assert_eq!(plan.grants.len(), 10);
    assert_eq!(plan.report.moves_left(Reason::LockDelay), 10);
}

#[test]
fn a_shard_that_failed_to_open_is_tried_elsewhere_once_its_delay_is_over() {
    let mut world = World::settled(2, &["a", "b"]);
    world.join("c", 1);
    let shard = ShardIndex(0);
    let failed_on = world.shard(0).owner().unwrap();
    world.release(shard, ReleaseCause::OpenFailed("disk".to_owned()));
    let waiting = Observed {
        backing_off: BTreeSet::from([shard]),
        ..quiet()
    };
    assert_eq!(
        world.plan(&waiting).report.moves_left(Reason::BackingOff),
        1
    );
    assert!(world.plan(&waiting).grants.is_empty());

    let plan = world.plan(&quiet());
    assert_eq!(plan.grants.len(), 1);
    assert_ne!(plan.grants[0].to, failed_on);
}

#[test]
fn a_shard_that_failed_on_the_only_worker_is_tried_there_again() {
    let mut world = World::settled(2, &["a"]);
    world.release(ShardIndex(0), ReleaseCause::OpenFailed("disk".to_owned()));
    assert_eq!(world.plan(&quiet()).grants.len(), 1);
}

#[test]
fn a_shard_is_not_rebalanced_to_the_worker_on_which_it_has_just_failed() {
    // Room for both shards on either worker.
    let mut world = World::new(
        2,
        Policy {
            load_factor_permille: 2_000,
            ..Policy::default()
        },
    );
    world.join("a", 1);
    world.settle(&quiet());
    let b = world.join("b", 1);
    for _ in 0..2 {
        world.carry_out(world.plan(&quiet()));
        world.release_all();
        let given: Vec<ShardIndex> = world.state.owned(b).collect();
        world.release(given[0], ReleaseCause::OpenFailed("disk".to_owned()));
        let plan = world.plan(&quiet());
        assert_ne!(plan.grants[0].to, b);
        world.carry_out(plan);
    }
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::AvoidedWorker), 1);

    world.open_all();
    assert_eq!(
        world.plan(&quiet()).revokes.len(),
        1,
        "what has opened is free to move"
    );
}

#[test]
fn a_shard_whose_epochs_are_used_up_is_granted_to_nobody() {
    let mut world = World::settled(2, &["a"]);
    let fence = Epoch::try_from(u64::try_from(i64::MAX).unwrap()).unwrap();
    world.release(ShardIndex(0), ReleaseCause::StoreAhead(fence));
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::EpochExhausted), 1);
}

#[test]
fn an_overdue_opening_goes_to_another_worker() {
    let mut world = World::new(4, Policy::default());
    world.join("a", 1);
    world.join("b", 1);
    world.carry_out(world.plan(&quiet()));
    let overdue = Observed {
        opening_overdue: BTreeSet::from([world.tenure(ShardIndex(0))]),
        ..quiet()
    };
    let owner = world.shard(0).owner();
    let plan = world.plan(&overdue);
    let revoke = plan.revokes[0];
    assert_eq!(
        (revoke.shard, revoke.reason),
        (ShardIndex(0), RevokeReason::OpeningDeadline)
    );
    assert_ne!(revoke.next, owner);

    world.open_all();
    assert!(
        world.plan(&overdue).is_empty(),
        "a shard that opened after all is left alone"
    );
}

#[test]
fn a_shard_that_backs_off_is_not_asked_back_whatever_for() {
    let mut world = World::new(4, Policy::default());
    world.join("a", 1);
    world.join("b", 1);
    world.carry_out(world.plan(&quiet()));
    world.set_mode("a", WorkerMode::Draining);
    let a = world.session("a").unwrap();
    let of_a: BTreeSet<ShardIndex> = world.state.owned(a).collect();
    let first = *of_a.first().unwrap();
    // Both for the drain and for its opening, which is overdue.
    let overdue = Observed {
        opening_overdue: BTreeSet::from([world.tenure(first)]),
        ..quiet()
    };
    assert!(
        world
            .plan(&overdue)
            .revokes
            .iter()
            .any(|revoke| revoke.shard == first)
    );

    let backing_off = Observed {
        backing_off: BTreeSet::from([first]),
        ..overdue
    };
    let plan = world.plan(&backing_off);
    let asked_back: BTreeSet<ShardIndex> = plan.revokes.iter().map(|revoke| revoke.shard).collect();
    let others: BTreeSet<ShardIndex> = &of_a - &BTreeSet::from([first]);
    assert_eq!(asked_back, others, "the others move");
    let left = &plan.report.not_done[&Reason::BackingOff];
    assert_eq!(left.sample, [first, first], "said of both phases");
}

#[test]
fn an_overdue_opening_is_revoked_although_there_is_no_other_worker() {
    let mut world = World::new(1, Policy::default());
    world.join("a", 1);
    world.carry_out(world.plan(&quiet()));
    let overdue = Observed {
        opening_overdue: BTreeSet::from([world.tenure(ShardIndex(0))]),
        ..quiet()
    };
    let revokes = world.plan(&overdue).revokes;
    assert_eq!((revokes.len(), revokes[0].next), (1, None));
}

#[test]
fn a_draining_worker_is_emptied_and_given_nothing() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    let before = world.owners();
    let had: BTreeSet<ShardIndex> = world.state.owned(world.session("b").unwrap()).collect();
    world.set_mode("b", WorkerMode::Draining);
    let plan = world.plan(&quiet());
    assert_eq!(plan.revokes.len(), 16);
    assert!(
        plan.revokes
            .iter()
            .all(|revoke| revoke.reason == RevokeReason::Draining)
    );
    assert_eq!(plan.report.moves_left(Reason::Throttled), 4);

    world.settle(&quiet());
    assert_eq!(world.loads()[&name("b")], 0);
    assert_eq!(world.moved_since(&before), had);
}

#[test]
fn the_last_worker_keeps_its_shards_while_it_drains() {
    let mut world = World::settled(5, &["a"]);
    world.set_mode("a", WorkerMode::Draining);
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::NoWorker), 5);
}

#[test]
fn a_blink_of_a_stream_moves_nothing() {
    let world = World::settled(30, &["a", "b", "c"]);
    let session = world.session("b").unwrap();
    let plan = world.plan(&Observed {
        disconnected: BTreeSet::from([session]),
        ..quiet()
    });
    assert!(plan.is_empty());
}

#[test]
fn a_worker_without_a_stream_is_given_nothing() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    let away = world.session("b").unwrap();
    world.leave("c");
    let plan = world.plan(&Observed {
        disconnected: BTreeSet::from([away]),
        ..quiet()
    });
    assert!(plan.grants.iter().all(|grant| grant.to != away));
    // The cap of the only one left is 16, and it has 10: the other shards wait for the stream.
    assert_eq!(plan.grants.len(), 6);
    assert_eq!(plan.report.moves_left(Reason::AllAtCap), 4);
}

#[test]
fn a_draining_worker_without_a_stream_is_not_asked() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Draining);
    let away = world.session("b").unwrap();
    let plan = world.plan(&Observed {
        disconnected: BTreeSet::from([away]),
        ..quiet()
    });
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::OwnerDisconnected), 10);
}

#[test]
fn a_drain_does_not_take_the_room_of_unowned_shards() {
    // Room for four beside the ten that each of the two others has.
    let mut world = World::settled(40, &["a", "b", "c", "d"]);
    world.leave("d");
    world.set_mode("c", WorkerMode::Draining);
    let away = world.session("b").unwrap();
    let plan = world.plan(&Observed {
        disconnected: BTreeSet::from([away]),
        ..quiet()
    });
    // Shares of 20, caps of 22: worker a takes 12, of which ten are needed by what d had.
    assert_eq!(plan.grants.len(), 10);
    assert_eq!(plan.revokes.len(), 2);
    assert_eq!(plan.report.moves_left(Reason::AllAtCap), 8);
}

#[test]
fn rebalancing_rests_while_it_is_paused_and_placing_goes_on() {
    let mut world = World::settled(40, &["a", "b", "c", "d"]);
    world.leave("d");
    world.carry_out(world.plan(&quiet()));
    world.join("e", 1);
    for reason in [PauseReason::MassFailure, PauseReason::NewLeader] {
        let plan = world.plan(&Observed {
            rebalance_paused: Some(reason),
            ..quiet()
        });
        assert!(plan.is_empty());
        assert_eq!(plan.report.moves_left(Reason::Paused(reason)), 10);
    }
    world.leave("a");
    let paused = Observed {
        rebalance_paused: Some(PauseReason::MassFailure),
        ..quiet()
    };
    assert!(!world.plan(&paused).grants.is_empty());
}

#[test]
fn handoffs_in_flight_leave_no_room_for_more() {
    let mut world = World::settled(100, &["a", "b"]);
    world.join("c", 1);
    let plan = world.plan(&quiet());
    assert_eq!(plan.revokes.len(), 16);
    assert_eq!(plan.report.moves_left(Reason::Throttled), 17);
    world.carry_out(plan);

    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(
        (
            plan.report.in_flight,
            plan.report.moves_left(Reason::Throttled)
        ),
        (16, 17)
    );
}

#[test]
fn shards_that_open_are_moved_before_shards_that_serve() {
    let mut world = World::settled(30, &["a"]);
    // Three shards start anew on their worker.
    for shard in [3, 11, 27].map(ShardIndex) {
        world.release(shard, ReleaseCause::Lost);
    }
    world.carry_out(world.plan(&quiet()));
    world.join("b", 1);
    let moved: BTreeSet<ShardIndex> = world
        .plan(&quiet())
        .revokes
        .iter()
        .map(|revoke| revoke.shard)
        .collect();
    assert!(moved.is_superset(&BTreeSet::from([3, 11, 27].map(ShardIndex))));
}

#[test]
fn a_shard_on_its_way_counts_for_the_worker_it_goes_to() {
    let mut world = World::settled(4, &["a"]);
    world.join("b", 1);
    world.carry_out(world.plan(&quiet()));
    assert_eq!(world.revoking().count(), 2);
    let next: BTreeSet<_> = world
        .shards()
        .filter_map(|(_, shard)| match &shard.state {
            ShardState::Revoking(revocation) => revocation.next,
            _ => None,
        })
        .collect();
    assert_eq!(next, BTreeSet::from([world.session("b").unwrap()]));
    assert!(world.plan(&quiet()).is_empty());
}

#[test]
fn weights_divide_the_shards() {
    let mut world = World::new(100, Policy::default());
    world.join("light", 1);
    world.join("heavy", 4);
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("heavy")], 80);
    assert_eq!(world.loads()[&name("light")], 20);
}
