//! Nodes that come and go.

use std::time::Duration;

use super::{Cluster, Node};
use crate::failure::Failure;

/// How long a node may take to become a member, or to be none any more.
const CHANGE_TIME: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts the next of the spare nodes and makes it a voter. Returns the id that it was given.
    ///
    /// # Errors
    ///
    /// When there is no spare node, or it is not added.
    pub async fn grow(&mut self) -> Result<u64, Failure> {
        if self.spares.is_empty() {
            return Err(Failure::new("no spare node is left"));
        }
        let spare = self.spares.remove(0);
        let (number, mut member) = (spare.id, spare.member.clone());
        self.nodes.push(spare);
        self.start_node(number).await?;
        member.id = 0;
        let added = self.client.add_member(&member, CHANGE_TIME).await;
        added.map_err(|failure| self.with_logs(failure))?;
        let address = self.node(number)?.address().to_owned();
        let id = self.client.status(&address).await?.node_id;
        let node = self.node_mut(number)?;
        node.id = id;
        node.member.id = id;
        Ok(id)
    }

    /// Takes a node out of the cluster, whether it runs or not. Returns it, with its process if it runs.
    ///
    /// # Errors
    ///
    /// When it is not removed.
    pub async fn remove(&mut self, id: u64) -> Result<Node, Failure> {
        let member = self.node(id)?.member.clone();
        let removed = self.client.remove_member(&member, CHANGE_TIME).await;
        removed.map_err(|failure| self.with_logs(failure))?;
        let place = self.nodes.iter().position(|node| node.id == id);
        let place = place.ok_or_else(|| Failure::new(format!("there is no node {id}")))?;
        Ok(self.nodes.remove(place))
    }
}
