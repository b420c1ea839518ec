//! Backups, and clusters that are made of them.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use super::Cluster;
use crate::binaries;
use crate::failure::Failure;

impl Cluster {
    /// Runs an operator command of the binary and returns what it wrote, as JSON.
    ///
    /// # Errors
    ///
    /// When it fails, with what it said.
    pub async fn operate(&self, arguments: &[&str]) -> Result<serde_json::Value, Failure> {
        let mut command = Command::new(binaries::find("tenure")?);
        command.args(arguments).arg("--json").kill_on_drop(true);
        let ran = command.output().await?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(Failure::new(format!("tenure {arguments:?}: {said}")));
        }
        Ok(serde_json::from_slice(&ran.stdout)?)
    }

    /// Takes a backup on one node.
    ///
    /// # Errors
    ///
    /// When there is none then.
    pub async fn backup(&self, node: u64, file: &Path) -> Result<serde_json::Value, Failure> {
        let address = self.node(node)?.address().to_owned();
        let file = file.display().to_string();
        let arguments = ["cluster", "backup", "--to", &file, "--address", &address];
        self.operate(&arguments).await
    }

    /// Kills all nodes and makes a new cluster of a backup, of the first of them alone: at its address, with
    /// a new data folder. The others are gone. Returns what the command said.
    ///
    /// # Errors
    ///
    /// When it is not restored, or does not elect itself.
    pub async fn restore(&mut self, file: &Path) -> Result<serde_json::Value, Failure> {
        let running: Vec<u64> = self
            .nodes
            .iter()
            .filter(|node| node.process.is_some())
            .map(|node| node.id)
            .collect();
        self.kill_all(&running).await?;
        self.nodes.truncate(1);
        let first = self.nodes.first().ok_or_else(|| Failure::new("no node"))?;
        let id = first.id;
        // As its configuration says, which names it after its first id.
        let data = first.config.with_extension("");
        let node = format!(
            "peer={},client={}",
            first.member.peer_address, first.member.client_address
        );
        if data.exists() {
            fs::rename(&data, data.with_extension(format!("before-{id}")))?;
        }
        let (from, folder) = (file.display().to_string(), data.display().to_string());
        let arguments = [
            "cluster",
            "restore",
            "--yes",
            "--from",
            &from,
            "--data-dir",
            &folder,
            "--node",
            &node,
        ];
        let said = self.operate(&arguments).await?;
        let restored = said["node_id"].as_str().and_then(|id| id.parse().ok());
        let restored = restored.ok_or_else(|| Failure::new(format!("no node id in {said}")))?;
        let node = self.node_mut(id)?;
        node.id = restored;
        node.member.id = restored;
        self.start_node(restored).await?;
        self.leader().await?;
        Ok(said)
    }
}
