//! What operators do: drain workers, restart coordinators, exchange them. No faults, but they must go well
//! beside them.

use tenure_proto::v1::WorkerMode;

use super::{Stage, Undo, pick};
use crate::chaos::GROUP;
use crate::chaos::coordinators::Node;
use crate::chaos::network::Host;
use crate::failure::Failure;

impl Stage {
    /// Drains a worker.
    pub(super) async fn drain(&mut self, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
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

    /// Sets the mode of a worker.
    pub(super) async fn set_mode(&self, place: u8, mode: WorkerMode) -> Result<(), Failure> {
        let client = self.coordinators.client();
        let name = Host::Worker(place).name();
        client.set_worker_mode(GROUP, &name, mode).await
    }

    /// Ends and starts every node, one after the other. Nothing else goes on beside it.
    pub(super) async fn rolling_restart(&mut self) -> Result<Option<String>, Failure> {
        self.undo_all().await?;
        let members = self.coordinators.members();
        for &place in &members {
            self.coordinators.stop(place).await?;
            self.coordinators.start_node(place, &self.network).await?;
        }
        Ok(Some(format!("nodes {members:?}")))
    }

    /// Adds a node and removes another. Nothing else goes on beside it but the load.
    pub(super) async fn membership(&mut self, choice: u64) -> Result<Option<String>, Failure> {
        self.undo_all().await?;
        // The one with the small disk stays.
        let nodes = self.coordinators.nodes().iter();
        let nodes = nodes.filter(|node| node.has_joined() && node.disk().is_none());
        let nodes: Vec<u8> = nodes.map(Node::place).collect();
        let Some(leaves) = pick(&nodes, choice) else {
            return Ok(None);
        };
        let (added, removed) = self.coordinators.exchange(leaves, &self.network).await?;
        Ok(Some(format!("node {added} added, node {removed} removed")))
    }
}
