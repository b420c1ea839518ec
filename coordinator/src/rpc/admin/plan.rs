//! Plans for people: made by the leader, from all that it knows.

use std::time::Duration;

use tenure_fence::GroupName;
use tenure_proto::v1 as pb;
use tonic::Status;

use super::super::{present, status};
use super::Admin;
use crate::consensus::ProposeError;
use crate::control::{PlanAsk, PlanError};

/// How many moves a request allows: 0 stands for any number.
pub(super) fn moves_max(given: u32) -> u32 {
    if given == 0 { u32::MAX } else { given }
}

impl Admin {
    /// Lets the leader plan, and with `carried_out` propose what it planned. Returns the plan and the
    /// revision that the state has here.
    pub(super) async fn plan(
        &self,
        name: &GroupName,
        evened_out_by: Option<u32>,
        carried_out: bool,
        within: Duration,
    ) -> Result<(pb::Plan, u64), Status> {
        let leadership = self.context.consensus.leadership().borrow().clone();
        if !leadership.is_leader {
            return Err(status::not_leader(leadership.leader.as_ref()));
        }
        let group = self
            .context
            .read_group(name, within, |_, group| Ok(group.header.id))
            .await?;
        let ask = PlanAsk {
            group,
            evened_out_by,
            carried_out,
        };
        // A plan that is not there in time may still be made, and its moves proposed.
        let unknown = || {
            if carried_out {
                status::from_propose(&ProposeError::OutcomeUnknown)
            } else {
                status::unavailable("there was no plan in time")
            }
        };
        let planned = tokio::time::timeout(within, self.control.plan(ask)).await;
        match planned {
            Ok(Ok(Some(plan))) => Ok(self
                .context
                .consensus
                .read(|state| (present::plan(state, &plan), state.revision().0))),
            Ok(Ok(None)) => Err(status::no_such_group(name)),
            Ok(Err(PlanError::NotLeader)) => {
                let leadership = self.context.consensus.leadership().borrow().clone();
                Err(status::not_leader(leadership.leader.as_ref()))
            }
            Ok(Err(PlanError::Interrupted)) | Err(_) => Err(unknown()),
        }
    }
}
