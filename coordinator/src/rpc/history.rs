//! What happened, as this node has kept it.

use tenure_ownership::ids::ShardIndex;
use tenure_proto::v1 as pb;
use tenure_proto::v1::history_service_server::HistoryService;
use tonic::{Request, Response, Status};

use super::context::RpcContext;
use super::convert::{self, Invalid};
use super::{present, status};

/// The history service.
pub(super) struct History {
    context: RpcContext,
}

impl History {
    pub(super) fn new(context: RpcContext) -> Self {
        Self { context }
    }

    fn node_id(&self) -> u64 {
        let identity = self.context.consensus.identity();
        identity.map_or(0, |identity| identity.node.0)
    }
}

fn has_shard(group: &tenure_ownership::group::Group, index: ShardIndex) -> Result<(), Status> {
    if group.shard(index).is_some() {
        return Ok(());
    }
    let count = group.header.shard_count;
    let problem = format!("is {index}, the group has {count} shards");
    Err(status::invalid(Invalid::new("shard", problem)))
}

#[tonic::async_trait]
impl HistoryService for History {
    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let (mut query, shard) =
            convert::list_events(request.into_inner()).map_err(status::invalid)?;
        if let (Some(group), Some(shard)) = (&query.group, shard) {
            let found = self.context.read_group(group, within, |_, group| {
                has_shard(group, shard)?;
                Ok(group.header.id)
            });
            query.shard = Some((found.await?, shard));
        }
        let reading = self.context.consensus.history(query);
        let page = tokio::time::timeout(within, reading)
            .await
            .map_err(|_| status::unavailable("the history was not read in time"))?
            .map_err(|error| status::from_storage(&error))?;
        Ok(Response::new(present::history::page(page, self.node_id())))
    }

    async fn shard_history(
        &self,
        request: Request<pb::ShardHistoryRequest>,
    ) -> Result<Response<pb::ShardHistoryResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let (shard, limit) =
            convert::shard_history(request.into_inner()).map_err(status::invalid)?;
        let index = ShardIndex(shard.index);
        let group = self
            .context
            .read_group(&shard.group, within, |_, group| {
                has_shard(group, index)?;
                Ok(group.header.id)
            })
            .await?;
        let reading = self.context.consensus.shard_history(group, index, limit);
        let history = tokio::time::timeout(within, reading)
            .await
            .map_err(|_| status::unavailable("the history was not read in time"))?
            .map_err(|error| status::from_storage(&error))?;
        let answer = present::history::shard_history(history, self.node_id());
        Ok(Response::new(answer))
    }
}
