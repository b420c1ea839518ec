//! A store in Amazon DynamoDB: one item for each resource.
//!
//! # How it fences
//!
//! Fence, latest sequence and checkpoint are attributes of one item, and every change of it is one
//! `UpdateItem` with a condition on the fence. DynamoDB checks the condition and changes the item in one
//! step, so a write of a replaced owner is refused by the server, whenever it arrives:
//!
//! ```text
//!   seal    if fence.epoch < :epoch, or there is none      set fence, remove latest
//!   write   if fence.epoch = :epoch and fence.owner = :owner
//!           and latest.sequence < :sequence, or there is none   set latest, checkpoint
//! ```
//!
//! Epochs are numbers of DynamoDB, which keeps 38 digits exactly. When a condition is refused, the item
//! as it was then says why.
//!
//! # What it promises
//!
//! What is acknowledged is stored in several places before, and a seal reads what no old owner can
//! change any more. The loss of a machine or a zone of the service loses nothing.
//!
//! # What it does not promise
//!
//! * A table that is restored from a backup, also to a point in time, has the fences of then. The
//!   coordinator notices, by the epochs it has granted; the store alone does not.
//! * A global table that is only eventually consistent between regions has one fence for each region,
//!   which is none. Such a table is refused; one of strong consistency is not.
//! * Anyone with the permission to write items can write around the fence. Give `dynamodb:UpdateItem` to
//!   the workers and to nobody else.
//! * An item that expires takes its fence with it. A table with a time to live is refused when it is
//!   opened; do not turn it on later.

mod item;
mod outcome;
mod probe;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use async_trait::async_trait;
/// The client of the service, in the version that the store uses.
pub use aws_sdk_dynamodb;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use futures::StreamExt;

use crate::admission::{
    Fence, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use item::Item;
use outcome::{Call, Update};

/// The largest value, in bytes: DynamoDB's limit for an item, 400 KiB, less what stands beside the
/// value in ours (names of attributes, the resource, numbers; below 1 KiB).
pub const MAX_VALUE_BYTES: usize = 400 * 1024 - 1024;

/// How often a request is decided anew when what the server refused fits what it then shows. It does so
/// when the same owner seals and writes at the same time, so twice is once more than needed.
const DECISIONS_MAX: usize = 3;

/// How a [`DynamodbStore`] is set up.
#[derive(Clone, Debug)]
pub struct DynamodbOptions {
    /// The table, which belongs to the store alone. Created when it is missing, paid for by request.
    pub table: String,
    /// How long one call may take, with all its requests and their repetitions. Default 10 s. When the
    /// store is opened or probed, or its fences are listed, each step may take so long.
    pub deadline: Duration,
    /// The largest value, in bytes, inclusive: at most [`MAX_VALUE_BYTES`], the default.
    pub max_value_bytes: usize,
    /// How many seals [`seal_many`](CheckpointStore::seal_many) has on their way at once. Default 32.
    pub seals_in_flight: usize,
}

impl DynamodbOptions {
    /// Creates the default options for a table.
    #[must_use]
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            deadline: Duration::from_secs(10),
            max_value_bytes: MAX_VALUE_BYTES,
            seals_in_flight: 32,
        }
    }
}

/// A store in Amazon DynamoDB. See the [module](self) for how it fences and what it promises.
#[derive(Clone, Debug)]
pub struct DynamodbStore {
    client: Client,
    options: DynamodbOptions,
}

impl DynamodbStore {
    /// Opens the store: creates its table if it is missing, and finds out whether it can fence.
    ///
    /// `config` says where the service is and with which credentials it is used. Its retries are
    /// replaced: the store repeats what is safe to repeat and knows what an answer then means. Without
    /// an HTTP client in it, one over rustls with ring is used.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the table has another shape, a time to live, replicas
    /// without strong consistency or a layout of a later version, or when the server does not keep its
    /// conditions; [`CheckpointError::Unavailable`].
    pub async fn open(config: Config, options: DynamodbOptions) -> Result<Self, CheckpointError> {
        let mut builder = config.to_builder().retry_config(RetryConfig::disabled());
        if config.http_client().is_none() {
            let tls = Provider::Rustls(CryptoMode::Ring);
            let client = aws_smithy_http_client::Builder::new();
            builder = builder.http_client(client.tls_provider(tls).build_https());
        }
        let store = Self {
            client: Client::from_conf(builder.build()),
            options,
        };
        store.prepare_table().await?;
        store.probe().await?;
        Ok(store)
    }

    /// Returns the client that the store uses, which repeats nothing by itself.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Lists the fences, in the order of the resources' texts: the first `limit` after `after`.
    ///
    /// Reads the whole table each time, for DynamoDB has no order between items: meant for tools.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] or [`CheckpointError::Unavailable`].
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let after = after.map(ToString::to_string);
        let mut listed = BTreeMap::new();
        let mut next = None;
        loop {
            let page = self
                .client
                .scan()
                .table_name(&self.options.table)
                .consistent_read(true)
                .projection_expression("#resource, #fence")
                .set_expression_attribute_names(Some(names(&[item::RESOURCE, item::FENCE])))
                .set_exclusive_start_key(next.take());
            let page = self.bounded(outcome::read(|| page.clone().send())).await?;
            for attributes in page.items.unwrap_or_default() {
                let Some((text, resource)) = item::resource(&attributes) else {
                    continue;
                };
                if after.as_ref() >= Some(&text) {
                    continue;
                }
                if let Some(item) = decoded(&resource, attributes)? {
                    listed.insert(text, (resource, item.fence));
                }
                if listed.len() > limit {
                    listed.pop_last();
                }
            }
            next = page.last_evaluated_key;
            if next.is_none() {
                return Ok(listed.into_values().collect());
            }
        }
    }

    /// Begins a conditional change of the item with key `key`.
    fn update(&self, key: &str) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.options.table)
            .key(item::RESOURCE, AttributeValue::S(key.to_owned()))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
    }

    /// Raises the fence of the item with key `key`, if it is lower, and returns the item as it is then.
    fn raise(&self, key: &str, fence: &Fence) -> UpdateItemFluentBuilder {
        self.update(key)
            .update_expression("SET #fence = :fence REMOVE #latest")
            .condition_expression("attribute_not_exists(#fence) OR #fence.#epoch < :epoch")
            .set_expression_attribute_names(Some(names(&[item::FENCE, item::LATEST, item::EPOCH])))
            .expression_attribute_values(":fence", item::holder(fence))
            .expression_attribute_values(":epoch", item::number(fence.epoch.get()))
            .return_values(ReturnValue::AllNew)
    }

    /// Changes the item under its fence, at a sequence of its own. `None` deletes the checkpoint.
    fn replace(
        &self,
        token: &FencingToken,
        presented: (Sequence, WriteId),
        checkpoint: Option<Checkpoint>,
    ) -> UpdateItemFluentBuilder {
        let mut used = vec![item::FENCE, item::EPOCH, item::OWNER];
        used.extend([item::LATEST, item::SEQUENCE, item::CHECKPOINT]);
        let (change, checkpoint) = match checkpoint {
            Some(checkpoint) => (
                "SET #latest = :latest, #checkpoint = :checkpoint",
                Some(item::checkpoint(checkpoint)),
            ),
            None => ("SET #latest = :latest REMOVE #checkpoint", None),
        };
        let mut values = HashMap::from([
            (":epoch".to_owned(), item::number(token.epoch.get())),
            (
                ":owner".to_owned(),
                AttributeValue::S(token.owner.to_string()),
            ),
            (":sequence".to_owned(), item::number(presented.0.get())),
            (":latest".to_owned(), item::write(presented)),
        ]);
        values.extend(checkpoint.map(|checkpoint| (":checkpoint".to_owned(), checkpoint)));
        self.update(&token.resource.to_string())
            .update_expression(change)
            .condition_expression(
                "#fence.#epoch = :epoch AND #fence.#owner = :owner AND \
                 (attribute_not_exists(#latest) OR #latest.#sequence < :sequence)",
            )
            .set_expression_attribute_names(Some(names(&used)))
            .set_expression_attribute_values(Some(values))
    }

    /// Presents a write or a deletion until the server has decided it.
    async fn present(
        &self,
        call: &Call,
        token: &FencingToken,
        presented: (Sequence, WriteId),
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), CheckpointError> {
        let request = self.replace(token, presented, checkpoint);
        for _ in 0..DECISIONS_MAX {
            let refused = match call.update(&request).await? {
                Update::Done(_) => return Ok(()),
                Update::Refused(item) => item,
            };
            let item = self.refusing(&token.resource, refused).await?;
            let decided = admit_write(item.as_ref().map(|item| &item.fence), token)
                .and_then(|()| admit_sequence(item.and_then(|item| item.latest), presented));
            match decided {
                Ok(SequenceAdmission::AlreadyWritten) => return Ok(()),
                // Sealed, by the same owner, after it was refused and before it was read.
                Ok(SequenceAdmission::New) => {}
                Err(refusal) => return Err(CheckpointError::refused(token, refusal)),
            }
        }
        Err(contradiction())
    }

    /// Raises the fence. Returns the item that it then guards.
    async fn seal(
        &self,
        call: &Call,
        token: &FencingToken,
    ) -> Result<Option<Item>, CheckpointError> {
        let resource = &token.resource;
        let request = self.raise(&resource.to_string(), &Fence::from(token));
        for _ in 0..DECISIONS_MAX {
            let refused = match call.update(&request).await? {
                Update::Done(attributes) => return decoded(resource, attributes),
                Update::Refused(item) => item,
            };
            let item = self.refusing(resource, refused).await?;
            match admit_seal(item.as_ref().map(|item| &item.fence), token) {
                Ok(SealAdmission::Same) => return Ok(item),
                Ok(SealAdmission::Raise) => {}
                Err(refusal) => return Err(CheckpointError::refused(token, refusal)),
            }
        }
        Err(contradiction())
    }

    /// Makes a conditional change that is no part of a call.
    async fn updated(&self, request: &UpdateItemFluentBuilder) -> Result<Update, CheckpointError> {
        let call = Call::default();
        let updated = call.update(request);
        call.bounded(self.options.deadline, updated).await
    }

    /// Lets something come to an end within the deadline that changes nothing.
    async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        Call::default().bounded(self.options.deadline, work).await
    }

    /// Returns the item that did not fulfil a condition: as the server gave it, or as it is now.
    async fn refusing(
        &self,
        resource: &Resource,
        refused: Option<HashMap<String, AttributeValue>>,
    ) -> Result<Option<Item>, CheckpointError> {
        match refused {
            Some(attributes) => decoded(resource, attributes),
            None => self.item(resource).await,
        }
    }

    async fn item(&self, resource: &Resource) -> Result<Option<Item>, CheckpointError> {
        match self.attributes(&resource.to_string()).await? {
            Some(attributes) => decoded(resource, attributes),
            None => Ok(None),
        }
    }

    async fn attributes(
        &self,
        key: &str,
    ) -> Result<Option<HashMap<String, AttributeValue>>, CheckpointError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.options.table)
            .key(item::RESOURCE, AttributeValue::S(key.to_owned()))
            .consistent_read(true);
        let answer = outcome::read(|| request.clone().send()).await?;
        Ok(answer.item)
    }
}

#[async_trait]
impl CheckpointStore for DynamodbStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = Call::default();
        let sealed = self.seal(&call, token);
        let item = call.bounded(self.options.deadline, sealed).await?;
        checkpoint(&token.resource, item)
    }

    // One by one, some at a time: a batch of DynamoDB carries no conditions, and a transaction fails as
    // a whole.
    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let seals = tokens
            .iter()
            .map(|token| CheckpointStore::seal(self, token));
        let seals: Vec<_> = seals.collect();
        futures::stream::iter(seals)
            .buffered(self.options.seals_in_flight.max(1))
            .collect()
            .await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes())?;
        let presented = (write.sequence, write.write_id);
        let checkpoint = Checkpoint::of(token, write);
        let call = Call::default();
        let written = self.present(&call, token, presented, Some(checkpoint));
        call.bounded(self.options.deadline, written).await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        checkpoint(resource, self.bounded(self.item(resource)).await?)
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let item = self.bounded(self.item(resource)).await?;
        Ok(item.map(|item| item.fence))
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let presented = (deletion.sequence, deletion.write_id);
        let call = Call::default();
        let deleted = self.present(&call, token, presented, None);
        call.bounded(self.options.deadline, deleted).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.probe_conditions().await
    }

    fn max_value_bytes(&self) -> usize {
        self.options.max_value_bytes.min(MAX_VALUE_BYTES)
    }
}

/// Names attributes in expressions: some are reserved words, so all are written with `#`.
fn names(attributes: &[&str]) -> HashMap<String, String> {
    attributes
        .iter()
        .map(|name| (format!("#{name}"), (*name).to_owned()))
        .collect()
}

fn decoded(
    resource: &Resource,
    attributes: HashMap<String, AttributeValue>,
) -> Result<Option<Item>, CheckpointError> {
    Item::decode(attributes).map_err(|error| CheckpointError::corrupt(resource, error))
}

fn checkpoint(
    resource: &Resource,
    item: Option<Item>,
) -> Result<Option<Checkpoint>, CheckpointError> {
    item.map_or(Ok(None), |item| item.checkpoint)
        .map_err(|error| CheckpointError::corrupt(resource, error))
}

fn contradiction() -> CheckpointError {
    CheckpointError::Unavailable {
        source: "the server refuses a condition that its item fulfils".into(),
    }
}
