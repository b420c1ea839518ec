//! What the leader knows and the log does not: the planner's only input beside the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::command::Tenure;
use crate::ids::{Revision, SessionId, ShardIndex, WorkerName};

/// What the leader knows about one group and the log does not: streams, running delays, deadlines.
///
/// What is named here but no longer so in the state is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The last revision the leader has taken note of, if the state may be ahead of that. What ended
    /// later waits for the next plan: its lock delay, restart grace or retry delay is not known yet.
    pub seen: Option<Revision>,
    /// Ends (see [`crate::shard::TenureEnd::at`]) whose lock delay is running: their unclean shards
    /// are granted to nobody.
    pub lock_delays: BTreeSet<Revision>,
    /// Ends whose restart grace is running: their shards wait for the worker that held them.
    pub restart_graces: BTreeSet<Revision>,
    /// Live sessions without a stream: they keep what they have, count in the shares, and are given
    /// nothing. Would they not count, a blink of the network would move shards.
    pub disconnected: BTreeSet<SessionId>,
    /// Live sessions whose workers have said that they stop: they are emptied like those that drain, do not
    /// count in the shares, and are given nothing.
    pub stopping: BTreeSet<SessionId>,
    /// Shards to be neither granted nor asked back yet, whatever for: the delay after a failed opening, or
    /// after a move that was refused again and again, is running.
    pub backing_off: BTreeSet<ShardIndex>,
    /// Openings past their deadline: to be revoked.
    pub opening_overdue: BTreeSet<Tenure>,
    /// Why the rebalance phase must rest now, if it must.
    pub rebalance_paused: Option<PauseReason>,
    /// Shards that were moved from a worker because it drained or stopped, with its name: the first to go
    /// there when it is back and below its share.
    pub homes: Arc<BTreeMap<ShardIndex, WorkerName>>,
    /// Load by shard, smoothed, in the workers' own unit. A shard that is not named has that of the mean.
    pub loads: Arc<BTreeMap<ShardIndex, u64>>,
    /// Shards that may be what crashes their owners: placed apart from each other. At most
    /// [`Observed::SUSPECTS_MAX`] are looked at.
    pub suspects: BTreeSet<ShardIndex>,
    /// How many more served shards may be moved in this minute to even workers out; `None` for any number.
    pub churn_left: Option<u32>,
    /// An operator wants the group evened out now: as far as it goes, whatever imbalance is tolerated and
    /// however many moves were made, with at most so many moves.
    pub evened_out_by: Option<u32>,
}

impl Observed {
    /// Most suspects that are placed apart. More are likely to be innocent.
    pub const SUSPECTS_MAX: usize = 1_000;

    /// Whether a session is to be given nothing: it has no stream, or it registered after what the
    /// leader has taken note of, so that nothing is known of its stream yet.
    pub(super) fn is_disconnected(&self, session: SessionId) -> bool {
        let is_unknown = self.seen.is_some_and(|seen| session.0 > seen.0);
        is_unknown || self.disconnected.contains(&session)
    }
}

/// Why the rebalance phase rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseReason {
    /// Most workers of the group lost their streams at once: the network or the coordinator is the
    /// likelier cause, and what looks idle now is about to return.
    MassFailure,
    /// The leader is new and has not heard from every worker yet.
    NewLeader,
}
