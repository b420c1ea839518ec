//! Carries out faults, and takes them back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tenure_proto::v1::WorkerMode;

use super::GROUP;
use super::check::Violation;
use super::coordinators::{CLIENT_PORT, Coordinators, PEER_PORT};
use super::delay::DelayProxy;
use super::network::{Host, Network};
use super::rules::{Disturbance, Rules, Way, between};
use super::schedule::{Kind, Step};
use super::workers::Workers;
use crate::failure::Failure;

/// How far wall clocks jump: an hour, a day and ten years, ahead and back.
const JUMPS_SECONDS: [i64; 6] = [
    3_600,
    -3_600,
    86_400,
    -86_400,
    10 * 366 * 86_400,
    -10 * 366 * 86_400,
];

const ENDED: &str = "no process ends by itself";

/// How a fault is taken back.
#[derive(Debug)]
enum Undo {
    StartNode(u8),
    WakeNode(u8),
    StartWorker(u8),
    WakeWorker(u8),
    SetClock(Host),
    FreeDisk(u8),
    SyncAgain(u8),
    Network(Vec<DelayProxy>),
    Activate(u8),
}

/// A fault that holds.
#[derive(Debug)]
struct Holding {
    until: Instant,
    undo: Undo,
}

/// Everything that takes part.
#[derive(Debug)]
pub(super) struct Stage {
    // The processes first, then the network they are on.
    /// The workers.
    pub(super) workers: Workers,
    /// The coordinators.
    pub(super) coordinators: Coordinators,
    /// The hosts.
    pub(super) network: Network,
    rules: Rules,
    holding: BTreeMap<u64, Holding>,
    faults: u64,
    begun: Instant,
    /// How many faults of each kind there were.
    pub(super) carried_out: BTreeMap<Kind, u32>,
    /// Processes that ended although nothing had been done to them.
    pub(super) violations: Vec<Violation>,
}

impl Stage {
    /// Creates a stage on which nothing has gone wrong.
    #[must_use]
    pub(super) fn new(network: Network, coordinators: Coordinators, workers: Workers) -> Self {
        Self {
            workers,
            coordinators,
            network,
            rules: Rules::default(),
            holding: BTreeMap::new(),
            faults: 0,
            begun: Instant::now(),
            carried_out: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Says when the schedule begins.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Waits until a moment of the schedule, and takes back what ends until then.
    ///
    /// # Errors
    ///
    /// When something cannot be taken back.
    pub(super) async fn wait_until(&mut self, at: Duration) -> Result<(), Failure> {
        let at = self.begun + at;
        loop {
            let next = self.holding.iter().min_by_key(|(_, holding)| holding.until);
            let Some((&fault, until)) = next.map(|(fault, holding)| (fault, holding.until)) else {
                break;
            };
            if until > at {
                break;
            }
            tokio::time::sleep_until(until.into()).await;
            self.undo(fault).await?;
            self.look_for_ended()?;
        }
        tokio::time::sleep_until(at.into()).await;
        self.look_for_ended()
    }

    /// Takes back everything.
    ///
    /// # Errors
    ///
    /// When something cannot be taken back.
    pub(super) async fn undo_all(&mut self) -> Result<(), Failure> {
        while let Some((&fault, _)) = self.holding.first_key_value() {
            self.undo(fault).await?;
        }
        self.look_for_ended()?;
        // Those that may have ended: their disk was full, or a sync failed.
        for place in self.coordinators.members() {
            if self.coordinators.node(place)?.process().is_none() {
                self.coordinators.start_node(place, &self.network).await?;
            }
        }
        Ok(())
    }

    /// Carries out a fault. One that finds no host to happen to is left out.
    ///
    /// # Errors
    ///
    /// When it cannot be carried out.
    pub(super) async fn carry_out(&mut self, step: Step) -> Result<(), Failure> {
        let what = match step.kind {
            Kind::RollingRestart => self.rolling_restart().await?,
            Kind::Membership => self.membership(step.choice).await?,
            _ => self.inject(step).await?,
        };
        let Some(what) = what else {
            self.say(&format!("{}: left out", step.kind.name()));
            return Ok(());
        };
        *self.carried_out.entry(step.kind).or_default() += 1;
        self.say(&format!("{}: {what}", step.kind.name()));
        Ok(())
    }

    /// Shows something, with the time since the beginning.
    pub(super) fn say(&self, text: &str) {
        println!("{:>7.2} s  {text}", self.begun.elapsed().as_secs_f64());
    }

    async fn inject(&mut self, step: Step) -> Result<Option<String>, Failure> {
        let fault = self.faults;
        self.faults += 1;
        let Some((undo, what)) = self.begin_fault(fault, step).await? else {
            return Ok(None);
        };
        let until = Instant::now() + step.duration;
        self.holding.insert(fault, Holding { until, undo });
        Ok(Some(format!(
            "{what} for {:.1} s",
            step.duration.as_secs_f64()
        )))
    }

    /// Begins a fault, and says how it is taken back.
    async fn begin_fault(
        &mut self,
        fault: u64,
        step: Step,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let Step { kind, choice, .. } = step;
        match kind {
            Kind::KillNode | Kind::StopNode | Kind::FailingSync => {
                let place = pick(&self.well_nodes(), choice);
                self.hurt_node(kind, place).await
            }
            Kind::KillLeader | Kind::StopLeader => {
                let leader = self.coordinators.leader().await;
                let place = leader.filter(|place| self.well_nodes().contains(place));
                self.hurt_node(kind, place).await
            }
            Kind::KillWorker | Kind::StopWorker | Kind::ReplaceWorker => {
                self.hurt_worker(kind, pick(&self.well_workers(), choice))
                    .await
            }
            Kind::CutNode
            | Kind::CutLeader
            | Kind::CutLeaderFromNodes
            | Kind::OneWay
            | Kind::Partial
            | Kind::CutWorker
            | Kind::Loss => {
                let Some((disturbance, what)) = self.disturbance(kind, choice).await else {
                    return Ok(None);
                };
                self.rules.add(fault, disturbance);
                self.network.apply(&self.rules)?;
                Ok(Some((Undo::Network(Vec::new()), what)))
            }
            Kind::Delay => self.delay(fault, choice).await,
            Kind::ClockJump => self.jump(choice),
            Kind::DiskFull => self.fill_disk().await,
            Kind::Drain => self.drain(choice).await,
            Kind::RollingRestart | Kind::Membership => Ok(None),
        }
    }

    async fn hurt_node(
        &mut self,
        kind: Kind,
        place: Option<u8>,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let Some(place) = place else { return Ok(None) };
        let what = format!("node {place}");
        Ok(Some(match kind {
            Kind::KillNode | Kind::KillLeader => {
                self.coordinators.kill(place).await?;
                (Undo::StartNode(place), what)
            }
            Kind::FailingSync => {
                let node = self.coordinators.node_mut(place)?;
                node.excuse();
                node.orders().set_syncs_fail(true)?;
                (Undo::SyncAgain(place), what)
            }
            _ => {
                if let Some(process) = self.coordinators.node(place)?.process() {
                    process.stop().await?;
                }
                (Undo::WakeNode(place), what)
            }
        }))
    }

    async fn hurt_worker(
        &mut self,
        kind: Kind,
        place: Option<u8>,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let Some(place) = place else { return Ok(None) };
        let what = format!("worker {place}");
        if kind == Kind::KillWorker {
            self.workers.kill(place).await?;
            return Ok(Some((Undo::StartWorker(place), what)));
        }
        if let Some(process) = self.workers.worker(place)?.process() {
            process.stop().await?;
        }
        if kind == Kind::ReplaceWorker {
            self.workers.start(place, &self.network)?;
        }
        Ok(Some((Undo::WakeWorker(place), what)))
    }

    async fn disturbance(&self, kind: Kind, choice: u64) -> Option<(Disturbance, String)> {
        let nodes: Vec<Host> = self.members();
        let workers = self.worker_hosts();
        let leader = match kind {
            Kind::CutLeader | Kind::CutLeaderFromNodes => {
                Some(Host::Node(self.coordinators.leader().await?))
            }
            _ => None,
        };
        let node = leader.or_else(|| pick(&nodes, choice))?;
        let worker = pick(&workers, choice >> 8)?;
        let everybody: Vec<Host> = nodes.iter().chain(&workers).copied().collect();
        let others: Vec<Host> = nodes
            .iter()
            .copied()
            .filter(|&other| other != node)
            .collect();
        let name = node.name();
        Some(match kind {
            // Half of the time a worker is on the same side.
            Kind::CutLeader if choice.is_multiple_of(2) => {
                let rest: Vec<Host> = everybody
                    .iter()
                    .copied()
                    .filter(|&host| host != node && host != worker)
                    .collect();
                let ways = between(&[node, worker], &rest);
                let what = format!("{name} and {} from everybody", worker.name());
                (Disturbance::Cut(ways), what)
            }
            Kind::CutLeaderFromNodes => (
                Disturbance::Cut(between(&[node], &others)),
                format!("{name} from the other nodes"),
            ),
            Kind::OneWay => {
                let sends = choice.is_multiple_of(2);
                let ways = between(&[node], &everybody);
                let ways = ways.into_iter().filter(|way| (way.from == node) == sends);
                let text = if sends { "from" } else { "to" };
                (
                    Disturbance::Cut(ways.collect()),
                    format!("nothing arrives {text} {name}"),
                )
            }
            Kind::Partial => {
                let other = pick(&others, choice >> 16)?;
                (
                    Disturbance::Cut(between(&[node], &[other])),
                    format!("{name} and {} do not hear each other", other.name()),
                )
            }
            Kind::CutWorker => (
                Disturbance::Cut(between(&[worker], &nodes)),
                format!("{} from all nodes", worker.name()),
            ),
            Kind::Loss => {
                let percent = [5, 10, 20, 30][usize::try_from(choice % 4).unwrap_or(0)];
                let ways = between(&everybody, &nodes);
                let what = format!("{percent} % of all packets");
                (Disturbance::Loss { ways, percent }, what)
            }
            _ => (
                Disturbance::Cut(between(&[node], &everybody)),
                format!("{name} from everybody"),
            ),
        })
    }

    async fn delay(&mut self, fault: u64, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
        let nodes = self.members();
        let Some(to) = pick(&nodes, choice) else {
            return Ok(None);
        };
        let from: Vec<Host> = nodes
            .into_iter()
            .chain(self.worker_hosts())
            .filter(|&from| from != to)
            .collect();
        let Some(from) = pick(&from, choice >> 8) else {
            return Ok(None);
        };
        let delay = Duration::from_millis(20 + (choice >> 16) % 400);
        let addresses = self.network.addresses();
        let (mut proxies, mut ports) = (Vec::new(), Vec::new());
        for port in [CLIENT_PORT, PEER_PORT] {
            let target = SocketAddr::from((addresses.of(to), port));
            let proxy = DelayProxy::open(addresses.outside(), target, delay).await?;
            ports.push((port, proxy.port()));
            proxies.push(proxy);
        }
        let way = Way { from, to };
        self.rules.add(fault, Disturbance::Detour { way, ports });
        self.network.apply(&self.rules)?;
        let what = format!("{} to {} by {delay:?}", from.name(), to.name());
        Ok(Some((Undo::Network(proxies), what)))
    }

    fn jump(&mut self, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
        let hosts: Vec<Host> = self
            .members()
            .into_iter()
            .chain(self.worker_hosts())
            .filter(|&host| {
                !self.is_disturbed(|undo| matches!(undo, Undo::SetClock(other) if *other == host))
            })
            .collect();
        let Some(host) = pick(&hosts, choice) else {
            return Ok(None);
        };
        let seconds = pick(&JUMPS_SECONDS, choice >> 8).unwrap_or(0);
        self.set_clock(host, seconds)?;
        let what = format!("{} by {seconds} s", host.name());
        Ok(Some((Undo::SetClock(host), what)))
    }

    fn set_clock(&self, host: Host, seconds: i64) -> Result<(), Failure> {
        match host {
            Host::Node(place) => self.coordinators.node(place)?.orders().set_clock(seconds),
            Host::Worker(place) => self.workers.worker(place)?.orders().set_clock(seconds),
        }
    }

    async fn fill_disk(&mut self) -> Result<Option<(Undo, String)>, Failure> {
        let well = self.well_nodes();
        let disks = self.coordinators.nodes().iter();
        let mut disks = disks.filter(|node| node.disk().is_some() && well.contains(&node.place()));
        let Some(place) = disks.next().map(super::coordinators::Node::place) else {
            return Ok(None);
        };
        let node = self.coordinators.node_mut(place)?;
        node.excuse();
        if let Some(disk) = node.disk() {
            disk.fill().await?;
        }
        Ok(Some((Undo::FreeDisk(place), format!("node {place}"))))
    }

    async fn drain(&mut self, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
        let active: Vec<u8> = self
            .workers
            .places()
            .into_iter()
            .filter(|&place| {
                !self.is_disturbed(|undo| matches!(undo, Undo::Activate(other) if *other == place))
            })
            .collect();
        // Somebody must take the shards.
        if active.len() < 2 {
            return Ok(None);
        }
        let Some(place) = pick(&active, choice) else {
            return Ok(None);
        };
        if self.set_mode(place, WorkerMode::Draining).await.is_err() {
            // Without a quorum nobody is drained.
            return Ok(None);
        }
        Ok(Some((Undo::Activate(place), format!("worker {place}"))))
    }

    async fn set_mode(&self, place: u8, mode: WorkerMode) -> Result<(), Failure> {
        let client = self.coordinators.client();
        let name = Host::Worker(place).name();
        client.set_worker_mode(GROUP, &name, mode).await
    }

    /// Ends and starts every node, one after the other. Nothing else goes on beside it.
    async fn rolling_restart(&mut self) -> Result<Option<String>, Failure> {
        self.undo_all().await?;
        let members = self.coordinators.members();
        for &place in &members {
            self.coordinators.stop(place).await?;
            self.coordinators.start_node(place, &self.network).await?;
        }
        Ok(Some(format!("nodes {members:?}")))
    }

    /// Adds a node and removes another. Nothing else goes on beside it but the load.
    async fn membership(&mut self, choice: u64) -> Result<Option<String>, Failure> {
        self.undo_all().await?;
        // The one with the small disk stays.
        let nodes = self.coordinators.nodes().iter();
        let nodes = nodes.filter(|node| node.has_joined() && node.disk().is_none());
        let nodes: Vec<u8> = nodes.map(super::coordinators::Node::place).collect();
        let Some(leaves) = pick(&nodes, choice) else {
            return Ok(None);
        };
        let (added, removed) = self.coordinators.exchange(leaves, &self.network).await?;
        Ok(Some(format!("node {added} added, node {removed} removed")))
    }

    async fn undo(&mut self, fault: u64) -> Result<(), Failure> {
        let Some(holding) = self.holding.remove(&fault) else {
            return Ok(());
        };
        match holding.undo {
            Undo::StartNode(place) => self.coordinators.spawn(place, &self.network),
            Undo::WakeNode(place) => match self.coordinators.node(place)?.process() {
                Some(process) => process.wake(),
                None => Ok(()),
            },
            Undo::StartWorker(place) => self.workers.start(place, &self.network),
            Undo::WakeWorker(place) => self.workers.wake(place),
            Undo::SetClock(host) => self.set_clock(host, 0),
            Undo::FreeDisk(place) => {
                if let Some(disk) = self.coordinators.node(place)?.disk() {
                    disk.free()?;
                }
                self.restart(place).await
            }
            Undo::SyncAgain(place) => {
                let node = self.coordinators.node(place)?;
                node.orders().set_syncs_fail(false)?;
                self.restart(place).await
            }
            // The proxies live until the rules are gone.
            Undo::Network(_proxies) => {
                self.rules.remove(fault);
                self.network.apply(&self.rules)
            }
            Undo::Activate(place) => self.set_mode(place, WorkerMode::Active).await,
        }
    }

    /// Kills a node whose disk has failed it, and starts it again.
    async fn restart(&mut self, place: u8) -> Result<(), Failure> {
        self.coordinators.kill(place).await?;
        self.coordinators.spawn(place, &self.network)
    }

    /// Notes processes that have ended although nothing had been done to them.
    fn look_for_ended(&mut self) -> Result<(), Failure> {
        for (place, excused, how) in self.coordinators.ended()? {
            self.say(&format!("node {place} has ended"));
            if !excused {
                let seen = format!("node {place} ended with {how}");
                self.violations.push(Violation::new(ENDED, seen));
            }
        }
        for (place, how) in self.workers.ended()? {
            let seen = format!("worker {place} ended with {how}");
            self.violations.push(Violation::new(ENDED, seen));
            self.workers.start(place, &self.network)?;
        }
        Ok(())
    }

    fn members(&self) -> Vec<Host> {
        let members = self.coordinators.members();
        members.into_iter().map(Host::Node).collect()
    }

    fn worker_hosts(&self) -> Vec<Host> {
        let places = self.workers.places();
        places.into_iter().map(Host::Worker).collect()
    }

    fn is_disturbed(&self, by: impl Fn(&Undo) -> bool) -> bool {
        self.holding.values().any(|holding| by(&holding.undo))
    }

    /// Returns the members whose process runs and to which nothing is being done.
    fn well_nodes(&self) -> Vec<u8> {
        let well = |&place: &u8| {
            let runs = self.coordinators.node(place);
            let runs = runs.is_ok_and(|node| node.process().is_some());
            runs && !self.is_disturbed(|undo| match undo {
                Undo::StartNode(other)
                | Undo::WakeNode(other)
                | Undo::FreeDisk(other)
                | Undo::SyncAgain(other) => *other == place,
                _ => false,
            })
        };
        self.coordinators
            .members()
            .into_iter()
            .filter(well)
            .collect()
    }

    /// Returns the workers to whose process nothing is being done.
    fn well_workers(&self) -> Vec<u8> {
        let well = |&place: &u8| {
            !self.is_disturbed(|undo| match undo {
                Undo::StartWorker(other) | Undo::WakeWorker(other) => *other == place,
                _ => false,
            })
        };
        self.workers.places().into_iter().filter(well).collect()
    }
}

/// Picks one by a number.
fn pick<T: Copy>(from: &[T], choice: u64) -> Option<T> {
    let count = u64::try_from(from.len()).ok().filter(|&count| count > 0)?;
    let index = usize::try_from(choice % count).ok()?;
    from.get(index).copied()
}
