//! This node as the leader of one term.
//!
//! What a leader decided in one term must not reach into another: a deadline that passed in term 3
//! says nothing in term 5, though the same node may lead again. So a term's decisions are proposed
//! for that term only, and a round counts only if it was this node's own, in that term.

use std::sync::Arc;
use std::time::Duration;

use openraft::vote::leader_id_std::CommittedLeaderId;
use tenure_ownership::Command;
use tenure_ownership::ids::Revision;

use super::envelope::Origin;
use super::error::{ProposeError, ReadError};
use super::handle::Consensus;
use super::propose::{Proposal, Queue};
use super::rounds;

/// Proposes and reads as the leader of one term, and not at all once that is over.
#[derive(Clone, Debug)]
pub struct Leading {
    consensus: Consensus,
    term: u64,
}

impl Consensus {
    /// Returns this node as the leader of a term, which it may or may not be.
    pub fn leading(&self, term: u64) -> Leading {
        Leading {
            consensus: self.clone(),
            term,
        }
    }
}

impl Leading {
    /// Puts a command into the log if this node leads the term, and waits at most `queued_within` for a
    /// place in the queue. Commands are applied in the order in which their calls returned.
    ///
    /// The proposal is then waited for without a limit: within one term an entry is applied, or the
    /// leadership ends, and what it ends may not be touched before that is known.
    ///
    /// # Errors
    ///
    /// [`ProposeError`] if it was not queued; it is then never applied.
    pub async fn submit(
        &self,
        command: &Command,
        queued_within: Duration,
    ) -> Result<Proposal, ProposeError> {
        self.submit_for(command, None, queued_within).await
    }

    /// As [`submit`](Leading::submit), for somebody who asked for it.
    ///
    /// # Errors
    ///
    /// [`ProposeError`] if it was not queued; it is then never applied.
    pub async fn submit_for(
        &self,
        command: &Command,
        origin: Option<Arc<Origin>>,
        queued_within: Duration,
    ) -> Result<Proposal, ProposeError> {
        let queue = Queue {
            within: queued_within,
            leader: Some(CommittedLeaderId::new(self.term)),
        };
        self.consensus.enqueue(command, origin, queue, None).await
    }

    /// Returns once a quorum has confirmed, after the call, that this node leads the term, and what
    /// was committed by then is applied here.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it did not happen within `within`, or if this node does not lead the term.
    pub async fn round(&self, within: Duration) -> Result<Revision, ReadError> {
        let round = async {
            let index = self.consensus.round_in(self.term, within).await?;
            self.consensus.applied_to(index).await
        };
        super::runtime::at_most(within, round)
            .await
            .unwrap_or_else(|| Err(rounds::unavailable("no round ended in time")))
    }
}
