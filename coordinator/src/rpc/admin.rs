//! Groups, workers and policy.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::GroupName;
use tenure_ownership::command::SetPolicy;
use tenure_ownership::group::Group;
use tenure_ownership::ids::{GroupId, Revision, WorkerName};
use tenure_ownership::policy::Policy;
use tenure_ownership::{Command, Rejection, State};
use tenure_proto::v1 as pb;
use tenure_proto::v1::admin_service_server::AdminService;
use tonic::{Request, Response, Status};

use self::plan::moves_max;
use super::context::{RpcContext, cluster_of};
use super::convert::{self, PolicyEdit};
use super::{present, status};
use crate::control::Control;

/// Tries to edit a policy that others edit at the same time.
const EDITS_MAX: usize = 5;

/// The admin service.
pub(super) struct Admin {
    context: RpcContext,
    control: Arc<Control>,
}

impl Admin {
    pub(super) fn new(context: RpcContext, control: Arc<Control>) -> Self {
        Self { context, control }
    }

    /// Edits the policy as it is now, or as it was at `seen`.
    ///
    /// The log carries whole policies, each with the revision it was edited from: of two edits of
    /// different fields at the same time the second is refused, and made again from what the first left.
    async fn edit_policy(
        &self,
        group: &GroupName,
        edit: &PolicyEdit,
        seen: Option<Revision>,
        within: Duration,
    ) -> Result<(Policy, Revision), Status> {
        let mut refused = None;
        for _ in 0..EDITS_MAX {
            let (current, shard_count, revision) = self
                .context
                .read_group(group, within, |_, group| {
                    let header = &group.header;
                    Ok((
                        header.policy.clone(),
                        header.shard_count,
                        header.policy_revision,
                    ))
                })
                .await?;
            let policy = edit
                .apply_to(current, shard_count, &self.context.limits.ttl)
                .map_err(status::invalid)?;
            let command = SetPolicy {
                group: group.clone(),
                seen: Some(seen.unwrap_or(revision)),
                policy: policy.clone(),
            };
            match self
                .context
                .try_propose(Command::SetPolicy(command), within)
                .await?
            {
                Ok((revision, _)) => return Ok((policy, revision)),
                Err(rejection @ Rejection::PolicyChanged { .. }) if seen.is_none() => {
                    refused = Some(rejection);
                }
                Err(rejection) => return Err(status::rejection(&rejection)),
            }
        }
        Err(refused.map_or_else(
            || status::unavailable("the policy keeps changing"),
            |rejection| status::rejection(&rejection),
        ))
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn create_group(
        &self,
        request: Request<pb::CreateGroupRequest>,
    ) -> Result<Response<pb::CreateGroupResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let create = convert::create_group(request.into_inner(), &self.context.limits.ttl)
            .map_err(status::invalid)?;
        let (revision, _) = self
            .context
            .propose(Command::CreateGroup(create), within)
            .await?;
        // Gone if it was deleted at once.
        let group = self.context.consensus.read(|state| {
            state
                .group(GroupId(revision.0))
                .map(|group| present::group(state, group))
        });
        Ok(Response::new(pb::CreateGroupResponse {
            group,
            revision: revision.0,
        }))
    }

    async fn get_group(
        &self,
        request: Request<pb::GetGroupRequest>,
    ) -> Result<Response<pb::GetGroupResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let name = convert::group("name", &request.get_ref().name).map_err(status::invalid)?;
        let answer = |state: &State, group: &_| {
            let (group, revision) = (Some(present::group(state, group)), state.revision().0);
            Ok(pb::GetGroupResponse { group, revision })
        };
        self.context
            .read_group(&name, within, answer)
            .await
            .map(Response::new)
    }

    async fn list_groups(
        &self,
        request: Request<pb::ListGroupsRequest>,
    ) -> Result<Response<pb::ListGroupsResponse>, Status> {
        let (after, page_size) =
            convert::group_query(request.get_ref()).map_err(status::invalid)?;
        self.context.consensus.read(|state| {
            cluster_of(state)?;
            let mut named: Vec<_> = state
                .groups()
                .filter(|group| {
                    after
                        .as_ref()
                        .is_none_or(|after| group.header.name > *after)
                })
                .collect();
            named.sort_unstable_by(|one, other| one.header.name.cmp(&other.header.name));
            let more = named.len() > page_size;
            named.truncate(page_size);
            let next = named
                .last()
                .filter(|_| more)
                .map(|last| last.header.name.to_string());
            Ok(Response::new(pb::ListGroupsResponse {
                groups: named
                    .into_iter()
                    .map(|group| present::group(state, group))
                    .collect(),
                next: next.unwrap_or_default(),
                revision: state.revision().0,
            }))
        })
    }

    async fn set_policy(
        &self,
        request: Request<pb::SetPolicyRequest>,
    ) -> Result<Response<pb::SetPolicyResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let (group, edit, seen) =
            convert::set_policy(request.into_inner()).map_err(status::invalid)?;
        let (policy, revision) = self.edit_policy(&group, &edit, seen, within).await?;
        let policy = Some(present::policy(&policy));
        Ok(Response::new(pb::SetPolicyResponse {
            policy,
            revision: revision.0,
        }))
    }

    async fn delete_group(
        &self,
        request: Request<pb::DeleteGroupRequest>,
    ) -> Result<Response<pb::DeleteGroupResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let name = convert::group("name", &request.get_ref().name).map_err(status::invalid)?;
        let (revision, _) = self
            .context
            .propose(Command::DeleteGroup(name), within)
            .await?;
        Ok(Response::new(pb::DeleteGroupResponse {
            revision: revision.0,
        }))
    }

    async fn list_workers(
        &self,
        request: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let name = convert::group("group", &request.get_ref().group).map_err(status::invalid)?;
        let only = request.into_inner().worker;
        let answer = move |state: &State, group: &Group| {
            let cluster = cluster_of(state)?;
            let waiting = waiting(group);
            let workers = group.workers.iter();
            let workers = workers.filter(|(name, _)| only.is_empty() || name.as_str() == only);
            Ok(pb::ListWorkersResponse {
                workers: workers
                    .map(|(name, worker)| {
                        let waiting = waiting.get(name).copied().unwrap_or(0);
                        present::worker(state, cluster, name, worker, waiting)
                    })
                    .collect(),
                revision: state.revision().0,
            })
        };
        self.context
            .read_group(&name, within, answer)
            .await
            .map(Response::new)
    }

    async fn set_worker_mode(
        &self,
        request: Request<pb::SetWorkerModeRequest>,
    ) -> Result<Response<pb::SetWorkerModeResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let set = convert::set_worker_mode(request.get_ref()).map_err(status::invalid)?;
        let (revision, _) = self
            .context
            .propose(Command::SetWorkerMode(set), within)
            .await?;
        Ok(Response::new(pb::SetWorkerModeResponse {
            revision: revision.0,
        }))
    }

    async fn set_freeze(
        &self,
        request: Request<pb::SetFreezeRequest>,
    ) -> Result<Response<pb::SetFreezeResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let set = convert::set_freeze(request.into_inner()).map_err(status::invalid)?;
        let (revision, _) = self
            .context
            .propose(Command::SetFreeze(set), within)
            .await?;
        Ok(Response::new(pb::SetFreezeResponse {
            revision: revision.0,
        }))
    }

    async fn pin_shard(
        &self,
        request: Request<pb::PinShardRequest>,
    ) -> Result<Response<pb::PinShardResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let pin = convert::pin_shard(request.into_inner()).map_err(status::invalid)?;
        let (revision, _) = self.context.propose(Command::PinShard(pin), within).await?;
        Ok(Response::new(pb::PinShardResponse {
            revision: revision.0,
        }))
    }

    async fn unpin_shard(
        &self,
        request: Request<pb::UnpinShardRequest>,
    ) -> Result<Response<pb::UnpinShardResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let shard = convert::one_shard(request.into_inner().shard).map_err(status::invalid)?;
        let command = Command::UnpinShard(shard);
        let (revision, _) = self.context.propose(command, within).await?;
        Ok(Response::new(pb::UnpinShardResponse {
            revision: revision.0,
        }))
    }

    async fn retry_shard(
        &self,
        request: Request<pb::RetryShardRequest>,
    ) -> Result<Response<pb::RetryShardResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let shard = convert::one_shard(request.into_inner().shard).map_err(status::invalid)?;
        let command = Command::RetryShard(shard);
        let (revision, _) = self.context.propose(command, within).await?;
        Ok(Response::new(pb::RetryShardResponse {
            revision: revision.0,
        }))
    }

    async fn plan_preview(
        &self,
        request: Request<pb::PlanPreviewRequest>,
    ) -> Result<Response<pb::PlanPreviewResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let request = request.get_ref();
        let name = convert::group("group", &request.group).map_err(status::invalid)?;
        let evened_out_by = request.rebalance.then(|| moves_max(request.moves_max));
        let (plan, revision) = self.plan(&name, evened_out_by, false, within).await?;
        Ok(Response::new(pb::PlanPreviewResponse {
            plan: Some(plan),
            revision,
        }))
    }

    async fn rebalance(
        &self,
        request: Request<pb::RebalanceRequest>,
    ) -> Result<Response<pb::RebalanceResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let request = request.get_ref();
        let name = convert::group("group", &request.group).map_err(status::invalid)?;
        let evened_out_by = Some(moves_max(request.moves_max));
        let (plan, revision) = self.plan(&name, evened_out_by, true, within).await?;
        Ok(Response::new(pb::RebalanceResponse {
            plan: Some(plan),
            revision,
        }))
    }
}

/// How many unowned shards wait for each paused worker.
fn waiting(group: &Group) -> BTreeMap<&WorkerName, u32> {
    let mut waiting = BTreeMap::new();
    for (_, shard) in group.unowned() {
        if let Some(worker) = shard.waits_for_paused(group) {
            *waiting.entry(worker).or_default() += 1;
        }
    }
    waiting
}
