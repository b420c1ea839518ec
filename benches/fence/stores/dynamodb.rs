//! In DynamoDB. Unfenced: `PutItem`, through the same client.

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use store_tests::dynalite::Dynalite;
use tenure_fence::dynamodb::aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use tenure_fence::dynamodb::aws_sdk_dynamodb::primitives::Blob;
use tenure_fence::dynamodb::aws_sdk_dynamodb::types::AttributeValue;
use tenure_fence::dynamodb::aws_sdk_dynamodb::{Client, Config};
use tenure_fence::{DynamodbOptions, DynamodbStore};

use super::{Opened, name};

const TABLE: &str = "tenure";

struct Plain {
    client: Client,
    names: Vec<String>,
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        self.client
            .put_item()
            .table_name(TABLE)
            .item("resource", AttributeValue::S(self.names[writer].clone()))
            .item("data", AttributeValue::B(Blob::new(value)))
            .send()
            .await?;
        Ok(())
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    let server = Dynalite::start().await?;
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("tenure", "tenure", None, None, "bench"))
        .endpoint_url(server.endpoint())
        .build();
    let store = DynamodbStore::open(config, DynamodbOptions::new(TABLE)).await?;
    let plain = Plain {
        client: store.client().clone(),
        names: (0..writers).map(name).collect(),
    };
    Opened::new(plain, store, writers, server).await
}
