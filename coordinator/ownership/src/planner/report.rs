//! What a plan leaves undone, and why: inaction is explained, not silent.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::ShardIndex;
use crate::planner::observed::PauseReason;

/// Why the planner left a shard where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No worker that takes shards has a stream.
    NoWorker,
    /// Every worker with a stream is at its cap; the room is with workers that have none now.
    AllAtCap,
    /// The lock delay of the shard's last tenure is running.
    LockDelay,
    /// The shard waits for the worker that held it.
    RestartGrace,
    /// The delay after a failed opening, or after a move refused again and again, is running.
    BackingOff,
    /// Its last tenure ended after what the leader has taken note of: the next plan knows its delays.
    NotSeenYet,
    /// The only move left would take the shard to the worker on which it has just failed to open.
    AvoidedWorker,
    /// The owner should give the shard up, but has no stream to be asked through; it is about to
    /// resume or to expire.
    OwnerDisconnected,
    /// As many handoffs as the policy allows are in flight.
    Throttled,
    /// The rebalance phase rests.
    Paused(PauseReason),
    /// The shard waits for a paused worker.
    WorkerPaused,
    /// Planned moves of the group are stopped by an operator.
    Frozen,
    /// The group is being deleted.
    GroupDeleting,
    /// The epochs of the shard are used up.
    EpochExhausted,
    /// The cluster was restored from a backup; owners from before may still believe.
    Restored,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWorker => "no worker",
            Self::AllAtCap => "all at cap",
            Self::LockDelay => "lock delay",
            Self::RestartGrace => "restart grace",
            Self::BackingOff => "backing off",
            Self::NotSeenYet => "not seen yet",
            Self::AvoidedWorker => "avoided worker",
            Self::OwnerDisconnected => "owner disconnected",
            Self::Throttled => "throttled",
            Self::Paused(PauseReason::MassFailure) => "paused by mass failure",
            Self::Paused(PauseReason::NewLeader) => "paused by new leader",
            Self::WorkerPaused => "worker paused",
            Self::Frozen => "frozen",
            Self::GroupDeleting => "group deleting",
            Self::EpochExhausted => "epoch exhausted",
            Self::Restored => "restored",
        })
    }
}

/// The shards left for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotDone {
    /// How many moves were left.
    pub moves: u32,
    /// The first of their shards, at most [`NotDone::SAMPLE_MAX`]. Empty for moves that were counted
    /// but not chosen.
    pub sample: Vec<ShardIndex>,
}

impl NotDone {
    /// Most shards named per reason: enough to look one up, few enough for a log line.
    pub const SAMPLE_MAX: usize = 8;
}

/// What a plan leaves undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Per reason, what was left.
    pub not_done: BTreeMap<Reason, NotDone>,
    /// Handoffs that were in flight before this plan.
    pub in_flight: u32,
}

impl Report {
    /// Notes a shard that was left.
    pub(super) fn note(&mut self, reason: Reason, shard: ShardIndex) {
        let entry = self.not_done.entry(reason).or_default();
        entry.moves += 1;
        if entry.sample.len() < NotDone::SAMPLE_MAX {
            entry.sample.push(shard);
        }
    }

    /// Notes moves for which no shard was chosen.
    pub(super) fn note_moves(&mut self, reason: Reason, moves: usize) {
        if moves > 0 {
            let moves = u32::try_from(moves).unwrap_or(u32::MAX);
            self.not_done.entry(reason).or_default().moves += moves;
        }
    }

    /// How many moves were left for a reason.
    pub fn moves_left(&self, reason: Reason) -> u32 {
        self.not_done.get(&reason).map_or(0, |left| left.moves)
    }
}

/// One line per reason, without a line end after the last.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (reason, left) in &self.not_done {
            write!(f, "{separator}{reason}: {}", left.moves)?;
            separator = "\n";
            for (position, shard) in left.sample.iter().enumerate() {
                write!(
                    f,
                    "{}{shard}",
                    if position == 0 { ", shards " } else { " " }
                )?;
            }
        }
        Ok(())
    }
}
