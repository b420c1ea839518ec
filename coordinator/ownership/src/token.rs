//! Whether a token is the current tenure of its shard: what the replicated store asks before it
//! applies the rule of all stores, and what a resource that keeps no fence asks the coordinator.

use tenure_fence::{Epoch, GroupName, Owner, Refusal};

use crate::command::Tenure;
use crate::group::Group;
use crate::ids::SessionId;
use crate::rejection::Rejection;
use crate::shard::Shard;
use crate::state::State;

impl State {
    /// Finds the shard whose current tenure a token names, in any owned state.
    ///
    /// The owner of a current tenure is a live session, so a token that passes is valid as far as
    /// this state goes; whether the state is recent enough is for the caller to know.
    ///
    /// # Errors
    /// * [`Refusal::Fenced`] for an epoch below the shard's, and for any epoch of a shard that
    ///   nobody owns or whose group was removed. `current` is the shard's own epoch; when that is the
    ///   one presented its tenure is over, and the fence stands at the epoch of the next grant. Epochs
    ///   up to the floor were, or may have been, granted in an earlier life of the group, so they are
    ///   fenced by it.
    /// * [`Refusal::EpochConflict`] for the right epoch from another owner.
    /// * [`Rejection::NeverGranted`] for an epoch above all of them.
    /// * [`Rejection::UnknownGroup`] and [`Rejection::UnknownShard`] where no epoch is known.
    pub fn current_tenure(
        &self,
        name: &GroupName,
        owner: Owner,
        tenure: Tenure,
    ) -> Result<(&Group, &Shard), Rejection> {
        let Tenure {
            shard: index,
            epoch: presented,
        } = tenure;
        let never_granted = || Rejection::NeverGranted {
            shard: index,
            presented,
        };
        let fenced = |current| Rejection::Fence(Refusal::Fenced { presented, current });

        let Some(group) = self.group_named(name) else {
            let Some(tombstone) = self.tombstone(name) else {
                return Err(Rejection::UnknownGroup { name: name.clone() });
            };
            return Err(at_or_below(tombstone.floor, presented).map_or_else(never_granted, fenced));
        };
        let Some(shard) = group.shard(index) else {
            return Err(Rejection::UnknownShard { shard: index });
        };
        let Some(epoch) = shard.epoch.filter(|epoch| presented <= *epoch) else {
            return Err(at_or_below(shard.floor, presented).map_or_else(never_granted, fenced));
        };
        if presented < epoch {
            return Err(fenced(epoch));
        }
        match shard.owner() {
            None => Err(fenced(shard.next_epoch().unwrap_or(epoch))),
            Some(session) if is_session(self, owner, session) => Ok((group, shard)),
            Some(_) => Err(Rejection::Fence(Refusal::EpochConflict)),
        }
    }
}

/// The floor as an epoch, if the presented one is not above it.
fn at_or_below(floor: u64, presented: Epoch) -> Option<Epoch> {
    Epoch::new(floor).filter(|floor| presented <= *floor)
}

fn is_session(state: &State, owner: Owner, session: SessionId) -> bool {
    let cluster = state.cluster().map(|cluster| cluster.0);
    cluster == Some(owner.cluster) && owner.session == session.0
}
