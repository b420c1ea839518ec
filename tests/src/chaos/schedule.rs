//! When what goes wrong: chosen from a seed before anything runs.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Time before the first fault: the load is on by then.
const FIRST: Duration = Duration::from_secs(2);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kill -9` of a coordinator, and a restart.
    KillNode,
    /// `kill -9` of the leader, and a restart.
    KillLeader,
    /// SIGSTOP of a coordinator, then SIGCONT.
    StopNode,
    /// SIGSTOP of the leader, then SIGCONT.
    StopLeader,
    /// `kill -9` of a worker, and a restart.
    KillWorker,
    /// SIGSTOP of a worker for less or more than a ttl, then SIGCONT.
    StopWorker,
    /// SIGSTOP of a worker, a new process under its name, then SIGCONT of the old one.
    ReplaceWorker,
    /// A coordinator is cut off from everybody.
    CutNode,
    /// The leader is cut off from everybody, or together with a worker.
    CutLeader,
    /// The leader is cut off from the other coordinators alone: workers still reach it.
    CutLeaderFromNodes,
    /// What a coordinator sends does not arrive, or nothing arrives at it.
    OneWay,
    /// Two coordinators do not hear each other; others hear both.
    Partial,
    /// A worker is cut off from all coordinators.
    CutWorker,
    /// Packets are lost at random, between all hosts.
    Loss,
    /// Connections of a host to a coordinator are slow.
    Delay,
    /// The wall clock of a coordinator or a worker jumps, and later back.
    ClockJump,
    /// The disk of a coordinator is full.
    DiskFull,
    /// Syncs of a coordinator fail.
    FailingSync,
    /// A worker is drained, and later active again.
    Drain,
    /// A worker gets no more shards for a while.
    Cordon,
    /// A worker is paused, killed, and started again before others get its shards.
    PlannedRestart,
    /// Planned moves are stopped for a while.
    Freeze,
    /// A shard is pinned to a worker for a while, and all are evened out.
    Pin,
    /// All coordinators are restarted, one after the other.
    RollingRestart,
    /// A coordinator is added and another removed.
    Membership,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 25] = [
        Self::KillNode,
        Self::KillLeader,
        Self::StopNode,
        Self::StopLeader,
        Self::KillWorker,
        Self::StopWorker,
        Self::ReplaceWorker,
        Self::CutNode,
        Self::CutLeader,
        Self::CutLeaderFromNodes,
        Self::OneWay,
        Self::Partial,
        Self::CutWorker,
        Self::Loss,
        Self::Delay,
        Self::ClockJump,
        Self::DiskFull,
        Self::FailingSync,
        Self::Drain,
        Self::Cordon,
        Self::PlannedRestart,
        Self::Freeze,
        Self::Pin,
        Self::RollingRestart,
        Self::Membership,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KillNode => "kill-node",
            Self::KillLeader => "kill-leader",
            Self::StopNode => "stop-node",
            Self::StopLeader => "stop-leader",
            Self::KillWorker => "kill-worker",
            Self::StopWorker => "stop-worker",
            Self::ReplaceWorker => "replace-worker",
            Self::CutNode => "cut-node",
            Self::CutLeader => "cut-leader",
            Self::CutLeaderFromNodes => "cut-leader-from-nodes",
            Self::OneWay => "one-way",
            Self::Partial => "partial",
            Self::CutWorker => "cut-worker",
            Self::Loss => "loss",
            Self::Delay => "delay",
            Self::ClockJump => "clock-jump",
            Self::DiskFull => "disk-full",
            Self::FailingSync => "failing-sync",
            Self::Drain => "drain",
            Self::Cordon => "cordon",
            Self::PlannedRestart => "planned-restart",
            Self::Freeze => "freeze",
            Self::Pin => "pin",
            Self::RollingRestart => "rolling-restart",
            Self::Membership => "membership",
        }
    }

    /// Returns how long it lasts, at least and at most, in milliseconds. Those that take as long as they
    /// take last no time.
    fn duration_ms(self) -> (u64, u64) {
        match self {
            // Below and above the ttl of 3 s.
            Self::StopWorker | Self::ReplaceWorker | Self::CutWorker => (300, 7_000),
            Self::KillWorker => (0, 4_000),
            Self::Loss
            | Self::Delay
            | Self::ClockJump
            | Self::Drain
            | Self::Cordon
            | Self::Freeze
            | Self::Pin => (2_000, 8_000),
            Self::RollingRestart | Self::Membership => (0, 1),
            _ => (500, 6_000),
        }
    }
}

/// One fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, from the beginning.
    pub at: Duration,
    /// For how long.
    pub duration: Duration,
    /// What.
    pub kind: Kind,
    /// Chooses the host and whatever else there is to choose.
    pub choice: u64,
}

/// Returns the faults of a run: all kinds once, in random order, then all again.
#[must_use]
pub fn schedule(seed: u64, length: Duration) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    let mut bag = Vec::new();
    let mut at = FIRST;
    while at < length {
        let Some(kind) = bag.pop() else {
            bag.extend(Kind::ALL);
            bag.shuffle(&mut random);
            continue;
        };
        let (least, most) = kind.duration_ms();
        let duration = Duration::from_millis(random.random_range(least..most));
        let choice = random.random();
        // Over by the end.
        let duration = duration.min(length - at);
        steps.push(Step {
            at,
            duration,
            kind,
            choice,
        });
        at += Duration::from_millis(random.random_range(1_000..5_000));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_seed_others() {
        let minute = Duration::from_secs(60);
        assert_eq!(schedule(7, minute), schedule(7, minute));
        assert_ne!(schedule(7, minute), schedule(8, minute));
    }

    #[test]
    fn every_kind_has_its_turn_and_all_end_in_time() {
        let length = Duration::from_secs(110);
        for seed in 0..100 {
            let steps = schedule(seed, length);
            let kinds: BTreeSet<Kind> = steps.iter().map(|step| step.kind).collect();
            assert_eq!(kinds.len(), Kind::ALL.len(), "seed {seed}");
            assert!(steps.iter().all(|step| step.at + step.duration <= length));
        }
    }
}
