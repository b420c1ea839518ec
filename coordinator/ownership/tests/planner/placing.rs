//! Where shards may be, one situation each: limits, labels, zones, pins, quarantine, suspects.

use std::collections::{BTreeMap, BTreeSet};

use tenure_ownership::ids::ShardIndex;
use tenure_ownership::planner::{Observed, PauseReason, Reason};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;

use crate::world::{World, name};

fn quiet() -> Observed {
    Observed::default()
}

fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

#[test]
fn what_workers_may_not_have_stays_unowned_and_is_explained() {
    let policy = Policy {
        worker_shards_max: Some(8),
        ..Policy::default()
    };
    let world = World::settled_under(policy, 30, &["a", "b", "c"]);
    assert!(world.loads().values().all(|load| *load == 8));
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::WorkersFull), 6);
    assert_eq!(plan.report.moves_left(Reason::AllAtCap), 0);
}

#[test]
fn a_heavy_worker_stops_at_the_limit_and_the_others_share_the_rest() {
    let policy = Policy {
        worker_shards_max: Some(10),
        ..Policy::default()
    };
    let mut world = World::new(30, policy);
    world.join("a", 8);
    world.join("b", 1);
    world.join("c", 1);
    world.settle(&quiet());
    assert!(
        world.loads().values().all(|load| *load == 10),
        "{:?}",
        world.loads()
    );
}

#[test]
fn a_limit_that_is_lowered_moves_what_is_above_it() {
    let mut world = World::new(20, Policy::default());
    world.join("a", 3);
    world.join("b", 1);
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("a")], 15);
    world.set_policy(Policy {
        worker_shards_max: Some(12),
        ..Policy::default()
    });
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("a")], 12);
    assert_eq!(world.loads()[&name("b")], 8);
}

#[test]
fn workers_without_a_required_label_are_emptied_and_given_nothing() {
    let mut world = World::settled(30, &["a", "b"]);
    world.join_labelled("c", 1, &[("disk", "ssd")]);
    world.join_labelled("d", 1, &[("disk", "ssd"), ("zone", "north")]);
    world.set_policy(Policy {
        required_labels: labels("disk", "ssd"),
        ..Policy::default()
    });
    let plan = world.plan(&quiet());
    assert!(
        plan.revokes
            .iter()
            .all(|of| of.reason == RevokeReason::Placement)
    );
    assert_eq!(plan.revokes.len(), 16);
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("a")], 0);
    assert_eq!(world.loads()[&name("b")], 0);
    assert_eq!(world.loads()[&name("c")], 15);
}

#[test]
fn without_a_worker_with_the_labels_what_is_served_stays_and_the_report_says_so() {
    let mut world = World::settled(10, &["a", "b"]);
    world.leave("b");
    world.set_policy(Policy {
        required_labels: labels("disk", "ssd"),
        ..Policy::default()
    });
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::LabelsMissing), 10);
}

#[test]
fn of_equal_workers_those_with_preferred_labels_come_first() {
    let policy = Policy {
        preferred_labels: labels("disk", "ssd"),
        ..Policy::default()
    };
    // Everything is full, so that probes of the ring decide nothing: the one shard that is left goes
    // to the emptiest, and all are as empty.
    let mut world = World::settled_under(policy, 9, &["a", "b"]);
    world.join_labelled("z", 1, &[("disk", "ssd")]);
    world.join("c", 1);
    let plan = world.plan(&quiet());
    let takers: BTreeSet<_> = plan.revokes.iter().filter_map(|of| of.next).collect();
    let first = plan.revokes.len();
    assert_eq!(takers.len(), 2);
    assert_eq!(first, 4);
    world.settle(&quiet());
    assert!(world.loads()[&name("z")] >= world.loads()[&name("c")]);
}

/// Six workers in three zones.
fn zoned(shards: u32, policy: Policy) -> World {
    let mut world = World::new(shards, policy);
    for (worker, zone) in ["a", "b", "c", "d", "e", "f"]
        .iter()
        .zip(["x", "x", "y", "y", "z", "z"])
    {
        world.join_labelled(worker, 1, &[("zone", zone)]);
    }
    world.settle(&quiet());
    world
}

fn by_zone(world: &World) -> Vec<usize> {
    let loads = world.loads();
    let of = |worker: &str| loads.get(&name(worker)).copied().unwrap_or(0);
    vec![of("a") + of("b"), of("c") + of("d"), of("e") + of("f")]
}

#[test]
fn few_shards_spread_over_zones_before_workers() {
    let policy = Policy {
        zone_label: "zone".to_owned(),
        ..Policy::default()
    };
    assert_eq!(by_zone(&zoned(3, policy)), [1, 1, 1]);
}

#[test]
fn zones_that_are_named_later_even_out() {
    let mut world = zoned(3, Policy::default());
    // Whatever the ring had said: all three in one zone is possible, and made so by hand.
    for worker in ["c", "d", "e", "f"] {
        world.leave(worker);
    }
    world.settle(&quiet());
    for (worker, zone) in [("c", "y"), ("d", "y"), ("e", "z"), ("f", "z")] {
        world.join_labelled(worker, 1, &[("zone", zone)]);
    }
    world.settle(&quiet());
    world.set_policy(Policy {
        zone_label: "zone".to_owned(),
        ..Policy::default()
    });
    world.settle(&quiet());
    assert_eq!(by_zone(&world), [1, 1, 1]);
}

#[test]
fn a_zone_that_could_not_be_lost_is_reported() {
    let policy = Policy {
        zone_label: "zone".to_owned(),
        worker_shards_max: Some(12),
        ..Policy::default()
    };
    let world = zoned(60, policy);
    // Four workers would be left, with twelve each.
    assert_eq!(world.plan(&quiet()).report.moves_left(Reason::ZoneLoss), 12);
    let policy = Policy {
        zone_label: "zone".to_owned(),
        worker_shards_max: Some(15),
        ..Policy::default()
    };
    assert_eq!(
        zoned(60, policy)
            .plan(&quiet())
            .report
            .moves_left(Reason::ZoneLoss),
        0
    );
}

#[test]
fn a_label_with_too_many_values_is_no_zone() {
    let policy = Policy {
        zone_label: "host".to_owned(),
        ..Policy::default()
    };
    let mut world = World::new(200, policy);
    for number in 0..65 {
        let worker = format!("w{number:02}");
        world.join_labelled(&worker, 1, &[("host", &worker)]);
    }
    let plan = world.plan(&quiet());
    assert_eq!(plan.report.moves_left(Reason::ZonesTooMany), 1);
    assert_eq!(plan.grants.len(), 200);
}

#[test]
fn a_pin_wins_over_the_share() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    (0..20).for_each(|shard| world.pin_to(shard, "b"));
    world.settle(&quiet());
    for shard in 0..20 {
        assert_eq!(world.owner(shard), Some(name("b")), "shard {shard}");
    }
    // It has more than its share, so it gives away what is not pinned.
    assert_eq!(world.loads()[&name("b")], 20);
    assert!(world.plan(&quiet()).is_empty());
}

#[test]
fn a_pinned_shard_is_elsewhere_while_its_worker_is_away_and_goes_home() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.pin_to(7, "b");
    world.settle(&quiet());
    world.expire("b");
    world.settle(&quiet());
    assert_ne!(world.owner(7), Some(name("b")));
    assert!(world.owner(7).is_some());
    let plan = world.plan(&quiet());
    assert_eq!(
        plan.report.not_done[&Reason::PinnedWorkerAway].sample,
        [ShardIndex(7)]
    );

    world.join("b", 1);
    let paused = Observed {
        rebalance_paused: Some(PauseReason::NewLeader),
        ..quiet()
    };
    assert!(
        world.plan(&paused).revokes.is_empty(),
        "a cold leader moves nothing"
    );
    world.settle(&quiet());
    assert_eq!(world.owner(7), Some(name("b")));
    assert_eq!(
        world
            .plan(&quiet())
            .report
            .moves_left(Reason::PinnedWorkerAway),
        0
    );
}

#[test]
fn a_drain_wins_over_a_pin() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.pin_to(7, "b");
    world.settle(&quiet());
    world.set_mode("b", WorkerMode::Draining);
    world.settle(&quiet());
    assert_ne!(world.owner(7), Some(name("b")));
    world.set_mode("b", WorkerMode::Active);
    world.settle(&quiet());
    assert_eq!(world.owner(7), Some(name("b")));
}

#[test]
fn a_pin_does_not_win_over_the_hard_limit() {
    let policy = Policy {
        worker_shards_max: Some(10),
        ..Policy::default()
    };
    let mut world = World::settled_under(policy, 24, &["a", "b", "c"]);
    (0..12).for_each(|shard| world.pin_to(shard, "b"));
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("b")], 10);
    let plan = world.plan(&quiet());
    assert_eq!(plan.report.moves_left(Reason::PinnedWorkerFull), 2);
    world.unpin(0);
    world.unpin(1);
    world.settle(&quiet());
    assert_eq!(
        world
            .plan(&quiet())
            .report
            .moves_left(Reason::PinnedWorkerFull),
        0
    );
}

#[test]
fn a_shard_is_moved_off_the_workers_it_is_kept_off() {
    let mut world = World::settled(12, &["a", "b", "c"]);
    world.keep_off(3, &["a", "b"]);
    world.settle(&quiet());
    assert_eq!(world.owner(3), Some(name("c")));
    world.leave("c");
    world.settle(&quiet());
    assert_eq!(world.owner(3), None);
    let plan = world.plan(&quiet());
    assert_eq!(
        plan.report.not_done[&Reason::KeptOff].sample,
        [ShardIndex(3)]
    );
}

#[test]
fn a_shard_in_quarantine_goes_nowhere_until_it_is_retried() {
    let mut world = World::settled(12, &["a", "b", "c"]);
    let owner = world.owner(3).unwrap();
    world.expire(owner.as_str());
    world.quarantine(3, 3);
    world.settle(&quiet());
    assert_eq!(world.owner(3), None);
    let plan = world.plan(&quiet());
    assert!(plan.is_empty());
    assert_eq!(
        plan.report.not_done[&Reason::Quarantined].sample,
        [ShardIndex(3)]
    );
    world.retry(3);
    world.settle(&quiet());
    assert!(world.owner(3).is_some());
}

#[test]
fn suspects_are_placed_apart_from_each_other() {
    let wide = Policy {
        load_factor_permille: 1_500,
        ..Policy::default()
    };
    let mut world = World::settled_under(wide.clone(), 40, &["a", "b", "c", "d", "e"]);
    let had: Vec<ShardIndex> = world.state.owned(world.session("a").unwrap()).collect();
    world.expire("a");
    let suspects: BTreeSet<ShardIndex> = had.iter().copied().take(4).collect();
    let observed = Observed {
        suspects: suspects.clone(),
        ..quiet()
    };
    world.settle(&observed);
    let owners: BTreeSet<_> = suspects.iter().map(|shard| world.owner(shard.0)).collect();
    assert_eq!(owners.len(), 4, "{owners:?}");

    // Also when the worker that had them all is back first.
    let mut world = World::settled_under(wide.clone(), 40, &["a", "b", "c", "d", "e"]);
    world.expire("a");
    world.join("a", 1);
    world.settle(&observed);
    let owners: BTreeSet<_> = suspects.iter().map(|shard| world.owner(shard.0)).collect();
    assert_eq!(owners.len(), 4, "{owners:?}");
}
