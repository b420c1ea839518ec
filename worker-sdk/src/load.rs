//! Loads that handlers report for their shards, on their way to the coordinator.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_proto::v1;

use crate::session::tenure::TenureId;

/// How often loads go along with a heartbeat. The coordinator smooths them over some ten times as long.
pub(crate) const LOADS_EVERY: Duration = Duration::from_secs(1);

/// The last load that was reported of each tenure. Shared by the handles and the session.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    by_tenure: Mutex<BTreeMap<TenureId, u64>>,
}

impl Loads {
    /// Notes the load of a tenure.
    pub(crate) fn report(&self, tenure: TenureId, load: u64) {
        let mut loads = self
            .by_tenure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loads.insert(tenure, load);
    }

    /// Returns the loads of the tenures that are held, and forgets the others.
    pub(crate) fn of_held(&self, holds: impl Fn(TenureId) -> bool) -> Vec<v1::ShardLoad> {
        let mut loads = self
            .by_tenure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loads.retain(|tenure, _| holds(*tenure));
        let loads = loads.iter().map(|(tenure, load)| v1::ShardLoad {
            shard: tenure.shard,
            load: *load,
        });
        loads.collect()
    }
}

#[cfg(test)]
mod tests {
    use tenure_fence::Epoch;

    use super::*;

    #[test]
    fn what_is_not_held_any_more_is_not_reported() {
        let tenure = |shard| TenureId {
            shard,
            epoch: Epoch::FIRST,
        };
        let loads = Loads::default();
        loads.report(tenure(1), 10);
        loads.report(tenure(2), 20);
        loads.report(tenure(2), 30);
        let sent = loads.of_held(|tenure| tenure.shard == 2);
        assert_eq!(sent, [v1::ShardLoad { shard: 2, load: 30 }]);
        assert_eq!(loads.of_held(|_| true).len(), 1);
    }
}
