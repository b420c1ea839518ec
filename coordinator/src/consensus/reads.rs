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

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{LinearizableReadError, RaftError};
use openraft::{Instant as _, LinearizerOption};
use tenure_ownership::ids::Revision;
use tenure_proto::raft::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::connector::Lane;
use super::error::ReadError;
use super::handle::Consensus;
use super::identity::{Identity, Member};
use super::links::{Links, addressed, answer};
use super::propose::leader_in;
use super::runtime;
use super::types::{LogId, Raft};

/// Reads that may wait for the next round. Further ones wait for a place.
pub(super) const REQUESTS_MAX: usize = 1024;

/// A read that waits for a round.
pub(super) type ReadRequest = oneshot::Sender<Result<u64, ReadError>>;

/// Carries out rounds, one after the other.
pub(super) struct Rounds {
    pub(super) raft: Raft,
    pub(super) links: Arc<Links>,
    pub(super) identity: Identity,
    /// A round that takes longer has lost its leader.
    pub(super) round_max: Duration,
}

/// Why a round gave no index.
enum RoundError {
    /// Another node leads.
    Elsewhere(Option<Member>),
    Failed(ReadError),
}

pub(super) fn unavailable(reason: impl ToString) -> ReadError {
    ReadError::Unavailable {
        reason: reason.to_string(),
    }
}

impl Rounds {
    pub(super) async fn run(self, requests: mpsc::Receiver<ReadRequest>, stop: CancellationToken) {
        // Requests that are dropped unanswered learn from it that the node has stopped.
        let _ = stop
            .run_until_cancelled(Box::pin(self.serve(requests)))
            .await;
    }

    async fn serve(&self, mut requests: mpsc::Receiver<ReadRequest>) {
        let mut batch = Vec::with_capacity(REQUESTS_MAX);
        while requests.recv_many(&mut batch, REQUESTS_MAX).await > 0 {
            let result = runtime::at_most(self.round_max, self.round())
                .await
                .unwrap_or_else(|| Err(unavailable("a round did not end in time")));
            for request in batch.drain(..) {
                // Whoever gave up waiting needs no answer.
                let _ = request.send(result.clone());
            }
        }
    }

    async fn round(&self) -> Result<u64, ReadError> {
        match own_round(&self.raft, self.round_max).await {
            Ok(log_id) => Ok(log_id.index()),
            Err(RoundError::Failed(error)) => Err(error),
            Err(RoundError::Elsewhere(None)) => Err(unavailable("no leader is known")),
            Err(RoundError::Elsewhere(Some(leader))) => self.ask(&leader).await,
        }
    }

    async fn ask(&self, leader: &Member) -> Result<u64, ReadError> {
        let mut client = self
            .links
            .client(&leader.addresses.raft, Lane::Control)
            .map_err(unavailable)?;
        let request = addressed(self.identity, leader.id, pb::ReadIndexRequest {});
        let response = answer(self.round_max, client.read_index(request))
            .await
            .map_err(unavailable)?;
        Ok(response.index)
    }
}

/// Begins a round as the leader. Returns the last log id that was committed when it began; its term
/// is the leader's own, since no leader answers before it has committed an entry of its term.
async fn own_round(raft: &Raft, round_max: Duration) -> Result<LogId, RoundError> {
    // No acknowledgement from before counts, however young: one would prove a lease, not an order.
    let fresh = LinearizerOption::new(Some(Duration::ZERO), true).with_wait_timeout(round_max);
    match raft.get_read_linearizer(fresh).await {
        Ok(linearizer) => Ok(*linearizer.read_log_id().log_id()),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
            Err(RoundError::Elsewhere(leader_in(to)))
        }
        Err(RaftError::APIError(error)) => Err(RoundError::Failed(unavailable(error))),
        Err(RaftError::Fatal(_)) => Err(RoundError::Failed(ReadError::Stopped)),
    }
}

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

    /// Begins a round as the leader of a term. Returns the index to apply before it proves anything.
    pub(super) async fn round_in(&self, term: u64) -> Result<u64, ReadError> {
        let running = self.running().ok_or(ReadError::Stopped)?;
        let round_max = self.inner.options.timings.election_timeout_min;
        match own_round(&running.raft, round_max).await {
            Ok(log_id) if log_id.committed_leader_id().term == term => Ok(log_id.index()),
            Ok(_) | Err(RoundError::Elsewhere(_)) => {
                Err(unavailable("this node does not lead the term"))
            }
            Err(RoundError::Failed(error)) => Err(error),
        }
    }
}
