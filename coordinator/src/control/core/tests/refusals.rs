//! Plans that are refused again and again (scenario 23).

use std::io;
use std::sync::Arc;
use std::sync::Mutex;

use metrics_exporter_prometheus::PrometheusBuilder;
use tenure_ownership::Command;
use tenure_ownership::State;
use tenure_ownership::apply;
use tenure_ownership::command::SetWorkerMode;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;

use super::world::World;
use super::world::group_name;
use super::world::ms;
use crate::metrics as names;

/// What the log of a test was given.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn drain(worker: &str) -> Command {
    Command::SetWorkerMode(SetWorkerMode {
        group: group_name(),
        worker: WorkerName::new(worker).unwrap(),
        mode: WorkerMode::Draining,
        pause_timeout: None,
    })
}

/// Lets a planner that lags behind for good plan for three seconds, from `lagging`, in which no shard has moved on
/// yet. Everything it plans is refused. Checks that this is reported with its reason, and neither
/// given up nor tried in a tight loop.
///
/// `choices` is how many sets of moves the planner can choose from, of which each is delayed by itself.
fn plan_in_vain(world: &mut World, lagging: State, choices: usize, wake: impl FnOnce(&mut World)) {
    let owners = |world: &World| {
        let shards = world.state.group(world.group()).unwrap().indexed_shards();
        shards
            .map(|(_, shard)| (shard.owner(), shard.epoch))
            .collect::<Vec<_>>()
    };
    let before = owners(world);
    let recorder = PrometheusBuilder::new().build_recorder();
    let (page, log) = (recorder.handle(), Log::default());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    world.planned_from = Some(lagging);
    world.plans_with_moves = 0;
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber, || {
            wake(world);
            world.advance(ms(3_000));
        });
    });
    // Three at once, and then after 300 ms, 400 ms and so on.
    assert!(
        (5 * choices..=10 * choices).contains(&world.plans_with_moves),
        "{} plans in three seconds",
        world.plans_with_moves
    );
    assert_eq!(owners(world), before, "nothing came of them");
    let raised = page.render();
    assert!(raised.contains(names::MOVES_REFUSED_REPEATEDLY), "{raised}");
    let text = log.text();
    assert!(
        text.contains("planned moves are refused again and again") && text.contains("epoch 2"),
        "the warning names the reason: {text}"
    );
}

/// Lets everything move on to the second epoch, without a plan made from what was before.
fn move_on(world: &mut World, worker: &str) {
    let session = world.session_of(worker).unwrap();
    let stream = world.stream_of(session);
    world.planned_from = None;
    world.give_back(stream, session);
    world.advance(ms(300));
    let shards = world.state.group(world.group()).unwrap().header.shard_count;
    assert!((0..shards).all(|shard| world.epoch(shard) == 2));
}

#[test]
fn a_drain_refused_again_and_again_is_reported_and_not_retried_in_a_tight_loop() {
    let mut world = World::new(1, Policy::default());
    let (_, a) = world.serving("a", 1);
    let (_, b) = world.serving("b", 2);
    let mut lagging = world.state.clone();
    let next = Revision(lagging.revision().0 + 1);
    apply(&mut lagging, next, drain("a")).outcome.unwrap();
    move_on(&mut world, "a");
    assert_eq!(world.owner(0), Some(a));
    plan_in_vain(&mut world, lagging, 1, |world| {
        world.apply(drain("a")).1.unwrap();
    });

    // Once the planner sees what is, the drain is carried out.
    world.planned_from = None;
    world.obedient = true;
    world.advance(ms(1_000));
    assert_eq!((world.owner(0), world.epoch(0)), (Some(b), 3));
}

#[test]
fn a_grant_refused_again_and_again_is_reported_and_not_retried_in_a_tight_loop() {
    let mut world = World::new(1, Policy::default());
    let stream = world.register("a", 1);
    let lagging = world.state.clone();
    world.advance(ms(300));
    let session = world.session_of("a").unwrap();
    world.all_ready(stream, session);
    move_on(&mut world, "a");
    plan_in_vain(&mut world, lagging, 1, |world| {
        world.serving("b", 2);
    });
}

#[test]
fn a_rebalance_refused_again_and_again_is_reported_and_not_retried_in_a_tight_loop() {
    let mut world = World::new(4, Policy::default());
    world.serving("a", 1);
    // Nothing is planned for the second worker yet.
    world.planned_from = Some(State::new());
    world.register("b", 2);
    let lagging = world.state.clone();
    move_on(&mut world, "a");
    plan_in_vain(&mut world, lagging, 2, |world| {
        world.serving("c", 3);
    });
}

#[test]
fn refusals_in_one_entry_of_a_plan_are_counted_beside_its_other_entries() {
    let mut world = World::new(20_000, Policy::default());
    let stream = world.register("a", 1);
    let lagging = world.state.clone();
    world.advance(ms(300));
    let session = world.session_of("a").unwrap();
    world.all_ready(stream, session);
    move_on(&mut world, "a");
    // Two entries of 10,000 refused grants each, one decided after the other.
    plan_in_vain(&mut world, lagging, 1, |world| {
        world.serving("b", 2);
    });
}
