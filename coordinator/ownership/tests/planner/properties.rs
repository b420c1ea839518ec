//! What holds after any history, whatever the leader observes.
//!
//! A failing history is made small, printed, and kept in `tests/planner/properties.regressions`.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, subsequence};
use proptest::test_runner::{Config as ProptestConfig, FileFailurePersistence};
use proptest::{prop_assert, prop_assert_eq, proptest};
use tenure_ownership::State;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::ids::{SessionId, ShardIndex};
use tenure_ownership::planner::{Observed, PauseReason, Plan, Reason, plan};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::{Shard, ShardState};

use crate::world::World;

/// In an order that is neither that of the names nor of anything else.
const NAMES: [&str; 10] = [
    "kim", "ada", "zoe", "ben", "mia", "cleo", "yan", "dora", "leo", "eve",
];

/// One thing that happens to a group.
#[derive(Clone, Debug)]
enum Step {
    Join { worker: &'static str, weight: u32 },
    Leave(&'static str),
    Expire(&'static str),
    SetMode(&'static str, WorkerMode),
    Plan,
    OpenAll,
    ReleaseAll,
    FailToOpen(Index),
}

fn worker() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMES[..])
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(1_u32), 2 => 1_u32..5, 1 => 1_u32..=10_000]
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        2 => Just(WorkerMode::Active),
        2 => Just(WorkerMode::Draining),
        1 => Just(WorkerMode::Cordoned),
        1 => Just(WorkerMode::Paused),
    ];
    prop_oneof![
        4 => (worker(), weight()).prop_map(|(worker, weight)| Step::Join { worker, weight }),
        1 => worker().prop_map(Step::Leave),
        1 => worker().prop_map(Step::Expire),
        1 => (worker(), mode).prop_map(|(worker, mode)| Step::SetMode(worker, mode)),
        4 => Just(Step::Plan),
        2 => Just(Step::OpenAll),
        2 => Just(Step::ReleaseAll),
        1 => any::<Index>().prop_map(Step::FailToOpen),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let factor = prop_oneof![4 => Just(1_100_u32), 1 => Just(1_000), 1 => 1_000_u32..3_000];
    let handoffs = prop_oneof![2 => Just(None), 1 => Just(Some(1_u32))];
    (factor, handoffs).prop_map(|(load_factor_permille, handoffs_in_flight_max)| Policy {
        load_factor_permille,
        handoffs_in_flight_max,
        ..Policy::default()
    })
}

/// A group after a random history.
fn world() -> impl Strategy<Value = (u32, Policy, Vec<Step>)> {
    (1_u32..120, policy(), vec(step(), 0..40))
}

fn lived((shards, policy, steps): (u32, Policy, Vec<Step>)) -> World {
    let mut world = World::new(shards, policy);
    for step in steps {
        take(&mut world, step);
    }
    world
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Join { worker, weight } => drop(world.join(worker, weight)),
        Step::Leave(worker) if world.session(worker).is_some() => drop(world.leave(worker)),
        Step::Expire(worker) if world.session(worker).is_some() => drop(world.expire(worker)),
        Step::Leave(_) | Step::Expire(_) => {}
        Step::SetMode(worker, mode) => world.set_mode(worker, mode),
        Step::Plan => {
            let plan = world.plan(&Observed::default());
            world.carry_out(plan);
        }
        Step::OpenAll => world.open_all(),
        Step::ReleaseAll => world.release_all(),
        Step::FailToOpen(choice) => {
            let opening = |state: &ShardState| matches!(state, ShardState::Opening(_));
            let shards = world.shards().filter(|(_, shard)| opening(&shard.state));
            let shards: Vec<ShardIndex> = shards.map(|(index, _)| index).collect();
            if !shards.is_empty() {
                let cause = ReleaseCause::OpenFailed("no".to_owned());
                world.release(*choice.get(&shards), cause);
            }
        }
    }
}

/// What a leader may observe of a state, chosen by random bits.
#[derive(Clone, Debug)]
struct Chance {
    bits: Vec<bool>,
    rebalance_paused: Option<PauseReason>,
}

fn chance() -> impl Strategy<Value = Chance> {
    let paused = prop_oneof![3 => Just(None), 1 => Just(Some(PauseReason::NewLeader))];
    (vec(proptest::bool::weighted(0.2), 64), paused).prop_map(|(bits, rebalance_paused)| Chance {
        bits,
        rebalance_paused,
    })
}

impl Chance {
    fn observe(&self, world: &World) -> Observed {
        let mut observed = Observed {
            rebalance_paused: self.rebalance_paused,
            ..Observed::default()
        };
        let mut bits = self.bits.iter().copied().cycle();
        let mut chosen = || bits.next().unwrap();
        let sessions = world.state.sessions().map(|(id, _)| id);
        for id in sessions {
            observed.disconnected.extend(chosen().then_some(id));
            observed.stopping.extend(chosen().then_some(id));
        }
        for (index, shard) in world.shards() {
            observed.backing_off.extend(chosen().then_some(index));
            match &shard.state {
                ShardState::Unowned(end) => {
                    let end = end.as_ref().map(|end| end.at);
                    observed.lock_delays.extend(end.filter(|_| chosen()));
                    observed.restart_graces.extend(end.filter(|_| chosen()));
                }
                ShardState::Opening(_) if chosen() => {
                    observed.opening_overdue.insert(world.tenure(index));
                }
                _ => {}
            }
        }
        observed
    }
}

/// Weight of a live session whose worker takes shards.
fn active_weight(world: &World, id: SessionId) -> Option<u64> {
    let session = world.state.session(id)?;
    let worker = &world.state.group(world.group)?.workers[&session.worker];
    (worker.mode == WorkerMode::Active).then(|| u64::from(session.weight))
}

/// The live sessions whose workers take shards, and do not stop, with their weights.
fn active(world: &World, observed: &Observed) -> Vec<(SessionId, u64)> {
    let sessions = world.state.sessions().map(|(id, _)| id);
    sessions
        .filter(|id| !observed.stopping.contains(id))
        .filter_map(|id| Some((id, active_weight(world, id)?)))
        .collect()
}

/// How many shards stay where they are, or wait for a paused worker: the others share the rest.
fn kept(world: &World, observed: &Observed) -> u64 {
    let group = world.state.group(world.group).unwrap();
    let keeps = |id: SessionId| {
        let session = world.state.session(id).unwrap();
        let mode = group.workers[&session.worker].mode;
        match mode {
            WorkerMode::Cordoned => !observed.stopping.contains(&id),
            mode => mode == WorkerMode::Paused,
        }
    };
    let is_kept = |shard: &Shard| match &shard.state {
        ShardState::Unowned(_) => shard.waits_for_paused(group).is_some(),
        ShardState::Opening(owner) | ShardState::Serving(owner) => keeps(*owner),
        ShardState::Revoking(_) => false,
    };
    u64::try_from(world.shards().filter(|(_, shard)| is_kept(shard)).count()).unwrap()
}

/// Share rounded down and cap of every worker that takes shards, by the words of the design.
fn bounds(world: &World, observed: &Observed) -> Vec<(SessionId, u64, u64)> {
    let header = &world.state.group(world.group).unwrap().header;
    let shards = u64::from(header.shard_count) - kept(world, observed);
    let factor = u64::from(header.policy.load_factor_permille);
    let active = active(world, observed);
    let weights: u64 = active.iter().map(|(_, weight)| weight).sum();
    let bound = |(id, weight): (SessionId, u64)| {
        let stretched = factor * shards * weight / (1_000 * weights);
        (
            id,
            shards * weight / weights,
            stretched.max((shards * weight).div_ceil(weights)),
        )
    };
    active.into_iter().map(bound).collect()
}

/// How many shards a session has once a plan is carried out and its handoffs are over.
fn load_after(world: &World, plan: &Plan, id: SessionId) -> u64 {
    let revoked = |shard: ShardIndex| plan.revokes.iter().find(|revoke| revoke.shard == shard);
    let granted = |shard: ShardIndex| plan.grants.iter().find(|grant| grant.shard == shard);
    let holds = |(index, shard): &(ShardIndex, &Shard)| match &shard.state {
        ShardState::Revoking(revocation) => revocation.next == Some(id),
        ShardState::Unowned(_) => granted(*index).is_some_and(|grant| grant.to == id),
        ShardState::Opening(owner) | ShardState::Serving(owner) => {
            revoked(*index).map_or(*owner == id, |revoke| revoke.next == Some(id))
        }
    };
    u64::try_from(world.shards().filter(holds).count()).unwrap()
}

/// A settled group on the first workers of [`NAMES`].
fn settled(shards: u32, workers: usize) -> World {
    World::settled(shards, &NAMES[..workers])
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn planning_again_after_a_plan_was_carried_out_yields_no_moves(
        history in world(), chance in chance(),
    ) {
        let mut world = lived(history);
        let observed = chance.observe(&world);
        world.carry_out(world.plan(&observed));
        let again = world.plan(&observed);
        prop_assert!(again.is_empty(), "{again:?}");
    }

    #[test]
    fn equal_states_give_equal_plans(history in world(), chance in chance()) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let records = world.state.records().map(|(key, value)| (key, value.to_vec()));
        let reread = State::from_records(records).unwrap();
        prop_assert_eq!(world.plan(&observed), plan(&reread, world.group, &observed));
    }

    #[test]
    fn nobody_is_given_a_shard_above_its_cap(history in world(), chance in chance()) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let plan = world.plan(&observed);
        let given = plan.grants.iter().map(|grant| grant.to);
        let given: BTreeSet<SessionId> =
            given.chain(plan.revokes.iter().filter_map(|revoke| revoke.next)).collect();
        let bounds = bounds(&world, &observed);
        for id in given {
            let Some((_, _, cap)) = bounds.iter().find(|(active, ..)| *active == id) else {
                let home = plan.grants.iter().filter(|grant| grant.to == id);
                prop_assert!(home.clone().count() > 0, "{} takes nothing and is to follow", id);
                for grant in home {
                    let group = world.state.group(world.group).unwrap();
                    let waits = world.shard(grant.shard.0).waits_for_paused(group);
                    prop_assert_eq!(waits, world.state.session(id).map(|session| &session.worker));
                }
                continue;
            };
            let load = load_after(&world, &plan, id);
            prop_assert!(load <= *cap, "{} has {} of {}", id, load, cap);
        }
    }

    #[test]
    fn sessions_without_a_stream_are_given_nothing_and_not_rebalanced(
        history in world(), chance in chance(),
    ) {
        let world = lived(history);
        let observed = Observed { opening_overdue: BTreeSet::new(), ..chance.observe(&world) };
        let plan = world.plan(&observed);
        for grant in &plan.grants {
            prop_assert!(!observed.disconnected.contains(&grant.to));
        }
        for revoke in &plan.revokes {
            let owner = world.shard(revoke.shard.0).owner().unwrap();
            prop_assert!(!observed.disconnected.contains(&owner));
            prop_assert!(revoke.next.is_none_or(|next| !observed.disconnected.contains(&next)));
        }
    }

    #[test]
    fn workers_that_stop_are_given_nothing(history in world(), chance in chance()) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let plan = world.plan(&observed);
        let given = plan.grants.iter().map(|grant| grant.to);
        for to in given.chain(plan.revokes.iter().filter_map(|revoke| revoke.next)) {
            prop_assert!(!observed.stopping.contains(&to), "{} stops", to);
        }
    }

    #[test]
    fn there_is_room_for_every_shard_while_workers_are_connected(history in world()) {
        let world = lived(history);
        let plan = world.plan(&Observed::default());
        prop_assert_eq!(plan.report.moves_left(Reason::AllAtCap), 0);
        let unowned = world.state.group(world.group).unwrap().unowned().count();
        let waiting = usize::try_from(plan.report.moves_left(Reason::WorkerPaused)).unwrap();
        let (granted, free) = (plan.grants.len(), unowned - waiting);
        let nobody = active(&world, &Observed::default()).is_empty();
        prop_assert!(granted == free || nobody, "{} of {}", granted, free);
    }

    #[test]
    fn every_unowned_shard_is_granted_or_explained(history in world(), chance in chance()) {
        let world = lived(history);
        let plan = world.plan(&chance.observe(&world));
        let reasons = [
            Reason::NoWorker, Reason::AllAtCap, Reason::LockDelay, Reason::RestartGrace, Reason::BackingOff,
            Reason::WorkerPaused,
        ];
        let explained: u32 = reasons.iter().map(|reason| plan.report.moves_left(*reason)).sum();
        let unowned = world.state.group(world.group).unwrap().unowned().count();
        let granted = plan.grants.len();
        // Shards that stay on a draining worker for lack of room are explained by the same words.
        prop_assert!(unowned - granted <= usize::try_from(explained).unwrap());
    }

    #[test]
    fn any_history_settles_between_the_share_and_the_cap(history in world()) {
        let mut world = lived(history);
        world.settle(&Observed::default());
        for (id, floor, cap) in bounds(&world, &Observed::default()) {
            let load = u64::try_from(world.state.owned(id).len()).unwrap();
            prop_assert!((floor..=cap).contains(&load), "{} not in {}..={}", load, floor, cap);
        }
        let taken: usize = active(&world, &Observed::default()).iter().map(|(id, _)| world.state.owned(*id).len()).sum();
        let all = world.shards().count();
        let kept = usize::try_from(kept(&world, &Observed::default())).unwrap();
        prop_assert!(taken + kept == all || active(&world, &Observed::default()).is_empty(), "draining workers keep some");
    }

    #[test]
    fn the_fullest_worker_is_at_most_a_tenth_above_the_mean(
        workers in 1_usize..=10, per_worker in 10_u32..40, steps in vec(step(), 0..20),
    ) {
        let mut world = settled(u32::try_from(workers).unwrap() * per_worker, workers);
        for step in steps {
            // Equal weights, so that the mean is everybody's share.
            let step = if let Step::Join { worker, .. } = step { Step::Join { worker, weight: 1 } } else { step };
            take(&mut world, step);
        }
        world.settle(&Observed::default());
        let active = active(&world, &Observed::default());
        let fullest = active.iter().map(|(id, _)| world.state.owned(*id).len()).max().unwrap_or(0);
        let all = world.shards().count();
        // Or as even as whole shards allow, where a tenth is less than one.
        let even = all.div_ceil(active.len().max(1));
        prop_assert!(10 * fullest * active.len() <= 11 * all || fullest <= even, "{} of {}", fullest, all);
    }

    #[test]
    fn a_new_group_is_laid_out_as_evenly_as_whole_shards_allow(
        shards in 1_u32..300, workers in 1_usize..=10, load_factor_permille in 1_000_u32..4_000,
    ) {
        let policy = Policy { load_factor_permille, ..Policy::default() };
        let mut world = World::new(shards, policy);
        NAMES[..workers].iter().for_each(|worker| { world.join(worker, 1); });
        world.carry_out(world.plan(&Observed::default()));
        let loads = world.loads();
        let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", loads);
    }

    #[test]
    fn a_worker_that_leaves_makes_exactly_its_shards_move(
        shards in 1_u32..300, workers in 2_usize..=10, choice in any::<Index>(), clean in any::<bool>(),
    ) {
        let mut world = settled(shards, workers);
        let worker = *choice.get(&NAMES[..workers]);
        let before = world.owners();
        let had: BTreeSet<ShardIndex> = world.state.owned(world.session(worker).unwrap()).collect();
        if clean { world.leave(worker); } else { world.expire(worker); }
        world.settle(&Observed::default());
        prop_assert_eq!(world.moved_since(&before), had);
    }

    #[test]
    fn a_worker_that_joins_takes_its_share_and_nothing_else_moves(
        shards in 1_u32..300, workers in 1_usize..10,
    ) {
        let mut world = settled(shards, workers);
        let before = world.owners();
        let session = world.join(NAMES[workers], 1);
        world.settle(&Observed::default());
        let takes: BTreeSet<ShardIndex> = world.state.owned(session).collect();
        let share = usize::try_from(shards).unwrap() / (workers + 1);
        prop_assert!((share..=share + 1).contains(&takes.len()), "takes {}", takes.len());
        prop_assert_eq!(world.moved_since(&before), takes);
    }

    #[test]
    fn leaving_and_joining_in_turn_moves_no_more_than_it_must(
        shards in 1_u32..300, load_factor_permille in 1_000_u32..4_000, joins in vec(any::<bool>(), 1..12), choice in any::<Index>(),
    ) {
        let mut present: BTreeSet<&str> = NAMES[..5].iter().copied().collect();
        // A wide cap lets shards pile up on one worker, if nothing else prevents it.
            let policy = Policy { load_factor_permille, ..Policy::default() };
            let mut world = World::settled_under(policy, shards, &NAMES[..5]);
        for join in joins {
            let before = world.owners();
            let away: Vec<&str> = NAMES.iter().copied().filter(|name| !present.contains(name)).collect();
            let expected: BTreeSet<ShardIndex>;
            if join && !away.is_empty() {
                let worker = *choice.get(&away);
                present.insert(worker);
                let session = world.join(worker, 1);
                world.settle(&Observed::default());
                expected = world.state.owned(session).collect();
            } else if present.len() > 1 {
                let here: Vec<&str> = present.iter().copied().collect();
                let worker = *choice.get(&here);
                present.remove(worker);
                expected = world.state.owned(world.session(worker).unwrap()).collect();
                world.leave(worker);
                world.settle(&Observed::default());
            } else {
                continue;
            }
            prop_assert_eq!(world.moved_since(&before), expected);
        }
    }

    #[test]
    fn a_worker_that_restarts_moves_nothing(
        shards in 1_u32..200, workers in 1_usize..=10, choice in any::<Index>(), replaced in any::<bool>(),
    ) {
        let mut world = settled(shards, workers);
        let worker = *choice.get(&NAMES[..workers]);
        let before = world.owners();
        if !replaced {
            world.expire(worker);
        }
        world.join(worker, 1);
        world.settle(&Observed::default());
        prop_assert_eq!(world.owners(), before);
    }

    #[test]
    fn the_order_of_registration_does_not_matter(
        shards in 1_u32..200,
        workers in subsequence(NAMES.to_vec(), 1..=10).prop_shuffle(),
    ) {
        let first_owners = |workers: &[&str]| {
            let mut world = World::new(shards, Policy::default());
            for worker in workers {
                let weight = u32::from(worker.as_bytes()[0]);
                world.join(worker, weight);
            }
            world.carry_out(world.plan(&Observed::default()));
            world.owners()
        };
        let mut sorted = workers.clone();
        sorted.sort_unstable();
        prop_assert_eq!(first_owners(&workers), first_owners(&sorted));
    }

    #[test]
    fn a_plan_cut_into_commands_is_the_same_plan(history in world(), moves_max in 0_usize..10) {
        use tenure_ownership::command::{Assign, Command};

        let plan = lived(history).plan(&Observed::default());
        let (mut grants, mut revokes) = (Vec::new(), Vec::new());
        for command in plan.clone().into_commands(moves_max) {
            let Command::Assign(Assign { group, grants: some, revokes: others }) = command else {
                panic!("a plan is made of assignments");
            };
            prop_assert_eq!(group, plan.group);
            let moves = some.len() + others.len();
            prop_assert!((1..=moves_max.max(1)).contains(&moves), "{} moves", moves);
            grants.extend(some);
            revokes.extend(others);
        }
        prop_assert_eq!((grants, revokes), (plan.grants, plan.revokes));
    }
}
