//! The leader of a cluster that was restored from a backup.

use std::time::Duration;

use tenure_ownership::Command;
use tenure_ownership::command::Restore;
use tenure_ownership::ids::ClusterId;
use tenure_ownership::ids::SessionId;
use tenure_ownership::policy::Policy;

use super::world::CLUSTER;
use super::world::TTL;
use super::world::World;
use super::world::ms;
use crate::control::message::Close;
use crate::control::message::StreamId;

fn is_settle(command: &Command) -> bool {
    matches!(command, Command::Settle(_))
}

/// A cluster that was restored when worker a served its only shard, and the session that a had.
fn restored() -> (World, SessionId) {
    let mut world = World::new(1, Policy::default());
    let (_, session) = world.serving("a", 1);
    assert_eq!(world.epoch(0), 1);
    let restore = Restore {
        from: ClusterId(CLUSTER),
        to: ClusterId(CLUSTER + 1),
        floor_min: 0,
        quiet_min: Duration::ZERO,
    };
    world.apply_unseen(Command::Restore(restore)).1.unwrap();
    world.new_leader();
    (world, session)
}

/// Lets time go on while a worker keeps its session alive.
fn alive(world: &mut World, stream: StreamId, for_so_long: Duration) {
    const STEPS: u32 = 20;
    for sequence in 1..=STEPS {
        world.heartbeat(stream, u64::from(sequence));
        world.advance(for_so_long / STEPS);
    }
}

#[test]
fn a_worker_of_before_is_told_that_its_session_has_ended_and_is_granted_shards_a_ttl_later() {
    let (mut world, old) = restored();
    let stream = world.resume(old, 1, 2);
    assert!(matches!(world.closed[&stream], Close::SessionEnded));
    let stream = world.register_again("a", 1, Some(old), 3);
    let session = world.session_of("a");
    assert!(session.is_some() && session != Some(old));
    alive(&mut world, stream, TTL - ms(20));
    assert_eq!(
        world.owner(0),
        None,
        "its owner of before may still believe"
    );
    world.advance(ms(20));
    assert_eq!(world.owner(0), session);
    assert!(world.epoch(0) > 1 << 32, "{}", world.epoch(0));
}

#[test]
fn a_new_leader_waits_in_full() {
    let (mut world, _) = restored();
    world.commits = false;
    world.advance(TTL / 2);
    world.new_leader();
    world.advance(TTL - ms(1));
    assert!(!world.proposed(is_settle));
    world.advance(ms(1));
    assert!(world.proposed(is_settle));
}

#[test]
fn the_end_of_the_wait_is_proposed_until_it_is_decided() {
    let (mut world, _) = restored();
    world.commits = false;
    world.advance(TTL);
    assert!(world.proposed(is_settle));
    while world.proposed(is_settle) {
        world.turn_down();
    }
    world.advance(ms(200));
    assert!(world.proposed(is_settle), "again");
    world.commits = true;
    world.commit();
    assert_eq!(world.state.restored(), None);
    world.advance(TTL);
    assert!(!world.proposed(is_settle));
}

#[test]
fn a_leader_that_was_stopped_waits_longer() {
    let (mut world, _) = restored();
    world.commits = false;
    world.advance(TTL / 2);
    world.stop_process(TTL);
    world.advance(TTL / 4);
    assert!(!world.proposed(is_settle));
    world.advance(TTL / 4);
    assert!(world.proposed(is_settle));
}
