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

use crate::error::LostReason;

/// A tenure: one shard at one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenureId {
    pub(crate) shard: u32,
    pub(crate) epoch: Epoch,
}

impl TenureId {
    /// Reads a tenure; `None` when it is absent or its epoch is none.
    fn read(tenure: Option<&v1::Tenure>) -> Option<Self> {
        let tenure = tenure?;
        Some(Self {
            shard: tenure.shard,
            epoch: Epoch::new(tenure.epoch)?,
        })
    }

    /// Writes it for the wire.
    pub(crate) fn wire(self) -> v1::Tenure {
        v1::Tenure {
            shard: self.shard,
            epoch: self.epoch.get(),
        }
    }
}

/// Why a tenure was given up, in the words of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The work is done, or was asked to stop.
    Finished,
    /// The shard could not be opened or worked on.
    Failed(String),
    /// A store has a fence above the epoch.
    StoreAhead(Epoch),
    /// The handle died.
    Lost,
}

/// Longest detail of a failure, in bytes, as the wire allows.
const DETAIL_BYTES_MAX: usize = 256;

impl Closing {
    /// Writes the release of a tenure for the wire.
    pub(crate) fn wire(&self, tenure: TenureId) -> v1::Release {
        let mut release = v1::Release {
            tenure: Some(tenure.wire()),
            ..v1::Release::default()
        };
        match self {
            Self::Finished => release.set_cause(v1::ReleaseCause::Finished),
            Self::Lost => release.set_cause(v1::ReleaseCause::Lost),
            Self::StoreAhead(fence) => {
                release.set_cause(v1::ReleaseCause::StoreAhead);
                release.store_fence = fence.get();
            }
            Self::Failed(detail) => {
                release.set_cause(v1::ReleaseCause::OpenFailed);
                release.detail = cut(detail);
            }
        }
        release
    }
}

/// Cuts a text to the longest detail, between characters.
fn cut(text: &str) -> String {
    let mut end = text.len().min(DETAIL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

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
    revoked: bool,
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

    /// Returns whether a tenure is held and was asked back.
    pub(crate) fn is_revoked(&self, tenure: TenureId) -> bool {
        self.held
            .get(&tenure.shard)
            .is_some_and(|held| held.epoch == tenure.epoch && held.revoked)
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
        if let Some(held) = self.held.get_mut(&tenure.shard) {
            // A newer one, granted after this Set: what the Set says of it is old.
            if held.epoch != tenure.epoch {
                return;
            }
            if held.ready && shard.phase() == v1::ShardPhase::Opening {
                steps.push(Step::Ready { tenure });
            }
            if revoking {
                held.revoked = true;
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
            match self.held.get_mut(&tenure.shard) {
                Some(held) if held.epoch == tenure.epoch => {
                    held.revoked = true;
                    steps.push(Step::Revoke { tenure, drain });
                }
                // Given up already, and reported; or an older tenure's.
                _ => {}
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
            revoked: false,
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
mod tests {
    use super::*;

    fn id(shard: u32, epoch: u64) -> TenureId {
        TenureId {
            shard,
            epoch: Epoch::new(epoch).unwrap(),
        }
    }

    fn set_shard(shard: u32, epoch: u64, phase: v1::ShardPhase) -> v1::SetShard {
        v1::SetShard {
            tenure: Some(id(shard, epoch).wire()),
            phase: phase.into(),
            drain_ms: if phase == v1::ShardPhase::Revoking {
                400
            } else {
                0
            },
            stores: Vec::new(),
        }
    }

    fn set(revision: u64, shards: &[(u32, u64)]) -> v1::Set {
        let shards = shards
            .iter()
            .map(|&(shard, epoch)| set_shard(shard, epoch, v1::ShardPhase::Opening))
            .collect();
        v1::Set { revision, shards }
    }

    fn granted(revision: u64, shard: u32, epoch: u64) -> v1::Granted {
        let tenure = Some(id(shard, epoch).wire());
        v1::Granted {
            revision,
            grants: vec![v1::Grant {
                tenure,
                stores: Vec::new(),
            }],
        }
    }

    fn revoke(revision: u64, shard: u32, epoch: u64) -> v1::Revoke {
        v1::Revoke {
            revision,
            tenures: vec![id(shard, epoch).wire()],
            drain_ms: 1_000,
            reason: 0,
        }
    }

    fn lost(revision: u64, shard: u32, epoch: u64) -> v1::Lost {
        v1::Lost {
            revision,
            tenures: vec![id(shard, epoch).wire()],
        }
    }

    fn open(shard: u32, epoch: u64) -> Step {
        Step::Open {
            tenure: id(shard, epoch),
            recorded: BTreeMap::new(),
        }
    }

    fn lose(shard: u32, epoch: u64) -> Step {
        Step::Lose {
            tenure: id(shard, epoch),
            reason: LostReason::Ended,
        }
    }

    fn release(shard: u32, epoch: u64, closing: Closing) -> Step {
        Step::Release {
            tenure: id(shard, epoch),
            closing,
        }
    }

    fn answer(set_revision: u64) -> Step {
        Step::Answer { set_revision }
    }

    /// Tenures that hold shard 1 at epoch 7, granted at revision 11 after a `Set` of 10.
    fn holding() -> Tenures {
        let mut tenures = Tenures::default();
        assert_eq!(tenures.on_set(&set(10, &[])), [answer(10)]);
        assert_eq!(tenures.on_granted(&granted(11, 1, 7)), [open(1, 7)]);
        tenures
    }

    fn held(tenures: &Tenures) -> Vec<TenureId> {
        tenures.holding().collect()
    }

    #[test]
    fn nothing_counts_before_the_set_of_a_stream() {
        let mut tenures = holding();
        tenures.begin_stream();
        assert!(!tenures.is_set());
        assert_eq!(tenures.on_granted(&granted(12, 2, 1)), []);
        assert_eq!(tenures.on_revoke(&revoke(12, 1, 7)), []);
        assert_eq!(tenures.on_lost(&lost(12, 1, 7)), []);
        assert_eq!(held(&tenures), [id(1, 7)]);
    }

    #[test]
    fn a_message_out_of_order_does_not_count() {
        let mut tenures = holding();
        assert_eq!(tenures.on_granted(&granted(9, 2, 1)), []);
        assert_eq!(held(&tenures), [id(1, 7)]);
    }

    // Scenario 28: a grant, a revoke and a ready are lost with their stream.
    #[test]
    fn the_next_set_makes_up_for_a_lost_grant() {
        let mut tenures = holding();
        tenures.begin_stream();
        let steps = tenures.on_set(&set(20, &[(1, 7), (2, 3)]));
        assert_eq!(steps, [open(2, 3), answer(20)]);
        assert_eq!(held(&tenures), [id(1, 7), id(2, 3)]);
    }

    #[test]
    fn the_next_set_makes_up_for_a_lost_revoke() {
        let mut tenures = holding();
        tenures.begin_stream();
        let revoking = set_shard(1, 7, v1::ShardPhase::Revoking);
        let steps = tenures.on_set(&v1::Set {
            revision: 20,
            shards: vec![revoking],
        });
        let drain = Duration::from_millis(400);
        assert_eq!(
            steps,
            [
                Step::Revoke {
                    tenure: id(1, 7),
                    drain
                },
                answer(20)
            ]
        );
        assert!(tenures.is_revoked(id(1, 7)));
    }

    #[test]
    fn a_ready_that_was_lost_is_said_again_and_one_that_was_heard_is_not() {
        let mut tenures = holding();
        assert!(tenures.ready(id(1, 7)));
        tenures.begin_stream();
        let steps = tenures.on_set(&set(20, &[(1, 7)]));
        assert_eq!(steps, [Step::Ready { tenure: id(1, 7) }, answer(20)]);
        tenures.begin_stream();
        let serving = set_shard(1, 7, v1::ShardPhase::Serving);
        let steps = tenures.on_set(&v1::Set {
            revision: 21,
            shards: vec![serving],
        });
        assert_eq!(steps, [answer(21)]);
    }

    #[test]
    fn a_release_that_was_lost_is_said_again_with_its_cause() {
        let mut tenures = holding();
        let closing = Closing::StoreAhead(Epoch::new(9).unwrap());
        assert!(tenures.close(id(1, 7), closing.clone()));
        tenures.begin_stream();
        let steps = tenures.on_set(&set(20, &[(1, 7)]));
        assert_eq!(steps, [release(1, 7, closing), answer(20)]);
        assert_eq!(held(&tenures), []);
    }

    // Scenario 30, the worker's half.
    #[test]
    fn a_released_tenure_is_not_opened_again_by_an_older_set() {
        let mut tenures = holding();
        tenures.close(id(1, 7), Closing::Finished);
        tenures.begin_stream();
        let steps = tenures.on_set(&set(20, &[(1, 7)]));
        assert_eq!(steps, [release(1, 7, Closing::Finished), answer(20)]);
        // Nor by a grant that comes late, nor at an earlier epoch; but at the next one.
        assert_eq!(tenures.on_granted(&granted(21, 1, 7)), []);
        assert_eq!(tenures.on_granted(&granted(21, 1, 6)), []);
        assert_eq!(tenures.on_granted(&granted(22, 1, 8)), [open(1, 8)]);
    }

    #[test]
    fn a_set_says_nothing_about_what_was_granted_after_it() {
        let mut tenures = holding();
        tenures.begin_stream();
        assert_eq!(tenures.on_set(&set(10, &[])), [answer(10)]);
        assert_eq!(held(&tenures), [id(1, 7)]);
    }

    #[test]
    fn what_is_not_in_the_set_is_lost() {
        let mut tenures = holding();
        tenures.begin_stream();
        assert_eq!(tenures.on_set(&set(20, &[])), [lose(1, 7), answer(20)]);
        assert_eq!(held(&tenures), []);
        // Lost is as final as released.
        assert_eq!(tenures.on_granted(&granted(21, 1, 7)), []);
    }

    #[test]
    fn a_set_at_another_epoch_ends_the_old_handle_before_it_opens_the_new_one() {
        let mut tenures = holding();
        tenures.begin_stream();
        assert_eq!(
            tenures.on_set(&set(20, &[(1, 8)])),
            [lose(1, 7), open(1, 8), answer(20)]
        );
        let anew = Step::Lose {
            tenure: id(1, 8),
            reason: LostReason::GrantedAnew {
                epoch: Epoch::new(9).unwrap(),
            },
        };
        assert_eq!(tenures.on_granted(&granted(21, 1, 9)), [anew, open(1, 9)]);
    }

    #[test]
    fn a_shard_that_is_asked_back_before_it_was_opened_is_given_back_unopened() {
        let mut tenures = Tenures::default();
        let revoking = set_shard(1, 7, v1::ShardPhase::Revoking);
        let steps = tenures.on_set(&v1::Set {
            revision: 20,
            shards: vec![revoking],
        });
        assert_eq!(steps, [release(1, 7, Closing::Finished), answer(20)]);
        assert_eq!(held(&tenures), []);
    }

    // Scenario 19, the worker's half.
    #[test]
    fn a_revoke_or_a_loss_of_an_earlier_tenure_does_not_touch_the_present_one() {
        let mut tenures = holding();
        assert_eq!(tenures.on_revoke(&revoke(12, 1, 6)), []);
        assert_eq!(tenures.on_lost(&lost(12, 1, 6)), []);
        assert!(tenures.holds(id(1, 7)) && !tenures.is_revoked(id(1, 7)));
        // A late report of a handle that is gone does not either.
        assert!(!tenures.ready(id(1, 6)));
        assert!(!tenures.close(id(1, 6), Closing::Lost));
        assert!(tenures.holds(id(1, 7)));
    }

    #[test]
    fn the_end_of_a_later_tenure_ends_the_earlier_one() {
        let mut tenures = holding();
        assert_eq!(tenures.on_lost(&lost(12, 1, 8)), [lose(1, 7)]);
        assert_eq!(tenures.on_granted(&granted(13, 1, 8)), []);
        assert_eq!(tenures.on_granted(&granted(14, 1, 9)), [open(1, 9)]);
    }

    #[test]
    fn what_was_held_when_the_session_ended_stays_closed_in_the_next_one() {
        let mut tenures = holding();
        let reason = LostReason::LeaseEnded;
        let steps = tenures.lose_all(&reason);
        assert_eq!(
            steps,
            [Step::Lose {
                tenure: id(1, 7),
                reason
            }]
        );
        tenures.begin_stream();
        let steps = tenures.on_set(&set(20, &[(1, 7)]));
        assert_eq!(steps, [release(1, 7, Closing::Lost), answer(20)]);
    }

    #[test]
    fn a_long_failure_is_cut_between_characters() {
        let detail = "ü".repeat(200);
        let release = Closing::Failed(detail).wire(id(1, 1));
        assert_eq!(release.detail, "ü".repeat(128));
        assert_eq!(release.cause(), v1::ReleaseCause::OpenFailed);
    }
}
