//! The shards of the session: handles that are made, asked back, lost and given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_fence::{Epoch, FencingToken, Resource, ShardRef};

use super::Session;
use super::converge::Step;
use super::tenure::{Closing, TenureId};
use super::work::{Ended, Outcome};
use crate::error::LostReason;
use crate::held_shard::{HandleState, HeldShard, Report, ReportKind};

/// What is said of a shard that is granted to a worker that stops.
const STOPPING: &str = "the worker is stopping";

impl Session {
    pub(super) fn carry_out(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Open { tenure, recorded } => self.open(tenure, recorded),
                Step::Revoke { tenure, drain } => self.revoke(tenure, drain),
                Step::Lose { tenure, reason } => self.lose(tenure, reason),
                Step::Ready { tenure } => self.ready.push(tenure),
                Step::Release { tenure, closing } => self.releases.push(closing.wire(tenure)),
                Step::Answer { set_revision } => self.answer(set_revision),
            }
        }
    }

    fn open(&mut self, tenure: TenureId, recorded: BTreeMap<String, Epoch>) {
        let Some(owner) = self.session else {
            return;
        };
        if self.stopping.is_some() {
            // At once, and as a failure: the coordinator then grants it to another worker if it can,
            // while anything that is merely finished may come back here until this worker has left.
            let closing = Closing::Failed(STOPPING.to_owned());
            self.releases.push(closing.wire(tenure));
            self.tenures.close(tenure, closing);
            return;
        }
        let shard = ShardRef {
            group: self.options.group.clone(),
            index: tenure.shard,
        };
        let resource = Resource::Shard(shard.clone());
        let token = FencingToken {
            resource,
            epoch: tenure.epoch,
            owner,
        };
        let shard = HeldShard::new(token, shard, recorded, Arc::clone(&self.context));
        self.tally.add_shard(&shard);
        self.tally.opened.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
        tracing::debug!(shard = %shard.id(), epoch = %tenure.epoch, "shard granted");
        self.work.open(tenure, shard);
    }

    fn revoke(&mut self, tenure: TenureId, drain: Duration) {
        let Some(belief) = &self.belief else {
            return;
        };
        let until = belief.drain_deadline(drain);
        if !self.work.is_running(tenure) {
            // Its handler was not started yet, so there is nothing to finish.
            self.close(tenure, Closing::Finished);
            return;
        }
        if let Some(shard) = self.work.shard(tenure) {
            shard.revoke(until);
        }
        self.drains.insert((until, tenure));
        self.tally.changed();
    }

    /// Ends a tenure that the coordinator, or the end of the session, has taken.
    fn lose(&mut self, tenure: TenureId, reason: LostReason) {
        let now = self.clock.now();
        tracing::info!(shard = tenure.shard, epoch = %tenure.epoch, %reason, "shard lost");
        self.work.kill(tenure, reason, now);
        self.tally.remove_shard(tenure.shard);
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
    }

    /// Ends a tenure by this side's own decision, and says so.
    pub(super) fn give_up(&mut self, tenure: TenureId, reason: LostReason) {
        let closing = closing_of(&reason);
        if self.tenures.close(tenure, closing.clone()) {
            self.releases.push(closing.wire(tenure));
        }
        self.lose(tenure, reason);
    }

    /// Ends a tenure whose handler has ended, or was never started, and says so.
    pub(super) fn close(&mut self, tenure: TenureId, closing: Closing) {
        if let Some(shard) = self.work.shard(tenure) {
            shard.kill(LostReason::Released);
        }
        self.work
            .kill(tenure, LostReason::Released, self.clock.now());
        if !self.tenures.close(tenure, closing.clone()) {
            return;
        }
        self.tally.remove_shard(tenure.shard);
        self.tally.released.fetch_add(1, Ordering::Relaxed);
        self.tally.changed();
        self.releases.push(closing.wire(tenure));
    }

    pub(super) fn on_report(&mut self, report: Report) {
        let tenure = TenureId {
            shard: report.shard,
            epoch: report.epoch,
        };
        match report.kind {
            ReportKind::Claimed => {
                if self.tenures.ready(tenure) {
                    self.ready.push(tenure);
                    self.tally.set_ready(tenure.shard);
                    self.tally.ready.fetch_add(1, Ordering::Relaxed);
                    self.tally.changed();
                }
            }
            ReportKind::Dead(reason) => {
                if self.tenures.holds(tenure) {
                    self.give_up(tenure, reason);
                }
            }
        }
    }

    pub(super) fn on_ended(&mut self, ended: Ended) {
        let Ended {
            tenure,
            shard,
            outcome,
        } = ended;
        if !self.tenures.holds(tenure) {
            return;
        }
        // Before anything is said: whoever still has a clone has stopped working by then.
        let state = shard.state();
        shard.kill(LostReason::Released);
        if let HandleState::Lost(reason) = state {
            self.give_up(tenure, reason);
            return;
        }
        let closing = match outcome {
            Outcome::Returned(Ok(())) => Closing::Finished,
            Outcome::Returned(Err(error)) => Closing::Failed(error.chain()),
            Outcome::Panicked => Closing::Failed("the handler panicked".to_owned()),
            Outcome::Aborted => Closing::Lost,
        };
        if let Closing::Failed(detail) = &closing {
            tracing::warn!(shard = %shard.id(), epoch = %tenure.epoch, detail, "handler failed");
        }
        self.close(tenure, closing);
    }
}

/// Says what the death of a handle means to the coordinator.
fn closing_of(reason: &LostReason) -> Closing {
    match reason {
        LostReason::StoreAhead { fence, .. } => Closing::StoreAhead(*fence),
        LostReason::StoreRegressed { .. } => Closing::Failed(reason.to_string()),
        _ => Closing::Lost,
    }
}
