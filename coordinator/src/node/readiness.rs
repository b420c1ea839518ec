//! Follows whether the node should be sent requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::consensus::{Consensus, Leadership};
use crate::readiness::Readiness;
use crate::watch::Hub;

/// Longest wait for what was applied before a restart, before the leader is looked at again.
const RECOVERY_STEP: Duration = Duration::from_secs(1);

/// Keeps the readiness of a node up to date until it stops.
pub(super) async fn follow(
    consensus: Consensus,
    hub: Arc<Hub>,
    readiness: watch::Sender<Readiness>,
    stop: CancellationToken,
) {
    let mut leadership = consensus.leadership();
    let mut removed = consensus.removed();
    let following = async {
        let mut caught_up = false;
        loop {
            let now = leadership.borrow_and_update().clone();
            if *removed.borrow_and_update() {
                set(&readiness, Readiness::Removed);
                if removed.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if now.leader.is_some() && !caught_up {
                set(&readiness, Readiness::CatchingUp);
                caught_up = catch_up(&consensus, &hub).await;
                continue;
            }
            set(&readiness, judge(&consensus, &now));
            let changed = tokio::select! {
                changed = leadership.changed() => changed,
                changed = removed.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    };
    let _ = stop.run_until_cancelled(following).await;
}

fn judge(consensus: &Consensus, now: &Leadership) -> Readiness {
    match (&now.leader, consensus.identity()) {
        (Some(_), _) => Readiness::Ready,
        (None, Some(_)) => Readiness::NoLeader,
        (None, None) => Readiness::NoCluster,
    }
}

/// Waits a moment for everything applied before the restart, and for the cluster to be named.
async fn catch_up(consensus: &Consensus, hub: &Arc<Hub>) -> bool {
    if consensus.recovered(RECOVERY_STEP).await.is_err() {
        return false;
    }
    // Before the state is looked at, so that the event is not missed.
    let Ok(mut events) = hub.subscribe(None) else {
        return false;
    };
    if consensus.read(|state| state.cluster().is_some()) {
        return true;
    }
    let _ = tokio::time::timeout(RECOVERY_STEP, events.next()).await;
    consensus.read(|state| state.cluster().is_some())
}

fn set(readiness: &watch::Sender<Readiness>, now: Readiness) {
    readiness.send_if_modified(|known| {
        let changed = *known != now;
        if changed {
            tracing::info!(readiness = now.describe(), "readiness changed");
            *known = now;
        }
        changed
    });
}
