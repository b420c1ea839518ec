//! Drains, openings, delays and deletion (scenarios 11, 20, 35, 37, 41).

use tenure_ownership::Command;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::command::SetPolicy;
use tenure_ownership::command::SetWorkerMode;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::shard::ShardState;

use super::super::Input;
use super::world::TTL;
use super::world::W;
use super::world::World;
use super::world::group_name;
use super::world::is_force;
use super::world::ms;
use crate::control::message::Close;
use crate::control::message::Down;
use crate::control::message::Duty;
use crate::control::message::StreamId;
use crate::control::message::Up;

fn drain(world: &mut World, worker: &str) {
    let worker = WorkerName::new(worker).unwrap();
    let command = SetWorkerMode {
        group: group_name(),
        worker,
        mode: WorkerMode::Draining,
        pause_timeout: None,
    };
    world.apply(Command::SetWorkerMode(command)).1.unwrap();
}

/// Lets time go on while workers heartbeat.
fn live(world: &mut World, streams: &[StreamId], by: std::time::Duration) {
    let until = world.now + by;
    let mut sequence = 1_000_000;
    while world.now < until {
        sequence += 1;
        for stream in streams {
            world.heartbeat(*stream, sequence);
        }
        world.advance((W / 3).min(until.since(world.now)));
    }
}

#[test]
fn a_drained_workers_shards_go_to_the_next_owner_in_the_entry_that_releases_them() {
    let mut world = World::new(2, Policy::default());
    let (a, session) = world.serving("a", 1);
    let (_, b) = world.serving("b", 2);
    drain(&mut world, "a");
    assert!(
        world
            .told(a)
            .iter()
            .any(|down| matches!(down, Down::Revoke { .. }))
    );
    world.give_back(a, session);
    for shard in 0..2 {
        assert_eq!(world.owner(shard), Some(b));
        assert_eq!(world.epoch(shard), 2);
    }
}

#[test]
fn a_worker_that_never_releases_is_forced_off_at_its_deadline_and_told_so() {
    let policy = Policy {
        drain_timeout: ms(2_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, session) = world.serving("a", 1);
    let (stream_b, b) = world.serving("b", 2);
    for round in 1..3 {
        let (from, to, stream) = if round == 1 {
            ("a", b, a)
        } else {
            ("b", session, stream_b)
        };
        drain(&mut world, from);
        live(&mut world, &[a, stream_b], ms(1_990));
        assert_eq!(world.epoch(0), round);
        live(&mut world, &[a, stream_b], ms(10));
        assert_eq!((world.owner(0), world.epoch(0)), (Some(to), round + 1));
        assert!(
            world
                .told(stream)
                .iter()
                .any(|down| matches!(down, Down::Lost { .. }))
        );
        let active = SetWorkerMode {
            group: group_name(),
            worker: WorkerName::new(from).unwrap(),
            mode: WorkerMode::Active,
            pause_timeout: None,
        };
        world.apply(Command::SetWorkerMode(active)).1.unwrap();
    }
}

#[test]
fn a_drain_shorter_than_the_belief_window_still_waits_for_belief_to_end() {
    let policy = Policy {
        drain_timeout: ms(0),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, _) = world.serving("a", 1);
    let (b_stream, b) = world.serving("b", 2);
    world.heartbeat(a, 1);
    drain(&mut world, "a");
    world.break_stream(a);
    live(&mut world, &[b_stream], W - ms(1));
    assert_ne!(world.owner(0), Some(b));
    live(&mut world, &[b_stream], ms(1));
    assert_eq!(world.owner(0), Some(b));
}

#[test]
fn while_a_forced_end_is_undecided_its_owner_is_not_acknowledged() {
    let policy = Policy {
        drain_timeout: ms(1_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, _) = world.serving("a", 1);
    world.serving("b", 2);
    drain(&mut world, "a");
    world.commits = false;
    world.advance(ms(1_000));
    assert!(world.proposed(is_force));
    let acks = world.acks(a);
    world.heartbeat(a, 50);
    world.advance(W / 3);
    assert_eq!(world.acks(a), acks);
}

#[test]
fn a_resumed_stream_is_told_what_remains_of_its_drain() {
    let policy = Policy {
        drain_timeout: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, session) = world.serving("a", 1);
    world.serving("b", 2);
    drain(&mut world, "a");
    world.advance(ms(2_000));
    world.break_stream(a);
    let again = world.resume(session, 1, 2);
    let Some(Down::Set { shards, .. }) = world.told(again).get(1) else {
        panic!("no set")
    };
    assert_eq!(shards[0].duty, Duty::Drain(ms(3_000)));
}

#[test]
fn a_new_leader_restarts_a_drain_in_full() {
    let policy = Policy {
        drain_timeout: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (_, session) = world.serving("a", 1);
    let (_, b) = world.serving("b", 2);
    drain(&mut world, "a");
    world.advance(ms(4_000));
    world.new_leader();
    let a = world.resume(session, 1, 2);
    let stream_b = world.resume(b, 2, 2);
    live(&mut world, &[a, stream_b], ms(4_990));
    assert_eq!(world.owner(0), Some(session));
    live(&mut world, &[a, stream_b], ms(10));
    assert_eq!(world.owner(0), Some(b));
}

#[test]
fn an_opening_past_its_deadline_is_revoked_and_forced_like_any_other() {
    let policy = Policy {
        opening_deadline: ms(1_000),
        drain_timeout: ms(1_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let a = world.register("a", 1);
    live(&mut world, &[a], ms(250));
    let session = world.session_of("a").unwrap();
    assert_eq!(world.shard(0).state, ShardState::Opening(session));
    live(&mut world, &[a], ms(1_000));
    let ShardState::Revoking(revocation) = &world.shard(0).state else {
        panic!("not revoked")
    };
    assert_eq!(revocation.reason, RevokeReason::OpeningDeadline);
    live(&mut world, &[a], ms(1_000));
    assert!(world.epoch(0) > 1 || world.owner(0).is_none());
}

#[test]
fn a_shard_that_cannot_be_opened_is_tried_elsewhere_with_a_growing_delay() {
    let mut world = World::new(1, Policy::default());
    let streams = [world.register("a", 1), world.register("b", 2)];
    let mut tried = Vec::new();
    let mut delays = Vec::new();
    live(&mut world, &streams, ms(250));
    for _ in 0..6 {
        let owner = world.owner(0).unwrap();
        tried.push(owner);
        let stream = if world.session_of("a") == Some(owner) {
            streams[0]
        } else {
            streams[1]
        };
        let failed = |tenure| Released {
            tenure,
            cause: ReleaseCause::OpenFailed("disk".to_owned()),
        };
        let releases = world.tenures(owner).into_iter().map(failed).collect();
        world.input(Input::Message(stream, Up::Released(releases)));
        let failed_at = world.now;
        assert_eq!(world.owner(0), None);
        while world.owner(0).is_none() {
            live(&mut world, &streams, ms(10));
        }
        delays.push(world.now.since(failed_at));
    }
    assert!(tried.windows(2).all(|pair| pair[0] != pair[1]), "{tried:?}");
    assert!(
        delays.windows(2).all(|pair| pair[0] < pair[1]),
        "{delays:?}"
    );
    assert_eq!(world.shard(0).open_failure.as_ref().unwrap().reason, "disk");
}

#[test]
fn a_store_that_is_ahead_raises_the_floor_and_the_shard_is_granted_above_it() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    let tenure = world.tenures(session)[0];
    let cause = ReleaseCause::StoreAhead(41_u64.try_into().unwrap());
    world.input(Input::Message(
        stream,
        Up::Released(vec![Released { tenure, cause }]),
    ));
    live(&mut world, &[stream], ms(1_000));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(session), 42));
}

#[test]
fn after_an_unclean_end_a_lock_delay_passes_before_anyone_is_granted() {
    let policy = Policy {
        lock_delay: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, _) = world.serving("a", 1);
    let (b, session) = world.serving("b", 2);
    world.break_stream(a);
    live(&mut world, &[b], W + ms(4_990));
    assert_eq!(world.owner(0), None);
    live(&mut world, &[b], ms(20));
    assert_eq!(world.owner(0), Some(session));
}

#[test]
fn a_new_leader_restarts_a_lock_delay_in_full() {
    let policy = Policy {
        lock_delay: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, _) = world.serving("a", 1);
    let (b, session) = world.serving("b", 2);
    world.break_stream(a);
    live(&mut world, &[b], W + ms(4_000));
    world.new_leader();
    let b = world.resume(session, 2, 2);
    live(&mut world, &[b], ms(4_990));
    assert_eq!(world.owner(0), None);
    live(&mut world, &[b], ms(20));
    assert_eq!(world.owner(0), Some(session));
}

#[test]
fn shards_of_an_ended_worker_wait_for_it_during_the_restart_grace() {
    let policy = Policy {
        restart_grace: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(1, policy);
    let (a, _) = world.serving("a", 1);
    let (b, other) = world.serving("b", 2);
    let first = world.owner(0).unwrap();
    assert_ne!(first, other);
    world.break_stream(a);
    live(&mut world, &[b], W + ms(3_000));
    assert_eq!(world.owner(0), None);
    let back = world.register("a", 3);
    live(&mut world, &[b, back], ms(100));
    assert_eq!(world.owner(0), world.session_of("a"));
    world.break_stream(back);
    live(&mut world, &[b], W + ms(5_100));
    assert_eq!(world.owner(0), Some(other));
}

#[test]
fn a_grace_lowered_while_sessions_live_does_not_shorten_their_belief() {
    let mut world = World::new(1, Policy::default());
    let (a, session) = world.serving("a", 1);
    let (b, _) = world.serving("b", 2);
    let policy = Policy {
        disconnect_grace: ms(100),
        ..Policy::default()
    };
    let command = SetPolicy {
        group: group_name(),
        seen: None,
        policy,
    };
    world.apply(Command::SetPolicy(command)).1.unwrap();
    world.break_stream(a);
    live(&mut world, &[b], W - ms(1));
    assert_eq!(world.owner(0), Some(session));
    live(&mut world, &[b], ms(1));
    assert_ne!(world.owner(0), Some(session));
}

#[test]
fn a_group_deleted_and_created_again_grants_nothing_inside_an_old_owners_belief() {
    let policy = Policy {
        drain_timeout: ms(0),
        ..Policy::default()
    };
    let mut world = World::new(1, policy.clone());
    let (a, _) = world.serving("a", 1);
    world.heartbeat(a, 1);
    let heard_at = world.now;
    world.apply(Command::DeleteGroup(group_name())).1.unwrap();
    while world.state.group_named(&group_name()).is_some() {
        world.advance(ms(1));
    }
    assert!(world.now.since(heard_at) >= W);
    let create = tenure_ownership::command::CreateGroup {
        name: group_name(),
        shard_count: 1,
        policy,
    };
    world.apply(Command::CreateGroup(create)).1.unwrap();
    let b = world.register("b", 2);
    live(&mut world, &[b], ms(300));
    assert_eq!(
        world.epoch(0),
        2,
        "the new life goes on above the old epochs"
    );
    assert_eq!(world.closed.get(&a), Some(&Close::SessionEnded));
}

#[test]
fn a_grant_planned_for_a_session_that_ended_goes_to_a_live_one() {
    let mut world = World::new(1, Policy::default());
    let (a, _) = world.serving("a", 1);
    world.break_stream(a);
    world.commits = false;
    let c = world.register("c", 3);
    while !world.proposals.is_empty() {
        world.commit();
    }
    world.advance(W);
    // The end of a is proposed; c gets the shard by a plan that is not committed before c ends.
    world.commit();
    let planned = world
        .proposals
        .iter()
        .any(|(_, command)| matches!(command, Command::Assign(_)));
    assert!(planned);
    let session = world.session_of("c").unwrap();
    world.apply(Command::Leave(session)).1.unwrap();
    world.commits = true;
    world.break_stream(c);
    let (_, d) = world.serving("d", 4);
    assert_eq!(world.owner(0), Some(d));
}

#[test]
fn the_expiry_of_many_sessions_is_one_entry() {
    let mut world = World::new(16, Policy::default());
    for (worker, nonce) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        world.serving(worker, nonce);
    }
    world.new_leader();
    world.commits = false;
    world.advance(TTL);
    let expired: Vec<usize> = world
        .proposals
        .iter()
        .filter_map(|(_, command)| match command {
            Command::Expire(sessions) => Some(sessions.len()),
            _ => None,
        })
        .collect();
    assert_eq!(expired, [4]);
}

#[test]
fn workers_that_end_in_one_breath_each_leave_their_lock_delay() {
    let policy = Policy {
        lock_delay: ms(5_000),
        ..Policy::default()
    };
    let mut world = World::new(4, policy);
    world.obedient = true;
    let streams: Vec<StreamId> = [("a", 1), ("b", 2), ("c", 3)]
        .map(|(name, nonce)| world.serving(name, nonce).0)
        .to_vec();
    let ended = ["a", "b"].map(|name| world.session_of(name).unwrap());
    let theirs: Vec<u32> = (0..4)
        .filter(|shard| ended.contains(&world.owner(*shard).unwrap()))
        .collect();
    assert!(theirs.len() >= 2);
    // Both are applied before the leader takes note of the first.
    let first = world.apply_unseen(Command::Expire(vec![ended[0]]));
    let second = world.apply_unseen(Command::Expire(vec![ended[1]]));
    world.see(first.0, &first.1);
    world.see(second.0, &second.1);
    live(&mut world, &streams[2..], ms(4_900));
    assert!(theirs.iter().all(|shard| world.owner(*shard).is_none()));
    live(&mut world, &streams[2..], ms(200));
    assert!(theirs.iter().all(|shard| world.owner(*shard).is_some()));
}

#[test]
fn a_shard_given_back_unasked_again_and_again_is_granted_ever_later() {
    let mut world = World::new(1, Policy::default());
    let (stream, session) = world.serving("a", 1);
    let mut delays = Vec::new();
    for _ in 0..5 {
        world.give_back(stream, session);
        let released_at = world.now;
        while world.owner(0).is_none() {
            live(&mut world, &[stream], ms(10));
        }
        delays.push(world.now.since(released_at));
    }
    assert!(
        delays.windows(2).all(|pair| pair[0] < pair[1]),
        "{delays:?}"
    );
}

#[test]
fn a_report_that_could_not_be_proposed_is_proposed_again_in_its_turn() {
    let mut world = World::new(1, Policy::default());
    let stream = world.register("a", 1);
    world.advance(ms(300));
    let session = world.session_of("a").unwrap();
    world.commits = false;
    world.all_ready(stream, session);
    world.turn_down();
    world.give_back(stream, session);
    assert!(!world.closed.contains_key(&stream));
    assert!(world.proposals.is_empty(), "what came later waits its turn");
    world.advance(ms(200));
    let kinds: Vec<bool> = world
        .proposals
        .iter()
        .map(|(_, command)| matches!(command, Command::Ready(_)))
        .collect();
    assert_eq!(kinds, [true, false]);
    world.commits = true;
    world.commit();
    assert_eq!(world.epoch(0), 2, "released, and granted anew");
}
