//! A new cluster from the state of another one.
//!
//! The backup is older than what happened after it: epochs were granted that it does not know, by the
//! old cluster or by an earlier restore of the same backup. No number of theirs may be used again, so
//! every floor jumps, and sessions are those of another cluster.

use std::time::Duration;

use tenure_fence::Epoch;

use super::entry::Entry;
use super::sessions::end_session;
use crate::command::Restore;
use crate::event::Event;
use crate::ids::{GroupId, Revision, SessionId, ShardIndex};
use crate::rejection::Rejection;
use crate::restored::Restored;
use crate::session::SessionEnd;
use crate::shard::Shard;
use crate::state::State;

/// How far above the epochs of the backup those of the new cluster begin, at least. More grants of one
/// shard than one a second for a century.
pub(crate) const EPOCHS_SKIPPED: u64 = 1 << 32;

/// Makes the state that of a new cluster, in which nobody owns anything.
pub(super) fn restore(entry: &mut Entry<'_>, command: Restore) -> Result<(), Rejection> {
    let Restore {
        from,
        to,
        floor_min,
        quiet_min,
    } = command;
    if let Some(cluster) = entry.state().cluster()
        && cluster != from
    {
        return Err(Rejection::OtherCluster { cluster });
    }
    if from == to {
        return Err(Rejection::AlreadyInitialized { cluster: from });
    }
    let restored = Restored {
        from,
        at: entry.revision(),
        quiet: longest_ttl(entry.state()).max(quiet_min),
    };
    end_sessions(entry);
    raise_floors(entry, floor_min);
    entry.set_cluster(to);
    entry.set_restored(Some(restored));
    entry.record(Event::ClusterRestored { from, to });
    Ok(())
}

/// Ends the wait after a restore; nothing happens if it is over, or is that of another restore.
pub(super) fn settle(entry: &mut Entry<'_>, restored_at: Revision) -> Result<(), Rejection> {
    let waits = entry.state().restored();
    if waits.is_some_and(|restored| restored.at == restored_at) {
        entry.set_restored(None);
        entry.record(Event::ClusterSettled);
    }
    Ok(())
}

/// The longest time for which a worker of the backup may believe in a shard.
fn longest_ttl(state: &State) -> Duration {
    let sessions = state.sessions().map(|(_, session)| session.ttl);
    let groups = state.groups().map(|group| group.header.policy.ttl);
    // A backup of a cluster that was itself still waiting.
    let waits = state.restored().map(|restored| restored.quiet);
    sessions
        .chain(groups)
        .chain(waits)
        .max()
        .unwrap_or_default()
}

/// All of them leave before the first tenure ends, so that no shard goes on to a session that ends too.
fn end_sessions(entry: &mut Entry<'_>) {
    let live: Vec<SessionId> = entry.state().sessions().map(|(id, _)| id).collect();
    let mut ended = Vec::with_capacity(live.len());
    for id in live {
        if let Some(session) = entry.remove_session(id) {
            ended.push((id, session));
        }
    }
    for (id, session) in &ended {
        end_session(entry, *id, session, SessionEnd::Expired);
    }
}

/// Also of shards that were never granted: they may have been since.
fn raise_floors(entry: &mut Entry<'_>, floor_min: u64) {
    let raised = |highest: u64| {
        let above = highest.saturating_add(EPOCHS_SKIPPED).max(floor_min);
        above.min(Epoch::MAX.get())
    };
    let shards: Vec<(GroupId, ShardIndex, u64)> = entry
        .state()
        .groups()
        .flat_map(|group| {
            let id = group.header.id;
            let highest =
                move |(index, shard): (ShardIndex, &Shard)| (id, index, shard.highest_epoch());
            group.indexed_shards().map(highest)
        })
        .collect();
    for (group, index, highest) in shards {
        entry.shard_mut(group, index).floor = raised(highest);
    }
    let tombstones: Vec<_> = entry
        .state()
        .tombstones
        .iter()
        .map(|(name, tombstone)| (name.clone(), *tombstone))
        .collect();
    for (name, mut tombstone) in tombstones {
        tombstone.floor = raised(tombstone.floor);
        entry.put_tombstone(name, tombstone);
    }
}
