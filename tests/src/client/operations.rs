//! What operators ask for in a group.

use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::{
    PinShardRequest, RebalanceRequest, SetFreezeRequest, SetWorkerModeRequest, ShardRef,
    UnpinShardRequest, WorkerMode,
};

use super::Client;
use crate::failure::Failure;

impl Client {
    /// Says whether shards may be placed on a worker.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn set_worker_mode(
        &self,
        group: &str,
        worker: &str,
        mode: WorkerMode,
    ) -> Result<(), Failure> {
        let request = SetWorkerModeRequest {
            group: group.to_owned(),
            worker: worker.to_owned(),
            mode: mode.into(),
            pause_timeout_ms: 0,
        };
        self.at_leader(async |channel| {
            let mut service = AdminServiceClient::new(channel);
            service.set_worker_mode(request.clone()).await.map(drop)
        })
        .await
    }

    /// Stops the planned moves of a group for a reason; an empty one lets them go on.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn set_freeze(&self, group: &str, reason: &str) -> Result<(), Failure> {
        let request = SetFreezeRequest {
            group: group.to_owned(),
            reason: reason.to_owned(),
        };
        self.at_leader(async |channel| {
            let mut service = AdminServiceClient::new(channel);
            service.set_freeze(request.clone()).await.map(drop)
        })
        .await
    }

    /// Pins a shard to a worker, or lets it be anywhere again.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn pin_shard(
        &self,
        group: &str,
        index: u32,
        to: Option<&str>,
    ) -> Result<(), Failure> {
        let shard = Some(ShardRef {
            group: group.to_owned(),
            index,
        });
        self.at_leader(async |channel| {
            let mut service = AdminServiceClient::new(channel);
            let shard = shard.clone();
            let Some(to) = to else {
                let request = UnpinShardRequest { shard };
                return service.unpin_shard(request).await.map(drop);
            };
            let request = PinShardRequest {
                shard,
                to: to.to_owned(),
                kept_off: Vec::new(),
            };
            service.pin_shard(request).await.map(drop)
        })
        .await
    }

    /// Evens the workers of a group out.
    ///
    /// # Errors
    ///
    /// What the leader answered.
    pub async fn rebalance(&self, group: &str) -> Result<(), Failure> {
        let request = RebalanceRequest {
            group: group.to_owned(),
            moves_max: 0,
        };
        self.at_leader(async |channel| {
            let mut service = AdminServiceClient::new(channel);
            service.rebalance(request.clone()).await.map(drop)
        })
        .await
    }
}
