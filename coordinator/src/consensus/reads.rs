//! Reads that see every write acknowledged before them, on any node.
//!
//! ```text
//!   read_barrier ─┐
//!   read_barrier ─┼─▶ queue ─▶ [ take all ─▶ one round with a quorum ─▶ index ] ─▶ wait for it
//!   read_barrier ─┘
//! ```
//!
//! A round begins after the calls it answers, so it proves that whoever leads led after them. The
//! leader begins it itself; any other node asks the leader to (Raft §6.4, ReadIndex).

use std::time::Duration;

use openraft::Instant as _;
use tenure_ownership::ids::Revision;
use tokio::sync::oneshot;

use super::error::ReadError;
use super::handle::Consensus;
use super::rounds::{RoundError, own_round, unavailable};
use super::runtime;

impl Consensus {
    /// Returns once this node's state contains every command that was acknowledged anywhere before
    /// the call, and the revision up to which it does.
    ///
    /// It takes a round with a quorum that begins after the call. A leader that was replaced, was
    /// cut off, or has not applied an entry of its own term yet gets no such round, nor does a node
    /// that relies on it.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it did not happen within `within`.
    pub async fn read_barrier(&self, within: Duration) -> Result<Revision, ReadError> {
        let begun = runtime::now();
        let running = self
            .running()
            .ok_or_else(|| unavailable("this node is not part of a cluster yet"))?;
        let (request, index) = oneshot::channel();
        let round = async {
            running
                .reads
                .send(request)
                .await
                .map_err(|_| ReadError::Stopped)?;
            index.await.map_err(|_| ReadError::Stopped)?
        };
        let index = runtime::at_most(within, round)
            .await
            .unwrap_or_else(|| Err(unavailable("no round ended in time")))?;
        let left = within.saturating_sub(begun.elapsed());
        let reached = runtime::at_most(left, self.applied_to(index)).await;
        reached.unwrap_or(Err(ReadError::Behind { index }))
    }

    /// Returns once everything up to an index is applied here.
    pub(super) async fn applied_to(&self, index: u64) -> Result<Revision, ReadError> {
        let running = self.running().ok_or(ReadError::Stopped)?;
        let mut applied = running.shared.watch_applied();
        let reached = applied
            .wait_for(|applied| applied.is_some_and(|log_id| log_id.index() >= index))
            .await
            .map_err(|_| ReadError::Stopped)?;
        Ok(Revision(reached.map_or(index, |log_id| log_id.index())))
    }

    /// Begins a round for a peer, which asks because it takes this node for the leader.
    pub(super) async fn read_index_as_leader(&self) -> Result<u64, ReadError> {
        let running = self.running().ok_or(ReadError::Stopped)?;
        let round_max = self.inner.options.timings.election_timeout_min;
        match own_round(&running.raft, round_max).await {
            Ok(log_id) => Ok(log_id.index()),
            Err(RoundError::Failed(error)) => Err(error),
            Err(RoundError::Elsewhere(_)) => Err(unavailable("this node does not lead")),
        }
    }

    /// Begins a round as the leader of a term, which may take as long as `within`: however late a
    /// quorum answers, it answers a round that began after the call. Returns the index to apply
    /// before it proves anything.
    pub(super) async fn round_in(&self, term: u64, within: Duration) -> Result<u64, ReadError> {
        let running = self.running().ok_or(ReadError::Stopped)?;
        match own_round(&running.raft, within).await {
            Ok(log_id) if log_id.committed_leader_id().term == term => Ok(log_id.index()),
            Ok(_) | Err(RoundError::Elsewhere(_)) => {
                Err(unavailable("this node does not lead the term"))
            }
            Err(RoundError::Failed(error)) => Err(error),
        }
    }
}
