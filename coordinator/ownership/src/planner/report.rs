//! What a plan leaves undone, and why: inaction is explained, not silent.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::ShardIndex;
use crate::planner::draft::Draft;
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
    /// The owner is cordoned and keeps what it has.
    WorkerCordoned,
    /// No worker has the labels that the policy requires.
    LabelsMissing,
    /// Every worker has as many shards as `worker_shards_max` allows.
    WorkersFull,
    /// Were the zone with most workers lost, `worker_shards_max` would leave so many shards without a place.
    ZoneLoss,
    /// The zone label has more values than zones are told apart: it is not looked at.
    ZonesTooMany,
    /// The worker that the shard is pinned to is away or is being emptied; the shard is elsewhere.
    PinnedWorkerAway,
    /// The worker that the shard is pinned to has as many shards as `worker_shards_max` allows.
    PinnedWorkerFull,
    /// The only workers with room are those that the shard is kept off.
    KeptOff,
    /// The shard is in quarantine: one owner after the other crashed with it.
    Quarantined,
    /// As many moves of this minute as the policy allows are made.
    ChurnSpent,
    /// The fullest worker is above the mean by more than is tolerated, and no move would mend it: its shards
    /// are too hot, or those who have less load have their caps.
    Indivisible,
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
            Self::WorkerCordoned => "worker cordoned",
            Self::LabelsMissing => "labels missing",
            Self::WorkersFull => "workers full",
            Self::ZoneLoss => "zone loss not covered",
            Self::ZonesTooMany => "zones too many",
            Self::PinnedWorkerAway => "pinned worker away",
            Self::PinnedWorkerFull => "pinned worker full",
            Self::KeptOff => "kept off",
            Self::Quarantined => "quarantined",
            Self::ChurnSpent => "churn spent",
            Self::Indivisible => "indivisible",
        })
    }
}

/// Notes what is to be said of the zones: that there are too many, or that one could not be lost.
pub(super) fn zones(draft: &mut Draft<'_>) {
    if draft.zones().too_many {
        draft.report.note_moves(Reason::ZonesTooMany, 1);
    }
    let header = &draft.group.header;
    if let Some(most) = header.policy.worker_shards_max {
        let shortage = draft
            .zones()
            .shortage_without_largest(header.shard_count, most);
        let shortage = usize::try_from(shortage).unwrap_or(usize::MAX);
        draft.report.note_moves(Reason::ZoneLoss, shortage);
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
