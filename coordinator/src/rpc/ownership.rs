//! Who owns what.

use std::num::NonZeroU32;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use prost::Message as _;
use tenure_fence::{FencingToken, Resource};
use tenure_ownership::State;
use tenure_ownership::group::Group;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::shard::Shard;
use tenure_proto::keys;
use tenure_proto::v1 as pb;
use tenure_proto::v1::ownership_service_server::OwnershipService;
use tonic::{Request, Response, Status};

use super::context::{RpcContext, cluster_of};
use super::convert::{self, Invalid, ShardQuery};
use super::encoded::EncodedStream;
use super::{present, status, watch};

/// A page ends before it is larger than this, in bytes: clients accept 4 MiB unless told otherwise.
const PAGE_BYTES_MAX: usize = 3 << 20;

/// The ownership service.
pub(super) struct Ownership {
    context: RpcContext,
}

impl Ownership {
    pub(super) fn new(context: RpcContext) -> Self {
        Self { context }
    }

    /// Watches a group; the messages are encoded already.
    pub(super) async fn watch_encoded(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<EncodedStream>, Status> {
        let (group, after) = convert::watch(request.get_ref()).map_err(status::invalid)?;
        let within = self.context.deadline(request.metadata());
        let stream = watch::start(self.context.clone(), group, after, within).await?;
        Ok(Response::new(stream))
    }
}

#[tonic::async_trait]
impl OwnershipService for Ownership {
    type WatchStream = BoxStream<'static, Result<pb::WatchResponse, Status>>;

    async fn get_shard(
        &self,
        request: Request<pb::GetShardRequest>,
    ) -> Result<Response<pb::GetShardResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let (shard, linearizable) =
            convert::get_shard(request.into_inner()).map_err(status::invalid)?;
        if linearizable {
            self.context.read_barrier(within).await?;
        }
        let answer = |state: &State, group: &Group| {
            let shard = Some(shard_of(state, group, ShardIndex(shard.index))?);
            Ok(pb::GetShardResponse {
                shard,
                revision: state.revision().0,
            })
        };
        self.context
            .read_group(&shard.group, within, answer)
            .await
            .map(Response::new)
    }

    async fn list_shards(
        &self,
        request: Request<pb::ListShardsRequest>,
    ) -> Result<Response<pb::ListShardsResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let query = convert::shard_query(request.into_inner()).map_err(status::invalid)?;
        let answer = |state: &State, group: &Group| {
            let (shards, next_index) = page(state, group, &query)?;
            Ok(pb::ListShardsResponse {
                shards,
                next_index,
                revision: state.revision().0,
            })
        };
        self.context
            .read_group(&query.group, within, answer)
            .await
            .map(Response::new)
    }

    async fn lookup_key(
        &self,
        request: Request<pb::LookupKeyRequest>,
    ) -> Result<Response<pb::LookupKeyResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let request = request.into_inner();
        let name = convert::lookup_key(&request).map_err(status::invalid)?;
        let hash = keys::hash_of_key(&request.key);
        let answer = |state: &State, group: &Group| {
            // Groups have at least one shard.
            let count = NonZeroU32::new(group.header.shard_count).unwrap_or(NonZeroU32::MIN);
            let index = ShardIndex(keys::shard_of_hash(hash, count));
            let shard = Some(shard_of(state, group, index)?);
            Ok(pb::LookupKeyResponse {
                shard,
                revision: state.revision().0,
            })
        };
        self.context
            .read_group(&name, within, answer)
            .await
            .map(Response::new)
    }

    /// Served by [`Ownership::watch_encoded`] on the network; here for callers in the process.
    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let encoded = self.watch_encoded(request).await?.into_inner();
        let decoded = encoded.map(|bytes| {
            pb::WatchResponse::decode(bytes?).map_err(|error| status::corrupt(error.to_string()))
        });
        Ok(Response::new(decoded.boxed()))
    }

    async fn check_token(
        &self,
        request: Request<pb::CheckTokenRequest>,
    ) -> Result<Response<pb::CheckTokenResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let token = convert::token(request.into_inner().token).map_err(status::invalid)?;
        // Without a quorum nobody knows: then this fails, and never says that a token is current.
        self.context.read_barrier(within).await?;
        let answer = self.context.consensus.read(|state| check(state, &token))?;
        Ok(Response::new(answer))
    }
}

fn shard_of(state: &State, group: &Group, index: ShardIndex) -> Result<pb::Shard, Status> {
    let shard = group.shard(index).ok_or_else(|| {
        let problem = format!(
            "is {index}, the group has {} shards",
            group.header.shard_count
        );
        status::invalid(Invalid::new("shard.index", problem))
    })?;
    Ok(present::shard(
        state,
        cluster_of(state)?,
        group,
        index,
        shard,
    ))
}

/// Returns a page of shards and where the next one begins, 0 if this is the last.
fn page(state: &State, group: &Group, query: &ShardQuery) -> Result<(Vec<pb::Shard>, u32), Status> {
    let cluster = cluster_of(state)?;
    let mut shards = Vec::new();
    let mut bytes = 0;
    for (index, shard) in candidates(state, group, query) {
        let wanted =
            query.phase == pb::ShardPhase::Unspecified || query.phase == present::phase(shard);
        if index < query.from || !wanted {
            continue;
        }
        if shards.len() == query.page_size || bytes >= PAGE_BYTES_MAX {
            return Ok((shards, index.0));
        }
        let message = present::shard(state, cluster, group, index, shard);
        bytes += message.encoded_len();
        shards.push(message);
    }
    Ok((shards, 0))
}

/// The shards a query may be about: those of its worker, or all from its first on.
fn candidates<'a>(
    state: &'a State,
    group: &'a Group,
    query: &ShardQuery,
) -> Box<dyn Iterator<Item = (ShardIndex, &'a Shard)> + 'a> {
    if let Some(name) = &query.worker {
        let session = group.workers.get(name).and_then(|worker| worker.session);
        let owned = session.into_iter().flat_map(|session| state.owned(session));
        return Box::new(owned.filter_map(|index| Some((index, group.shard(index)?))));
    }
    let from = usize::try_from(query.from.0).unwrap_or(usize::MAX);
    Box::new(group.indexed_shards().skip(from))
}

/// Judges a token by the state: current only if the shard is owned, the epochs match and the owner's
/// session is live. What is unowned or unknown is stale.
fn check(state: &State, token: &FencingToken) -> Result<pb::CheckTokenResponse, Status> {
    let cluster = cluster_of(state)?;
    let stale = |current_epoch: u64, reason: String| pb::CheckTokenResponse {
        current: false,
        current_epoch,
        revision: state.revision().0,
        reason,
    };
    // Epochs of two clusters cannot be compared.
    if token.owner.cluster != cluster.0 {
        return Ok(stale(0, "the token is another cluster's".to_owned()));
    }
    let Resource::Shard(wanted) = &token.resource else {
        return Ok(stale(0, format!("{} is not known", token.resource)));
    };
    let shard = state
        .group_named(&wanted.group)
        .and_then(|group| group.shard(ShardIndex(wanted.index)));
    let Some(shard) = shard else {
        return Ok(stale(0, format!("{} is not known", token.resource)));
    };
    let epoch = shard.epoch.map_or(0, |epoch| epoch.get());
    let Some(owner) = shard.owner() else {
        return Ok(stale(epoch, format!("{} is unowned", token.resource)));
    };
    if epoch != token.epoch.get() {
        return Ok(stale(epoch, format!("the epoch is {epoch}")));
    }
    // A session that has ended owns nothing, so the owner is live.
    if token.owner.session != owner.0 {
        return Ok(stale(epoch, "another session holds this epoch".to_owned()));
    }
    let revision = state.revision().0;
    Ok(pb::CheckTokenResponse {
        current: true,
        current_epoch: epoch,
        revision,
        reason: String::new(),
    })
}
