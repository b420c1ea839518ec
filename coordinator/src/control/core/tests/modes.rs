//! Pauses and their ends, and workers that stop and need not wait.

use tenure_ownership::Command;
use tenure_ownership::command::Assign;
use tenure_ownership::command::Release;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::command::Revoke;
use tenure_ownership::command::SetFreeze;
use tenure_ownership::command::SetWorkerMode;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;

use super::super::Input;
use super::world::World;
use super::world::group_name;
use super::world::ms;
use crate::control::message::Down;
use crate::control::message::Up;

const PAUSE: u64 = 60_000;

fn set_mode(world: &mut World, worker: &str, mode: WorkerMode) {
    let command = SetWorkerMode {
        group: group_name(),
        worker: WorkerName::new(worker).unwrap(),
        mode,
        pause_timeout: (mode == WorkerMode::Paused).then_some(ms(PAUSE)),
    };
    world.apply(Command::SetWorkerMode(command)).1.unwrap();
}

fn mode_of(world: &World, worker: &str) -> WorkerMode {
    let group = world.state.group(world.group()).unwrap();
    let worker = group.workers.get(&WorkerName::new(worker).unwrap());
    worker.map_or(WorkerMode::Active, |worker| worker.mode)
}

fn is_end_of_pause(command: &Command) -> bool {
    matches!(command, Command::EndPause(_))
}

#[test]
fn the_shards_of_a_paused_worker_wait_for_it_through_a_restart() {
    let mut world = World::new(4, Policy::default());
    let (a, a_session) = world.serving("a", 1);
    world.obedient = true;
    world.serving("b", 2);
    let had = world.tenures(a_session);
    set_mode(&mut world, "a", WorkerMode::Paused);
    world.input(Input::Message(a, Up::Stopping));
    // Nobody takes them, so it goes at once.
    assert!(world.told(a).contains(&Down::Dismissed));
    world.give_back(a, a_session);
    world.input(Input::Message(a, Up::Leaving));
    for tenure in &had {
        assert_eq!(world.owner(tenure.shard.0), None);
    }
    let (_, back) = world.serving("a", 3);
    for tenure in &had {
        let shard = tenure.shard.0;
        assert_eq!(world.owner(shard), Some(back));
        assert_eq!(world.epoch(shard), tenure.epoch.get() + 1);
    }
}

#[test]
fn a_pause_ends_by_itself_and_what_waited_goes_elsewhere() {
    let mut world = World::new(4, Policy::default());
    let (a, a_session) = world.serving("a", 1);
    world.obedient = true;
    let (b, b_session) = world.serving("b", 2);
    let had = world.tenures(a_session);
    set_mode(&mut world, "a", WorkerMode::Paused);
    world.give_back(a, a_session);
    world.input(Input::Message(a, Up::Leaving));
    let mut sequence = 0;
    let mut live = |world: &mut World, by: u64| {
        for _ in 0..by / 250 {
            sequence += 1;
            world.heartbeat(b, sequence);
            world.advance(ms(250));
        }
    };
    live(&mut world, PAUSE - 500);
    assert_eq!(world.owner(had[0].shard.0), None);
    live(&mut world, 1_000);
    assert_eq!(mode_of(&world, "a"), WorkerMode::Active);
    for tenure in &had {
        assert_eq!(world.owner(tenure.shard.0), Some(b_session));
    }
}

#[test]
fn a_pause_that_begins_anew_lasts_its_whole_time_and_a_new_leader_counts_from_the_start() {
    let mut world = World::new(4, Policy::default());
    set_mode(&mut world, "a", WorkerMode::Paused);
    world.advance(ms(PAUSE / 2));
    set_mode(&mut world, "a", WorkerMode::Paused);
    world.advance(ms(PAUSE - 100));
    assert_eq!(mode_of(&world, "a"), WorkerMode::Paused);
    world.new_leader();
    world.advance(ms(PAUSE - 100));
    assert_eq!(mode_of(&world, "a"), WorkerMode::Paused);
    world.advance(ms(200));
    assert_eq!(mode_of(&world, "a"), WorkerMode::Active);
}

#[test]
fn the_end_of_a_pause_that_was_not_proposed_is_proposed_again() {
    let mut world = World::new(4, Policy::default());
    set_mode(&mut world, "a", WorkerMode::Paused);
    world.commits = false;
    world.advance(ms(PAUSE + 100));
    assert!(world.proposed(is_end_of_pause));
    world.turn_down();
    world.commits = true;
    world.advance(ms(1_000));
    assert_eq!(mode_of(&world, "a"), WorkerMode::Active);
}

#[test]
fn a_worker_that_stops_alone_or_under_a_freeze_is_told_that_it_waits_for_nothing() {
    let mut world = World::new(2, Policy::default());
    let (a, _) = world.serving("a", 1);
    world.input(Input::Message(a, Up::Stopping));
    assert!(world.told(a).contains(&Down::Dismissed));

    let mut world = World::new(2, Policy::default());
    let (a, _) = world.serving("a", 1);
    world.obedient = true;
    world.serving("b", 2);
    let freeze = SetFreeze {
        group: group_name(),
        reason: Some("release day".to_owned()),
    };
    world.apply(Command::SetFreeze(freeze)).1.unwrap();
    world.input(Input::Message(a, Up::Stopping));
    assert!(world.told(a).contains(&Down::Dismissed));
}

#[test]
fn a_home_is_noted_although_its_worker_is_gone_when_the_leader_looks_at_the_revoke() {
    let mut world = World::new(1, Policy::default());
    let (_, session) = world.serving("a", 1);
    let tenure = world.tenures(session)[0];
    let revoke = Revoke {
        shard: tenure.shard,
        seen: tenure.epoch,
        next: None,
        reason: RevokeReason::Stopping,
    };
    let assign = Assign {
        group: world.group(),
        grants: Vec::new(),
        revokes: vec![revoke],
    };
    let cause = ReleaseCause::Finished;
    let release = Release {
        session,
        releases: vec![Released { tenure, cause }],
    };
    let applied = [
        Command::Assign(assign),
        Command::Release(release),
        Command::Leave(session),
    ]
    .map(|command| world.apply_unseen(command));
    for (revision, outcome) in &applied {
        world.see(*revision, outcome);
    }
    world.serving("b", 2);
    let homes = &world.observed[&world.group()].homes;
    assert_eq!(
        homes.get(&tenure.shard),
        Some(&WorkerName::new("a").unwrap())
    );
}

#[test]
fn nobody_is_a_suspect_where_nothing_is_put_into_quarantine() {
    let mut world = World::new(2, Policy::default());
    for number in 1_u128..=3 {
        let (stream, _) = world.serving(&format!("w-{number}"), number);
        world.break_stream(stream);
        world.advance(ms(2_000));
    }
    world.serving("last", 9);
    assert!(world.observed[&world.group()].suspects.is_empty());
}
