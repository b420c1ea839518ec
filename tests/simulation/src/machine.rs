//! A simulated machine: a clock, a network, perhaps a disk, and the process that runs on it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::MachineClock;
use crate::disk::Disk;
use crate::network::MachineNetwork;
use crate::node::NodeHandle;
use crate::process::{Pause, Process};
use crate::worker::WorkerProcess;

/// What a machine is for.
pub enum Role {
    /// A coordinator.
    Node {
        /// Its disk.
        disk: Disk,
        /// Its process, from outside.
        handle: NodeHandle,
    },
    /// A worker.
    Worker {
        /// Its process, from outside.
        process: WorkerProcess,
    },
    /// Operators and watchers.
    Client,
}

/// A machine.
pub struct Machine {
    /// Its name in the network.
    pub name: Arc<str>,
    /// Its clock.
    pub clock: MachineClock,
    /// Its network.
    pub network: MachineNetwork,
    /// What it is for.
    pub role: Role,
    /// What runs on it; `None` while it is down.
    pub process: Option<Process>,
}

impl Machine {
    /// Lets a stretch of true time pass.
    pub fn turn(&mut self, stretch: Duration) {
        match &mut self.process {
            Some(process) => process.turn(stretch),
            None => self.clock.advance(self.clock.measured(stretch)),
        }
    }

    /// Tells whether its process runs and is not paused.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| !process.is_paused())
    }

    /// Tells whether its process is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_paused)
    }

    /// Kills the process, if there is one. What it had not written is lost; with the power, also what it had
    /// not synced.
    pub fn kill(&mut self, power_lost: bool) {
        if let Role::Node { handle, .. } = &self.role {
            handle.forget();
        }
        self.process = None;
        if let Role::Node { disk, .. } = &self.role
            && let Err(error) = disk.crash(power_lost)
        {
            tracing::error!(target: "simulation", %error, "the disk cannot be read");
        }
    }

    /// Stops the process where it is.
    pub fn pause(&mut self, pause: Pause) {
        if let Some(process) = &mut self.process {
            process.pause(pause);
        }
    }

    /// Lets a paused process go on.
    pub fn resume(&mut self) {
        if let Some(process) = &mut self.process {
            process.resume();
        }
    }

    /// Returns the coordinator on it.
    #[must_use]
    pub fn node(&self) -> Option<&NodeHandle> {
        match &self.role {
            Role::Node { handle, .. } => Some(handle),
            Role::Worker { .. } | Role::Client => None,
        }
    }

    /// Returns its disk.
    #[must_use]
    pub fn disk(&self) -> Option<&Disk> {
        match &self.role {
            Role::Node { disk, .. } => Some(disk),
            Role::Worker { .. } | Role::Client => None,
        }
    }
}
