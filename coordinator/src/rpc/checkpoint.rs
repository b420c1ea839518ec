//! The replicated store: fenced checkpoints kept by the coordinator itself.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use prost::Message as _;
use tenure_fence::{GroupName, Owner, Refusal, ShardRef};
use tenure_ownership::command::{Seal, Tenure};
use tenure_ownership::ids::{GroupId, Revision, ShardIndex};
use tenure_ownership::record::checkpoint_key;
use tenure_ownership::shard::{Content, Shard, Written};
use tenure_ownership::{Command, Rejection};
use tenure_proto::v1 as pb;
use tenure_proto::v1::checkpoint_service_server::CheckpointService;
use tonic::{Request, Response, Status};

use super::context::RpcContext;
use super::convert::{self, CHECKPOINT_BYTES_MAX, Invalid};
use super::{present, status};
use crate::consensus::Proposal;

/// An answer to a seal carries at most this many bytes of checkpoints, and at least one checkpoint.
const SEAL_BYTES_MAX: usize = 3 << 20;

/// Checkpoints read from disk at one time for one request.
const READS_MAX: usize = 16;

/// Looks at a checkpoint that is being overwritten.
const LOOKS_MAX: usize = 8;

/// The checkpoint service.
pub(super) struct Checkpoints {
    context: RpcContext,
}

/// What a look at the state says of a checkpoint.
enum Look {
    /// The tenure that asked is over; the shard is at this epoch.
    Fenced(u64),
    /// There is none.
    Nothing,
    /// Its bytes are stored under the shard of this life of the group.
    Written(GroupId, Written, Content),
}

/// A checkpoint with its bytes, or why there is none.
enum Found {
    Fenced(u64),
    Nothing,
    Checkpoint(pb::Checkpoint),
    Corrupt,
}

impl Look {
    fn of(group: GroupId, shard: &Shard) -> Self {
        let latest = shard
            .replicated
            .as_ref()
            .and_then(|replicated| replicated.latest.as_ref());
        match latest.and_then(|written| Some((written, written.content?))) {
            Some((written, content)) => Self::Written(group, written.clone(), content),
            None => Self::Nothing,
        }
    }
}

impl Checkpoints {
    pub(super) fn new(context: RpcContext) -> Self {
        Self { context }
    }

    /// Reads the bytes that a look at the state speaks of, and looks again if they are others.
    ///
    /// The state changes first and the disk a moment later. So the disk is read only after everything
    /// that was seen has reached it; if it holds other bytes then, they are newer, and the state is too.
    async fn find(
        &self,
        index: ShardIndex,
        within: Duration,
        look: impl Fn() -> Result<(Look, Revision), Status>,
    ) -> Result<Found, Status> {
        let mut previous = None;
        for _ in 0..LOOKS_MAX {
            let (look, seen) = look()?;
            let (group, written, content) = match look {
                Look::Fenced(epoch) => return Ok(Found::Fenced(epoch)),
                Look::Nothing => return Ok(Found::Nothing),
                Look::Written(group, written, content) => (group, written, content),
            };
            // Nothing newer was written, and yet the bytes are not those.
            if previous.as_ref() == Some(&written) {
                tracing::error!(%group, shard = %index, "stored checkpoint is corrupt");
                return Ok(Found::Corrupt);
            }
            tokio::time::timeout(within, self.context.hub.reached(seen))
                .await
                .map_err(|_| status::unavailable("nothing reaches the disk"))?;
            let bytes = self
                .context
                .consensus
                .record(&checkpoint_key(group, index))
                .await;
            let bytes = bytes.map_err(|error| status::from_storage(&error))?;
            if let Some(bytes) = bytes.filter(|bytes| is_content(bytes, content)) {
                return Ok(Found::Checkpoint(present::checkpoint(
                    &written,
                    bytes.into(),
                )));
            }
            previous = Some(written);
        }
        Err(status::unavailable(
            "the checkpoint keeps being overwritten",
        ))
    }

    /// Reads what a seal that was accepted guards.
    async fn sealed(
        &self,
        group: &GroupName,
        owner: Owner,
        tenure: Tenure,
        within: Duration,
    ) -> Result<pb::SealOutcome, Status> {
        let look = || {
            Ok(self.context.consensus.read(|state| {
                let found = state
                    .group_named(group)
                    .and_then(|group| Some((group.header.id, group.shard(tenure.shard)?)));
                let look = match found {
                    Some((id, shard)) if holds(shard, owner, tenure) => Look::of(id, shard),
                    Some((_, shard)) => Look::Fenced(current(shard, tenure)),
                    // The group has been deleted since, and with it the tenure has ended.
                    None => Look::Fenced(tenure.epoch.get()),
                };
                (look, state.revision())
            }))
        };
        Ok(match self.find(tenure.shard, within, look).await? {
            Found::Fenced(current_epoch) => pb::SealOutcome {
                status: pb::SealStatus::Fenced.into(),
                current_epoch,
                checkpoint: None,
            },
            Found::Nothing => outcome(pb::SealStatus::Sealed),
            Found::Checkpoint(checkpoint) => pb::SealOutcome {
                checkpoint: Some(checkpoint),
                ..outcome(pb::SealStatus::Sealed)
            },
            Found::Corrupt => outcome(pb::SealStatus::Corrupt),
        })
    }

    async fn seal_all(&self, seal: Seal, within: Duration) -> Result<Vec<pb::SealOutcome>, Status> {
        let (group, owner, tenures) = (seal.group.clone(), seal.owner, seal.tenures.clone());
        let (_, effect) = self.context.propose(Command::Seal(seal), within).await?;
        let refused: BTreeMap<ShardIndex, Rejection> = effect.refused.into_iter().collect();
        let (group, refused) = (&group, &refused);

        let mut outcomes = Vec::with_capacity(tenures.len());
        let mut bytes = 0;
        let mut answers = stream::iter(tenures.clone())
            .map(|tenure| async move {
                match refused.get(&tenure.shard) {
                    Some(rejection) => refused_seal(rejection),
                    None => self.sealed(group, owner, tenure, within).await,
                }
            })
            .buffered(READS_MAX);
        while let Some(answer) = answers.next().await {
            let answer = answer?;
            bytes += answer.encoded_len();
            if bytes > SEAL_BYTES_MAX && !outcomes.is_empty() {
                break;
            }
            outcomes.push(answer);
        }
        outcomes.resize(tenures.len(), outcome(pb::SealStatus::Deferred));
        Ok(outcomes)
    }

    /// Writes in the order of the requests: all are under way before the first is decided.
    async fn write_all(
        &self,
        requests: Vec<pb::WriteRequest>,
        within: Duration,
    ) -> Vec<Result<Revision, Status>> {
        let mut proposals = Vec::with_capacity(requests.len());
        for request in requests {
            proposals.push(self.begin_write(request, within).await);
        }
        let mut outcomes = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            outcomes.push(match proposal {
                Ok(proposal) => self
                    .context
                    .decided(proposal)
                    .await
                    .map(|(revision, _)| revision),
                Err(status) => Err(status),
            });
        }
        outcomes
    }

    async fn begin_write(
        &self,
        request: pb::WriteRequest,
        within: Duration,
    ) -> Result<Proposal, Status> {
        let bytes = request.data.len();
        if bytes > CHECKPOINT_BYTES_MAX {
            return Err(status::too_large(bytes, CHECKPOINT_BYTES_MAX));
        }
        let write = convert::write(request).map_err(status::invalid)?;
        self.context
            .submit(&Command::WriteCheckpoint(write), within)
            .await
    }

    async fn read_latest(&self, shard: &ShardRef, within: Duration) -> Result<Found, Status> {
        let index = ShardIndex(shard.index);
        // Names the group or shard that is not there, also after asking a quorum.
        self.context
            .read_group(&shard.group, within, |_, _| Ok(()))
            .await?;
        let look = || {
            self.context.read_group_here(&shard.group, |state, group| {
                let found = group.shard(index).ok_or_else(|| {
                    let count = group.header.shard_count;
                    let problem = format!("is {index}, the group has {count} shards");
                    status::invalid(Invalid::new("shard.index", problem))
                })?;
                Ok((Look::of(group.header.id, found), state.revision()))
            })
        };
        self.find(index, within, look).await
    }
}

/// Whether the fence still stands at a tenure that has sealed.
fn holds(shard: &Shard, owner: Owner, tenure: Tenure) -> bool {
    let fence = shard
        .replicated
        .as_ref()
        .map(|replicated| replicated.fence());
    let stands = fence.is_some_and(|fence| fence.epoch == tenure.epoch && fence.owner == owner);
    stands && shard.epoch == Some(tenure.epoch)
}

/// The epoch that fenced a tenure: that of a newer grant. If the tenure ended without one it is its own.
fn current(shard: &Shard, tenure: Tenure) -> u64 {
    shard.epoch.map_or(tenure.epoch.get(), |epoch| {
        epoch.get().max(tenure.epoch.get())
    })
}

/// What every write failed with, if that is another node's leading. Said of the whole request, the
/// client follows the hint with all of it.
fn led_elsewhere(outcomes: &[Result<Revision, Status>]) -> Option<Status> {
    let refused = |outcome: &Result<Revision, Status>| {
        let status = outcome.as_ref().err();
        status
            .filter(|status| status::is_not_leader(status))
            .cloned()
    };
    let first = refused(outcomes.first()?)?;
    outcomes
        .iter()
        .all(|outcome| refused(outcome).is_some())
        .then_some(first)
}

fn is_content(bytes: &[u8], content: Content) -> bool {
    usize::try_from(content.length).is_ok_and(|length| length == bytes.len())
        && crc32c::crc32c(bytes) == content.crc32c
}

fn outcome(status: pb::SealStatus) -> pb::SealOutcome {
    pb::SealOutcome {
        status: status.into(),
        ..pb::SealOutcome::default()
    }
}

/// The outcome of one refused seal. A refusal that no outcome stands for refuses the whole request.
fn refused_seal(rejection: &Rejection) -> Result<pb::SealOutcome, Status> {
    match rejection {
        Rejection::Fence(Refusal::Fenced { current, .. }) => Ok(pb::SealOutcome {
            current_epoch: current.get(),
            ..outcome(pb::SealStatus::Fenced)
        }),
        Rejection::Fence(Refusal::EpochConflict) => Ok(outcome(pb::SealStatus::EpochConflict)),
        Rejection::NeverGranted { .. } => Ok(outcome(pb::SealStatus::NeverGranted)),
        other => Err(status::rejection(other)),
    }
}

#[tonic::async_trait]
impl CheckpointService for Checkpoints {
    async fn seal(
        &self,
        request: Request<pb::SealRequest>,
    ) -> Result<Response<pb::SealResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let seal = convert::seal(request.into_inner()).map_err(status::invalid)?;
        let outcomes = self.seal_all(seal, within).await?;
        Ok(Response::new(pb::SealResponse { outcomes }))
    }

    async fn write(
        &self,
        request: Request<pb::WriteRequest>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let proposal = self.begin_write(request.into_inner(), within).await?;
        let (revision, _) = self.context.decided(proposal).await?;
        Ok(Response::new(pb::WriteResponse {
            revision: revision.0,
        }))
    }

    async fn write_many(
        &self,
        request: Request<pb::WriteManyRequest>,
    ) -> Result<Response<pb::WriteManyResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let writes = convert::write_many(request.into_inner()).map_err(status::invalid)?;
        let outcomes = self.write_all(writes, within).await;
        if let Some(status) = led_elsewhere(&outcomes) {
            return Err(status);
        }
        let outcomes = outcomes.into_iter().map(present::write_outcome).collect();
        Ok(Response::new(pb::WriteManyResponse { outcomes }))
    }

    async fn read(
        &self,
        request: Request<pb::ReadRequest>,
    ) -> Result<Response<pb::ReadResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let (shard, linearizable) = convert::read(request.into_inner()).map_err(status::invalid)?;
        if linearizable {
            self.context.read_barrier(within).await?;
        }
        // Before the read: the answer is at least as new as it says.
        let revision = self.context.consensus.read(|state| state.revision().0);
        let checkpoint = match self.read_latest(&shard, within).await? {
            Found::Checkpoint(checkpoint) => Some(checkpoint),
            Found::Nothing | Found::Fenced(_) => None,
            Found::Corrupt => {
                return Err(status::corrupt(format!(
                    "the checkpoint of {shard} is damaged"
                )));
            }
        };
        Ok(Response::new(pb::ReadResponse {
            checkpoint,
            revision,
        }))
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        let within = self.context.deadline(request.metadata());
        let delete = convert::delete_checkpoint(request.into_inner()).map_err(status::invalid)?;
        let (revision, _) = self
            .context
            .propose(Command::DeleteCheckpoint(delete), within)
            .await?;
        Ok(Response::new(pb::DeleteResponse {
            revision: revision.0,
        }))
    }
}
