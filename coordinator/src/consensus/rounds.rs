//! Rounds with a quorum: the proof that whoever leads still leads.
//!
//! One at a time, each for all reads that were waiting when it began.

use std::sync::Arc;
use std::time::Duration;

use openraft::LinearizerOption;
use openraft::errors::{LinearizableReadError, RaftError};
use tenure_proto::raft::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::connector::Lane;
use super::error::ReadError;
use super::identity::{Identity, Member};
use super::links::{Links, addressed, answer};
use super::runtime;
use super::types::{LogId, Raft, leader_in};

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
pub(super) enum RoundError {
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
pub(super) async fn own_round(raft: &Raft, round_max: Duration) -> Result<LogId, RoundError> {
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
