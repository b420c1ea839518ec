//! One run: builds the machines, lets time pass step by step, and checks everything after each.

mod calm;
mod faults;
mod leaders;
mod members;
mod orders;
mod storm;
mod zombies;

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_ownership::State;
use tokio::sync::mpsc;

use self::faults::Mending;
use crate::client::{self, Change, ClientSetup, Done, ORDERS_MAX, Order, Terms};
use crate::clock::MachineClock;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::history::History;
use crate::machine::{Machine, Role};
use crate::network::{Kernel, Meter, machine_network};
use crate::node::{self, CLIENT_PORT, NodeHandle, NodeSetup};
use crate::process::Process;
use crate::store::SharedStore;
use crate::totals::Totals;
use crate::trace::Stamp;
use crate::worker::{self, WorkerProcess, WorkerSetup};

/// True time of one step. A message takes at least one: much shorter steps would only cost time.
const STEP: Duration = Duration::from_millis(5);

/// Shards of the group.
const SHARDS: u32 = 12;

/// Workers of the group.
const WORKERS: usize = 4;

/// Clocks run up to that much too fast or too slow, in parts per million: two of them differ by less
/// than the 5 % that P11 allows.
const DRIFT_MAX_PPM: i64 = 22_000;

/// The same where clocks are worse than anybody may expect: two of them differ by up to a factor of two.
const SKEW_MAX_PPM: i64 = 330_000;

/// Steps between two lines of a trace that show the digest of all bytes sent.
const METER_STEPS: u64 = 40;

/// Steps after which events that no node can tell any more are given up.
const UNFOLLOWED_STEPS: u64 = 400;

/// What kind of run it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scenario {
    /// Three nodes, four workers, every kind of fault.
    #[default]
    Storm,
    /// Five nodes, whose leader is replaced fifty times while workers write.
    Leaders,
    /// Every worker is stopped until others have its shards, and wakes.
    Zombies,
    /// Three of five nodes, of which one after the other is exchanged for one that is new.
    Members,
    /// A storm with clocks so bad that P11 cannot be kept, and with drained workers that are cut off, which
    /// shows it. Everything else has to be kept: to see that the check of P11 can fail, and that nothing
    /// rests on clocks which must not.
    Skewed,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Storm => "storm",
            Self::Leaders => "leaders",
            Self::Zombies => "zombies",
            Self::Members => "members",
            Self::Skewed => "skewed",
        })
    }
}

/// No scenario has that name.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is none of storm, leaders, zombies, members and skewed")]
pub struct UnknownScenario(String);

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [
            Self::Storm,
            Self::Leaders,
            Self::Zombies,
            Self::Members,
            Self::Skewed,
        ]
        .into_iter()
        .find(|scenario| scenario.to_string() == text)
        .ok_or_else(|| UnknownScenario(text.to_owned()))
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its counts.
    pub totals: Totals,
    /// The promises it broke.
    pub violations: Vec<String>,
}

/// Why a run could not go on: a mistake of the simulation, not of what it runs.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A runtime could not be built.
    #[error("a process cannot be started")]
    Process(#[from] std::io::Error),
    /// The network failed.
    #[error("the network cannot go on: {0}")]
    Network(String),
}

/// Runs a seed from begin to end.
///
/// To be called on a thread of its own, and only once on it: what threads keep for themselves, such as the
/// keys of hash maps, is drawn from the seed as well.
///
/// # Errors
///
/// [`RunError`] if the run could not be carried out. Broken promises are in the report.
pub fn run(seed: u64, scenario: Scenario, stamp: Arc<Stamp>) -> Result<Report, RunError> {
    let mut run = Run::new(seed, scenario, stamp)?;
    if run.boot()? {
        match scenario {
            Scenario::Storm | Scenario::Skewed => run.storm()?,
            Scenario::Leaders => run.replace_leaders()?,
            Scenario::Zombies => run.make_zombies()?,
            Scenario::Members => run.exchange_members()?,
        }
        run.calm()?;
    }
    Ok(run.finish())
}

struct Run {
    dice: Dice,
    network: turmoil::Sim<'static>,
    /// Nodes, then workers, then the client.
    machines: Vec<Machine>,
    nodes: usize,
    stamp: Arc<Stamp>,
    meter: Arc<Meter>,
    history: Arc<Mutex<History>>,
    store: Arc<SharedStore>,
    orders: mpsc::Sender<Order>,
    changes: mpsc::Sender<Change>,
    done: Arc<Mutex<Done>>,
    /// Number of the last process.
    process: u64,
    /// What is mended when, in nanoseconds of true time.
    mendings: Vec<(u64, Mending)>,
    steps: u64,
    unfollowed: u64,
    scenario: Scenario,
    drift_max_ppm: i64,
    snapshot_entries: u64,
    history_events: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Run {
    fn new(seed: u64, scenario: Scenario, stamp: Arc<Stamp>) -> Result<Self, RunError> {
        let mut dice = Dice::new(seed, "schedule");
        let nodes = match scenario {
            Scenario::Leaders | Scenario::Members => 5,
            Scenario::Storm | Scenario::Zombies | Scenario::Skewed => 3,
        };
        let network = turmoil::Builder::new()
            .rng_seed(dice.seed())
            .tick_duration(STEP)
            .simulation_duration(Duration::from_secs(86_400))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(faults::USUAL_DELAY)
            .repair_rate(0.3)
            .tcp_capacity(4_096)
            .enable_random_order()
            .build();
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let (changes, changed) = mpsc::channel(ORDERS_MAX);
        let mut run = Self {
            network,
            machines: Vec::new(),
            nodes,
            stamp,
            meter: Arc::default(),
            history: Arc::default(),
            store: SharedStore::new(Dice::new(seed, "store")),
            orders,
            changes,
            done: Arc::default(),
            process: 0,
            mendings: Vec::new(),
            steps: 0,
            unfollowed: 0,
            scenario,
            drift_max_ppm: match scenario {
                Scenario::Skewed => SKEW_MAX_PPM,
                Scenario::Storm | Scenario::Leaders | Scenario::Zombies | Scenario::Members => {
                    DRIFT_MAX_PPM
                }
            },
            snapshot_entries: u64::try_from(dice.within(100..=1_000)).unwrap_or(100),
            history_events: 1_000 + dice.below(400),
            dice,
        };
        for number in 1..=nodes {
            let disk = Disk::new(Dice::new(seed, &format!("disk-{number}")));
            let handle = NodeHandle::default();
            run.add_machine(format!("node-{number}"), Role::Node { disk, handle });
        }
        for number in 1..=WORKERS {
            let process = WorkerProcess::default();
            run.add_machine(format!("worker-{number}"), Role::Worker { process });
        }
        run.add_machine("client".to_owned(), Role::Client);
        for machine in 0..run.client() {
            run.start(machine)?;
        }
        run.start_client(ordered, changed)?;
        Ok(run)
    }

    fn add_machine(&mut self, name: String, role: Role) {
        let (network, kernel) = machine_network(Arc::clone(&self.meter));
        let kernel = RefCell::new(Some(kernel));
        self.network.host(name.as_str(), move || {
            serve_once(kernel.borrow_mut().take())
        });
        let drift = self.dice.within(-self.drift_max_ppm..=self.drift_max_ppm);
        let booted_ago = self.dice.millis(1_000..=10_000_000);
        self.machines.push(Machine {
            name: name.into(),
            clock: MachineClock::new(booted_ago, drift),
            network,
            role,
            process: None,
        });
    }

    /// Number of the client's machine, which is the last.
    fn client(&self) -> usize {
        self.machines.len() - 1
    }

    fn hosts(&self) -> Vec<String> {
        let nodes = self.machines.iter().take(self.nodes);
        nodes.map(|machine| machine.name.to_string()).collect()
    }

    /// Starts the process of a machine that is down.
    fn start(&mut self, machine: usize) -> Result<(), RunError> {
        self.process += 1;
        let seed = self.dice.seed();
        let coordinators = self
            .hosts()
            .iter()
            .map(|host| format!("{host}:{CLIENT_PORT}"))
            .collect();
        let (number, history, store) = (self.process, &self.history, &self.store);
        let (snapshot_entries, history_events) = (self.snapshot_entries, self.history_events);
        let Some(it) = self.machines.get_mut(machine) else {
            return Ok(());
        };
        if it.process.is_some() {
            return Ok(());
        }
        tracing::info!(target: "simulation", machine = %it.name, "started");
        let process = match &mut it.role {
            Role::Node { disk, handle } => {
                *handle = NodeHandle::default();
                let setup = NodeSetup {
                    host: it.name.to_string(),
                    network: it.network.clone(),
                    clock: it.clock.clone(),
                    disk: disk.clone(),
                    snapshot_entries,
                    history_events,
                };
                let main = node::run(setup, handle.clone());
                Process::start(it.clock.clone(), seed, main)?
            }
            Role::Worker { process } => {
                *process = WorkerProcess::default();
                let setup = WorkerSetup {
                    name: it.name.to_string(),
                    machine,
                    process: number,
                    coordinators,
                    network: it.network.clone(),
                    clock: it.clock.clone(),
                    store: Arc::clone(store),
                    history: Arc::clone(history),
                    seed,
                };
                let main = worker::run(setup, process.clone());
                Process::start(it.clock.clone(), seed, main)?
            }
            Role::Client => return Ok(()),
        };
        it.process = Some(process);
        Ok(())
    }

    fn start_client(
        &mut self,
        orders: mpsc::Receiver<Order>,
        changes: mpsc::Receiver<Change>,
    ) -> Result<(), RunError> {
        let seed = self.dice.seed();
        let hosts = self.hosts();
        let (history, done) = (Arc::clone(&self.history), Arc::clone(&self.done));
        if let Some(client) = self.machines.last_mut() {
            let setup = ClientSetup {
                hosts,
                network: client.network.clone(),
                history,
                done,
            };
            let main = client::run(setup, orders, changes);
            client.process = Some(Process::start(client.clock.clone(), seed, main)?);
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.stamp.now_ns())
    }

    fn order(&mut self, order: Order) {
        // The client takes them at once; it is never that far behind.
        if self.orders.try_send(order).is_err() {
            self.violate("the client takes no orders".to_owned());
        }
    }

    fn violate(&self, what: String) {
        lock(&self.history).violate(what);
    }

    /// Draws a group's policy.
    fn terms(&mut self) -> Terms {
        let dice = &mut self.dice;
        let mut terms = Terms {
            ttl: dice.millis(2_000..=5_000),
            disconnect_grace: dice.millis(300..=1_000),
            restart_grace: if dice.chance(300) {
                dice.millis(1_000..=3_000)
            } else {
                Duration::ZERO
            },
            lock_delay: if dice.chance(200) {
                dice.millis(500..=2_000)
            } else {
                Duration::ZERO
            },
            drain_timeout: dice.millis(500..=3_000),
        };
        if self.scenario == Scenario::Skewed {
            // What ends a tenure then is the end of belief, and nothing that takes longer.
            terms.disconnect_grace = Duration::from_secs(1);
            terms.drain_timeout = Duration::from_millis(500);
        }
        terms
    }

    /// Makes the cluster and the group. Returns whether all shards came to be served.
    fn boot(&mut self) -> Result<bool, RunError> {
        const BOOT_MAX: Duration = Duration::from_secs(30);
        let mut hosts = self.hosts();
        if self.scenario == Scenario::Members {
            hosts.truncate(members::MEMBERS);
        }
        self.order(Order::Init(hosts));
        if !self.wait("the cluster exists", BOOT_MAX, |run| {
            lock(&run.done).initialized
        })? {
            return Ok(false);
        }
        let terms = self.terms();
        self.order(Order::CreateGroup(SHARDS, terms));
        if !self.wait("the group exists", BOOT_MAX, |run| lock(&run.done).created)? {
            return Ok(false);
        }
        self.wait("every shard is served", BOOT_MAX, Self::is_served)
    }

    /// Lets time pass until something is so; says so if that takes too long.
    fn wait(
        &mut self,
        what: &str,
        within: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<bool, RunError> {
        let until = self.now() + within;
        while !is_so(self) {
            if self.now() >= until {
                let now = self.now();
                self.violate(format!("liveness: at {now:?} it is not yet so that {what}"));
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    fn pass(&mut self, time: Duration) -> Result<(), RunError> {
        let until = self.now() + time;
        while self.now() < until {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), RunError> {
        self.stamp.set_turn("network");
        let stepped = self.network.step();
        stepped.map_err(|error| RunError::Network(error.to_string()))?;
        let count = self.machines.len();
        // Nobody is always the first.
        let first = usize::try_from(self.steps % 1_024).unwrap_or(0);
        for offset in 0..count {
            if let Some(machine) = self.machines.get_mut((first + offset) % count) {
                self.stamp.set_turn(&machine.name);
                machine.turn(STEP);
            }
        }
        self.steps += 1;
        self.stamp.set_turn("run");
        self.stamp.set_now_ns(self.stamp.now_ns() + nanos(STEP));
        self.check();
        self.reap();
        self.mend_due()
    }

    fn check(&mut self) {
        let now_ns = self.stamp.now_ns();
        let complaints = self.store.step(now_ns);
        let mut history = lock(&self.history);
        for complaint in complaints {
            history.violate(complaint);
        }
        let mut followed = false;
        for (number, machine) in self.machines.iter().enumerate().take(self.nodes) {
            let Some(node) = machine.node() else { continue };
            if let Some(term) = node.observe(number, &mut history, now_ns) {
                history.totals.leaders += 1;
                tracing::info!(target: "simulation", node = number, term, "leads");
            }
            followed |= node.is_followed();
        }
        let machines = &self.machines;
        history.check_belief(|machine| machines.get(machine).is_some_and(Machine::is_paused));
        self.unfollowed = if followed { 0 } else { self.unfollowed + 1 };
        if self.unfollowed > UNFOLLOWED_STEPS {
            let states = self.machines.iter().filter_map(Machine::node);
            let revisions = states.filter_map(|node| node.state().map(|state| state.revision().0));
            if let Some(revision) = revisions.max() {
                history.skip_events(revision);
            }
            self.unfollowed = 0;
        }
        if self.steps.is_multiple_of(METER_STEPS) {
            let (bytes, digest) = self.meter.read();
            let digest = format!("{digest:016x}");
            tracing::debug!(target: "simulation", bytes, digest, "sent so far");
        }
    }

    /// Clears away processes that have ended by themselves, to be started again.
    fn reap(&mut self) {
        for number in 0..self.machines.len() {
            let Some(machine) = self.machines.get_mut(number) else {
                continue;
            };
            let ended = match &machine.role {
                Role::Node { handle, .. } => handle.ended().is_some(),
                Role::Worker { process } => process.ended().is_some(),
                Role::Client => false,
            };
            if ended && machine.process.is_some() {
                machine.kill(false);
                let after = self.dice.millis(100..=1_500);
                self.mend_after(after, Mending::Start(number));
            }
        }
    }

    /// Returns the leader with the highest term, among the nodes that are up.
    fn leader(&self) -> Option<usize> {
        let nodes = self.machines.iter().enumerate().take(self.nodes);
        nodes
            .filter(|(_, machine)| machine.is_up())
            .filter_map(|(number, machine)| Some((machine.node()?.leads()?, number)))
            .max()
            .map(|(_, number)| number)
    }

    /// Returns the leader's state.
    fn leading_state(&self) -> Option<State> {
        self.machines.get(self.leader()?)?.node()?.state()
    }

    /// Tells whether every shard is served by a live owner.
    fn is_served(&self) -> bool {
        let Some(state) = self.leading_state() else {
            return false;
        };
        let Some(group) = state.groups().next() else {
            return false;
        };
        group.indexed_shards().all(|(_, shard)| {
            matches!(shard.state, tenure_ownership::shard::ShardState::Serving(_))
        })
    }

    fn finish(self) -> Report {
        let mut history = lock(&self.history);
        history.totals.seeds = 1;
        history.totals.simulated = self.now();
        history.totals.steps = self.steps;
        let refused = self.store.refused();
        history.totals.refused = history.totals.refused.max(refused);
        Report {
            totals: history.totals.clone(),
            violations: history.violations().to_vec(),
        }
    }
}

async fn serve_once(kernel: Option<Kernel>) -> turmoil::Result {
    if let Some(kernel) = kernel {
        kernel.serve().await;
    }
    Ok(())
}
