//! What operators say of workers and groups: cordon, pause, freeze; and workers that stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_ownership::command::{ReleaseCause, SetFreeze};
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::planner::{Observed, Reason};
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::{Command, planner};

use crate::world::{World, name};

fn quiet() -> Observed {
    Observed::default()
}

fn freeze(world: &mut World, reason: Option<&str>) {
    world.apply(Command::SetFreeze(SetFreeze {
        group: "orders".try_into().unwrap(),
        reason: reason.map(str::to_owned),
    }));
}

fn owned(world: &World, worker: &str) -> BTreeSet<ShardIndex> {
    let session = world.session(worker).unwrap();
    world.state.owned(session).collect()
}

#[test]
fn a_cordoned_worker_keeps_what_it_has_and_gets_nothing_new() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    let before = world.owners();
    world.set_mode("b", WorkerMode::Cordoned);
    assert!(world.plan(&quiet()).is_empty());
    let lost = owned(&world, "a");
    world.leave("a");
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("b")], 20);
    assert_eq!(world.loads()[&name("c")], 40);
    assert_eq!(world.moved_since(&before), lost);
}

#[test]
fn a_new_worker_shares_what_the_cordoned_one_does_not_have() {
    let mut world = World::settled(60, &["a", "b"]);
    world.set_mode("b", WorkerMode::Cordoned);
    world.join("c", 1);
    world.settle(&quiet());
    let loads = world.loads();
    assert_eq!(loads[&name("b")], 30);
    assert_eq!((loads[&name("a")], loads[&name("c")]), (15, 15));
}

#[test]
fn the_shards_of_a_paused_worker_wait_for_it_and_come_home() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    let before = world.owners();
    world.set_mode("b", WorkerMode::Paused);
    assert!(world.plan(&quiet()).is_empty());
    world.leave("b");
    let plan = world.plan(&quiet());
    assert!(plan.is_empty(), "{plan:?}");
    assert_eq!(plan.report.moves_left(Reason::WorkerPaused), 20);
    // A third one changes nothing for those that wait.
    world.join("d", 1);
    world.settle(&quiet());
    assert_eq!(world.state.group(world.group).unwrap().unowned_count(), 20);
    world.join("b", 1);
    world.settle(&quiet());
    assert_eq!(world.loads()[&name("b")], 20);
    world.leave("d");
    world.settle(&quiet());
    world.set_mode("b", WorkerMode::Active);
    world.settle(&quiet());
    let home = (0..60).map(ShardIndex).filter(|index| {
        let at = usize::try_from(index.0).unwrap();
        before[at] == Some(name("b"))
    });
    assert_eq!(owned(&world, "b"), home.collect());
}

#[test]
fn what_waited_goes_elsewhere_once_the_pause_is_over() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Paused);
    world.expire("b");
    assert!(world.plan(&quiet()).is_empty());
    world.set_mode("b", WorkerMode::Active);
    world.settle(&quiet());
    assert_eq!(world.loads().values().sum::<usize>(), 60);
}

#[test]
fn a_paused_worker_that_gives_shards_back_as_it_stops_does_not_get_them_back_before_it_is_gone() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Paused);
    let session = world.session("b").unwrap();
    let observed = Observed {
        stopping: BTreeSet::from([session]),
        ..quiet()
    };
    // It need not wait for anybody to take what it has.
    let plan = world.plan(&observed);
    assert!(plan.is_empty());
    assert_eq!(plan.stranded, BTreeSet::from([session]));
    let had: Vec<ShardIndex> = world.state.owned(session).collect();
    for shard in had {
        world.release(shard, ReleaseCause::Finished);
    }
    assert!(world.plan(&observed).is_empty());
}

#[test]
fn a_paused_worker_without_a_stream_is_waited_for() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Paused);
    world.leave("b");
    let session = world.join("b", 1);
    let unheard = Observed {
        disconnected: BTreeSet::from([session]),
        ..quiet()
    };
    let plan = world.plan(&unheard);
    assert!(plan.is_empty());
    assert_eq!(plan.report.moves_left(Reason::WorkerPaused), 10);
}

#[test]
fn a_shard_that_does_not_open_on_its_paused_worker_goes_elsewhere() {
    let mut world = World::settled(30, &["a", "b", "c"]);
    world.set_mode("b", WorkerMode::Paused);
    world.leave("b");
    let session = world.join("b", 1);
    world.carry_out(world.plan(&quiet()));
    let shard = world.state.owned(session).next().unwrap();
    world.release(shard, ReleaseCause::OpenFailed("no".to_owned()));
    let plan = world.plan(&quiet());
    assert_eq!(plan.grants.len(), 1);
    assert_ne!(plan.grants[0].to, session);
}

#[test]
fn a_worker_that_stops_is_emptied_before_it_goes_and_given_nothing() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    let before = world.owners();
    let had = owned(&world, "b");
    let session = world.session("b").unwrap();
    let observed = Observed {
        stopping: BTreeSet::from([session]),
        ..quiet()
    };
    let plan = world.plan(&observed);
    assert_eq!(plan.revokes.len(), 16);
    assert!(plan.revokes.iter().all(|revoke| {
        revoke.reason == RevokeReason::Stopping && revoke.next.is_some_and(|next| next != session)
    }));
    // The other four follow.
    assert_eq!(plan.stranded, BTreeSet::new());
    world.settle(&observed);
    assert_eq!(world.loads()[&name("b")], 0);
    assert_eq!(world.moved_since(&before), had);
}

#[test]
fn the_last_worker_that_stops_waits_for_nobody() {
    let world = World::settled(5, &["a"]);
    let session = world.session("a").unwrap();
    let observed = Observed {
        stopping: BTreeSet::from([session]),
        ..quiet()
    };
    let plan = world.plan(&observed);
    assert!(plan.is_empty());
    assert_eq!(plan.stranded, BTreeSet::from([session]));
}

#[test]
fn a_frozen_group_moves_nothing_that_is_served_and_grants_what_is_not() {
    let mut world = World::settled(60, &["a", "b", "c"]);
    freeze(&mut world, Some("release day"));
    world.join("d", 1);
    world.set_mode("c", WorkerMode::Draining);
    let stopping = world.session("b").unwrap();
    let observed = Observed {
        stopping: BTreeSet::from([stopping]),
        ..quiet()
    };
    let plan = world.plan(&observed);
    assert!(plan.is_empty());
    // What the two should lose, and what the new one should get.
    assert!(plan.report.moves_left(Reason::Frozen) >= 40);
    assert_eq!(plan.stranded, BTreeSet::from([stopping]));
    world.leave("a");
    assert_eq!(world.plan(&observed).grants.len(), 20);
    freeze(&mut world, None);
    let plan = planner::plan(&world.state, world.group, &observed);
    assert!(!plan.revokes.is_empty());
}

fn epochs(world: &World) -> Vec<u64> {
    let epochs = world.shards().map(|(_, shard)| shard.epoch);
    epochs
        .map(|epoch| epoch.map_or(0, |epoch| epoch.get()))
        .collect()
}

/// Must show 2 of the drains: away and home again, also of what is taken on the way.
#[test]
fn a_rolling_restart_with_drains_moves_each_shard_at_most_twice() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut world = World::settled(800, &names);
    let begun = epochs(&world);
    let mut homes = BTreeMap::new();
    for worker in names {
        let session = world.session(worker).unwrap();
        // As the leader notes them: the first home stays until the shard is back.
        for shard in world.state.owned(session) {
            homes.entry(shard).or_insert_with(|| name(worker));
        }
        let mut observed = Observed {
            stopping: BTreeSet::from([session]),
            homes: Arc::new(homes.clone()),
            ..quiet()
        };
        world.settle(&observed);
        world.leave(worker);
        world.join(worker, 1);
        observed.stopping.clear();
        world.settle(&observed);
        for (shard, owner) in (0..).map(ShardIndex).zip(world.owners()) {
            if homes.get(&shard) == owner.as_ref() {
                homes.remove(&shard);
            }
        }
    }
    for (shard, (before, after)) in begun.into_iter().zip(epochs(&world)).enumerate() {
        assert!(
            after <= before + 2,
            "shard {shard}: from epoch {before} to {after}"
        );
    }
}

#[test]
fn what_a_drained_worker_has_is_shared_out_so_that_nobody_elses_shards_move() {
    let names: Vec<String> = (0..100).map(|number| format!("w-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::settled(10_000, &names);
    let (before, held) = (epochs(&world), owned(&world, "w-07"));
    let observed = Observed {
        stopping: BTreeSet::from([world.session("w-07").unwrap()]),
        ..quiet()
    };
    world.settle(&observed);
    world.leave("w-07");
    world.settle(&quiet());
    let moved = before.into_iter().zip(epochs(&world));
    let moved = (0..).map(ShardIndex).zip(moved);
    let moved: BTreeMap<ShardIndex, u64> = moved
        .filter(|(_, (before, after))| after > before)
        .map(|(shard, (before, after))| (shard, after - before))
        .collect();
    assert!(moved.values().all(|moves| *moves == 1), "{moved:?}");
    assert_eq!(moved.into_keys().collect::<BTreeSet<_>>(), held);
}
