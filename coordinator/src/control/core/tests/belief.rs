//! Acknowledgements, expiry and the moments between (scenarios 12, 15, 31, 34, 36).

use tenure_ownership::Command;
use tenure_ownership::command::SetWorkerMode;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;

use super::super::Input;
use super::world::TTL;
use super::world::W;
use super::world::World;
use super::world::group_name;
use super::world::is_expire;
use super::world::is_force;
use super::world::ms;
use crate::control::message::Close;
use crate::control::message::Down;

#[test]
fn a_stream_begins_with_its_session_and_the_set_before_any_acknowledgement() {
    let mut world = World::new(1, Policy::default());
    let stream = world.register("a", 1);
    assert!(matches!(
        world.told(stream),
        [
            Down::Registered { .. },
            Down::Set { .. },
            Down::Ack { sequence: 0 },
            ..
        ]
    ));
}

#[test]
fn a_heartbeat_is_acknowledged_only_after_a_round_begun_after_it_arrived() {
    let mut world = World::new(1, Policy::default());
    let (stream, _) = world.serving("a", 1);
    world.quorum = false;
    world.heartbeat(stream, 1);
    world.advance(W / 6);
    assert_eq!(world.rounds.len(), 1);
    // Arrives while the first round is under way, so that round proves nothing for it.
    world.heartbeat(stream, 2);
    world.end_round(true);
    assert_eq!(world.acks(stream), [0, 1]);
    world.advance(W / 6);
    world.end_round(true);
    assert_eq!(world.acks(stream), [0, 1, 2]);
}

#[test]
fn without_a_quorum_nothing_is_acknowledged() {
    let mut world = World::new(1, Policy::default());
    let (stream, _) = world.serving("a", 1);
    world.quorum = false;
    world.heartbeat(stream, 1);
    for _ in 0..5 {
        world.advance(W / 6);
        world.end_round(false);
    }
    assert_eq!(world.acks(stream), [0]);
    world.advance(W / 6);
    world.end_round(true);
    assert_eq!(world.acks(stream), [0, 1]);
}

#[test]
fn a_heartbeat_waits_at_most_a_sixth_of_the_window_for_its_round() {
    let mut world = World::new(1, Policy::default());
    let (stream, _) = world.serving("a", 1);
    world.heartbeat(stream, 1);
    world.advance(W / 6);
    world.heartbeat(stream, 2);
    world.advance(W / 6);
    assert_eq!(world.acks(stream), [0, 1, 2]);
}

#[test]
fn a_session_lives_as_long_as_it_is_heard_and_expires_a_ttl_later() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    for sequence in 1..100 {
        world.advance(W / 3);
        world.heartbeat(stream, sequence);
    }
    world.advance(TTL - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
    world.advance(ms(1));
    assert_eq!(world.session_of("a"), None);
    assert_eq!(world.closed.get(&stream), Some(&Close::SessionEnded));
}

#[test]
fn between_the_decision_to_expire_and_its_commit_a_late_heartbeat_is_not_acknowledged() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.commits = false;
    world.advance(TTL);
    assert!(world.proposed(is_expire));
    world.heartbeat(stream, 1);
    world.advance(W);
    assert_eq!(world.acks(stream), [0]);
    let late = world.resume(session, 1, 2);
    assert_eq!(world.closed.get(&late), Some(&Close::Retry));
    while !world.proposals.is_empty() {
        world.commit();
    }
    assert_eq!(world.acks(stream), [0]);
    assert_eq!(world.session_of("a"), None);
}

#[test]
fn a_heartbeat_that_waited_for_its_round_when_the_end_was_decided_is_not_acknowledged() {
    let mut world = World::new(1, Policy::default());
    let (stream, _) = world.serving("a", 1);
    world.quorum = false;
    world.commits = false;
    world.heartbeat(stream, 1);
    world.advance(TTL);
    assert!(world.proposed(is_expire));
    world.end_round(true);
    assert_eq!(world.acks(stream), [0]);
}

#[test]
fn an_end_left_behind_by_an_earlier_leader_is_never_followed_by_an_acknowledgement() {
    let mut world = World::new(1, Policy::default());
    let (_, session) = world.serving("a", 1);
    world.new_leader();
    world.quorum = false;
    let stream = world.resume(session, 1, 2);
    world.heartbeat(stream, 1);
    // The old leader's entry is applied when the new leader's round ends.
    let (_, outcome) = world.apply(Command::Expire(vec![session]));
    outcome.unwrap();
    world.end_round(true);
    assert!(world.acks(stream).is_empty());
    assert_eq!(world.closed.get(&stream), Some(&Close::SessionEnded));
}

#[test]
fn an_end_that_is_committed_and_not_seen_by_the_leader_yet_is_not_followed_by_an_acknowledgement() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.quorum = false;
    world.heartbeat(stream, 1);
    world.advance(W / 6);
    // The state is a moment ahead of the events.
    let (revision, outcome) = world.apply_unseen(Command::Expire(vec![session]));
    world.end_round(true);
    world.heartbeat(stream, 2);
    world.advance(W / 6);
    world.end_round(true);
    assert_eq!(world.acks(stream), [0]);
    let late = world.resume(session, 1, 2);
    assert_eq!(world.closed.get(&late), Some(&Close::SessionEnded));
    world.see(revision, &outcome);
    world.heartbeat(stream, 3);
    world.advance(W);
    assert_eq!(world.acks(stream), [0]);
    assert_eq!(world.closed.get(&stream), Some(&Close::SessionEnded));
}

#[test]
fn a_leader_that_was_stopped_expires_nobody_on_waking() {
    let mut world = World::new(4, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.stop_process(TTL * 3);
    world.input(Input::Tick);
    assert_eq!(world.session_of("a"), Some(session));
    world.advance(TTL - ms(400));
    assert_eq!(
        world.session_of("a"),
        Some(session),
        "the time of the stop does not count"
    );
    world.heartbeat(stream, 1);
    world.advance(TTL - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
}

#[test]
fn a_stop_is_noticed_by_whatever_is_handled_first() {
    let mut world = World::new(4, Policy::default());
    let (stream, session) = world.serving("a", 1);
    let (other, _) = world.serving("b", 2);
    world.stop_process(TTL * 3);
    world.heartbeat(other, 1);
    world.input(Input::Tick);
    assert_eq!(world.session_of("a"), Some(session));
    assert!(!world.closed.contains_key(&stream));
}

#[test]
fn after_an_unknown_outcome_the_session_stays_unacknowledged() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.commits = false;
    world.advance(TTL);
    let (ticket, command) = world.proposals.pop_front().unwrap();
    assert!(is_expire(&command));
    world.input(Input::Decided(ticket, super::super::Decision::Unknown));
    world.heartbeat(stream, 1);
    world.advance(W);
    assert_eq!(world.acks(stream), [0]);
    let late = world.resume(session, 1, 2);
    assert_eq!(world.closed.get(&late), Some(&Close::Retry));
}

#[test]
fn after_an_end_that_was_never_proposed_the_session_is_acknowledged_again() {
    let mut world = World::new(1, Policy::default());
    let (stream, _) = world.serving("a", 1);
    world.commits = false;
    world.advance(TTL);
    let (ticket, _) = world.proposals.pop_front().unwrap();
    world.commits = true;
    // Heard in the same instant as the outcome, before the next tick decides again.
    let outputs = world.core.handle(
        world.now,
        Input::Decided(ticket, super::super::Decision::NotProposed),
        &world.state,
    );
    assert!(outputs.is_empty());
    world.heartbeat(stream, 1);
    world.advance(W / 3);
    assert_eq!(world.acks(stream), [0, 1]);
}

#[test]
fn an_end_that_cannot_be_proposed_is_not_tried_in_a_tight_loop() {
    let mut world = World::new(1, Policy::default());
    world.serving("a", 1);
    world.commits = false;
    world.advance(TTL);
    let mut tries = 0;
    let begun = world.now;
    while world.now < begun + ms(1_000) {
        while world.proposed(is_expire) {
            tries += 1;
            world.turn_down();
        }
        world.advance(ms(1));
    }
    assert!((2..=11).contains(&tries), "{tries}");
}

#[test]
fn a_worker_turned_away_while_an_end_was_undecided_gets_its_grace_anew() {
    let policy = Policy {
        drain_timeout: ms(1_000),
        ..Policy::default()
    };
    let mut world = World::new(2, policy);
    world.obedient = true;
    let (a, session) = world.serving("a", 1);
    world.serving("b", 2);
    world.obedient = false;
    let worker = WorkerName::new("a").unwrap();
    let drain = SetWorkerMode {
        group: group_name(),
        worker,
        mode: WorkerMode::Draining,
        pause_timeout: None,
    };
    world.apply(Command::SetWorkerMode(drain)).1.unwrap();
    world.commits = false;
    world.advance(ms(1_000));
    assert!(world.proposed(is_force));
    // Without acknowledgements the worker gives its stream up and tries to resume.
    world.break_stream(a);
    world.advance(W * 2);
    let refused = world.resume(session, 1, 2);
    assert_eq!(world.closed.get(&refused), Some(&Close::Retry));
    world.commits = true;
    world.commit();
    world.advance(W - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
    let back = world.resume(session, 1, 3);
    world.advance(W);
    assert!(!world.closed.contains_key(&back));
    assert_eq!(world.session_of("a"), Some(session));
}
