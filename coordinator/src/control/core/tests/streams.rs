//! Streams that break, overlap and come back (scenarios 13, 19, 21, 28, 30, 36).

use std::time::Duration;

use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::StoreName;
use tenure_ownership::policy::Policy;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::shard::ShardState;

use super::super::Input;
use super::world::TTL;
use super::world::W;
use super::world::World;
use super::world::ms;
use crate::control::message::Close;
use crate::control::message::Down;
use crate::control::message::Duty;
use crate::control::message::StreamId;
use crate::control::message::Up;

fn set_revision(world: &World, stream: StreamId) -> Revision {
    let set = world.told(stream).iter().find_map(|down| match down {
        Down::Set { revision, .. } => Some(*revision),
        _ => None,
    });
    set.unwrap()
}

#[test]
fn a_broken_stream_shortens_the_deadline_to_its_grace() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.break_stream(stream);
    world.advance(W - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
    world.advance(ms(1));
    assert_eq!(world.session_of("a"), None);
}

#[test]
fn resuming_restores_the_full_deadline() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    world.break_stream(stream);
    world.advance(W - ms(1));
    world.resume(session, 1, 2);
    world.advance(TTL - ms(1));
    assert_eq!(world.session_of("a"), Some(session));
}

#[test]
fn the_late_break_of_an_old_stream_does_not_end_a_session_that_lives_on_a_new_one() {
    let mut world = World::new(1, Policy::default());
    let (old, session) = world.serving("a", 1);
    let new = world.resume(session, 1, 2);
    assert_eq!(world.closed.get(&old), Some(&Close::Superseded));
    world.break_stream(old);
    world.advance(W * 2);
    assert_eq!(world.session_of("a"), Some(session));
    world.heartbeat(old, 7);
    world.heartbeat(new, 1);
    world.advance(W);
    assert_eq!(world.acks(old), [0]);
    assert_eq!(world.acks(new), [0, 1]);
}

#[test]
fn resumes_in_the_wrong_order_leave_only_the_newest_stream_in_use() {
    let mut world = World::new(1, Policy::default());
    let (_, session) = world.serving("a", 1);
    let newest = world.resume(session, 1, 3);
    // The number of an attempt is used once.
    for attempt in [2, 3] {
        let outdated = world.resume(session, 1, attempt);
        assert_eq!(world.closed.get(&outdated), Some(&Close::Superseded));
    }
    assert!(!world.closed.contains_key(&newest));
}

#[test]
fn a_session_cannot_be_resumed_by_its_number_alone() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    let thief = world.resume(session, 99, 50);
    assert_eq!(world.closed.get(&thief), Some(&Close::WrongNonce));
    assert!(!world.closed.contains_key(&stream));
}

#[test]
fn workers_that_lose_their_streams_together_get_the_full_ttl_and_nothing_is_rebalanced() {
    let mut world = World::new(12, Policy::default());
    world.obedient = true;
    let streams: Vec<StreamId> = ["a", "b", "c", "d"]
        .into_iter()
        .zip(1..)
        .map(|(name, nonce)| world.serving(name, nonce).0)
        .collect();
    for stream in &streams {
        world.heartbeat(*stream, 1);
    }
    let heard_at = world.now;
    let owners: Vec<_> = (0..12).map(|shard| world.owner(shard)).collect();
    for (after, stream) in streams.iter().take(3).enumerate() {
        world.break_stream(*stream);
        world.advance(Duration::from_millis(20 * after as u64));
    }
    world.advance(TTL - ms(1) - world.now.since(heard_at));
    for name in ["a", "b", "c"] {
        assert!(
            world.session_of(name).is_some(),
            "{name} ended before its ttl"
        );
    }
    assert_eq!(
        (0..12).map(|shard| world.owner(shard)).collect::<Vec<_>>(),
        owners
    );
    let observed = world.observed.values().last().unwrap();
    assert!(observed.rebalance_paused.is_some());
    world.advance(ms(1));
    assert!(world.session_of("a").is_none(), "silence still counts");
}

#[test]
fn the_break_of_a_single_worker_is_not_a_mass_failure() {
    let mut world = World::new(12, Policy::default());
    let streams: Vec<StreamId> = ["a", "b", "c"]
        .into_iter()
        .zip(1..)
        .map(|(name, nonce)| world.serving(name, nonce).0)
        .collect();
    world.break_stream(streams[0]);
    world.advance(W);
    assert!(world.session_of("a").is_none());
    assert!(world.session_of("b").is_some());
}

#[test]
fn a_shard_that_a_worker_should_hold_and_does_not_is_granted_anew() {
    let mut world = World::new(2, Policy::default());
    let (old, session) = world.serving("a", 1);
    world.break_stream(old);
    let stream = world.resume(session, 1, 2);
    let set = set_revision(&world, stream);
    let held = world.tenures(session)[1..].to_vec();
    world.input(Input::Message(stream, Up::Holding { set, tenures: held }));
    world.advance(ms(300));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 2));
    assert_eq!((world.owner(1), world.epoch(1)), (Some(session), 1));
}

#[test]
fn a_late_answer_to_a_set_says_nothing_of_shards_granted_after_it() {
    let mut world = World::new(2, Policy::default());
    let stream = world.register("a", 1);
    let session = world.session_of("a").unwrap();
    let set = set_revision(&world, stream);
    world.advance(ms(300));
    assert_eq!(world.owner(0), Some(session));
    world.input(Input::Message(
        stream,
        Up::Holding {
            set,
            tenures: vec![],
        },
    ));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 1));
}

#[test]
fn an_answer_to_another_set_is_ignored() {
    let mut world = World::new(2, Policy::default());
    let (old, session) = world.serving("a", 1);
    world.break_stream(old);
    let stream = world.resume(session, 1, 2);
    let set = set_revision(&world, stream);
    let stale = Up::Holding {
        set: Revision(set.0 - 1),
        tenures: vec![],
    };
    world.input(Input::Message(stream, stale));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 1));
}

#[test]
fn a_grant_lost_with_its_stream_is_in_the_next_set() {
    let mut world = World::new(2, Policy::default());
    let old = world.register("a", 1);
    let session = world.session_of("a").unwrap();
    world.break_stream(old);
    world.advance(ms(300));
    let stream = world.resume(session, 1, 2);
    world.advance(ms(300));
    assert_eq!(world.owner(0), Some(session));
    world.break_stream(stream);
    let again = world.resume(session, 1, 3);
    let Some(Down::Set { shards, .. }) = world.told(again).get(1) else {
        panic!("no set")
    };
    assert_eq!(shards.len(), 2);
    assert!(shards.iter().all(|shard| shard.duty == Duty::Open));
}

#[test]
fn a_ready_lost_with_its_stream_is_reported_again_and_serves() {
    let mut world = World::new(1, Policy::default());
    let old = world.register("a", 1);
    let session = world.session_of("a").unwrap();
    world.advance(ms(300));
    world.break_stream(old);
    let stream = world.resume(session, 1, 2);
    world.all_ready(stream, session);
    assert_eq!(world.shard(0).state, ShardState::Serving(session));
}

#[test]
fn reports_of_an_earlier_epoch_change_nothing() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    let first = world.tenures(session);
    let released = |tenure| Released {
        tenure,
        cause: ReleaseCause::Finished,
    };
    world.input(Input::Message(
        stream,
        Up::Released(first.iter().copied().map(released).collect()),
    ));
    world.advance(ms(300));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 2));
    world.input(Input::Message(
        stream,
        Up::Released(first.iter().copied().map(released).collect()),
    ));
    let stores = vec![StoreName::new("s").unwrap()];
    world.input(Input::Message(
        stream,
        Up::Ready {
            tenures: first,
            stores,
        },
    ));
    world.advance(ms(300));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 2));
    assert_eq!(world.shard(0).state, ShardState::Opening(session));
    assert!(!world.closed.contains_key(&stream));
}

#[test]
fn a_worker_that_leaves_is_let_go_and_its_shards_move_at_once() {
    let mut world = World::new(2, Policy::default());
    let (a, _) = world.serving("a", 1);
    world.input(Input::Message(a, Up::Leaving));
    assert_eq!(world.closed.get(&a), Some(&Close::Left));
    let (_, b) = world.serving("b", 2);
    assert_eq!((world.owner(0), world.owner(1)), (Some(b), Some(b)));
}

#[test]
fn the_shards_of_a_worker_that_stops_are_asked_back_for_others_and_nothing_comes_to_it() {
    let mut world = World::new(6, Policy::default());
    let (a, a_session) = world.serving("a", 1);
    world.obedient = true;
    let (_, b_session) = world.serving("b", 2);
    assert_eq!(world.tenures(a_session).len(), 3);
    world.obedient = false;
    world.input(Input::Message(a, Up::Stopping));
    let asked_back = |down: &&Down| matches!(down, Down::Revoke { tenures, reason: RevokeReason::Stopping, .. } if tenures.len() == 3);
    assert_eq!(world.told(a).iter().filter(asked_back).count(), 1);
    assert!(!world.told(a).contains(&Down::Dismissed));
    // Its shards stay until it gives them back, one after the other.
    for given_back in (1..=3).rev() {
        let held = world.tenures(a_session);
        assert_eq!(held.len(), given_back);
        let releases = vec![Released {
            tenure: held[0],
            cause: ReleaseCause::Finished,
        }];
        let before = world.now;
        world.input(Input::Message(a, Up::Released(releases)));
        assert_eq!(world.owner(held[0].shard.0), Some(b_session));
        assert_eq!(world.now, before);
    }
    world.input(Input::Message(a, Up::Leaving));
    assert_eq!(world.closed.get(&a), Some(&Close::Left));
}

#[test]
fn a_new_leader_learns_from_the_worker_that_it_stops() {
    let mut world = World::new(4, Policy::default());
    let (_, a) = world.serving("a", 1);
    world.obedient = true;
    let (_, b) = world.serving("b", 2);
    world.obedient = false;
    world.new_leader();
    let stream = world.resume(a, 1, 2);
    world.resume(b, 2, 2);
    world.input(Input::Message(stream, Up::Stopping));
    let tenure = world.tenures(a)[0];
    let cause = ReleaseCause::Finished;
    let releases = vec![Released { tenure, cause }];
    world.input(Input::Message(stream, Up::Released(releases)));
    assert_eq!(world.owner(tenure.shard.0), Some(b));
}

#[test]
fn a_second_wave_of_a_mass_failure_gets_the_full_ttl_too() {
    let mut world = World::new(10, Policy::default());
    world.obedient = true;
    let streams: Vec<StreamId> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .zip(1..)
        .map(|(name, nonce)| world.serving(name, nonce).0)
        .collect();
    for stream in &streams {
        world.heartbeat(*stream, 1);
    }
    for stream in &streams[..3] {
        world.break_stream(*stream);
    }
    world.advance(ms(2_000));
    for stream in &streams[3..] {
        world.break_stream(*stream);
    }
    world.advance(W * 2);
    assert!(
        ["a", "d", "e"]
            .iter()
            .all(|name| world.session_of(name).is_some())
    );
}
