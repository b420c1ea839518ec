//! What is known of a resource, from the answers of etcd.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::admission::Fence;
use crate::checkpoint::Checkpoint;
use crate::parts::{self, PartsError};
use crate::record::Record;
use crate::resource::Resource;

use super::proto::response_op::Response;
use super::proto::{KeyValue, ResponseOp};

/// How many resources are remembered. Some 30 MB if a worker ever has that many shards.
const REMEMBERED_MAX: usize = 65_536;

/// What etcd holds for a resource and this process has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// `None` before the first seal.
    pub(super) fence: Option<KnownFence>,
    /// Both keys put together, without the data.
    pub(super) record: Option<Record>,
    /// The revision of the data's latest change; zero when there is none.
    pub(super) data_revision: i64,
}

/// A fence, and the bytes it is kept as: the ones to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownFence {
    pub(super) fence: Fence,
    pub(super) value: Bytes,
}

/// What etcd holds that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KnownError {
    #[error(transparent)]
    Parts(#[from] PartsError),
    #[error("the key of the fence has lease {0}, whose end removes it: put it again without one")]
    Leased(i64),
}

impl KnownFence {
    pub(super) fn new(fence: Fence) -> Self {
        Self {
            fence,
            value: parts::encode_fence(fence),
        }
    }
}

impl Known {
    /// Reads the answers to a request for fence and data.
    pub(super) fn read(responses: Vec<ResponseOp>) -> Result<Self, KnownError> {
        let mut ranges = ranges(responses).map(|found| found.into_iter().next());
        let fence = ranges.next().flatten();
        let fence = fence.as_ref().map(fence_of).transpose()?;
        let data = ranges.next().flatten();
        let data_revision = data.as_ref().map_or(0, |entry| entry.mod_revision);
        let record = joined(fence.as_ref(), data)?;
        Ok(Self {
            record: record.as_ref().map(parts::without_data),
            fence,
            data_revision,
        })
    }

    /// Reads the data under a fence that is up. Returns it beside what is known.
    pub(super) fn sealed(
        fence: Option<KnownFence>,
        data: Option<KeyValue>,
    ) -> Result<(Self, Option<Checkpoint>), KnownError> {
        let data_revision = data.as_ref().map_or(0, |entry| entry.mod_revision);
        let record = joined(fence.as_ref(), data)?;
        let known = Self {
            record: record.as_ref().map(parts::without_data),
            fence,
            data_revision,
        };
        Ok((known, record.and_then(|record| record.checkpoint)))
    }

    /// What is known after `next` was put at a revision.
    pub(super) fn after(self, next: &Record, data_revision: i64) -> Self {
        Self {
            record: Some(parts::without_data(next)),
            fence: self.fence,
            data_revision,
        }
    }
}

/// Reads a fence from its key.
pub(super) fn fence_of(entry: &KeyValue) -> Result<KnownFence, KnownError> {
    if entry.lease != 0 {
        return Err(KnownError::Leased(entry.lease));
    }
    let fence = parts::decode_fence(entry.value.clone()).map_err(PartsError::from)?;
    Ok(KnownFence {
        fence,
        value: entry.value.clone(),
    })
}

/// Returns what the only request for keys among some has found.
pub(super) fn found(responses: Vec<ResponseOp>) -> Vec<KeyValue> {
    ranges(responses).flatten().collect()
}

/// Returns the key that the only request for one has found, if any.
pub(super) fn found_one(responses: Vec<ResponseOp>) -> Option<KeyValue> {
    ranges(responses).flatten().next()
}

/// Takes the answers to requests for keys.
fn ranges(responses: Vec<ResponseOp>) -> impl Iterator<Item = Vec<KeyValue>> {
    responses
        .into_iter()
        .filter_map(|operation| match operation.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        })
}

fn joined(
    fence: Option<&KnownFence>,
    data: Option<KeyValue>,
) -> Result<Option<Record>, KnownError> {
    let fence = fence.map(|known| known.fence);
    Ok(parts::join(fence, data.map(|entry| entry.value))?)
}

/// What is remembered of resources. It may be old: every use of it is checked by a transaction.
#[derive(Debug, Default)]
pub(super) struct Memory {
    known: Mutex<HashMap<Resource, Known>>,
}

impl Memory {
    pub(super) fn get(&self, resource: &Resource) -> Option<Known> {
        self.known().get(resource).cloned()
    }

    pub(super) fn keep(&self, resource: &Resource, known: Known) {
        let mut remembered = self.known();
        if remembered.len() >= REMEMBERED_MAX && !remembered.contains_key(resource) {
            // Rare, and no more than a read for each of them: not worth an order of use.
            remembered.clear();
        }
        remembered.insert(resource.clone(), known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Resource, Known>> {
        // Every entry is whole at any time, and is checked before it matters.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
