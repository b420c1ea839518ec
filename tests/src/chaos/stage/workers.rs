//! What operators do to workers and shards. No faults, but they must go well beside them.

use tenure_proto::v1::WorkerMode;

use super::{Stage, Undo, pick};
use crate::chaos::network::Host;
use crate::chaos::{GROUP, SHARDS};
use crate::failure::Failure;

impl Stage {
    /// Drains or cordons a worker.
    pub(super) async fn set_aside(
        &mut self,
        choice: u64,
        mode: WorkerMode,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let active = self.active_workers();
        // Somebody must take the shards.
        if active.len() < 2 {
            return Ok(None);
        }
        let Some(place) = pick(&active, choice) else {
            return Ok(None);
        };
        if self.set_mode(place, mode).await.is_err() {
            // Without a quorum nobody's mode is set.
            return Ok(None);
        }
        Ok(Some((Undo::Activate(place), format!("worker {place}"))))
    }

    /// Pauses a worker and kills it. It is started again before it is resumed.
    pub(super) async fn planned_restart(
        &mut self,
        choice: u64,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let well = self.well_workers();
        let both = |place: &u8| well.contains(place);
        let places: Vec<u8> = self.active_workers().into_iter().filter(both).collect();
        let Some(place) = pick(&places, choice) else {
            return Ok(None);
        };
        if self.set_mode(place, WorkerMode::Paused).await.is_err() {
            return Ok(None);
        }
        self.workers.kill(place).await?;
        Ok(Some((Undo::Resume(place), format!("worker {place}"))))
    }

    /// Stops planned moves.
    pub(super) async fn freeze(&mut self) -> Result<Option<(Undo, String)>, Failure> {
        if self.is_disturbed(|undo| matches!(undo, Undo::Thaw)) {
            return Ok(None);
        }
        let client = self.coordinators.client();
        if client.set_freeze(GROUP, "chaos").await.is_err() {
            return Ok(None);
        }
        Ok(Some((Undo::Thaw, "the group".to_owned())))
    }

    /// Pins a shard to a worker, and evens all out.
    pub(super) async fn pin(&mut self, choice: u64) -> Result<Option<(Undo, String)>, Failure> {
        let shards: Vec<u32> = (0..SHARDS).collect();
        let shard = pick(&shards, choice >> 8).unwrap_or(0);
        let pinned = |undo: &Undo| matches!(undo, Undo::Unpin(other) if *other == shard);
        let Some(place) = pick(&self.workers.places(), choice) else {
            return Ok(None);
        };
        if self.is_disturbed(pinned) {
            return Ok(None);
        }
        let client = self.coordinators.client();
        let name = Host::Worker(place).name();
        if client.pin_shard(GROUP, shard, Some(&name)).await.is_err() {
            return Ok(None);
        }
        // Only asked for: without a quorum nothing is evened out, and nothing has to be.
        let _evened_out = client.rebalance(GROUP).await;
        let what = format!("shard {shard} to worker {place}");
        Ok(Some((Undo::Unpin(shard), what)))
    }

    /// Sets the mode of a worker.
    pub(super) async fn set_mode(&self, place: u8, mode: WorkerMode) -> Result<(), Failure> {
        let client = self.coordinators.client();
        let name = Host::Worker(place).name();
        client.set_worker_mode(GROUP, &name, mode).await
    }

    /// Returns the workers whose mode nobody has set.
    fn active_workers(&self) -> Vec<u8> {
        let active = |place: &u8| {
            !self.is_disturbed(|undo| {
                matches!(undo, Undo::Activate(other) | Undo::Resume(other) if other == place)
            })
        };
        self.workers.places().into_iter().filter(active).collect()
    }
}
