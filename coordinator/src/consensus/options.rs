//! What a node is told about itself and its cluster, checked before anything is opened.

use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy, StepDownPolicy};

use super::identity::{Identity, NodeAddresses};
use crate::history::HistoryOptions;
use crate::wall_clock::{self, WallClock};

/// Settings of one node.
#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// Where this node is reached. Told to the others when it initialises a cluster.
    pub addresses: NodeAddresses,
    /// Who the node must be. `None` accepts what the data folder says; an unused folder then waits
    /// until the node is made part of a cluster.
    pub identity: Option<Identity>,
    /// Timing of elections and heartbeats. The same on every node.
    pub timings: RaftTimings,
    /// Bounds of sizes and waits.
    pub limits: ConsensusLimits,
    /// How much of what happened this node keeps, for people.
    pub history: HistoryOptions,
    /// The time of day that proposals are marked with, for people.
    pub wall_clock: Arc<dyn WallClock>,
}

impl ConsensusOptions {
    /// Returns the default settings for a node with these addresses.
    pub fn new(addresses: NodeAddresses) -> Self {
        Self {
            addresses,
            identity: None,
            timings: RaftTimings::default(),
            limits: ConsensusLimits::default(),
            history: HistoryOptions::default(),
            wall_clock: wall_clock::system(),
        }
    }
}

/// Timing of elections and heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTimings {
    /// How often a leader is heard of.
    pub heartbeat_interval: Duration,
    /// Shortest silence after which a follower stands for election. Above twice the heartbeat
    /// interval, so that one lost heartbeat elects nobody.
    pub election_timeout_min: Duration,
    /// Longest such silence; each follower draws its own. Above the shortest by enough that two
    /// rarely stand at once.
    pub election_timeout_max: Duration,
}

impl Default for RaftTimings {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(600),
            election_timeout_max: Duration::from_millis(1200),
        }
    }
}

/// Bounds of sizes and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsensusLimits {
    /// Size of one encoded command, in bytes.
    pub command_bytes_max: usize,
    /// Entries in the log after which a snapshot is built and the log before it may be removed.
    pub snapshot_entries: u64,
    /// Size of the log, in bytes, beyond which a snapshot is built and half of the log removed,
    /// however few its entries.
    pub log_bytes_max: u64,
    /// Entries that stay in the log although a snapshot contains them, so that a peer that was away
    /// for a moment is sent entries rather than the whole state.
    pub kept_entries: u64,
    /// Longest silence of a peer that was sent entries before the stream to it is given up.
    pub append_silence_max: Duration,
    /// Longest time without progress of a snapshot on its way, and until it is installed.
    pub snapshot_silence_max: Duration,
}

impl Default for ConsensusLimits {
    fn default() -> Self {
        Self {
            // One command may carry the plan for a million shards (some ten bytes each).
            command_bytes_max: 32 << 20,
            // A snapshot costs as much as the state is large, a restart as much as the log is long:
            // applying 100,000 entries takes a few seconds.
            snapshot_entries: 100_000,
            // Some hundreds of the largest values of the replicated store.
            log_bytes_max: 512 << 20,
            // A few minutes of an ordinary load.
            kept_entries: 20_000,
            append_silence_max: Duration::from_secs(2),
            snapshot_silence_max: Duration::from_secs(60),
        }
    }
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A duration outside of its bounds.
    #[error("{setting} of {given:?} is not between {min:?} and {max:?}")]
    OutOfBounds {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        given: Duration,
        /// The smallest value accepted.
        min: Duration,
        /// The largest value accepted.
        max: Duration,
    },
    /// The shortest election timeout leaves no room for a lost heartbeat.
    #[error(
        "election_timeout_min of {election_timeout_min:?} is not above twice the \
         heartbeat_interval of {heartbeat_interval:?}"
    )]
    ElectionBelowHeartbeats {
        /// The setting.
        election_timeout_min: Duration,
        /// What it must exceed twice over.
        heartbeat_interval: Duration,
    },
    /// The range of election timeouts is too narrow for one candidate to be first.
    #[error(
        "election_timeout_max of {election_timeout_max:?} is not at least 1.5 times the \
         election_timeout_min of {election_timeout_min:?}"
    )]
    ElectionRangeTooNarrow {
        /// The lower end.
        election_timeout_min: Duration,
        /// The upper end.
        election_timeout_max: Duration,
    },
    /// A size or count of zero.
    #[error("{setting} must not be zero")]
    Zero {
        /// The setting's name.
        setting: &'static str,
    },
    /// An address is not `host:port`.
    #[error("{setting} {address:?} is not host:port")]
    Address {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        address: String,
    },
    /// openraft refuses what passed the checks above.
    #[error("raft settings are refused: {0}")]
    Raft(String),
}

fn within(
    setting: &'static str,
    given: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), OptionsError> {
    if given < min || given > max {
        return Err(OptionsError::OutOfBounds {
            setting,
            given,
            min,
            max,
        });
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How openraft divides the silence after which a follower stands for election.
///
/// First the leader's lease runs out, in which the follower votes for nobody, and only then the time
/// that it has drawn begins: `lease + beyond_lease_min` to `2 × lease` in all, because openraft takes
/// the longest time it may draw for the lease as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patience {
    /// The lease, and the longest time beyond it.
    lease: Duration,
    /// The shortest time beyond the lease.
    beyond_lease_min: Duration,
}

impl RaftTimings {
    /// Divides the silence, so that it is from `election_timeout_min` to at most
    /// `election_timeout_max`. Where the two leave little room between heartbeats it may be somewhat
    /// longer.
    fn patience(&self) -> Patience {
        // openraft requires more than a heartbeat interval.
        let least = self.heartbeat_interval * 5 / 4;
        let beyond_lease_min = self
            .election_timeout_min
            .saturating_sub(self.election_timeout_max / 2)
            .max(least);
        // The range to draw from must not be narrow, or two followers often stand at once.
        let lease = (self.election_timeout_min.saturating_sub(beyond_lease_min))
            .max(beyond_lease_min * 3 / 2);
        Patience {
            lease,
            beyond_lease_min,
        }
    }

    fn validate(&self) -> Result<(), OptionsError> {
        let (ms, minute) = (Duration::from_millis, Duration::from_secs(60));
        within(
            "heartbeat_interval",
            self.heartbeat_interval,
            ms(10),
            minute,
        )?;
        within(
            "election_timeout_min",
            self.election_timeout_min,
            ms(50),
            minute,
        )?;
        within(
            "election_timeout_max",
            self.election_timeout_max,
            ms(75),
            2 * minute,
        )?;
        if self.election_timeout_min <= 2 * self.heartbeat_interval {
            return Err(OptionsError::ElectionBelowHeartbeats {
                election_timeout_min: self.election_timeout_min,
                heartbeat_interval: self.heartbeat_interval,
            });
        }
        if self.election_timeout_max < self.election_timeout_min * 3 / 2 {
            return Err(OptionsError::ElectionRangeTooNarrow {
                election_timeout_min: self.election_timeout_min,
                election_timeout_max: self.election_timeout_max,
            });
        }
        Ok(())
    }
}

/// Checks that an address is `host:port`.
pub(super) fn check_address(setting: &'static str, address: &str) -> Result<(), OptionsError> {
    let is_valid = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0));
    if is_valid {
        return Ok(());
    }
    Err(OptionsError::Address {
        setting,
        address: address.to_owned(),
    })
}

/// Checks the addresses of a node.
pub(super) fn check_addresses(addresses: &NodeAddresses) -> Result<(), OptionsError> {
    check_address("raft address", &addresses.raft)?;
    check_address("client address", &addresses.client)?;
    if addresses.http.is_empty() {
        return Ok(());
    }
    check_address("http address", &addresses.http)
}

impl ConsensusOptions {
    /// Checks the settings, alone and against each other.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] for the first that does not fit.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.raft_config().map(|_| ())
    }

    /// Returns openraft's settings. Its own defaults are for tests on one machine, so everything
    /// that matters is set here.
    pub(super) fn raft_config(&self) -> Result<Config, OptionsError> {
        check_addresses(&self.addresses)?;
        self.timings.validate()?;
        self.limits.validate()?;
        let timings = self.timings;
        let patience = timings.patience();
        Config {
            cluster_name: "tenure".to_owned(),
            heartbeat_interval: millis(timings.heartbeat_interval),
            election_timeout_min: millis(patience.beyond_lease_min),
            election_timeout_max: millis(patience.lease),
            install_snapshot_timeout: millis(self.limits.snapshot_silence_max),
            enable_pre_vote: Some(true),
            // Without it, a leader that still reaches its followers but is not heard by them keeps
            // them from electing another, for ever (openraft #2080).
            quorum_loss_probe_interval: Some(2 * millis(timings.election_timeout_max)),
            // The state is not synced when an entry is applied, so a leader that was restarted may
            // be behind what it answered before. It has to be elected again, which makes it apply
            // an entry of a new term first.
            enable_leader_restore: Some(false),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.limits.snapshot_entries),
            // Above what a snapshot policy lets a peer fall behind: a snapshot that is older than
            // the threshold would not end the lag.
            replication_lag_threshold: self.limits.snapshot_entries + self.limits.kept_entries,
            max_in_snapshot_log_to_keep: self.limits.kept_entries,
            purge_batch_size: 1024,
            // Proposals queued for one write; beyond it proposers wait.
            api_channel_size: Some(8192),
            notification_channel_size: Some(8192),
            state_machine_channel_size: Some(1024),
            removed_leader_step_down: StepDownPolicy::After(millis(timings.heartbeat_interval) * 2),
            // A peer that was unreachable is tried again soon: a leader that has just been elected
            // depends on it.
            backoff: "50ms 100ms 200ms ...500ms".to_owned(),
            ..Config::default()
        }
        .validate()
        .map_err(|error| OptionsError::Raft(error.to_string()))
    }
}

impl ConsensusLimits {
    /// Size of one message between peers, in bytes: the largest entry, and room around it.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.command_bytes_max + (8 << 20)
    }

    fn validate(&self) -> Result<(), OptionsError> {
        let zeros = [
            ("command_bytes_max", self.command_bytes_max == 0),
            ("snapshot_entries", self.snapshot_entries == 0),
            ("log_bytes_max", self.log_bytes_max == 0),
        ];
        for (setting, is_zero) in zeros {
            if is_zero {
                return Err(OptionsError::Zero { setting });
            }
        }
        let (ms, hour) = (Duration::from_millis, Duration::from_secs(3600));
        within("append_silence_max", self.append_silence_max, ms(100), hour)?;
        within(
            "snapshot_silence_max",
            self.snapshot_silence_max,
            ms(100),
            hour,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ConsensusOptions {
        ConsensusOptions::new(NodeAddresses {
            raft: "localhost:7001".to_owned(),
            client: "localhost:7002".to_owned(),
            http: String::new(),
        })
    }

    #[test]
    fn defaults_fit_together() {
        assert_eq!(options().validate(), Ok(()));
    }

    #[test]
    fn election_timeout_leaves_room_for_a_lost_heartbeat() {
        let mut options = options();
        options.timings.heartbeat_interval = Duration::from_millis(300);
        assert!(matches!(
            options.validate(),
            Err(OptionsError::ElectionBelowHeartbeats { .. })
        ));
    }

    #[test]
    fn silence_before_an_election_is_as_long_as_the_settings_say() {
        let ms = Duration::from_millis;
        for (heartbeat, min, max) in [(100, 600, 1200), (100, 600, 900), (50, 1000, 2000)] {
            let timings = RaftTimings {
                heartbeat_interval: ms(heartbeat),
                election_timeout_min: ms(min),
                election_timeout_max: ms(max),
            };
            let patience = timings.patience();
            assert_eq!(patience.lease + patience.beyond_lease_min, ms(min));
            assert!(patience.lease * 2 <= ms(max), "{patience:?}");
            let range = patience.lease - patience.beyond_lease_min;
            assert!(range >= ms(heartbeat), "{patience:?}");
        }
    }

    #[test]
    fn every_accepted_timing_is_accepted_by_openraft() {
        let ms = Duration::from_millis;
        for heartbeat in [10, 17, 100, 999] {
            for (min, max) in [
                (201, 302),
                (201, 1000),
                (250, 375),
                (300, 450),
                (1000, 1500),
            ] {
                let mut options = options();
                options.timings = RaftTimings {
                    heartbeat_interval: ms(heartbeat),
                    election_timeout_min: ms(heartbeat * min / 100 + 1).max(ms(50)),
                    election_timeout_max: ms(heartbeat * max / 100 + 2).max(ms(75)),
                };
                assert_eq!(options.validate(), Ok(()), "{:?}", options.timings);
            }
        }
    }

    #[test]
    fn narrow_election_range_is_refused() {
        let mut options = options();
        options.timings.election_timeout_max = Duration::from_millis(700);
        assert!(matches!(
            options.validate(),
            Err(OptionsError::ElectionRangeTooNarrow { .. })
        ));
    }

    #[test]
    fn address_without_port_is_refused() {
        let mut options = options();
        options.addresses.raft = "localhost".to_owned();
        assert_eq!(
            options.validate(),
            Err(OptionsError::Address {
                setting: "raft address",
                address: "localhost".to_owned()
            })
        );
    }
}
