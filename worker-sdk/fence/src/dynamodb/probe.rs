//! Whether the server keeps its conditions.

use std::hash::{BuildHasher, Hasher, RandomState};

use aws_sdk_dynamodb::types::AttributeValue;

use crate::admission::Fence;
use crate::epoch::Epoch;
use crate::error::CheckpointError;
use crate::owner::Owner;

use super::item::{self, Item};
use super::outcome::{self, Update};
use super::{DynamodbStore, names};

/// Requests that compete for one item, and how often: few enough for every start. A server that checks
/// and writes in two steps is found so now and then, not always; what finds it is the conformance kit.
const RIVALS: u64 = 8;
const RACES: u64 = 4;

/// Epochs between which a server that keeps numbers in floating point sees no difference.
const NEAR_MAX: [u64; 2] = [i64::MAX.unsigned_abs() - 1, i64::MAX.unsigned_abs()];

impl DynamodbStore {
    /// Tries conditions on items that belong to no resource, and deletes them.
    ///
    /// An item that a broken-off probe leaves behind does no harm and is not listed.
    pub(super) async fn probe_conditions(&self) -> Result<(), CheckpointError> {
        // New each time: another probe may be running.
        let nonce = RandomState::new().build_hasher().finish();
        let key = format!("probe/{nonce:016x}");
        let tried = self.try_conditions(&key).await;
        let deleted = self.delete_item(&key).await;
        tried.and(deleted)?;
        for race in 0..RACES {
            let key = format!("probe/{nonce:016x}/{race}");
            let tried = self.try_race(&key).await;
            let deleted = self.delete_item(&key).await;
            tried.and(deleted)?;
        }
        Ok(())
    }

    async fn try_conditions(&self, key: &str) -> Result<(), CheckpointError> {
        let [below, above] = NEAR_MAX.map(|epoch| fence(epoch, 1));
        self.try_raise(key, &below).await?;
        self.require_fence(key, &below).await?;
        // A lower epoch, and the same of another owner.
        for refused in [fence(1, 2), fence(NEAR_MAX[0], 2)] {
            if self.try_raise(key, &refused).await? {
                return Err(CheckpointError::unsupported(
                    "the server ignores conditions",
                ));
            }
        }
        self.require_fence(key, &below).await?;
        self.try_raise(key, &above).await?;
        self.require_fence(key, &above).await?;
        // As in a write: at an epoch that rounding makes equal, and by another owner.
        for (epoch, owner) in [(NEAR_MAX[0], 1), (NEAR_MAX[1], 2)] {
            if self.try_write(key, &fence(epoch, owner)).await? {
                return Err(CheckpointError::unsupported(
                    "the server does not compare exactly",
                ));
            }
        }
        if !self.try_write(key, &above).await? {
            return Err(CheckpointError::unsupported(
                "the server refuses a condition that holds",
            ));
        }
        Ok(())
    }

    /// Requires that the item has this fence. Read, and not taken from the answer of the request that
    /// set it: one that is repeated after a lost answer is refused although it has been done.
    async fn require_fence(&self, key: &str, fence: &Fence) -> Result<(), CheckpointError> {
        let kept = self.bounded(self.attributes(key)).await?;
        let kept = kept.and_then(|attributes| Item::decode(attributes).ok().flatten());
        let kept = kept.map(|item| item.fence);
        if kept.as_ref() == Some(fence) {
            return Ok(());
        }
        Err(CheckpointError::unsupported(format!(
            "the server does not keep conditions or large numbers exactly: it has {kept:?} instead of \
             {fence:?}"
        )))
    }

    /// Lets requests compete. No more than one may win.
    async fn try_race(&self, key: &str) -> Result<(), CheckpointError> {
        let rivals = (1..=RIVALS).map(|owner| async move {
            // The same epoch: to raise a fence to it a second time is refused.
            self.try_raise(key, &fence(1, owner)).await
        });
        let mut winners = 0;
        for won in futures::future::join_all(rivals).await {
            winners += u64::from(won?);
        }
        if winners <= 1 {
            return Ok(());
        }
        Err(CheckpointError::unsupported(format!(
            "of {RIVALS} requests with a condition that one can fulfil, {winners} were accepted"
        )))
    }

    async fn try_raise(&self, key: &str, fence: &Fence) -> Result<bool, CheckpointError> {
        let update = self.updated(&self.raise(key, fence)).await?;
        Ok(matches!(update, Update::Done(_)))
    }

    async fn try_write(&self, key: &str, fence: &Fence) -> Result<bool, CheckpointError> {
        let request = self
            .update(key)
            .update_expression("SET #data = :owner")
            .condition_expression("#fence.#epoch = :epoch AND #fence.#owner = :owner")
            .set_expression_attribute_names(Some(names(&[
                item::DATA,
                item::FENCE,
                item::EPOCH,
                item::OWNER,
            ])))
            .expression_attribute_values(":epoch", item::number(fence.epoch.get()))
            .expression_attribute_values(":owner", AttributeValue::S(fence.owner.to_string()));
        let update = self.updated(&request).await?;
        Ok(matches!(update, Update::Done(_)))
    }

    async fn delete_item(&self, key: &str) -> Result<(), CheckpointError> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.options.table)
            .key(item::RESOURCE, AttributeValue::S(key.to_owned()));
        let deleted = outcome::read(|| request.clone().send());
        self.bounded(deleted).await?;
        Ok(())
    }
}

fn fence(epoch: u64, session: u64) -> Fence {
    Fence {
        epoch: Epoch::new(epoch).unwrap_or(Epoch::FIRST),
        owner: Owner {
            cluster: 0,
            session,
        },
    }
}
