//! What the leader measures, and plans that operators ask for.

use tenure_ownership::Command;
use tenure_ownership::command::OneShard;
use tenure_ownership::command::SetPolicy;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::planner::PauseReason;
use tenure_ownership::planner::Reason;
use tenure_ownership::policy::BalanceBy;
use tenure_ownership::policy::Policy;

use super::super::Input;
use super::world::*;
use crate::control::asks::AskId;
use crate::control::asks::PlanAsk;
use crate::control::message::StreamId;

/// Workers that serve a group and answer what they are asked, each with its stream and session.
fn serving(shards: u32, policy: Policy, workers: &[&str]) -> (World, Vec<(StreamId, SessionId)>) {
    let mut world = World::new(shards, policy);
    world.obedient = true;
    let streams: Vec<StreamId> = (1..)
        .zip(workers)
        .map(|(nonce, worker)| world.register(worker, nonce))
        .collect();
    world.advance(ms(3_000));
    let members: Vec<(StreamId, SessionId)> = streams
        .into_iter()
        .zip(workers)
        .map(|(stream, worker)| (stream, world.session_of(worker).unwrap()))
        .collect();
    all_ready(&mut world, &members);
    (world, members)
}

fn all_ready(world: &mut World, members: &[(StreamId, SessionId)]) {
    for (stream, session) in members {
        world.all_ready(*stream, *session);
    }
}

/// Lets time go on while every worker sends heartbeats with the loads of its shards.
fn report(
    world: &mut World,
    members: &[(StreamId, SessionId)],
    seconds: u64,
    load: impl Fn(ShardIndex) -> u64,
) {
    for second in 0..seconds {
        for (stream, session) in members {
            let owned: Vec<ShardIndex> = world.state.owned(*session).collect();
            let loads = owned
                .into_iter()
                .map(|shard| (shard, load(shard)))
                .collect();
            world.heartbeat_with(*stream, 1_000 * stream.0 + second, loads);
        }
        world.advance(ms(1_000));
        all_ready(world, members);
    }
}

fn by_load() -> Policy {
    Policy {
        balance_by: BalanceBy::Load,
        ..Policy::default()
    }
}

fn set_policy(world: &mut World, policy: Policy) {
    world
        .apply(Command::SetPolicy(SetPolicy {
            group: group_name(),
            seen: None,
            policy,
        }))
        .1
        .unwrap();
}

/// A policy under which the third owner in a row is the last that a shard crashes.
fn watchful() -> Policy {
    Policy {
        crashes_max: 3,
        ..Policy::default()
    }
}

#[test]
fn reported_loads_even_out_workers_and_noise_moves_nothing_more() {
    let (mut world, members) = serving(64, by_load(), &["a", "b", "c", "d"]);
    let hot: Vec<ShardIndex> = world.state.owned(members[0].1).take(4).collect();
    let load = |shard: ShardIndex| if hot.contains(&shard) { 400 } else { 100 };
    report(&mut world, &members, 30, load);
    let total = |world: &World, session| world.state.owned(session).map(load).sum::<u64>();
    // 7,600 for four workers: nobody is above the mean by more than a tenth.
    for (_, session) in &members {
        let load = total(&world, *session);
        assert!(load <= 2_090, "{load}");
    }
    let before = world.plans_with_moves;
    let mut numbers = 7_u64;
    for _ in 0..20 {
        numbers = numbers
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let noise = |shard: ShardIndex| {
            let part = (numbers >> (shard.0 % 32)) % 201;
            load(shard) * (900 + part) / 1_000
        };
        report(&mut world, &members, 5, noise);
    }
    assert_eq!(world.plans_with_moves, before, "noise moved something");
}

#[test]
fn loads_of_others_and_of_groups_that_do_not_balance_by_them_are_not_kept() {
    let (mut world, members) = serving(8, by_load(), &["a", "b"]);
    let of_b = world.state.owned(members[1].1).next().unwrap();
    let all = (0..100).map(|shard| (ShardIndex(shard), 1)).collect();
    world.heartbeat_with(members[0].0, 1, all);
    world.advance(ms(6_000));
    let loads = &world.observed[&world.group()].loads;
    assert_eq!(loads.len(), 4);
    assert!(!loads.contains_key(&of_b));

    set_policy(&mut world, Policy::default());
    world.advance(ms(1_000));
    report(&mut world, &members, 6, |_| 1);
    assert!(world.observed[&world.group()].loads.is_empty());
}

#[test]
fn moves_of_a_minute_are_bounded_and_go_on_in_the_next() {
    let policy = Policy {
        moves_per_minute_max: Some(2),
        handoffs_in_flight_max: Some(1),
        ..Policy::default()
    };
    let (mut world, mut members) = serving(12, policy, &["a", "b"]);
    let stream = world.register("c", 3);
    let session = world.session_of("c").unwrap();
    members.push((stream, session));
    report(&mut world, &members, 20, |_| 0);
    assert_eq!(world.state.owned(session).len(), 2);
    let group = world.group();
    assert_eq!(world.observed[&group].churn_left, Some(0));
    report(&mut world, &members, 45, |_| 0);
    assert_eq!(world.state.owned(session).len(), 4);
    // A new leader begins with a whole minute.
    world.new_leader();
    assert_eq!(world.observed[&group].churn_left, Some(2));
}

/// Kills whoever owns a shard and lets the others take over. Returns who died.
fn kill_owner(world: &mut World, members: &mut Vec<(StreamId, SessionId)>, shard: u32) {
    let owner = world.owner(shard).unwrap();
    let at = members
        .iter()
        .position(|(_, session)| *session == owner)
        .unwrap();
    let (stream, _) = members.remove(at);
    world.break_stream(stream);
    report(world, members, 2, |_| 0);
}

#[test]
fn a_shard_that_kills_one_worker_after_the_other_is_put_into_quarantine() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let (mut world, mut members) = serving(48, watchful(), &names);
    let group = world.group();
    kill_owner(&mut world, &mut members, 7);
    kill_owner(&mut world, &mut members, 7);
    let suspects = world.observed[&group].suspects.clone();
    assert!(suspects.contains(&ShardIndex(7)), "{suspects:?}");
    kill_owner(&mut world, &mut members, 7);
    assert_eq!(world.owner(7), None);
    let placement = world.state.group(group).unwrap().quarantine(ShardIndex(7));
    assert_eq!(placement.map(|quarantine| quarantine.crashes), Some(3));
    // Everything else is served, and nobody else dies of it.
    let unowned = world.state.group(group).unwrap().unowned_count();
    assert_eq!(unowned, 1);
    // Also under the next leader, which has counted nothing.
    world.new_leader();
    for (stream, session) in &mut members {
        let nonce = names
            .iter()
            .position(|name| world.session_of(name) == Some(*session));
        let nonce = nonce.map_or(0, |at| at as u128 + 1);
        *stream = world.resume(*session, nonce, 2);
    }
    report(&mut world, &members, 3, |_| 0);
    assert_eq!(world.owner(7), None);
    assert_eq!(world.state.group(group).unwrap().unowned_count(), 1);
}

#[test]
fn workers_that_fall_silent_together_blame_no_shard() {
    let (mut world, mut members) = serving(12, watchful(), &["a", "b", "c", "d"]);
    kill_owner(&mut world, &mut members, 7);
    // The streams stay open, and nothing is heard of anybody.
    world.advance(TTL + ms(1_000));
    assert!(
        members
            .iter()
            .all(|(_, session)| world.state.session(*session).is_none())
    );
    assert!(world.observed[&world.group()].suspects.is_empty());
}

#[test]
fn a_shard_that_is_retried_begins_to_count_anew() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let (mut world, mut members) = serving(48, watchful(), &names);
    for _ in 0..3 {
        kill_owner(&mut world, &mut members, 7);
    }
    world
        .apply(Command::RetryShard(OneShard {
            group: group_name(),
            shard: ShardIndex(7),
        }))
        .1
        .unwrap();
    report(&mut world, &members, 1, |_| 0);
    assert!(world.owner(7).is_some());
    kill_owner(&mut world, &mut members, 7);
    assert!(world.owner(7).is_some());
}

#[test]
fn a_mass_failure_blames_no_shard() {
    let (mut world, members) = serving(12, watchful(), &["a", "b", "c"]);
    for (stream, _) in &members {
        world.break_stream(*stream);
    }
    world.advance(TTL + ms(1_000));
    assert!(
        members
            .iter()
            .all(|(_, session)| world.state.session(*session).is_none())
    );
    let first = world.register("d", 9);
    world.advance(ms(1_000));
    let session = world.session_of("d").unwrap();
    world.break_stream(first);
    world.advance(ms(2_000));
    assert!(world.state.session(session).is_none());
    // Blamed once, by the death of d alone.
    assert!(world.observed[&world.group()].suspects.is_empty());
}

fn ask(world: &mut World, id: u64, evened_out_by: Option<u32>, carried_out: bool) {
    let ask = PlanAsk {
        group: world.group(),
        evened_out_by,
        carried_out,
    };
    world.input(Input::Asked(AskId(id), ask));
}

#[test]
fn a_preview_says_what_the_leader_would_do_and_changes_nothing() {
    let (mut world, members) = serving(12, watchful(), &["a", "b"]);
    world.commits = false;
    world.register("c", 3);
    world.commit();
    let joined = world.session_of("c").unwrap();
    let revision = world.state.revision();
    ask(&mut world, 1, None, false);
    let plan = world.answers[&AskId(1)].clone().unwrap();
    assert_eq!(plan.revokes.len(), 4);
    assert_eq!(world.state.revision(), revision);

    // A leader that has not heard from everybody says so.
    world.new_leader();
    world.resume(members[0].1, 1, 2);
    world.resume(joined, 3, 2);
    ask(&mut world, 2, None, false);
    let plan = world.answers[&AskId(2)].clone().unwrap();
    assert!(plan.revokes.is_empty());
    assert!(
        plan.report
            .moves_left(Reason::Paused(PauseReason::NewLeader))
            > 0
    );
}

#[test]
fn what_is_asked_for_is_carried_out_whatever_is_tolerated_and_spent() {
    let policy = Policy {
        load_factor_permille: 2_000,
        moves_per_minute_max: Some(1),
        ..Policy::default()
    };
    let (mut world, members) = serving(30, policy, &["a", "b", "c"]);
    // All shards of one worker go to the others and stay there, when it comes back with nothing.
    let (stream, gone) = members[2];
    world.break_stream(stream);
    world.advance(ms(2_000));
    assert!(world.state.session(gone).is_none());
    let mut members = members[..2].to_vec();
    let back = world.register("c", 9);
    members.push((back, world.session_of("c").unwrap()));
    report(&mut world, &members, 5, |_| 0);
    assert_eq!(
        world.state.owned(members[2].1).len(),
        1,
        "one move in a minute"
    );

    ask(&mut world, 1, Some(4), true);
    let plan = world.answers[&AskId(1)].clone().unwrap();
    assert_eq!(plan.revokes.len(), 4);
    all_ready(&mut world, &members);
    assert_eq!(world.state.owned(members[2].1).len(), 5);
    // Of two asks at once each gets a plan of its own.
    ask(&mut world, 2, Some(2), true);
    ask(&mut world, 3, Some(2), true);
    assert!(world.answers[&AskId(2)].is_some() && world.answers[&AskId(3)].is_some());
    all_ready(&mut world, &members);
    report(&mut world, &members, 2, |_| 0);
    assert_eq!(world.state.owned(members[2].1).len(), 9);
}

#[test]
fn an_ask_for_a_group_that_is_gone_is_answered() {
    let (mut world, _members) = serving(2, watchful(), &["a"]);
    let group = world.group();
    world.apply(Command::DeleteGroup(group_name())).1.unwrap();
    let gone = |carried_out| PlanAsk {
        group,
        evened_out_by: Some(1),
        carried_out,
    };
    world.input(Input::Asked(AskId(1), gone(true)));
    world.advance(ms(2_000));
    assert_eq!(world.answers[&AskId(1)], None);
    world.input(Input::Asked(AskId(2), gone(false)));
    assert!(world.answers.contains_key(&AskId(2)));
}
