//! What holds after any history, whatever the leader observes.
//!
//! A failing history is made small, printed, and kept in `tests/planner/properties.regressions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, subsequence};
use proptest::test_runner::{Config as ProptestConfig, FileFailurePersistence};
use proptest::{prop_assert, prop_assert_eq, proptest};
use tenure_ownership::State;
use tenure_ownership::command::{PinTo, ReleaseCause, Tenure};
use tenure_ownership::ids::{SessionId, ShardIndex};
use tenure_ownership::planner::{Observed, PauseReason, Plan, Reason, plan};
use tenure_ownership::policy::{BalanceBy, Policy};
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::{RevokeReason, Shard, ShardState};

use crate::world::{World, name};

/// In an order that is neither that of the names nor of anything else.
const NAMES: [&str; 10] = [
    "kim", "ada", "zoe", "ben", "mia", "cleo", "yan", "dora", "leo", "eve",
];

/// One thing that happens to a group.
#[derive(Clone, Debug)]
enum Step {
    Join {
        worker: &'static str,
        weight: u32,
        labels: Labels,
    },
    Leave(&'static str),
    Expire(&'static str),
    SetMode(&'static str, WorkerMode),
    Plan,
    OpenAll,
    ReleaseAll,
    FailToOpen(Index),
    Pin(Index, Option<PinTo>),
    Quarantine(Index),
    Retry(Index),
}

/// What a worker that joins has of labels.
type Labels = Vec<(&'static str, &'static str)>;

fn labels() -> impl Strategy<Value = Labels> {
    let zone = prop_oneof![
        1 => Just(None),
        3 => proptest::sample::select(vec!["north", "south", "west"]).prop_map(Some),
    ];
    (zone, proptest::bool::weighted(0.8)).prop_map(|(zone, ssd)| {
        let zone = zone.map(|zone| ("zone", zone));
        zone.into_iter()
            .chain(ssd.then_some(("disk", "ssd")))
            .collect()
    })
}

fn pin() -> impl Strategy<Value = Option<PinTo>> {
    prop_oneof![
        2 => worker().prop_map(|worker| Some(PinTo::Worker(name(worker)))),
        2 => vec(worker(), 1..4).prop_map(|workers| {
            Some(PinTo::AnyBut(workers.into_iter().map(name).collect()))
        }),
        1 => Just(None),
    ]
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
        4 => (worker(), weight(), labels()).prop_map(|(worker, weight, labels)| {
            Step::Join { worker, weight, labels }
        }),
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

/// A step, or one on where a single shard belongs.
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step(),
        2 => (any::<Index>(), pin()).prop_map(|(shard, pin)| Step::Pin(shard, pin)),
        1 => any::<Index>().prop_map(Step::Quarantine),
        1 => any::<Index>().prop_map(Step::Retry),
    ]
}

/// A policy that says something of placement and balance.
fn placing(shards: u32) -> impl Strategy<Value = Policy> {
    let most = prop_oneof![2 => Just(None), 1 => (1..=shards).prop_map(Some)];
    let balance = prop_oneof![Just(BalanceBy::Shards), Just(BalanceBy::Load)];
    let tolerated = prop_oneof![3 => Just(200_u32), 1 => 0_u32..500];
    (policy(), most, vec(any::<bool>(), 3), balance, tolerated).prop_map(
        |(policy, worker_shards_max, said, balance_by, imbalance_tolerated_permille)| {
            let label = |said: bool, key: &str, value: &str| {
                let label = said.then(|| (key.to_owned(), value.to_owned()));
                label.into_iter().collect()
            };
            Policy {
                worker_shards_max,
                required_labels: label(said[0], "disk", "ssd"),
                preferred_labels: label(said[1], "zone", "west"),
                zone_label: if said[2] { "zone" } else { "" }.to_owned(),
                balance_by,
                imbalance_tolerated_permille,
                ..policy
            }
        },
    )
}

/// A group after a random history that uses every setting.
fn placed_world() -> impl Strategy<Value = (u32, Policy, Vec<Step>)> {
    (1_u32..120).prop_flat_map(|shards| (Just(shards), placing(shards), vec(any_step(), 0..40)))
}

/// A group after a random history, with nothing said of placement.
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

fn shard(world: &World, choice: Index) -> u32 {
    u32::try_from(choice.index(world.shards().count())).unwrap()
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Join {
            worker,
            weight,
            labels,
        } => drop(world.join_labelled(worker, weight, &labels)),
        Step::Pin(choice, to) => {
            let shard = shard(world, choice);
            match to {
                Some(to) => world.pin(shard, to),
                None => world.unpin(shard),
            }
        }
        Step::Quarantine(choice) => {
            let shard = shard(world, choice);
            if world.shard(shard).epoch.is_some() {
                world.quarantine(shard, 3);
            }
        }
        Step::Retry(choice) => {
            let shard = shard(world, choice);
            world.retry(shard);
        }
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
    loads: Vec<u64>,
    churn_left: Option<u32>,
    evened_out_by: Option<u32>,
}

fn chance() -> impl Strategy<Value = Chance> {
    let paused = prop_oneof![3 => Just(None), 1 => Just(Some(PauseReason::NewLeader))];
    let load = prop_oneof![6 => 0_u64..20, 1 => 0_u64..2_000, 1 => any::<u64>()];
    let most = || prop_oneof![3 => Just(None), 1 => (0_u32..20).prop_map(Some)];
    let bits = vec(proptest::bool::weighted(0.2), 64);
    (bits, paused, vec(load, 0..120), most(), most()).prop_map(
        |(bits, rebalance_paused, loads, churn_left, evened_out_by)| Chance {
            bits,
            rebalance_paused,
            loads,
            churn_left,
            evened_out_by,
        },
    )
}

impl Chance {
    fn observe(&self, world: &World) -> Observed {
        let mut observed = Observed {
            rebalance_paused: self.rebalance_paused,
            loads: loads(&self.loads),
            churn_left: self.churn_left,
            evened_out_by: self.evened_out_by,
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
            observed
                .suspects
                .extend((chosen() && chosen()).then_some(index));
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

/// Loads of the first shards.
fn loads(loads: &[u64]) -> Arc<BTreeMap<ShardIndex, u64>> {
    Arc::new((0..).map(ShardIndex).zip(loads.iter().copied()).collect())
}

/// Weight of a live session whose worker takes shards.
fn active_weight(world: &World, id: SessionId) -> Option<u64> {
    let session = world.state.session(id)?;
    let group = world.state.group(world.group)?;
    let worker = &group.workers[&session.worker];
    let mut required = group.header.policy.required_labels.iter();
    let fits = required.all(|(key, value)| session.labels.get(key) == Some(value));
    (worker.mode == WorkerMode::Active && fits).then(|| u64::from(session.weight))
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
    let is_kept = |index: &ShardIndex, shard: &Shard| match &shard.state {
        ShardState::Unowned(_) => shard.waits_for_paused(group).is_some_and(|worker| {
            let placement = group.placements.get(index);
            let failure = shard.open_failure.as_ref();
            let is_back = group
                .workers
                .get(worker)
                .is_some_and(|of| of.session.is_some());
            let failed = is_back && failure.is_some_and(|failure| failure.worker == *worker);
            !failed && placement.is_none_or(|placement| !placement.kept_off.contains(worker))
        }),
        // One that does not open there in time goes elsewhere.
        ShardState::Opening(owner) => {
            let is_this =
                |tenure: &Tenure| tenure.shard == *index && shard.epoch == Some(tenure.epoch);
            keeps(*owner) && !observed.opening_overdue.iter().any(is_this)
        }
        ShardState::Serving(owner) => keeps(*owner),
        ShardState::Revoking(_) => false,
    };
    u64::try_from(
        world
            .shards()
            .filter(|(index, shard)| is_kept(index, shard))
            .count(),
    )
    .unwrap()
}

/// Share rounded down and cap of every worker that takes shards, by the words of the design.
fn bounds(world: &World, observed: &Observed) -> Vec<(SessionId, u64, u64)> {
    let header = &world.state.group(world.group).unwrap().header;
    let shards = u64::from(header.shard_count) - kept(world, observed);
    let factor = u64::from(header.policy.load_factor_permille);
    let mut rest = active(world, observed);
    let most = header.policy.worker_shards_max.map_or(u64::MAX, u64::from);
    let mut left = shards;
    let mut bounds = Vec::new();
    // Whoever may not have its fair share has what it may have, and the others divide the rest.
    loop {
        let weights: u64 = rest.iter().map(|(_, weight)| weight).sum();
        let heaviest = rest.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
        if most == u64::MAX || left * heaviest <= most * weights {
            let bound = |(id, weight): (SessionId, u64)| {
                let stretched = factor * left * weight / (1_000 * weights);
                let ceil = (left * weight).div_ceil(weights);
                (id, left * weight / weights, stretched.max(ceil).min(most))
            };
            bounds.extend(rest.into_iter().map(bound));
            return bounds;
        }
        let heavy = rest
            .iter()
            .position(|(_, weight)| *weight == heaviest)
            .unwrap();
        bounds.push((rest.remove(heavy).0, most, most));
        left = left.saturating_sub(most);
    }
}

/// The worker that a shard is pinned to.
fn pinned_to(world: &World, shard: ShardIndex) -> Option<SessionId> {
    let group = world.state.group(world.group).unwrap();
    let worker = group.placements.get(&shard)?.pinned_to.as_ref()?;
    group.workers.get(worker)?.session
}

/// The moves of a plan: every shard that somebody is given, and who.
fn given(plan: &Plan) -> Vec<(ShardIndex, SessionId)> {
    let granted = plan.grants.iter().map(|grant| (grant.shard, grant.to));
    let next = plan.revokes.iter();
    let next = next.filter_map(|revoke| Some((revoke.shard, revoke.next?)));
    granted.chain(next).collect()
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

/// Plans, carries the plan out, and takes what it spends off what may be spent.
fn plan_once_more(world: &mut World, observed: &mut Observed) {
    let plan = world.plan(observed);
    let evened_out = plan.revokes.iter();
    let evened_out = evened_out.filter(|of| of.reason == RevokeReason::Rebalance);
    let evened_out = u32::try_from(evened_out.count()).unwrap();
    for most in [&mut observed.churn_left, &mut observed.evened_out_by] {
        *most = most.map(|most| most.saturating_sub(evened_out));
    }
    world.carry_out(plan);
}

/// How many plans it may take at most where pins, labels and limits speak against each other.
const PLANS_MAX: usize = 3;

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
        let mut observed = chance.observe(&world);
        plan_once_more(&mut world, &mut observed);
        let again = world.plan(&observed);
        prop_assert!(again.is_empty(), "{again:?}");
    }

    /// One phase may make room that a phase before it had no use for without knowing.
    #[test]
    fn planning_again_soon_yields_no_moves_whatever_is_said_of_placement(
        history in placed_world(), chance in chance(),
    ) {
        let mut world = lived(history);
        let mut observed = chance.observe(&world);
        for _ in 0..PLANS_MAX {
            plan_once_more(&mut world, &mut observed);
        }
        let again = world.plan(&observed);
        prop_assert!(again.is_empty(), "{again:?}");
    }

    #[test]
    fn any_history_settles_whatever_is_said_of_placement(
        history in placed_world(), loads in vec(0_u64..100, 0..120),
    ) {
        let mut world = lived(history);
        let observed = Observed { loads: self::loads(&loads), ..Observed::default() };
        world.settle(&observed);
        let plan = world.plan(&observed);
        prop_assert!(plan.is_empty());
        let group = world.state.group(world.group).unwrap();
        let most = group.header.policy.worker_shards_max.map_or(usize::MAX, |most| most as usize);
        let active: BTreeSet<SessionId> =
            active(&world, &observed).into_iter().map(|(id, _)| id).collect();
        for id in &active {
            prop_assert!(world.state.owned(*id).len() <= most, "{} has too many", id);
        }
        for (index, placement) in group.placements.iter() {
            let owner = world.shard(index.0).owner();
            prop_assert!(placement.quarantine.is_none() || owner.is_none());
            // Who is cordoned or paused keeps what it has.
            let stays = owner.is_some_and(|owner| !active.contains(&owner));
            let home = pinned_to(&world, *index).filter(|home| active.contains(home) && !stays);
            if let Some(home) = home.filter(|_| placement.quarantine.is_none()) {
                let full = world.state.owned(home).len() == most;
                // What a paused worker had waits for it, wherever it belongs.
                let waits = owner.is_none() && world.shard(index.0).waits_for_paused(group).is_some();
                prop_assert!(owner == Some(home) || full || waits, "{} is not at home", index);
            }
        }
        let unowned = u32::try_from(group.unowned().count()).unwrap();
        let reasons = [
            Reason::NoWorker, Reason::AllAtCap, Reason::LabelsMissing, Reason::WorkersFull, Reason::KeptOff,
            Reason::Quarantined, Reason::WorkerPaused,
        ];
        let explained: u32 = reasons.iter().map(|reason| plan.report.moves_left(*reason)).sum();
        prop_assert!(unowned <= explained, "{} of {}", explained, unowned);
    }

    #[test]
    fn nobody_is_given_what_is_kept_off_it_or_above_the_hard_limit(
        history in placed_world(), chance in chance(),
    ) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let plan = world.plan(&observed);
        let group = world.state.group(world.group).unwrap();
        let most = group.header.policy.worker_shards_max.map_or(u64::MAX, u64::from);
        for (shard, to) in given(&plan) {
            let worker = &world.state.session(to).unwrap().worker;
            let paused = group.workers[worker].mode == WorkerMode::Paused;
            prop_assert!(paused || active_weight(&world, to).is_some(), "{} takes no shards", worker);
            prop_assert!(load_after(&world, &plan, to) <= most, "{} has too many", worker);
            if let Some(placement) = group.placements.get(&shard) {
                prop_assert!(!placement.kept_off.contains(worker));
                prop_assert!(placement.quarantine.is_none());
            }
        }
    }

    #[test]
    fn no_more_is_moved_to_even_workers_out_than_churn_allows(
        history in placed_world(), chance in chance(), most in 0_u32..10,
    ) {
        let world = lived(history);
        let observed =
            Observed { churn_left: Some(most), evened_out_by: None, ..chance.observe(&world) };
        let plan = world.plan(&observed);
        let moved = plan.revokes.iter().filter(|of| of.reason == RevokeReason::Rebalance).count();
        prop_assert!(moved <= most as usize, "{} of {}", moved, most);
        let paused = Observed { rebalance_paused: Some(PauseReason::MassFailure), ..observed };
        let paused = world.plan(&paused);
        let reasons: BTreeSet<RevokeReason> = paused.revokes.iter().map(|of| of.reason).collect();
        prop_assert!(!reasons.contains(&RevokeReason::Rebalance));
    }

    #[test]
    fn the_loss_of_a_zone_moves_its_shards_and_no_others(
        shards in 1_u32..300, workers in 2_usize..=9, lost in 0_usize..3,
    ) {
        let policy = Policy { zone_label: "zone".to_owned(), ..Policy::default() };
        let mut world = World::new(shards, policy);
        let zones = ["north", "south", "west"];
        for (at, worker) in NAMES[..workers].iter().enumerate() {
            world.join_labelled(worker, 1, &[("zone", zones[at % 3])]);
        }
        world.settle(&Observed::default());
        let before = world.owners();
        let mut had = BTreeSet::new();
        for (at, worker) in NAMES[..workers].iter().enumerate() {
            if at % 3 == lost && workers > 2 {
                had.extend(world.state.owned(world.session(worker).unwrap()));
                world.expire(worker);
            }
        }
        world.settle(&Observed::default());
        prop_assert_eq!(world.moved_since(&before), had);
        for (id, floor, cap) in bounds(&world, &Observed::default()) {
            let load = u64::try_from(world.state.owned(id).len()).unwrap();
            prop_assert!((floor..=cap).contains(&load), "{} not in {}..={}", load, floor, cap);
        }
    }

    #[test]
    fn zones_get_shards_by_weight(shards in 1_u32..300, workers in vec((0_usize..3, 1_u32..5), 1..10)) {
        let policy = Policy { zone_label: "zone".to_owned(), ..Policy::default() };
        let mut world = World::new(shards, policy);
        let zones = ["north", "south", "west"];
        for (worker, (zone, weight)) in NAMES.iter().zip(&workers) {
            world.join_labelled(worker, *weight, &[("zone", zones[*zone])]);
        }
        world.carry_out(world.plan(&Observed::default()));
        let weights: u64 = workers.iter().map(|(_, weight)| u64::from(*weight)).sum();
        for zone in 0..3 {
            let members = NAMES.iter().zip(&workers).filter(|(_, (of, _))| *of == zone);
            let weight: u64 = members.clone().map(|(_, (_, weight))| u64::from(*weight)).sum();
            let has: usize = members.map(|(worker, _)| {
                world.state.owned(world.session(worker).unwrap()).len()
            }).sum();
            let exact = u64::from(shards) * weight;
            let (floor, ceil) = (exact / weights, exact.div_ceil(weights));
            let has = u64::try_from(has).unwrap();
            prop_assert!((floor..=ceil).contains(&has), "zone {} has {} of {}..={}", zone, has, floor, ceil);
        }
    }

    #[test]
    fn equal_states_give_equal_plans(history in placed_world(), chance in chance()) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let records = world.state.records().map(|(key, value)| (key, value.to_vec()));
        let reread = State::from_records(records).unwrap();
        prop_assert_eq!(world.plan(&observed), plan(&reread, world.group, &observed));
    }

    #[test]
    fn nobody_is_given_a_shard_above_its_cap(history in placed_world(), chance in chance()) {
        let world = lived(history);
        let observed = chance.observe(&world);
        let plan = world.plan(&observed);
        // What is pinned to a worker comes on top of its share.
        let given = given(&plan).into_iter().filter(|(shard, to)| pinned_to(&world, *shard) != Some(*to));
        let given: BTreeSet<SessionId> = given.map(|(_, to)| to).collect();
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
        history in placed_world(), chance in chance(),
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
    fn workers_that_stop_are_given_nothing(history in placed_world(), chance in chance()) {
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
    fn every_unowned_shard_is_granted_or_explained(history in placed_world(), chance in chance()) {
        let world = lived(history);
        let plan = world.plan(&chance.observe(&world));
        let reasons = [
            Reason::NoWorker, Reason::AllAtCap, Reason::LockDelay, Reason::RestartGrace, Reason::BackingOff,
            Reason::WorkerPaused,
            Reason::LabelsMissing, Reason::WorkersFull, Reason::KeptOff, Reason::Quarantined,
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
            let step = if let Step::Join { worker, labels, .. } = step { Step::Join { worker, weight: 1, labels } } else { step };
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
    fn a_plan_cut_into_commands_is_the_same_plan(history in placed_world(), moves_max in 0_usize..10) {
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
