//! Answers about groups, policies and workers.

use std::collections::HashMap;

use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_server::AdminService;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::LARGEST;
use super::node::{Fake, no_group, refused};
use super::sample::{group, plan, policy, session};

#[tonic::async_trait]
impl AdminService for Fake {
    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::CreateGroupResponse>, Status> {
        let request = request.into_inner();
        self.change("create")?;
        if request.name == "orders" {
            return Err(refused(
                Code::AlreadyExists,
                reason::GROUP_EXISTS,
                "group orders exists already",
            ));
        }
        let made = v1::Group {
            name: request.name,
            shard_count: request.shard_count,
            unowned: request.shard_count,
            policy: Some(policy()),
            policy_revision: LARGEST,
            ..Default::default()
        };
        Ok(Response::new(v1::CreateGroupResponse {
            group: Some(made),
            revision: LARGEST,
        }))
    }

    async fn get_group(
        &self,
        request: Request<v1::GetGroupRequest>,
    ) -> Result<Response<v1::GetGroupResponse>, Status> {
        let name = request.into_inner().name;
        if name != "orders" {
            return Err(no_group(&name));
        }
        Ok(Response::new(v1::GetGroupResponse {
            group: Some(group(&name)),
            revision: LARGEST,
        }))
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsResponse>, Status> {
        // One group a page, so that a client that does not go on is noticed.
        let (name, next, revision) = match request.into_inner().after.as_str() {
            "" => ("orders", "orders", 41),
            _ => ("retired", "", 40),
        };
        let answer = v1::ListGroupsResponse {
            groups: vec![group(name)],
            next: next.to_owned(),
            revision,
        };
        Ok(Response::new(answer))
    }

    async fn set_policy(
        &self,
        request: Request<v1::SetPolicyRequest>,
    ) -> Result<Response<v1::SetPolicyResponse>, Status> {
        let request = request.into_inner();
        self.change("set")?;
        let new = request.policy.clone().unwrap_or_default();
        if new.ttl_ms > 600_000 {
            let mut details = ErrorDetails::with_error_info(
                reason::INVALID_ARGUMENT,
                reason::DOMAIN,
                HashMap::new(),
            );
            details.add_bad_request_violation(
                "policy.ttl_ms",
                "policy.ttl is 660s, allowed is 1s to 600s",
            );
            let message = "the request is not acceptable";
            return Err(Status::with_error_details(
                Code::InvalidArgument,
                message,
                details,
            ));
        }
        if request.seen_revision == 11 {
            let message = "the policy was changed at revision 12, the edit started from 11";
            return Err(refused(Code::Aborted, reason::STALE_EPOCH, message));
        }
        self.seen.lock().unwrap().policy = Some(request);
        let set = v1::Policy {
            ttl_ms: new.ttl_ms,
            ..policy()
        };
        Ok(Response::new(v1::SetPolicyResponse {
            policy: Some(set),
            revision: 43,
        }))
    }

    async fn delete_group(
        &self,
        request: Request<v1::DeleteGroupRequest>,
    ) -> Result<Response<v1::DeleteGroupResponse>, Status> {
        let name = request.into_inner().name;
        self.change("delete")?;
        match name.as_str() {
            "orders" => Ok(Response::new(v1::DeleteGroupResponse { revision: 44 })),
            "hangs" => std::future::pending().await,
            "retired" => Err(refused(
                Code::FailedPrecondition,
                reason::GROUP_NOT_FOUND,
                "group retired is being deleted",
            )),
            _ => Err(no_group(&name)),
        }
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let v1::ListWorkersRequest { group, worker } = request.into_inner();
        if group != "orders" {
            return Err(no_group(&group));
        }
        let labels = [("zone", "b"), ("disk", "fast")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let live = v1::Worker {
            name: "counter-1".to_owned(),
            session: Some(session(LARGEST)),
            mode: v1::WorkerMode::Active.into(),
            weight: 2,
            labels: labels.into(),
            address: "10.0.0.11:9000".to_owned(),
            shards: 16,
            ttl_ms: 10_000,
            window_ms: 750,
            ..Default::default()
        };
        let gone = v1::Worker {
            name: "counter-2".to_owned(),
            mode: v1::WorkerMode::Draining.into(),
            ..Default::default()
        };
        let away = v1::Worker {
            name: "counter-3".to_owned(),
            mode: v1::WorkerMode::Paused.into(),
            waiting: 16,
            pause_timeout_ms: 300_000,
            ..Default::default()
        };
        let mut workers = vec![live, gone, away];
        workers.retain(|known| worker.is_empty() || known.name == worker);
        Ok(Response::new(v1::ListWorkersResponse {
            workers,
            revision: 46,
        }))
    }

    async fn set_worker_mode(
        &self,
        request: Request<v1::SetWorkerModeRequest>,
    ) -> Result<Response<v1::SetWorkerModeResponse>, Status> {
        self.change("mode")?;
        let request = request.into_inner();
        if request.group != "orders" {
            return Err(no_group(&request.group));
        }
        let is_paused = request.mode() == v1::WorkerMode::Paused;
        assert_eq!(request.pause_timeout_ms > 0, is_paused);
        Ok(Response::new(v1::SetWorkerModeResponse { revision: 46 }))
    }

    async fn set_freeze(
        &self,
        request: Request<v1::SetFreezeRequest>,
    ) -> Result<Response<v1::SetFreezeResponse>, Status> {
        self.change("freeze")?;
        let name = request.into_inner().group;
        if name != "orders" {
            return Err(no_group(&name));
        }
        Ok(Response::new(v1::SetFreezeResponse { revision: 47 }))
    }

    async fn pin_shard(
        &self,
        request: Request<v1::PinShardRequest>,
    ) -> Result<Response<v1::PinShardResponse>, Status> {
        self.change("pin")?;
        let shard = request.into_inner().shard.unwrap_or_default();
        if shard.group != "orders" {
            return Err(no_group(&shard.group));
        }
        Ok(Response::new(v1::PinShardResponse { revision: 46 }))
    }

    async fn unpin_shard(
        &self,
        _: Request<v1::UnpinShardRequest>,
    ) -> Result<Response<v1::UnpinShardResponse>, Status> {
        self.change("unpin")?;
        Ok(Response::new(v1::UnpinShardResponse { revision: 47 }))
    }

    async fn retry_shard(
        &self,
        _: Request<v1::RetryShardRequest>,
    ) -> Result<Response<v1::RetryShardResponse>, Status> {
        self.change("retry")?;
        Ok(Response::new(v1::RetryShardResponse { revision: 48 }))
    }

    async fn plan_preview(
        &self,
        request: Request<v1::PlanPreviewRequest>,
    ) -> Result<Response<v1::PlanPreviewResponse>, Status> {
        let request = request.into_inner();
        self.change("preview")?;
        let moves = if request.rebalance { 5 } else { 100 };
        Ok(Response::new(v1::PlanPreviewResponse {
            plan: Some(plan(moves)),
            revision: 49,
        }))
    }

    async fn rebalance(
        &self,
        request: Request<v1::RebalanceRequest>,
    ) -> Result<Response<v1::RebalanceResponse>, Status> {
        let moves_max = request.into_inner().moves_max;
        self.change("rebalance")?;
        Ok(Response::new(v1::RebalanceResponse {
            plan: Some(plan(moves_max as usize)),
            revision: 50,
        }))
    }
}
