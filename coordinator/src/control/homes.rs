//! From which worker a shard was moved because the worker drained or stopped.
//!
//! When the worker is back and is to get its share again, these shards are the first to go there: a rolling
//! restart then moves each shard away and back, and no others. Known to one leader, and only a wish: what
//! is forgotten costs a few moves more.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::shard::RevokeReason;

/// Most shards of a group whose home is known, so that a large drain does not fill the leader's memory.
const HOMES_MAX: usize = 100_000;

/// The homes of the shards of one group, as plans take them.
type OfGroup = Arc<BTreeMap<ShardIndex, WorkerName>>;

/// All homes that are known.
#[derive(Debug, Default)]
pub(super) struct Homes {
    groups: BTreeMap<GroupId, OfGroup>,
}

impl Homes {
    /// Notes that a worker is asked for a shard. The first home stays: a shard that must move on before its
    /// worker is back still belongs there.
    pub(super) fn revoked(
        &mut self,
        group: GroupId,
        shard: ShardIndex,
        worker: &WorkerName,
        reason: RevokeReason,
    ) {
        if !matches!(reason, RevokeReason::Draining | RevokeReason::Stopping) {
            return;
        }
        let homes = self.groups.entry(group).or_default();
        if homes.len() < HOMES_MAX && !homes.contains_key(&shard) {
            Arc::make_mut(homes).insert(shard, worker.clone());
        }
    }

    /// Notes that a shard was granted to a worker. If it is at home there, all is well again.
    pub(super) fn granted(&mut self, group: GroupId, shard: ShardIndex, worker: &WorkerName) {
        let Some(homes) = self.groups.get_mut(&group) else {
            return;
        };
        if homes.get(&shard) == Some(worker) {
            Arc::make_mut(homes).remove(&shard);
        }
    }

    /// The homes of a group's shards.
    pub(super) fn of_group(&self, group: GroupId) -> OfGroup {
        self.groups.get(&group).cloned().unwrap_or_default()
    }

    /// Forgets a group that is gone.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }
}
