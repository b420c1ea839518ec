//! Which tenures the worker holds, and what a message from the coordinator changes about it.
//!
//! Converge, don't accumulate: every stream begins with a `Set`, the shards of the session as they
//! are, and each side acts on the difference. So nothing here depends on having seen every message;
//! one that is lost with its stream is made up for by the next `Set`.
//!
//! ```text
//!                          held at this epoch      held at another        not held
//!   in the Set             keep; say ready again   lose it, then as →     open it, unless it was
//!                                                                         closed at this epoch or above
//!   not in the Set         lose it, unless it was granted after the Set's revision
//! ```
//!
//! [`Tenures`] is pure: it takes messages and returns [`Step`]s, to be carried out in their order.
//!
//! Invariants:
//!
//! 1. A shard has at most one tenure here.
//! 2. A tenure that was released, lost or disowned is never opened again, nor is an earlier one.
//! 3. Before the `Set` of a stream nothing that arrives on it is acted upon.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_fence::Epoch;
use tenure_proto::v1;

use super::tenure::{Closing, TenureId};
use crate::error::LostReason;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a handle and start working. The epochs are what each store was ever reported ready at.
    Open {
        tenure: TenureId,
        recorded: BTreeMap<String, Epoch>,
    },
    /// Ask the handler to give the shard back within `drain`.
    Revoke { tenure: TenureId, drain: Duration },
    /// Kill the handle.
    Lose {
        tenure: TenureId,
        reason: LostReason,
    },
    /// Tell the coordinator, again, that the shard is ready.
    Ready { tenure: TenureId },
    /// Tell the coordinator, again or at once, that the tenure is given up.
    Release { tenure: TenureId, closing: Closing },
    /// Answer the `Set` of that revision with what is held now.
    Answer { set_revision: u64 },
}

/// A tenure that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    epoch: Epoch,
    /// The revision of the message it was opened by: an older `Set` says nothing about it.
    opened_at: u64,
    ready: bool,
}

/// The latest tenure of a shard that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Closed {
    epoch: Epoch,
    closing: Closing,
}

/// The tenures of a worker, held and given up.
#[derive(Debug, Default)]
pub(crate) struct Tenures {
    held: BTreeMap<u32, Held>,
    /// Never forgotten, not even when the session ends: epochs only rise, so it does no harm, and it
    /// is one entry for each shard the worker ever had.
    closed: BTreeMap<u32, Closed>,
    /// The revision of the last message of the present stream; `None` before its `Set`.
    revision: Option<u64>,
}

impl Tenures {
    /// Begins a stream: whatever comes before its `Set` does not count.
    pub(crate) fn begin_stream(&mut self) {
        self.revision = None;
    }

    /// Returns whether the `Set` of the present stream has arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.revision.is_some()
    }

    /// Returns whether a tenure is held.
    pub(crate) fn holds(&self, tenure: TenureId) -> bool {
        self.held
            .get(&tenure.shard)
            .is_some_and(|held| held.epoch == tenure.epoch)
    }

    /// Returns all tenures that are held, by shard.
    pub(crate) fn holding(&self) -> impl Iterator<Item = TenureId> {
        self.held.iter().map(|(&shard, held)| TenureId {
            shard,
            epoch: held.epoch,
        })
    }

    /// Notes that a tenure was claimed. Returns whether it is held, so that it is to be reported.
    pub(crate) fn ready(&mut self, tenure: TenureId) -> bool {
        match self.held.get_mut(&tenure.shard) {
            Some(held) if held.epoch == tenure.epoch => {
                held.ready = true;
                true
            }
            _ => false,
        }
    }

    /// Gives a tenure up. Returns whether it was held, so that it is to be reported.
    pub(crate) fn close(&mut self, tenure: TenureId, closing: Closing) -> bool {
        let held = self.holds(tenure);
        if held {
            self.held.remove(&tenure.shard);
        }
        let newer = self
            .closed
            .get(&tenure.shard)
            .is_none_or(|closed| closed.epoch < tenure.epoch);
        if newer {
            self.closed.insert(
                tenure.shard,
                Closed {
                    epoch: tenure.epoch,
                    closing,
                },
            );
        }
        held
    }

    /// Gives up everything: the session ended, or its lease did.
    pub(crate) fn lose_all(&mut self, reason: &LostReason) -> Vec<Step> {
        let tenures: Vec<TenureId> = self.holding().collect();
        let mut steps = Vec::with_capacity(tenures.len());
        for tenure in tenures {
            self.lose(tenure, reason.clone(), &mut steps);
        }
        steps
    }

    /// Takes the `Set` of a stream.
    pub(crate) fn on_set(&mut self, set: &v1::Set) -> Vec<Step> {
        self.revision = Some(set.revision);
        let mut steps = Vec::new();
        let mut named = BTreeMap::new();
        for shard in &set.shards {
            if let Some(tenure) = TenureId::read(shard.tenure.as_ref()) {
                named.insert(tenure.shard, (tenure, shard));
            }
        }
        let gone: Vec<TenureId> = self
            .held
            .iter()
            .filter(|(_, held)| held.opened_at <= set.revision)
            .map(|(&shard, held)| TenureId {
                shard,
                epoch: held.epoch,
            })
            .filter(|tenure| {
                named
                    .get(&tenure.shard)
                    .is_none_or(|(named, _)| named != tenure)
            })
            .collect();
        for tenure in gone {
            self.lose(tenure, LostReason::Ended, &mut steps);
        }
        for (tenure, shard) in named.into_values() {
            self.on_set_shard(tenure, shard, set.revision, &mut steps);
        }
        steps.push(Step::Answer {
            set_revision: set.revision,
        });
        steps
    }

    fn on_set_shard(
        &mut self,
        tenure: TenureId,
        shard: &v1::SetShard,
        revision: u64,
        steps: &mut Vec<Step>,
    ) {
        let revoking = shard.phase() == v1::ShardPhase::Revoking;
        let drain = Duration::from_millis(shard.drain_ms);
        if let Some(held) = self.held.get(&tenure.shard) {
            // A newer one, granted after this Set: what the Set says of it is old.
            if held.epoch != tenure.epoch {
                return;
            }
            if held.ready && shard.phase() == v1::ShardPhase::Opening {
                steps.push(Step::Ready { tenure });
            }
            if revoking {
                steps.push(Step::Revoke { tenure, drain });
            }
            return;
        }
        if let Some(closed) = self.closed.get(&tenure.shard) {
            if closed.epoch == tenure.epoch {
                // The report of it was lost. It says more than its absence from the answer would.
                steps.push(Step::Release {
                    tenure,
                    closing: closed.closing.clone(),
                });
            }
            if closed.epoch >= tenure.epoch {
                return;
            }
        }
        if revoking {
            // Not begun, and to be given back: there is nothing to do first.
            self.close(tenure, Closing::Finished);
            steps.push(Step::Release {
                tenure,
                closing: Closing::Finished,
            });
            return;
        }
        self.open(tenure, &shard.stores, revision, steps);
    }

    /// Takes grants.
    pub(crate) fn on_granted(&mut self, granted: &v1::Granted) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.advance(granted.revision) {
            return steps;
        }
        for grant in &granted.grants {
            if let Some(tenure) = TenureId::read(grant.tenure.as_ref()) {
                self.open(tenure, &grant.stores, granted.revision, &mut steps);
            }
        }
        steps
    }

    /// Takes revocations.
    pub(crate) fn on_revoke(&mut self, revoke: &v1::Revoke) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.advance(revoke.revision) {
            return steps;
        }
        let drain = Duration::from_millis(revoke.drain_ms);
        for tenure in revoke
            .tenures
            .iter()
            .filter_map(|tenure| TenureId::read(Some(tenure)))
        {
            // Otherwise given up already, and reported; or an older tenure's.
            if self.holds(tenure) {
                steps.push(Step::Revoke { tenure, drain });
            }
        }
        steps
    }

    /// Takes the end of tenures.
    pub(crate) fn on_lost(&mut self, lost: &v1::Lost) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.advance(lost.revision) {
            return steps;
        }
        for tenure in lost
            .tenures
            .iter()
            .filter_map(|tenure| TenureId::read(Some(tenure)))
        {
            match self.held.get(&tenure.shard) {
                // The end of a later tenure is the end of every earlier one.
                Some(held) if held.epoch <= tenure.epoch => {
                    let held = TenureId {
                        shard: tenure.shard,
                        epoch: held.epoch,
                    };
                    self.lose(held, LostReason::Ended, &mut steps);
                    self.close(tenure, Closing::Lost);
                }
                Some(_) => {}
                None => {
                    self.close(tenure, Closing::Lost);
                }
            }
        }
        steps
    }

    /// Moves on to a message's revision. `false` before the `Set`, and for one out of order.
    fn advance(&mut self, revision: u64) -> bool {
        match &mut self.revision {
            Some(current) if *current <= revision => {
                *current = revision;
                true
            }
            _ => false,
        }
    }

    fn open(
        &mut self,
        tenure: TenureId,
        stores: &[v1::StoreEpoch],
        revision: u64,
        steps: &mut Vec<Step>,
    ) {
        if self
            .closed
            .get(&tenure.shard)
            .is_some_and(|closed| closed.epoch >= tenure.epoch)
        {
            return;
        }
        if let Some(held) = self.held.get(&tenure.shard) {
            if held.epoch >= tenure.epoch {
                return;
            }
            let older = TenureId {
                shard: tenure.shard,
                epoch: held.epoch,
            };
            self.lose(
                older,
                LostReason::GrantedAnew {
                    epoch: tenure.epoch,
                },
                steps,
            );
        }
        let held = Held {
            epoch: tenure.epoch,
            opened_at: revision,
            ready: false,
        };
        self.held.insert(tenure.shard, held);
        let recorded = stores
            .iter()
            .filter_map(|store| Some((store.store.clone(), Epoch::new(store.epoch)?)))
            .collect();
        steps.push(Step::Open { tenure, recorded });
    }

    fn lose(&mut self, tenure: TenureId, reason: LostReason, steps: &mut Vec<Step>) {
        self.close(tenure, Closing::Lost);
        steps.push(Step::Lose { tenure, reason });
    }
}

#[cfg(test)]
mod tests;
