//! Faults of one process: signals, its clock, its disk.

use super::{Stage, Undo, pick};
use crate::chaos::coordinators::Node;
use crate::chaos::network::Host;
use crate::chaos::schedule::Kind;
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

impl Stage {
    /// Kills or stops a coordinator, or lets its syncs fail.
    pub(super) async fn hurt_node(
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

    /// Kills, stops or replaces a worker.
    pub(super) async fn hurt_worker(
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

    /// Sets a wall clock wrong.
    pub(super) fn jump(&mut self, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
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

    /// Sets the wall clock of a host wrong by so many seconds.
    pub(super) fn set_clock(&self, host: Host, seconds: i64) -> Result<(), Failure> {
        match host {
            Host::Node(place) => self.coordinators.node(place)?.orders().set_clock(seconds),
            Host::Worker(place) => self.workers.worker(place)?.orders().set_clock(seconds),
        }
    }

    /// Fills the small disk, if its node is well.
    pub(super) async fn fill_disk(&mut self) -> Result<Option<(Undo, String)>, Failure> {
        let well = self.well_nodes();
        let disks = self.coordinators.nodes().iter();
        let mut disks = disks.filter(|node| node.disk().is_some() && well.contains(&node.place()));
        let Some(place) = disks.next().map(Node::place) else {
            return Ok(None);
        };
        let node = self.coordinators.node_mut(place)?;
        node.excuse();
        if let Some(disk) = node.disk() {
            disk.fill().await?;
        }
        Ok(Some((Undo::FreeDisk(place), format!("node {place}"))))
    }
}
