//! What handlers share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tenure_fence::GroupName;
use tenure_ownership::apply::Effect;
use tenure_ownership::group::Group;
use tenure_ownership::ids::{ClusterId, Revision};
use tenure_ownership::{Command, Rejection, State};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::convert::TtlBounds;
use super::state_cache::StateCache;
use super::{origin, status};
use crate::clock::{Clock, ClockComparison};
use crate::config::{Limits, RaftConfig};
use crate::consensus::{Consensus, NodeAddresses, Proposal};
use crate::metrics;
use crate::wall_clock::WallClock;
use crate::watch::Hub;

/// Bounds of what a request may ask for, from the node's configuration.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    pub(super) ttl: TtlBounds,
    timeout: Duration,
    timeout_max: Duration,
    pub(super) watchers_max: usize,
}

impl From<&Limits> for RequestLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            ttl: TtlBounds {
                min: limits.ttl_min,
                max: limits.ttl_max,
            },
            timeout: limits.request_timeout,
            timeout_max: limits.request_timeout_max,
            watchers_max: limits.watchers_max,
        }
    }
}

/// What the handlers of all services share. Cheap to clone.
#[derive(Clone)]
pub struct RpcContext {
    pub(super) consensus: Consensus,
    pub(super) hub: Arc<Hub>,
    pub(super) limits: Arc<RequestLimits>,
    /// Where this node's peers reach it.
    pub(super) peer_address: Arc<str>,
    /// Ends the streams: the node is stopping.
    pub(super) stop: CancellationToken,
    pub(super) watchers: Arc<AtomicUsize>,
    pub(super) states: Arc<StateCache>,
    pub(super) about: Arc<About>,
}

/// What a node tells of itself to those who look after it.
#[derive(Debug)]
pub struct About {
    /// Where it is reached, as its configuration has it.
    pub addresses: NodeAddresses,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// Its timings.
    pub raft: RaftConfig,
    /// The clock that leases are measured with.
    pub clock: Arc<dyn Clock>,
    /// The time of day, which that clock is compared with since the start.
    pub wall_clock: Arc<dyn WallClock>,
    /// The comparison.
    pub comparison: ClockComparison,
}

impl fmt::Debug for RpcContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcContext")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl RpcContext {
    /// Creates the context of a node. Its streams end when `stop` is cancelled.
    #[must_use]
    pub fn new(
        consensus: Consensus,
        hub: Arc<Hub>,
        limits: RequestLimits,
        about: About,
        stop: CancellationToken,
    ) -> Self {
        Self {
            consensus,
            hub,
            limits: Arc::new(limits),
            peer_address: about.addresses.raft.as_str().into(),
            about: Arc::new(about),
            stop,
            watchers: Arc::default(),
            states: Arc::default(),
        }
    }

    /// Tells whether this node was removed from its cluster, and when it is.
    pub(super) fn removed(&self) -> watch::Receiver<bool> {
        self.consensus.removed()
    }

    /// Returns how long a request may take: what it asks for, up to the limit.
    pub(super) fn deadline(&self, metadata: &MetadataMap) -> Duration {
        asked(metadata)
            .unwrap_or(self.limits.timeout)
            .min(self.limits.timeout_max)
    }

    /// As [`RpcContext::deadline`], for changes of the cluster, which wait for a node to catch up: the
    /// whole limit unless the request asks for less.
    pub(super) fn long_deadline(&self, metadata: &MetadataMap) -> Duration {
        asked(metadata).map_or(self.limits.timeout_max, |asked| {
            asked.min(self.limits.timeout_max)
        })
    }

    /// Proposes a command and waits for its effect.
    pub(super) async fn propose(
        &self,
        command: Command,
        within: Duration,
    ) -> Result<(Revision, Effect), Status> {
        self.decided(self.submit(&command, within).await?).await
    }

    /// As [`RpcContext::propose`], for callers that act upon a rejection.
    pub(super) async fn try_propose(
        &self,
        command: Command,
        within: Duration,
    ) -> Result<Result<(Revision, Effect), Rejection>, Status> {
        outcome(self.submit(&command, within).await?).await
    }

    /// Puts a command into the queue of the leader's log, to wait for its effect with
    /// [`RpcContext::decided`]. Commands take effect in the order in which they were submitted.
    pub(super) async fn submit(
        &self,
        command: &Command,
        within: Duration,
    ) -> Result<Proposal, Status> {
        ::metrics::counter!(metrics::PROPOSALS).increment(1);
        let submitted = self
            .consensus
            .submit_for(command, origin::current(), within)
            .await;
        submitted.map_err(|error| status::from_propose(&error))
    }

    /// Puts on record what is about to be done to the cluster itself, with who asked for it and why.
    /// A node that does not lead leaves it to whoever does: there it will be asked for again.
    pub(super) async fn announce(&self, operation: &str, within: Duration) -> Result<(), Status> {
        if !self.consensus.leadership().borrow().is_leader {
            return Ok(());
        }
        let announced = self
            .consensus
            .announce(operation, origin::current(), within);
        announced
            .await
            .map_err(|error| status::from_propose(&error))
    }

    /// Waits for the effect of a command that was submitted.
    pub(super) async fn decided(&self, proposal: Proposal) -> Result<(Revision, Effect), Status> {
        let outcome = outcome(proposal).await?;
        outcome.map_err(|rejection| status::rejection(&rejection))
    }

    /// Waits until the state here contains every command acknowledged anywhere before the call.
    pub(super) async fn read_barrier(&self, within: Duration) -> Result<(), Status> {
        match self.consensus.read_barrier(within).await {
            Ok(_) => Ok(()),
            Err(error) => Err(status::from_read(&error)),
        }
    }

    /// Reads a group as it is here. One that is not there is looked for again after a quorum read: a
    /// group that was just created must not be missing on a node that is a moment behind.
    pub(super) async fn read_group<R>(
        &self,
        name: &GroupName,
        within: Duration,
        read: impl Fn(&State, &Group) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let exists = self
            .consensus
            .read(|state| state.group_named(name).is_some());
        if !exists {
            self.read_barrier(within).await?;
        }
        self.read_group_here(name, read)
    }

    /// Reads a group as it is here, or says that it is not.
    pub(super) fn read_group_here<R>(
        &self,
        name: &GroupName,
        read: impl FnOnce(&State, &Group) -> Result<R, Status>,
    ) -> Result<R, Status> {
        self.consensus.read(|state| {
            cluster_of(state)?;
            let group = state
                .group_named(name)
                .ok_or_else(|| status::no_such_group(name))?;
            read(state, group)
        })
    }
}

/// Waits for what becomes of a command that was submitted.
async fn outcome(proposal: Proposal) -> Result<Result<(Revision, Effect), Rejection>, Status> {
    let applied = proposal.applied().await;
    let applied = applied.map_err(|error| status::from_propose(&error))?;
    let revision = applied.revision;
    Ok(applied
        .outcome
        .map(|effect| (revision, effect))
        .inspect_err(|rejection| {
            let reason = status::reason_of(rejection);
            ::metrics::counter!(metrics::REJECTIONS, "reason" => reason).increment(1);
        }))
}

/// The cluster of a state; without one, the node knows nothing yet.
pub(super) fn cluster_of(state: &State) -> Result<ClusterId, Status> {
    state
        .cluster()
        .ok_or_else(|| status::unavailable("this node knows no cluster yet"))
}

/// The deadline a client asked for: the `grpc-timeout` header, at most eight digits and a unit. A
/// header that is none is ignored, as gRPC prescribes no answer to it.
fn asked(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_every_unit_and_nonsense_is_none() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("5n", Some(Duration::from_nanos(5))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("123456789S", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(asked(&metadata), expected, "{text:?}");
        }
        assert_eq!(asked(&MetadataMap::new()), None);
    }
}
