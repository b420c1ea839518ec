//! A source of tokens for stores that know no coordinator.

use std::collections::BTreeMap;

use crate::epoch::Epoch;
use crate::name::{GroupName, LeaseName};
use crate::owner::Owner;
use crate::resource::{Resource, ShardRef};
use crate::token::FencingToken;

use super::harness::Holder;
use super::random;

/// Epochs that a coordinator may have reached when the first tenure of a resource begins.
///
/// Beside the ordinary first one: where 32 bits end, where floating-point numbers stop being exact
/// (a store that keeps numbers as JSON), and near the end of a SQL `BIGINT`. An adapter that loses a
/// bit on the way must not pass.
const FIRST_EPOCHS: [u64; 4] = [
    1,
    u32::MAX as u64 - 1,
    (1 << 53) - 1,
    i64::MAX.unsigned_abs() - 100_000,
];

/// A source of tokens for a [`Harness`](super::Harness) whose store knows no coordinator.
///
/// It does what a coordinator does: every tenure takes the next epoch, every new owner is a session
/// that never was. The names are new in each run, so that a store which keeps its data between runs
/// can be checked too.
#[derive(Debug)]
pub struct LocalGrants {
    /// The cluster id, and what makes the names of this run its own.
    run: u64,
    sessions: u64,
    resources: u32,
    conflicts: u32,
    tenures: BTreeMap<Resource, FencingToken>,
}

impl LocalGrants {
    /// Creates a source with names of its own.
    #[must_use]
    pub fn new() -> Self {
        Self {
            run: random::entropy(),
            sessions: 0,
            resources: 0,
            conflicts: 0,
            tenures: BTreeMap::new(),
        }
    }

    /// Returns a resource that was never granted: mostly a shard, sometimes a lease.
    ///
    /// # Panics
    ///
    /// After `u32::MAX` resources.
    pub fn fresh_resource(&mut self) -> Resource {
        let index = self.resources;
        assert!(index < u32::MAX, "the source has run out of resources");
        self.resources += 1;
        let run = format!("kit-{:016x}", self.run);
        if index % 4 == 3 {
            return Resource::Lease(named(format!("{run}.{index}").parse::<LeaseName>()));
        }
        Resource::Shard(ShardRef {
            group: named(run.parse::<GroupName>()),
            index,
        })
    }

    /// Begins the next tenure of a resource.
    ///
    /// # Panics
    ///
    /// When the first tenure is to go to the same owner, or the resource is at the last epoch.
    pub fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        let latest = self.tenures.get(resource);
        let owner = match (holder, latest) {
            (Holder::New, _) => None,
            (Holder::Same, Some(latest)) => Some(latest.owner),
            (Holder::Same, None) => panic!("{resource} was never granted, it has no owner to keep"),
        };
        let epoch = match latest {
            Some(latest) => latest.epoch.next(),
            None => Epoch::new(FIRST_EPOCHS[self.tenures.len() % FIRST_EPOCHS.len()]),
        };
        let Some(epoch) = epoch else {
            panic!("{resource} has run out of epochs")
        };
        let owner = owner.unwrap_or_else(|| self.session());
        let token = FencingToken {
            resource: resource.clone(),
            epoch,
            owner,
        };
        self.tenures.insert(resource.clone(), token.clone());
        token
    }

    /// Returns a token of the same epoch with another owner.
    ///
    /// In turn: another session, and the session of the same number in two other clusters, whose ids
    /// differ in the last and in the first bit. An adapter that keeps half of an owner must not pass.
    pub fn conflicting(&mut self, token: &FencingToken) -> FencingToken {
        self.conflicts += 1;
        let Owner { cluster, session } = token.owner;
        let owner = match self.conflicts % 3 {
            0 => self.session(),
            1 => Owner {
                cluster: cluster ^ 1,
                session,
            },
            _ => Owner {
                cluster: cluster ^ (1 << 127),
                session,
            },
        };
        FencingToken {
            owner,
            ..token.clone()
        }
    }

    fn session(&mut self) -> Owner {
        self.sessions += 1;
        let cluster = u128::from(self.run) << 64 | u128::from(!self.run);
        Owner {
            cluster,
            session: self.sessions,
        }
    }
}

impl Default for LocalGrants {
    fn default() -> Self {
        Self::new()
    }
}

fn named<N, E: std::fmt::Display>(name: Result<N, E>) -> N {
    match name {
        Ok(name) => name,
        Err(error) => panic!("the source made a bad name: {error}"),
    }
}
