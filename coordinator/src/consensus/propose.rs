//! Proposing commands.

use std::future::IntoFuture as _;
use std::time::Duration;

use bytes::Bytes;
use openraft::Instant as _;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::type_config::alias::OneshotReceiverOf;
use openraft::vote::leader_id_std::CommittedLeaderId;
use tenure_ownership::Command;
use tenure_ownership::ids::Revision;

use super::Outcome;
use super::error::ProposeError;
use super::handle::Consensus;
use super::runtime::{self, Moment};
use super::types::{EncodedCommand, TypeConfig, leader_in};

/// A command that was committed and applied on this node.
#[derive(Debug)]
pub struct Applied {
    /// Its log index.
    pub revision: Revision,
    /// What it did, or why it was refused. Either way it is final.
    pub outcome: Outcome,
}

/// A command on its way.
#[derive(Debug)]
#[must_use = "a command whose outcome nobody waits for may or may not have been applied"]
pub struct Proposal {
    answer: OneshotReceiverOf<TypeConfig, ClientWriteResult<TypeConfig>>,
    begun: Moment,
    /// `None` waits until the command is decided, or this node no longer can tell.
    within: Option<Duration>,
}

impl Proposal {
    /// Waits until the command is applied here, which observers then have been told.
    ///
    /// # Errors
    ///
    /// [`ProposeError`]; all but [`ProposeError::OutcomeUnknown`] say that it is not and will not
    /// be applied.
    pub async fn applied(self) -> Result<Applied, ProposeError> {
        let answer = match self.within {
            Some(within) => {
                let left = within.saturating_sub(self.begun.elapsed());
                let answer = runtime::at_most(left, self.answer).await;
                answer.ok_or(ProposeError::OutcomeUnknown)?
            }
            None => self.answer.await,
        };
        let answer = answer
            // Raft ended while the command was on its way.
            .map_err(|_| ProposeError::OutcomeUnknown)?;
        match answer {
            Ok(response) => match response.data.0 {
                Some(outcome) => Ok(Applied {
                    revision: Revision(response.log_id.index()),
                    outcome,
                }),
                // Only entries without a command have none.
                None => Err(ProposeError::OutcomeUnknown),
            },
            Err(ClientWriteError::ForwardToLeader(to)) => Err(ProposeError::NotLeader {
                leader: leader_in(to),
            }),
            Err(_) => Err(ProposeError::OutcomeUnknown),
        }
    }
}

impl Consensus {
    /// Proposes a command and waits until it is applied here.
    ///
    /// # Errors
    ///
    /// [`ProposeError`]; all but [`ProposeError::OutcomeUnknown`] say that it is not and will not
    /// be applied.
    pub async fn propose(
        &self,
        command: &Command,
        within: Duration,
    ) -> Result<Applied, ProposeError> {
        self.submit(command, within).await?.applied().await
    }

    /// Puts a command into the queue of the leader's log and returns at once. Commands of one caller
    /// are applied in the order in which their calls returned, so that many can be under way.
    ///
    /// `within` counts from here and includes the time until it is applied.
    ///
    /// # Errors
    ///
    /// [`ProposeError`] if it was not queued; it is then never applied.
    pub async fn submit(
        &self,
        command: &Command,
        within: Duration,
    ) -> Result<Proposal, ProposeError> {
        self.submit_as(command, within, Some(within), None).await
    }

    /// As [`submit`](Consensus::submit), refused unless `leader` leads. Being queued and being applied
    /// have limits of their own.
    pub(super) async fn submit_as(
        &self,
        command: &Command,
        queued_within: Duration,
        within: Option<Duration>,
        leader: Option<CommittedLeaderId<u64>>,
    ) -> Result<Proposal, ProposeError> {
        let running = self.running().ok_or(ProposeError::Unavailable {
            reason: "it is not part of a cluster yet",
        })?;
        if self.inner.stop.is_cancelled() {
            return Err(ProposeError::Stopped);
        }
        let bytes = Bytes::from(command.encode());
        let bytes_max = self.limits().command_bytes_max;
        if bytes.len() > bytes_max {
            return Err(ProposeError::TooLarge {
                bytes: bytes.len(),
                bytes_max,
            });
        }
        let begun = runtime::now();
        let (responder, answer) = ProgressResponder::complete_only();
        let mut write = running
            .raft
            .write(EncodedCommand(bytes))
            .responder(responder);
        if let Some(leader) = leader {
            write = write.with_leader(leader);
        }
        match runtime::at_most(queued_within, write.into_future()).await {
            Some(Ok(())) => Ok(Proposal {
                answer,
                begun,
                within,
            }),
            Some(Err(_)) => Err(ProposeError::Stopped),
            None => Err(ProposeError::Unavailable {
                reason: "too many commands are queued",
            }),
        }
    }
}
