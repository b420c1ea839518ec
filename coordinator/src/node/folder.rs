//! What a node starts on: its data folder, and whether it is the right one.

#[cfg(feature = "rocksdb")]
use std::sync::Arc;
use std::time::Duration;

use super::error::NodeError;
use crate::config::Config;
use crate::consensus::{
    Consensus, ConsensusOptions, Identity, Member, NodeAddresses, NodeId, RaftTimings,
};
use crate::history::HistoryOptions;
#[cfg(feature = "rocksdb")]
use crate::storage::{RocksOptions, RocksStorage, Storage};

/// Opens the data folder.
#[cfg(feature = "rocksdb")]
pub(super) async fn open_storage(config: &Config) -> Result<Arc<dyn Storage>, NodeError> {
    let folder = config.data_dir.clone();
    let options = RocksOptions {
        write_buffer_bytes: config.storage.write_buffer_bytes,
        background_jobs: config.storage.background_jobs,
    };
    let opening = tokio::task::spawn_blocking(move || RocksStorage::open(folder, options));
    let storage = opening.await.map_err(|error| NodeError::Ended {
        reason: error.to_string(),
    })??;
    Ok(Arc::new(storage))
}

/// Returns what consensus is told of the configuration.
pub(super) fn consensus_options(
    config: &Config,
    addresses: &NodeAddresses,
) -> Result<ConsensusOptions, NodeError> {
    let mut options = ConsensusOptions::new(addresses.clone());
    options.timings = RaftTimings {
        heartbeat_interval: config.raft.heartbeat_interval,
        election_timeout_min: config.raft.election_timeout_min,
        election_timeout_max: config.raft.election_timeout_max,
    };
    options.limits.snapshot_entries = config.raft.snapshot_entries;
    options.limits.kept_entries = config.raft.kept_entries;
    options.history = HistoryOptions {
        keep: config.history.keep,
        events_max: config.history.events_max,
    };
    if let Some(expected) = &config.identity {
        let node = NodeId(expected.node_id);
        options.identity = Some(Identity {
            cluster: expected.cluster()?,
            node,
        });
    }
    options.validate()?;
    Ok(options)
}

/// Refuses a data folder of a node that its cluster reaches elsewhere: were it to run here, its peers
/// would talk to one node and hear another.
pub(super) async fn check_address(
    config: &Config,
    consensus: &Consensus,
    addresses: &NodeAddresses,
) -> Result<(), NodeError> {
    let Some(identity) = consensus.identity() else {
        return Ok(());
    };
    let Some(known) = own_membership(consensus, identity.node).await else {
        return Ok(());
    };
    // Nobody else is there to be confused.
    let is_alone = consensus.status().nodes.len() == 1;
    if is_alone || known.addresses.raft == addresses.raft {
        return Ok(());
    }
    Err(NodeError::OtherNode {
        data_dir: config.data_dir.clone(),
        identity,
        known: known.addresses.raft,
        configured: addresses.raft.clone(),
    })
}

/// How long Raft may take to say what it read from the disk.
const MEMBERSHIP_MAX: Duration = Duration::from_secs(1);

/// Returns what the cluster knows of this node; `None` if it is in no cluster.
async fn own_membership(consensus: &Consensus, node: NodeId) -> Option<Member> {
    // Nothing was ever applied, so there is no membership either.
    if consensus.applied().0 == 0 {
        return None;
    }
    let reading = async {
        while consensus.status().nodes.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(MEMBERSHIP_MAX, reading).await.ok()?;
    consensus.member(node)
}
