//! Proposing commands.

use std::future::IntoFuture as _;
use std::sync::Arc;
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
use super::envelope::{Envelope, Origin};
use super::error::ProposeError;
use super::handle::{Consensus, Running};
use super::runtime::{self, Moment};
use super::types::{EncodedCommand, Reply, TypeConfig, leader_in};

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

/// How a command gets into the queue of the leader's log.
pub(super) struct Queue {
    /// How long it may wait for a place.
    pub(super) within: Duration,
    /// Refused unless this is the leader; `None` takes whoever leads.
    pub(super) leader: Option<CommittedLeaderId<u64>>,
}

impl Proposal {
    /// Waits until the command is applied here, which observers then have been told.
    ///
    /// # Errors
    ///
    /// [`ProposeError`]; all but [`ProposeError::OutcomeUnknown`] say that it is not and will not
    /// be applied.
    pub async fn applied(self) -> Result<Applied, ProposeError> {
        let (revision, reply) = self.answered().await?;
        // Only entries without a command have no outcome.
        let outcome = reply.0.ok_or(ProposeError::OutcomeUnknown)?;
        Ok(Applied { revision, outcome })
    }

    /// Waits until the entry is applied here.
    async fn answered(self) -> Result<(Revision, Reply), ProposeError> {
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
            Ok(response) => Ok((Revision(response.log_id.index()), response.data)),
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
        self.submit_for(command, None, within).await
    }

    /// As [`submit`](Consensus::submit), for somebody who asked for it.
    ///
    /// # Errors
    ///
    /// [`ProposeError`] if it was not queued; it is then never applied.
    pub async fn submit_for(
        &self,
        command: &Command,
        origin: Option<Arc<Origin>>,
        within: Duration,
    ) -> Result<Proposal, ProposeError> {
        let queue = Queue {
            within,
            leader: None,
        };
        self.enqueue(command, origin, queue, Some(within)).await
    }

    /// Puts a command into the queue. `within` limits the time until it is applied; `None` waits until
    /// it is decided, or this node no longer can tell.
    pub(super) async fn enqueue(
        &self,
        command: &Command,
        origin: Option<Arc<Origin>>,
        queue: Queue,
        within: Option<Duration>,
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
        let envelope = Envelope {
            at_ms: self.inner.options.wall_clock.now_ms(),
            origin,
            operation: None,
        };
        self.write(running, EncodedCommand { bytes, envelope }, queue, within)
            .await
    }

    /// Puts into the log what somebody asked for that is not done by the log: a change of the cluster
    /// itself. Returns when it stands there, so that nothing is done that is not on record.
    ///
    /// # Errors
    ///
    /// [`ProposeError`], as for a command.
    pub async fn announce(
        &self,
        operation: &str,
        origin: Option<Arc<Origin>>,
        within: Duration,
    ) -> Result<(), ProposeError> {
        let running = self.running().ok_or(ProposeError::Unavailable {
            reason: "it is not part of a cluster yet",
        })?;
        let entry = EncodedCommand {
            bytes: Bytes::new(),
            envelope: Envelope {
                at_ms: self.inner.options.wall_clock.now_ms(),
                origin,
                operation: Some(operation.into()),
            },
        };
        let queue = Queue {
            within,
            leader: None,
        };
        let proposal = self.write(running, entry, queue, Some(within)).await?;
        proposal.answered().await.map(drop)
    }

    async fn write(
        &self,
        running: &Running,
        entry: EncodedCommand,
        queue: Queue,
        within: Option<Duration>,
    ) -> Result<Proposal, ProposeError> {
        let begun = runtime::now();
        let (responder, answer) = ProgressResponder::complete_only();
        let mut write = running.raft.write(entry).responder(responder);
        if let Some(leader) = queue.leader {
            write = write.with_leader(leader);
        }
        match runtime::at_most(queue.within, write.into_future()).await {
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
