//! The steps of stopping.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::error::NodeError;
use crate::consensus::{Consensus, Member, Role};
use crate::storage::Storage;

/// How long a stopping leader waits for another one to take over: a few elections.
const HANDOVER_MAX: Duration = Duration::from_secs(2);

/// How long a stopping node waits for requests that were begun. Its streams end at once.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Makes another voter lead, the one that has most of the log, if this node does.
pub(super) async fn hand_over(consensus: &Consensus) {
    if !consensus.leadership().borrow().is_leader {
        return;
    }
    let status = consensus.status();
    let best = status
        .nodes
        .iter()
        .filter(|node| node.role == Role::Follower)
        .max_by_key(|node| node.matched);
    let Some(Member { id, .. }) = best.map(|node| &node.member) else {
        return;
    };
    match consensus.transfer_leader(*id, HANDOVER_MAX).await {
        Ok(()) => tracing::info!(to = %id, "leadership handed over"),
        // The others elect a leader by themselves.
        Err(error) => tracing::info!(%error, "leadership is not handed over"),
    }
}

/// How long connections that were closed may take to go away.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Waits until nobody else holds the storage, so that the folder is free once the node has stopped. Each
/// connection holds it a moment longer than its requests last.
pub(super) async fn released(storage: Arc<dyn Storage>) {
    let releasing = async {
        while Arc::strong_count(&storage) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(RELEASE_MAX, releasing).await.is_err() {
        tracing::warn!("a connection still holds the data folder");
    }
}

/// Joins tasks that were told to stop, and ends those that do not.
pub(super) async fn join_all(tasks: &mut JoinSet<Result<(), NodeError>>) {
    let joining = async {
        while let Some(joined) = tasks.join_next().await {
            match joined {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = error.line(), "a listener ended"),
                Err(error) => tracing::error!(%error, "a task of the node panicked"),
            }
        }
    };
    if tokio::time::timeout(DRAIN_MAX, joining).await.is_err() {
        tracing::info!("requests are cut off");
        tasks.shutdown().await;
    }
}
