//! Leaders that come and go (scenarios 14, 22).

use tenure_ownership::Command;
use tenure_ownership::State;
use tenure_ownership::ids::SessionId;
use tenure_ownership::policy::Policy;

use super::world::TTL;
use super::world::World;
use super::world::ms;

#[test]
fn a_new_leader_gives_every_session_one_full_fresh_ttl() {
    let mut world = World::new(4, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.heartbeat(stream, 1);
    world.advance(ms(8_000));
    world.stop_process(ms(3_000));
    let owned = world.tenures(session);
    world.new_leader();
    world.advance(TTL - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
    assert_eq!(
        world.tenures(session),
        owned,
        "a leader change itself changes no owner and no epoch"
    );
    world.advance(ms(1));
    assert_eq!(world.session_of("a"), None);
}

#[test]
fn a_fresh_leader_does_not_rebalance_before_it_has_heard_from_all_workers() {
    let (mut world, a, b) = uneven();
    let asked_back = |command: &Command| matches!(command, Command::Assign(_));
    world.resume(b, 2, 2);
    world.advance(TTL / 2);
    assert!(
        !world.proposed(asked_back),
        "{:?} while a was not heard",
        world.proposals
    );
    world.resume(a, 1, 2);
    assert!(
        world.proposed(asked_back),
        "b has nothing, and both are there"
    );
}

#[test]
fn a_fresh_leader_moves_nothing_of_a_worker_it_has_not_heard_before_a_full_ttl() {
    let (mut world, _, b) = uneven();
    world.commits = true;
    let stream = world.resume(b, 2, 2);
    for sequence in 1..=40 {
        assert!(world.owner(0) != Some(b), "before the ttl is over");
        world.advance(TTL / 40);
        world.heartbeat(stream, sequence);
    }
    world.advance(ms(300));
    assert!((0..8).all(|shard| world.owner(shard) == Some(b)));
}

/// A leader that begins when one of two workers has everything and the other has just come: the sessions of both.
fn uneven() -> (World, SessionId, SessionId) {
    let mut world = World::new(8, Policy::default());
    let (_, a) = world.serving("a", 1);
    world.planned_from = Some(State::new());
    let (_, b) = world.serving("b", 2);
    assert!((0..8).all(|shard| world.owner(shard) == Some(a)));
    world.planned_from = None;
    world.commits = false;
    world.new_leader();
    (world, a, b)
}

#[test]
fn a_fresh_leader_that_has_heard_from_all_workers_rebalances() {
    let mut world = World::new(8, Policy::default());
    let (_, a) = world.serving("a", 1);
    world.new_leader();
    world.resume(a, 1, 2);
    let group = world.group();
    world.register("b", 2);
    assert_eq!(world.observed.get(&group).unwrap().rebalance_paused, None);
}

#[test]
fn a_grant_goes_to_nobody_without_a_stream() {
    let mut world = World::new(2, Policy::default());
    world.serving("a", 1);
    let (b, session) = world.serving("b", 2);
    world.break_stream(b);
    let group = world.group();
    assert!(
        world
            .observed
            .get(&group)
            .unwrap()
            .disconnected
            .contains(&session)
    );
}
