//! How long planning takes: 1,000,000 shards on 10,000 workers, from nothing and after one change; and
//! how long a command takes beside a plan in the making, when what it changes is copied first.
//!
//! `cargo bench -p tenure-ownership --bench planner`, or with `-- SHARDS WORKERS` for other sizes.
//! Prints the slowest of [`RUNS`] runs of each plan in milliseconds of processor time, because the
//! budget is a limit and not an average. Needs Linux.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a measurement reads its arguments and the processor time, prints, and stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_ownership::command::{Command, CreateGroup, Ready, Register, SetWorkerMode, Tenure};
use tenure_ownership::ids::{ClusterId, GroupId, ProcessNonce, Revision, SessionId, WorkerName};
use tenure_ownership::planner::{self, Observed, Plan};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::{State, apply};

/// Enough for a stray interruption to show as one, few enough to finish in seconds.
const RUNS: usize = 5;

/// Sessions that end to measure how long one takes to apply.
const ENDS: usize = 500;

/// Moves per command, as a leader would cut a plan.
const MOVES_PER_COMMAND: usize = 10_000;

fn main() {
    // `cargo bench` adds a flag of its own.
    let mut sizes = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let shards: u32 = sizes.next().map_or(1_000_000, |size| size.parse().unwrap());
    let workers: u32 = sizes.next().map_or(10_000, |size| size.parse().unwrap());
    println!("{shards} shards, {workers} workers, slowest of {RUNS}");

    let mut world = World::new(shards, 1_100);
    let sessions: Vec<SessionId> = (0..workers).map(|number| world.join(number)).collect();
    let away = Observed {
        disconnected: sessions.iter().copied().collect(),
        ..Observed::default()
    };
    let plan = world.measure_with("nobody has a stream", &away);
    assert!(plan.is_empty());
    let plan = world.measure("from nothing");
    world.carry_out(plan);
    sessions.iter().for_each(|session| world.ready(*session));
    let plan = world.measure("nothing changed");
    assert!(plan.is_empty());

    world.apply(Command::Expire(vec![sessions[0]]));
    let plan = world.measure("one worker lost");
    assert_eq!(
        plan.grants.len(),
        usize::try_from(shards / workers).unwrap()
    );
    world.carry_out(plan);

    let session = world.join(workers);
    let plan = world.measure("one worker joined");
    assert!(!plan.revokes.is_empty());
    world.carry_out(plan);
    world.ready(session);

    world.drain(1);
    let plan = world.measure("one worker drained");
    assert!(!plan.revokes.is_empty());

    let ends = ENDS.min(sessions.len() / 4);
    let (alone, rest) = sessions[2..].split_at(ends);
    let (beside, rest) = rest.split_at(ends);
    world.measure_apply("lost, alone", alone, false);
    world.measure_apply("lost, beside a plan", beside, true);

    world.apply(Command::Expire(rest.iter().copied().step_by(2).collect()));
    world.measure("half of them lost");

    // The tightest policy: every worker is full to the last shard.
    let mut world = World::new(shards, 1_000);
    for number in 0..workers {
        world.join(number);
    }
    world.measure("nothing, factor 1.0");
}

struct World {
    state: State,
    group: GroupId,
}

impl World {
    fn new(shards: u32, load_factor_permille: u32) -> Self {
        let mut world = Self {
            state: State::new(),
            group: GroupId(2),
        };
        world.apply(Command::InitCluster(ClusterId(1)));
        world.apply(Command::CreateGroup(CreateGroup {
            name: "bench".try_into().unwrap(),
            shard_count: shards,
            policy: Policy {
                load_factor_permille,
                ..Policy::default()
            },
        }));
        world
    }

    fn apply(&mut self, command: Command) -> Revision {
        let revision = Revision(self.state.revision().0 + 1);
        let effect = apply(&mut self.state, revision, command).outcome.unwrap();
        assert!(
            effect.refused.is_empty(),
            "refused {:?}",
            effect.refused.first()
        );
        revision
    }

    fn join(&mut self, number: u32) -> SessionId {
        let revision = self.apply(Command::Register(Box::new(Register {
            group: "bench".try_into().unwrap(),
            worker: worker(number),
            nonce: ProcessNonce(number.into()),
            first: None,
            replaces: None,
            ttl: None,
            weight: 1,
            labels: BTreeMap::new(),
            address: String::new(),
        })));
        SessionId(revision.0)
    }

    fn drain(&mut self, number: u32) {
        self.apply(Command::SetWorkerMode(SetWorkerMode {
            group: "bench".try_into().unwrap(),
            worker: worker(number),
            mode: WorkerMode::Draining,
            pause_timeout: None,
        }));
    }

    fn ready(&mut self, session: SessionId) {
        let tenures = self.state.owned(session).map(|shard| {
            let epoch = self.state.shard(self.group, shard).unwrap().epoch.unwrap();
            Tenure { shard, epoch }
        });
        let tenures = tenures.collect();
        self.apply(Command::Ready(Ready {
            session,
            stores: Vec::new(),
            tenures,
        }));
    }

    fn carry_out(&mut self, plan: Plan) {
        for command in plan.into_commands(MOVES_PER_COMMAND) {
            self.apply(command);
        }
    }

    /// How long it takes on average to apply the end of a session with all its shards. Of one alone the
    /// kernel does not account for so short a time.
    fn measure_apply(&mut self, what: &str, sessions: &[SessionId], beside_a_plan: bool) {
        let mut sum = Duration::ZERO;
        for session in sessions {
            let planned_from = beside_a_plan.then(|| self.state.clone());
            let start = time_on_cpu();
            self.apply(Command::Expire(vec![*session]));
            sum += time_on_cpu() - start;
            drop(planned_from);
        }
        let average = sum.as_micros() / sessions.len() as u128;
        println!("{what:<20} {average:>6} µs");
    }

    fn measure(&self, what: &str) -> Plan {
        self.measure_with(what, &Observed::default())
    }

    fn measure_with(&self, what: &str, observed: &Observed) -> Plan {
        let mut slowest = Duration::ZERO;
        let mut latest = None;
        for _ in 0..RUNS {
            let start = time_on_cpu();
            latest = Some(planner::plan(&self.state, self.group, observed));
            slowest = slowest.max(time_on_cpu() - start);
        }
        let plan = latest.unwrap();
        let (grants, revokes) = (plan.grants.len(), plan.revokes.len());
        let millis = slowest.as_micros() / 1_000;
        println!("{what:<20} {millis:>6} ms  grants={grants} revokes={revokes}");
        plan
    }
}

/// What this thread has used of a processor. Planning neither waits nor shares its work, so on an idle
/// machine this is the time that passes, and on a busy one it is still the planner's own.
fn time_on_cpu() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = statistics.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

fn worker(number: u32) -> WorkerName {
    WorkerName::new(&format!("worker-{number:05}")).unwrap()
}
