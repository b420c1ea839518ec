//! The replicated store: checkpoints kept by the coordinator cluster itself.

mod writes;

use std::collections::BTreeMap;

use async_trait::async_trait;
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, GroupName, Owner,
    Resource, Sequence, StoreError, Write,
};
use tenure_proto::v1::checkpoint_service_client::CheckpointServiceClient;
use tenure_proto::v1::{
    DeleteRequest, ReadRequest, SealOutcome, SealRequest, SealStatus, SealTenure, ShardRef,
    WriteRequest,
};
use tenure_proto::{reason, v1};

use crate::connection::{CallError, Connection, Repeat, Service};
use crate::convert;
use crate::replicated::writes::Writes;

/// Most tenures in one request.
const TENURES_MAX: usize = 1_000;

/// Largest answer that is read: the checkpoints of a batch of seals, and room for what surrounds them.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What one seal answers.
type Sealed = Result<Option<Checkpoint>, CheckpointError>;

/// Checkpoints of up to 1 MiB, kept and fenced by the coordinator cluster: the store that needs no
/// other service.
///
/// The check of the token happens where the write is applied, so it fences from the moment the
/// shard is granted to somebody else, even before the new owner has sealed. It stores shards only,
/// not leases. Every call is bounded in time by the connection's call timeout and is repeated within
/// it: seals, writes and deletions carry their own identity, so twice is as good as once.
///
/// Writes of several shards that are made at the same time share requests, so that the owner of many
/// shards writes at a fraction of the cost: use one store, or its clones, for all of them.
///
/// ```
/// use tenure::ReplicatedStore;
/// use tenure::connection::{Connection, ConnectionOptions};
///
/// let connection = Connection::new(ConnectionOptions::new(["127.0.0.1:7001"]))?;
/// let store = ReplicatedStore::new(connection);
/// # Ok::<(), tenure::connection::ConnectionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReplicatedStore {
    connection: Connection,
    writes: Writes,
}

impl ReplicatedStore {
    /// The largest value, in bytes. A group's policy may allow less.
    pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

    /// Creates the store.
    ///
    /// The connection should not be the one heartbeats use: a large checkpoint would hold them up.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self {
            writes: Writes::new(connection.clone()),
            connection,
        }
    }

    /// Seals shards of one group and owner, at most [`TENURES_MAX`] of them.
    async fn seal_chunk(
        &self,
        group: &GroupName,
        owner: Owner,
        chunk: &[&FencingToken],
    ) -> Vec<Sealed> {
        let mut answers: Vec<Sealed> = Vec::with_capacity(chunk.len());
        // The coordinator puts off what does not fit into its answer, from the end.
        while let Some(rest) = chunk.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            let before = answers.len();
            match self.seal_once(group, owner, rest).await {
                Ok(outcomes) => {
                    for (token, outcome) in rest.iter().zip(outcomes) {
                        let Some(answer) = sealed(token, outcome) else {
                            break;
                        };
                        answers.push(answer);
                    }
                }
                Err(error) => answers.extend(rest.iter().map(|_| Err(lost_call(&error)))),
            }
            if answers.len() == before {
                // An answer without a single outcome would be asked for again for ever.
                answers.extend(rest.iter().map(|_| Err(unanswered())));
            }
        }
        answers
    }

    async fn seal_once(
        &self,
        group: &GroupName,
        owner: Owner,
        tokens: &[&FencingToken],
    ) -> Result<Vec<SealOutcome>, CallError> {
        let request = SealRequest {
            group: group.to_string(),
            owner: Some(convert::session(&owner)),
            tenures: tokens
                .iter()
                .filter_map(|token| match &token.resource {
                    Resource::Shard(shard) => Some(SealTenure {
                        shard: shard.index,
                        epoch: token.epoch.get(),
                    }),
                    Resource::Lease(_) => None,
                })
                .collect(),
        };
        let answer = self
            .connection
            .leader(Repeat::Always, |service| {
                let request = request.clone();
                async move { client(service).seal(request).await }
            })
            .await?;
        Ok(answer.outcomes)
    }
}

#[async_trait]
impl CheckpointStore for ReplicatedStore {
    async fn seal(&self, token: &FencingToken) -> Sealed {
        let (group, _) = shard(&token.resource)?;
        let mut answers = self.seal_chunk(group, token.owner, &[token]).await;
        answers.pop().unwrap_or_else(|| Err(unanswered()))
    }

    async fn seal_many(&self, tokens: &[FencingToken]) -> Vec<Sealed> {
        let mut answers: Vec<Option<Sealed>> = tokens.iter().map(|_| None).collect();
        let mut batches: BTreeMap<(GroupName, Owner), Vec<usize>> = BTreeMap::new();
        for (position, token) in tokens.iter().enumerate() {
            match shard(&token.resource) {
                Ok((group, _)) => {
                    batches
                        .entry((group.clone(), token.owner))
                        .or_default()
                        .push(position);
                }
                Err(error) => set(&mut answers, position, Err(error)),
            }
        }
        for ((group, owner), positions) in batches {
            for positions in positions.chunks(TENURES_MAX) {
                let chunk: Vec<&FencingToken> = positions
                    .iter()
                    .filter_map(|&position| tokens.get(position))
                    .collect();
                let sealed = self.seal_chunk(&group, owner, &chunk).await;
                for (&position, answer) in positions.iter().zip(sealed) {
                    set(&mut answers, position, answer);
                }
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(unanswered())))
            .collect()
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        shard(&token.resource)?;
        check_length(write.data.len(), Self::MAX_VALUE_BYTES)?;
        let request = WriteRequest {
            token: Some(convert::token(token)),
            sequence: write.sequence.get(),
            write_id: write.write_id.get().to_be_bytes().to_vec().into(),
            data: write.data,
        };
        let written = self.writes.write(request).await;
        written.map_err(|error| refused(token, write.sequence, &error))
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let (group, index) = shard(resource)?;
        let request = ReadRequest {
            shard: Some(ShardRef {
                group: group.to_string(),
                index,
            }),
            // Any node could answer what it has applied, which may lack what this very worker has written: an
            // owner that answers from what it reads must find at least that.
            linearizable: true,
        };
        let answer = self
            .connection
            .leader(Repeat::Always, |service| {
                let request = request.clone();
                async move { client(service).read(request).await }
            })
            .await;
        match answer {
            Ok(answer) => answer
                .checkpoint
                .map(|found| decode(resource, found))
                .transpose(),
            Err(error) if error.reason() == reason::CORRUPT => Err(CheckpointError::Corrupt {
                resource: resource.clone(),
                source: said(&error),
            }),
            // A read changes nothing, so it has not happened whatever went wrong.
            Err(error) => Err(CheckpointError::Unavailable {
                source: said(&error),
            }),
        }
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        shard(&token.resource)?;
        let request = DeleteRequest {
            token: Some(convert::token(token)),
            sequence: deletion.sequence.get(),
            write_id: deletion.write_id.get().to_be_bytes().to_vec().into(),
        };
        let deleted = self
            .connection
            .leader(Repeat::Always, |service| {
                let request = request.clone();
                async move { client(service).delete(request).await }
            })
            .await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(token, deletion.sequence, &error)),
        }
    }

    /// Finds out whether the coordinators are there. They can always fence.
    async fn probe(&self) -> Result<(), CheckpointError> {
        use tenure_proto::v1::StatusRequest;
        use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
        self.connection
            .any(Repeat::Always, |service| async {
                ClusterServiceClient::new(service)
                    .status(StatusRequest {})
                    .await
            })
            .await
            .map(|_| ())
            .map_err(|error| CheckpointError::Unavailable {
                source: said(&error),
            })
    }

    fn max_value_bytes(&self) -> usize {
        Self::MAX_VALUE_BYTES
    }
}

fn client(service: Service) -> CheckpointServiceClient<Service> {
    CheckpointServiceClient::new(service).max_decoding_message_size(ANSWER_BYTES_MAX)
}

fn set(answers: &mut [Option<Sealed>], position: usize, answer: Sealed) {
    if let Some(slot) = answers.get_mut(position) {
        *slot = Some(answer);
    }
}

fn shard(resource: &Resource) -> Result<(&GroupName, u32), CheckpointError> {
    match resource {
        Resource::Shard(shard) => Ok((&shard.group, shard.index)),
        Resource::Lease(_) => Err(CheckpointError::Unsupported {
            source: format!("the replicated store keeps shards, not {resource}").into(),
        }),
    }
}

fn check_length(length_bytes: usize, max_bytes: usize) -> Result<(), CheckpointError> {
    if length_bytes > max_bytes {
        return Err(CheckpointError::TooLarge {
            length_bytes,
            max_bytes,
        });
    }
    Ok(())
}

/// Reads one outcome; `None` when the coordinator put it off.
fn sealed(token: &FencingToken, outcome: SealOutcome) -> Option<Sealed> {
    let resource = token.resource.clone();
    let conflict = CheckpointError::EpochConflict {
        resource: resource.clone(),
        epoch: token.epoch,
    };
    let sealed = match outcome.status() {
        SealStatus::Deferred => return None,
        SealStatus::Sealed => outcome
            .checkpoint
            .map(|found| decode(&resource, found))
            .transpose(),
        SealStatus::Fenced => Err(CheckpointError::Fenced {
            resource,
            presented: token.epoch,
            current: Epoch::new(outcome.current_epoch).unwrap_or(token.epoch),
        }),
        // An epoch that was never granted to this owner is somebody else's, now or later: either way
        // the token is false and no retry can mend it.
        SealStatus::EpochConflict | SealStatus::NeverGranted => Err(conflict),
        SealStatus::Corrupt => Err(CheckpointError::Corrupt {
            resource,
            source: "the coordinator reports damage".into(),
        }),
        SealStatus::Unspecified => Err(CheckpointError::OutcomeUnknown {
            source: "the coordinator answered with an unknown status".into(),
        }),
    };
    Some(sealed)
}

fn decode(resource: &Resource, found: v1::Checkpoint) -> Result<Checkpoint, CheckpointError> {
    convert::checkpoint(found).ok_or_else(|| CheckpointError::Corrupt {
        resource: resource.clone(),
        source: "the coordinator sent a malformed checkpoint".into(),
    })
}

fn unanswered() -> CheckpointError {
    CheckpointError::OutcomeUnknown {
        source: "the coordinator answered no seal".into(),
    }
}

/// Maps what a write or deletion was answered with in the end. The connection may have tried before.
fn refused(token: &FencingToken, presented: Sequence, error: &CallError) -> CheckpointError {
    let refusal = refusal(token, presented, error);
    match error.may_have_happened() {
        true => refusal.in_doubt(),
        false => refusal,
    }
}

fn refusal(token: &FencingToken, presented: Sequence, error: &CallError) -> CheckpointError {
    let resource = token.resource.clone();
    let number = |key| {
        error
            .metadata(key)
            .and_then(|text| text.parse::<u64>().ok())
    };
    match error.reason() {
        reason::FENCED | reason::SESSION_ENDED => CheckpointError::Fenced {
            resource,
            presented: token.epoch,
            current: number(reason::CURRENT)
                .and_then(Epoch::new)
                .unwrap_or(token.epoch),
        },
        reason::NOT_SEALED => CheckpointError::NotSealed {
            resource,
            epoch: token.epoch,
        },
        reason::EPOCH_CONFLICT | reason::NEVER_GRANTED => CheckpointError::EpochConflict {
            resource,
            epoch: token.epoch,
        },
        reason::SEQUENCE_REUSED => {
            let latest = number(reason::LATEST)
                .and_then(Sequence::new)
                .unwrap_or(presented);
            CheckpointError::SequenceReused {
                resource,
                presented,
                latest,
            }
        }
        reason::TOO_LARGE => {
            let bytes = |key| number(key).and_then(|bytes| usize::try_from(bytes).ok());
            CheckpointError::TooLarge {
                length_bytes: bytes(reason::LENGTH_BYTES).unwrap_or(0),
                max_bytes: bytes(reason::MAX_BYTES).unwrap_or(ReplicatedStore::MAX_VALUE_BYTES),
            }
        }
        reason::CORRUPT => CheckpointError::Corrupt {
            resource,
            source: said(error),
        },
        _ => lost_call(error),
    }
}

/// Maps an error that says nothing about the token.
fn lost_call(error: &CallError) -> CheckpointError {
    if error.may_have_happened() {
        return CheckpointError::OutcomeUnknown {
            source: said(error),
        };
    }
    CheckpointError::Unavailable {
        source: said(error),
    }
}

fn said(error: &CallError) -> StoreError {
    error.to_string().into()
}
