//! What operators do to the coordinators: restart them, exchange them. No faults, but they must go well beside
//! them.

use super::{Stage, pick};
use crate::chaos::coordinators::Node;
use crate::failure::Failure;

impl Stage {
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
