//! Plans that operators ask for.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use tenure_ownership::ids::GroupId;

/// A plan that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanAsk {
    /// The group.
    pub group: GroupId,
    /// Most moves to even workers out as far as it goes; `None` for the plan that the leader makes of itself.
    pub evened_out_by: Option<u32>,
    /// Whether its moves are proposed; otherwise nothing changes.
    pub carried_out: bool,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// This node does not lead.
    #[error("this node does not lead")]
    NotLeader,
    /// The leadership ended meanwhile: moves may have been proposed or not.
    #[error("the leadership ended before there was a plan")]
    Interrupted,
}

/// Names an ask whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AskId(pub(super) u64);

/// Asks for plans whose moves are to be proposed. One plan answers one ask.
#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: BTreeMap<GroupId, VecDeque<(AskId, u32)>>,
    /// Whose plan is being made.
    planned: BTreeMap<GroupId, AskId>,
}

impl Asks {
    /// Takes an ask. The group is planned as soon as it may be.
    pub(super) fn wait(&mut self, group: GroupId, id: AskId, moves_max: u32) {
        self.waiting
            .entry(group)
            .or_default()
            .push_back((id, moves_max));
    }

    /// A plan of the group is begun: for whom, and how many moves it may make.
    pub(super) fn begin(&mut self, group: GroupId) -> Option<u32> {
        let waiting = self.waiting.get_mut(&group)?;
        let (id, moves_max) = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&group);
        }
        self.planned.insert(group, id);
        Some(moves_max)
    }

    /// A plan of the group is made. Returns who asked for it.
    pub(super) fn end(&mut self, group: GroupId) -> Option<AskId> {
        self.planned.remove(&group)
    }

    /// Whether somebody waits for a plan of the group.
    pub(super) fn is_waiting(&self, group: GroupId) -> bool {
        self.waiting.contains_key(&group)
    }

    /// Forgets a group that is gone. Returns who waited for it.
    pub(super) fn forget(&mut self, group: GroupId) -> Vec<AskId> {
        let waiting = self.waiting.remove(&group).unwrap_or_default();
        let waiting = waiting.into_iter().map(|(id, _)| id);
        waiting.chain(self.planned.remove(&group)).collect()
    }
}
