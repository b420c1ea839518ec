//! Plans that operators ask for.

use tenure_ownership::State;
use tenure_ownership::ids::GroupId;
use tenure_ownership::planner::Plan;

use super::super::asks::AskId;
use super::super::asks::PlanAsk;
use super::Core;
use super::Output;
use crate::clock::Moment;

impl Core {
    /// Takes an ask for a plan. One that changes nothing is made at once, from what is observed now; one
    /// whose moves are to be proposed waits for its turn, because two plans at a time would each spend the
    /// whole limit of handoffs.
    pub(super) fn asked(&mut self, now: Moment, id: AskId, ask: PlanAsk, state: &State) {
        let Some(group) = state.group(ask.group) else {
            self.outputs.push(Output::Answer(id, None));
            return;
        };
        if ask.carried_out {
            let moves_max = ask.evened_out_by.unwrap_or(u32::MAX);
            self.asks.wait(ask.group, id, moves_max);
            self.planning.touch(ask.group);
            return;
        }
        let mut observed = self.observe(now, group);
        observed.evened_out_by = ask.evened_out_by;
        self.outputs.push(Output::Preview(id, ask.group, observed));
    }

    /// Answers whoever asked for a plan that is made.
    pub(super) fn answer(&mut self, plan: &Plan) {
        if let Some(id) = self.asks.end(plan.group) {
            self.outputs.push(Output::Answer(id, Some(plan.clone())));
        }
        if self.asks.is_waiting(plan.group) {
            self.planning.touch(plan.group);
        }
    }

    /// Answers whoever asked for a plan that will not be made.
    pub(super) fn answer_none(&mut self, group: GroupId) {
        for id in self.asks.forget(group) {
            self.outputs.push(Output::Answer(id, None));
        }
    }
}
