//! The table: created when it is missing, refused when it cannot be ours.

use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    MultiRegionConsistency, ScalarAttributeType, TableDescription, TableStatus, TimeToLiveStatus,
};

use crate::error::{CheckpointError, StoreError};

use super::outcome::{self, Update};
use super::{DynamodbStore, item, names};

/// The layout that is written, as [`item`] describes it. A change of it takes the next number.
const LAYOUT: u64 = 1;

/// The key of the item that holds the number of the layout. No resource is written so.
const LAYOUT_KEY: &str = "layout";
const LAYOUT_ATTRIBUTE: &str = "version";

/// How long the service may take to create a table: usually some seconds.
const CREATION_TIME: Duration = Duration::from_secs(120);

/// How often the state of a table is looked at while it is being created.
const LOOK: Duration = Duration::from_millis(200);

impl DynamodbStore {
    /// Creates the table if it is missing, waits until it can be used, and refuses one that is of
    /// another shape or layout.
    pub(super) async fn prepare_table(&self) -> Result<(), CheckpointError> {
        let ready = tokio::time::timeout(CREATION_TIME, async {
            loop {
                match self.describe().await? {
                    None => self.create().await?,
                    Some(table) if table.table_status == Some(TableStatus::Creating) => {}
                    Some(table) => return Ok(table),
                }
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
        let table = ready.map_err(|_| CheckpointError::Unavailable {
            source: format!("table {} is being created", self.options.table).into(),
        })??;
        self.check_shape(&table)?;
        self.check_expiry().await?;
        self.check_layout().await
    }

    async fn describe(&self) -> Result<Option<TableDescription>, CheckpointError> {
        let request = self.client.describe_table().table_name(&self.options.table);
        // A table that is missing is an answer.
        let send = || {
            let sent = request.clone().send();
            async move {
                match sent.await {
                    Err(SdkError::ServiceError(error))
                        if error.err().is_resource_not_found_exception() =>
                    {
                        Ok(None)
                    }
                    answer => answer.map(|answer| answer.table),
                }
            }
        };
        self.bounded(outcome::read(send)).await
    }

    async fn create(&self) -> Result<(), CheckpointError> {
        let malformed =
            |error: aws_sdk_dynamodb::error::BuildError| CheckpointError::unsupported(error);
        let key = KeySchemaElement::builder()
            .attribute_name(item::RESOURCE)
            .key_type(KeyType::Hash);
        let attribute = AttributeDefinition::builder()
            .attribute_name(item::RESOURCE)
            .attribute_type(ScalarAttributeType::S);
        let request = self
            .client
            .create_table()
            .table_name(&self.options.table)
            .key_schema(key.build().map_err(malformed)?)
            .attribute_definitions(attribute.build().map_err(malformed)?)
            .billing_mode(BillingMode::PayPerRequest);
        let send = || {
            let sent = request.clone().send();
            async move {
                match sent.await {
                    // Somebody else is creating it.
                    Err(SdkError::ServiceError(error))
                        if error.err().is_resource_in_use_exception() =>
                    {
                        Ok(())
                    }
                    answer => answer.map(|_| ()),
                }
            }
        };
        self.bounded(outcome::read(send)).await
    }

    fn check_shape(&self, table: &TableDescription) -> Result<(), CheckpointError> {
        let name = &self.options.table;
        let refuse = |why: &str| Err(CheckpointError::unsupported(format!("table {name} {why}")));
        let is_key = |key: &KeySchemaElement| {
            key.attribute_name == item::RESOURCE && key.key_type == KeyType::Hash
        };
        let is_text = |attribute: &AttributeDefinition| {
            attribute.attribute_name == item::RESOURCE
                && attribute.attribute_type == ScalarAttributeType::S
        };
        let [key] = table.key_schema() else {
            return refuse("has a sort key, a table of this store has none");
        };
        if !is_key(key) || !table.attribute_definitions().iter().any(is_text) {
            return refuse("has another key than resource, a string");
        }
        let is_strong = table.multi_region_consistency == Some(MultiRegionConsistency::Strong);
        if !table.replicas().is_empty() && !is_strong {
            return refuse("has replicas in other regions that are only eventually consistent");
        }
        match &table.table_status {
            Some(TableStatus::Active | TableStatus::Updating) => Ok(()),
            status => Err(CheckpointError::Unavailable {
                source: format!("table {name} is in state {status:?}").into(),
            }),
        }
    }

    /// Refuses a table whose items expire: a fence must not.
    async fn check_expiry(&self) -> Result<(), CheckpointError> {
        let request = self
            .client
            .describe_time_to_live()
            .table_name(&self.options.table);
        let send = || {
            let sent = request.clone().send();
            async move {
                match sent.await {
                    // Where there is no such thing, nothing expires.
                    Err(SdkError::ServiceError(error))
                        if error.err().code() == Some("UnknownOperationException") =>
                    {
                        Ok(None)
                    }
                    answer => answer.map(|answer| answer.time_to_live_description),
                }
            }
        };
        let expiry = self.bounded(outcome::read(send)).await?;
        match expiry.and_then(|expiry| expiry.time_to_live_status) {
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
                Err(CheckpointError::unsupported(format!(
                    "items of table {} expire, and a fence must not",
                    self.options.table
                )))
            }
            _ => Ok(()),
        }
    }

    /// Notes the layout in a new table, and refuses one of a later version.
    async fn check_layout(&self) -> Result<(), CheckpointError> {
        let request = self
            .update(LAYOUT_KEY)
            .update_expression("SET #version = :version")
            .condition_expression("attribute_not_exists(#version)")
            .set_expression_attribute_names(Some(names(&[LAYOUT_ATTRIBUTE])))
            .expression_attribute_values(":version", item::number(LAYOUT));
        let present = match self.updated(&request).await? {
            Update::Done(_) => return Ok(()),
            Update::Refused(Some(item)) => Some(item),
            Update::Refused(None) => self.bounded(self.attributes(LAYOUT_KEY)).await?,
        };
        let version = present.and_then(|mut item| item.remove(LAYOUT_ATTRIBUTE));
        let version = match &version {
            Some(AttributeValue::N(digits)) => digits.parse::<u64>().ok(),
            _ => None,
        };
        let table = &self.options.table;
        let why: StoreError = match version {
            Some(LAYOUT) => return Ok(()),
            Some(version) => {
                format!("table {table} has layout {version}, this version knows layout {LAYOUT}")
                    .into()
            }
            None => format!("table {table} does not say which layout it has").into(),
        };
        Err(CheckpointError::unsupported(why))
    }
}
