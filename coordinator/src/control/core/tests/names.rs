//! Processes that share a name (scenarios 16, 17, 18, 26, 32, 39).

use tenure_ownership::policy::Policy;

use super::world::TTL;
use super::world::W;
use super::world::World;
use super::world::is_register;
use super::world::ms;
use crate::control::message::Close;

#[test]
fn a_worker_restarted_within_its_grace_keeps_its_shards_at_the_next_epoch() {
    let mut world = World::new(4, Policy::default());
    world.obedient = true;
    let (old, _) = world.serving("a", 1);
    let (_, other) = world.serving("b", 2);
    assert_eq!(world.tenures(other).len(), 2);
    let before: Vec<_> = (0..4)
        .map(|shard| (world.owner(shard), world.epoch(shard)))
        .collect();
    let session = world.session_of("a").unwrap();
    world.break_stream(old);
    world.advance(ms(100));
    let new = world.register("a", 3);
    world.advance(W);
    let restarted = world.session_of("a").unwrap();
    assert!(!world.closed.contains_key(&new));
    for (shard, (owner, epoch)) in (0..).zip(before) {
        if owner == Some(session) {
            assert_eq!(
                (world.owner(shard), world.epoch(shard)),
                (Some(restarted), epoch + 1)
            );
        } else {
            assert_eq!(
                (world.owner(shard), world.epoch(shard)),
                (Some(other), epoch)
            );
        }
    }
}

#[test]
fn a_replacement_waits_until_the_replaced_process_cannot_believe_any_more() {
    let mut world = World::new(2, Policy::default());
    let (old, session) = world.serving("a", 1);
    world.heartbeat(old, 1);
    let heard_at = world.now;
    world.commits = false;
    world.register("a", 2);
    // The old process is alive and goes on; from the decision on it is not acknowledged.
    world.heartbeat(old, 2);
    while world.now < heard_at + (W - ms(10)) {
        world.advance(ms(10));
        assert!(!world.proposed(is_register));
    }
    world.advance(ms(10));
    assert!(world.proposed(is_register));
    assert_eq!(world.acks(old), [0, 1]);
    assert_eq!(world.session_of("a"), Some(session));
    world.commits = true;
    world.commit();
    assert_eq!(world.closed.get(&old), Some(&Close::Replaced));
}

#[test]
fn of_two_live_processes_the_later_wins_once_and_the_earlier_stops() {
    let mut world = World::new(2, Policy::default());
    let (first, session) = world.serving("a", 1);
    let second = world.register("a", 2);
    world.advance(W);
    let holder = world.session_of("a").unwrap();
    assert_eq!(world.closed.get(&first), Some(&Close::Replaced));
    let back = world.register_again("a", 1, Some(session), 2);
    assert_eq!(world.closed.get(&back), Some(&Close::Replaced));
    let resumed = world.resume(session, 1, 3);
    assert_eq!(world.closed.get(&resumed), Some(&Close::SessionEnded));
    world.advance(W * 4);
    assert_eq!(world.session_of("a"), Some(holder));
    assert!(!world.closed.contains_key(&second));
}

#[test]
fn a_zombie_that_wakes_after_its_name_was_taken_is_answered_replaced() {
    let mut world = World::new(2, Policy::default());
    let (zombie, session) = world.serving("a", 1);
    world.break_stream(zombie);
    world.advance(W);
    assert_eq!(world.session_of("a"), None);
    let healthy = world.register("a", 2);
    let holder = world.session_of("a").unwrap();
    world.advance(ms(300));
    let owned = world.tenures(holder);
    assert_eq!(owned.len(), 2);
    let woken = world.register_again("a", 1, Some(session), 2);
    assert_eq!(world.closed.get(&woken), Some(&Close::Replaced));
    assert_eq!(world.tenures(holder), owned);
    assert!(!world.closed.contains_key(&healthy));
}

#[test]
fn a_repeated_registration_gets_the_same_session() {
    let mut world = World::new(2, Policy::default());
    let lost = world.register("a", 1);
    let session = world.session_of("a").unwrap();
    world.break_stream(lost);
    let again = world.register_again("a", 1, None, 2);
    assert_eq!(world.session_of("a"), Some(session));
    assert!(!world.closed.contains_key(&again));
    assert_eq!(world.acks(again), [0]);
}

#[test]
fn a_registration_that_is_given_up_lets_the_old_process_go_on() {
    let mut world = World::new(2, Policy::default());
    let (old, session) = world.serving("a", 1);
    let new = world.register("a", 2);
    world.advance(ms(100));
    world.break_stream(new);
    world.heartbeat(old, 1);
    world.advance(W);
    assert_eq!(world.session_of("a"), Some(session));
    assert_eq!(world.acks(old), [0, 1]);
}

#[test]
fn a_replacement_begun_under_an_earlier_leader_waits_again_under_the_next() {
    let mut world = World::new(2, Policy::default());
    let (old, session) = world.serving("a", 1);
    world.heartbeat(old, 1);
    world.register("a", 2);
    world.advance(W - ms(10));
    world.new_leader();
    world.register_again("a", 2, None, 2);
    world.advance(W - ms(10));
    assert_eq!(
        world.session_of("a"),
        Some(session),
        "the new leader does not know when it was heard"
    );
    world.advance(ms(10));
    assert_ne!(world.session_of("a"), Some(session));
}

#[test]
fn processes_that_fight_over_a_name_are_slowed_down() {
    let mut world = World::new(2, Policy::default());
    world.register("a", 1);
    let mut replaced_at = Vec::new();
    for nonce in 2..8 {
        let begun = world.now;
        let holder = world.session_of("a");
        world.register("a", nonce);
        while world.session_of("a") == holder {
            world.advance(ms(10));
        }
        replaced_at.push(world.now.since(begun));
    }
    assert!(
        replaced_at[..3].iter().all(|delay| *delay <= W),
        "{replaced_at:?}"
    );
    assert!(
        replaced_at.windows(2).skip(3).all(|pair| pair[0] < pair[1]),
        "{replaced_at:?}"
    );
}

#[test]
fn a_zombies_heartbeat_does_not_touch_the_new_owners_session() {
    let mut world = World::new(1, Policy::default());
    let (zombie, _) = world.serving("a", 1);
    world.break_stream(zombie);
    let (b, session) = world.serving("b", 2);
    world.advance(W);
    assert_eq!(world.owner(0), Some(session));
    world.heartbeat(zombie, 1);
    world.advance(W / 6);
    assert_eq!(world.acks(zombie), [0]);
    for sequence in 1..20 {
        world.heartbeat(b, sequence);
        world.advance(W / 3);
    }
    assert_eq!(world.owner(0), Some(session));
    world.advance(TTL);
}

#[test]
fn registrations_that_come_to_nothing_do_not_slow_a_name_down() {
    let mut world = World::new(2, Policy::default());
    let (_, session) = world.serving("a", 1);
    for nonce in 2..10 {
        let stream = world.register("a", nonce);
        world.advance(ms(10));
        world.break_stream(stream);
    }
    world.register("a", 10);
    world.advance(W);
    assert_ne!(world.session_of("a"), Some(session));
    assert!(world.session_of("a").is_some());
}

#[test]
fn two_newcomers_do_not_keep_each_other_waiting() {
    let mut world = World::new(2, Policy::default());
    world.register("a", 1);
    // Fought over before, so that the next replacement is damped.
    for nonce in 2..6 {
        world.register("a", nonce);
        world.advance(W * 4);
    }
    let holder = world.session_of("a");
    let begun = world.now;
    let mut nonce = 6;
    while world.session_of("a") == holder {
        world.register("a", nonce);
        world.advance(ms(300));
        nonce = 13 - nonce;
        assert!(world.now.since(begun) < ms(10_000), "nobody gets the name");
    }
}
