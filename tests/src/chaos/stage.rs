//! Carries out faults, and takes them back.

mod members;
mod networks;
mod processes;
mod workers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure_proto::v1::WorkerMode;

use super::GROUP;
use super::check::Violation;
use super::coordinators::Coordinators;
use super::delay::DelayProxy;
use super::network::{Host, Network};
use super::rules::Rules;
use super::schedule::{Kind, Step};
use super::workers::Workers;
use crate::failure::Failure;

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
    Resume(u8),
    Thaw,
    Unpin(u32),
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
        for place in self.coordinators.members() {
            // Those that may have ended: their disk was full, or a sync failed.
            if self.coordinators.node(place)?.process().is_none() {
                self.coordinators.spawn(place, &self.network)?;
            }
            // One that was only just started does not listen for signals yet: an order to stop would kill it.
            self.coordinators.answers(place).await?;
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
            Kind::Drain => self.set_aside(choice, WorkerMode::Draining).await,
            Kind::Cordon => self.set_aside(choice, WorkerMode::Cordoned).await,
            Kind::PlannedRestart => self.planned_restart(choice).await,
            Kind::Freeze => self.freeze().await,
            Kind::Pin => self.pin(choice).await,
            Kind::RollingRestart | Kind::Membership => Ok(None),
        }
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
            Undo::Resume(place) => {
                self.workers.start(place, &self.network)?;
                self.set_mode(place, WorkerMode::Active).await
            }
            Undo::Thaw => self.coordinators.client().set_freeze(GROUP, "").await,
            Undo::Unpin(shard) => {
                let client = self.coordinators.client();
                client.pin_shard(GROUP, shard, None).await
            }
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
                Undo::StartWorker(other) | Undo::WakeWorker(other) | Undo::Resume(other) => {
                    *other == place
                }
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
