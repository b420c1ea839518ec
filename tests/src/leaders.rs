//! Counts how often another coordinator became the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::Client;

/// How often the nodes are asked. Short against an election.
const INTERVAL: Duration = Duration::from_millis(100);

/// Asks all nodes who leads until it is dropped.
#[derive(Debug)]
pub struct LeaderWatch {
    changes: Arc<AtomicU64>,
    // Aborted when dropped.
    _watching: JoinSet<()>,
}

impl LeaderWatch {
    /// Starts to watch.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let changes = Arc::new(AtomicU64::new(0));
        let mut watching = JoinSet::new();
        watching.spawn(watch(client.clone(), Arc::clone(&changes)));
        Self {
            changes,
            _watching: watching,
        }
    }

    /// Returns how often a leader followed another one.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

async fn watch(client: Client, changes: Arc<AtomicU64>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The leader of the highest term that any node knew.
    let mut latest = (0, 0);
    loop {
        ticks.tick().await;
        for address in client.addresses() {
            // A node that is dead knows no leader.
            let Ok(status) = client.status(address).await else {
                continue;
            };
            let known = (status.term, status.leader_id);
            if status.leader_id == 0 || known.0 <= latest.0 {
                continue;
            }
            if latest.1 != 0 && latest.1 != known.1 {
                changes.fetch_add(1, Ordering::Relaxed);
            }
            latest = known;
        }
    }
}
