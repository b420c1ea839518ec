//! Answers about shards, keys, tokens and watches.

use std::collections::HashMap;

use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::ownership_service_server::OwnershipService;
use tenure_proto::v1::watch_response::Message;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::LARGEST;
use super::node::{Fake, no_group};
use super::sample::{session, shard};
use super::watched::{at, first_stream, last_stream};

type Watched = tokio_stream::Iter<std::vec::IntoIter<Result<v1::WatchResponse, Status>>>;

#[tonic::async_trait]
impl OwnershipService for Fake {
    type WatchStream = Watched;

    async fn get_shard(
        &self,
        request: Request<v1::GetShardRequest>,
    ) -> Result<Response<v1::GetShardResponse>, Status> {
        let at = request.into_inner().shard.unwrap_or_default();
        if at.group != "orders" {
            return Err(no_group(&at.group));
        }
        if at.index >= 64 {
            let mut details = ErrorDetails::with_error_info(
                reason::INVALID_ARGUMENT,
                reason::DOMAIN,
                HashMap::new(),
            );
            let problem = format!("the group has no shard {}", at.index);
            details.add_bad_request_violation("shard", &problem);
            return Err(Status::with_error_details(
                Code::InvalidArgument,
                problem,
                details,
            ));
        }
        let answer = v1::GetShardResponse {
            shard: Some(shard(at.index)),
            revision: 46,
        };
        Ok(Response::new(answer))
    }

    async fn list_shards(
        &self,
        request: Request<v1::ListShardsRequest>,
    ) -> Result<Response<v1::ListShardsResponse>, Status> {
        let request = request.into_inner();
        if request.group != "orders" {
            return Err(no_group(&request.group));
        }
        let from = request.from_index;
        let wanted = |shard: &v1::Shard| {
            let phase = request.phase();
            phase == v1::ShardPhase::Unspecified || phase == shard.phase()
        };
        // Two shards a page, so that a client that does not go on is noticed.
        let shards = (from..from + 2).map(shard).filter(wanted).collect();
        let next_index = if from == 0 { 2 } else { 0 };
        let answer = v1::ListShardsResponse {
            shards,
            next_index,
            revision: LARGEST,
        };
        Ok(Response::new(answer))
    }

    async fn lookup_key(
        &self,
        request: Request<v1::LookupKeyRequest>,
    ) -> Result<Response<v1::LookupKeyResponse>, Status> {
        let index = u32::try_from(request.into_inner().key.len()).unwrap();
        let answer = v1::LookupKeyResponse {
            shard: Some(shard(index)),
            revision: 47,
        };
        Ok(Response::new(answer))
    }

    /// The first stream breaks, the second is too late to go on, the third sees the group removed.
    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Watched>, Status> {
        let request = request.into_inner();
        if request.group != "orders" {
            return Err(no_group(&request.group));
        }
        let mut seen = self.seen.lock().unwrap();
        seen.watches.push(request.after);
        let messages = match seen.watches.len() {
            1 => first_stream(),
            2 => vec![
                Ok(Message::Progress(at(103, 0))),
                Ok(Message::Resync(v1::Resync {
                    oldest: Some(at(200, 0)),
                })),
            ],
            _ => last_stream(),
        };
        let responses: Vec<_> = messages
            .into_iter()
            .map(|message| {
                message.map(|message| v1::WatchResponse {
                    message: Some(message),
                })
            })
            .collect();
        Ok(Response::new(tokio_stream::iter(responses)))
    }

    async fn check_token(
        &self,
        request: Request<v1::CheckTokenRequest>,
    ) -> Result<Response<v1::CheckTokenResponse>, Status> {
        let token = request.into_inner().token.unwrap_or_default();
        let current = token.epoch == LARGEST && token.owner == Some(session(917));
        let reason = if current {
            ""
        } else {
            "the shard is at a newer epoch"
        };
        Ok(Response::new(v1::CheckTokenResponse {
            current,
            current_epoch: LARGEST,
            revision: 48,
            reason: reason.to_owned(),
        }))
    }
}
