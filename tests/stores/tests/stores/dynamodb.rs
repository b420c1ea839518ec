//! The store in DynamoDB, against dynalite and moto.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use store_tests::dynalite::Dynalite;
use store_tests::http_faults::{Fault, FaultProxy};
use store_tests::moto::Moto;
use store_tests::server::{Crash, Server};
use tenure_fence::dynamodb::MAX_VALUE_BYTES;
use tenure_fence::dynamodb::aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use tenure_fence::dynamodb::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TimeToLiveSpecification,
};
use tenure_fence::dynamodb::aws_sdk_dynamodb::{Client, Config};
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    CheckpointError, CheckpointStore, DynamodbOptions, DynamodbStore, FencingToken, Resource,
    Sequence, Write, WriteId,
};

use crate::case::{Case, Place, write};
use crate::lost_answers::{self, Remote};

fn config(endpoint: &str) -> Config {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("tenure", "tenure", None, None, "tests"))
        .endpoint_url(endpoint)
        .build()
}

async fn open(endpoint: &str) -> Result<DynamodbStore, CheckpointError> {
    DynamodbStore::open(config(endpoint), DynamodbOptions::new("tenure")).await
}

/// A client beside the store, as an operator has one, and the table `tenure`.
async fn client(endpoint: &str) -> Result<Client, Failure> {
    Ok(open(endpoint).await?.client().clone())
}

fn grants() -> (LocalGrants, FencingToken) {
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    let token = grants.next_tenure(&resource, Holder::New);
    (grants, token)
}

#[async_trait]
impl Place for Server<Dynalite> {
    type Store = DynamodbStore;

    async fn open(&self) -> Result<DynamodbStore, CheckpointError> {
        open(&self.endpoint()).await
    }
}

#[async_trait]
impl Remote for Server<Dynalite> {
    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    async fn open_at(&self, address: SocketAddr) -> Result<DynamodbStore, CheckpointError> {
        open(&format!("http://{address}")).await
    }
}

/// Loses everything with its process, so nothing is killed.
struct InMoto(Server<Moto>);

impl Crash for InMoto {}

#[async_trait]
impl Place for InMoto {
    type Store = DynamodbStore;

    async fn open(&self) -> Result<DynamodbStore, CheckpointError> {
        let options = DynamodbOptions {
            // moto measures an item in base64.
            max_value_bytes: 256 * 1024,
            ..DynamodbOptions::new("tenure")
        };
        DynamodbStore::open(config(&self.0.endpoint()), options).await
    }
}

async fn case() -> Result<Case<Server<Dynalite>>, Failure> {
    Case::new(Dynalite::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynalite_keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

/// moto tells with a refusal what the item was, as DynamoDB does; dynalite does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_keeps_the_contract() -> Result<(), Failure> {
    let case = Case::new(InMoto(Moto::start().await?)).await?;
    case.keeps_the_contract_here_too().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_checks_and_writes_in_two_steps_is_refused() -> Result<(), Failure> {
    let server = Moto::start_threaded().await?;
    is_refused(&server.endpoint(), "tenure", "were accepted").await;
    Ok(())
}

#[tokio::test]
async fn answers_that_are_lost_are_reported_as_what_they_are() -> Result<(), Failure> {
    lost_answers::are_reported_as_what_they_are(Dynalite::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynalite_survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    case().await?.survives_a_kill().await
}

#[tokio::test]
async fn a_write_that_arrives_after_it_was_given_up_happens_once_or_not_at_all()
-> Result<(), Failure> {
    let server = Dynalite::start().await?;
    let options = DynamodbOptions {
        deadline: Duration::from_secs(2),
        ..DynamodbOptions::new("tenure")
    };
    let store = DynamodbStore::open(config(&server.endpoint()), options).await?;
    let (mut grants, token) = grants();
    store.seal(&token).await?;
    store.write(&token, write(1, "first")).await?;

    server.freeze()?;
    let given_up = store.write(&token, write(2, "given up")).await;
    assert!(
        matches!(given_up, Err(CheckpointError::OutcomeUnknown { .. })),
        "{given_up:?}"
    );
    let read = store.read(&token.resource).await;
    assert!(
        matches!(read, Err(CheckpointError::Unavailable { .. })),
        "{read:?}"
    );
    server.thaw()?;

    // The server has the first attempt still before it; the repetition succeeds whichever comes first.
    store.write(&token, write(2, "given up")).await?;
    let other = Write {
        write_id: WriteId::new(3),
        ..write(2, "other")
    };
    let reused = store.write(&token, other).await;
    assert!(
        matches!(reused, Err(CheckpointError::SequenceReused { .. })),
        "{reused:?}"
    );
    let next = grants.next_tenure(&token.resource, Holder::New);
    let found = store.seal(&next).await?.unwrap();
    assert_eq!(
        (found.sequence.get(), found.data.as_ref()),
        (2, &b"given up"[..])
    );
    Ok(())
}

#[tokio::test]
async fn a_write_that_landed_before_it_was_refused_is_not_said_to_have_changed_nothing()
-> Result<(), Failure> {
    let server = Dynalite::start().await?;
    let proxy = FaultProxy::start(server.address()).await?;
    let direct = open(&server.endpoint()).await?;
    let store = open(&format!("http://{}", proxy.address())).await?;
    let (mut grants, old) = grants();
    store.seal(&old).await?;
    // It lands, but the answer is lost; before it is tried again a new owner seals and finds it.
    proxy.meet("POST", "UpdateItem", 1, Fault::LoseAnswer);
    proxy.meet("POST", "UpdateItem", 1, Fault::Delay);
    let new = grants.next_tenure(&old.resource, Holder::New);
    let meanwhile = async {
        proxy.has_met(2).await;
        let found = direct.seal(&new).await;
        proxy.heal();
        found
    };
    let (answer, found) = tokio::join!(store.write(&old, write(1, "landed")), meanwhile);
    assert_eq!(found?.unwrap().data, "landed");
    assert!(
        matches!(answer, Err(CheckpointError::OutcomeUnknown { .. })),
        "{answer:?}"
    );
    // Of what comes later nothing is in doubt.
    let late = store.write(&old, write(2, "late")).await;
    assert!(
        matches!(late, Err(CheckpointError::Fenced { .. })),
        "{late:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_has_done_nothing() -> Result<(), Failure> {
    let mut server = Dynalite::start().await?;
    let store = open(&server.endpoint()).await?;
    let (_, token) = grants();
    store.seal(&token).await?;
    server.kill().await?;
    // Until the connections that were there are known to be gone: a request on one of them may have
    // been sent.
    wait::until(
        "connections to be refused",
        Duration::from_secs(30),
        async || match store.read(&token.resource).await {
            Err(error) if format!("{error:?}").contains("ConnectionRefused") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    for answer in [
        store.seal(&token).await.map(|_| ()),
        store.write(&token, write(1, "first")).await,
        store.read(&token.resource).await.map(|_| ()),
        store.fence(&token.resource).await.map(|_| ()),
        store.probe().await,
    ] {
        assert!(
            matches!(answer, Err(CheckpointError::Unavailable { .. })),
            "{answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn dynalite_lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &DynamodbStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

#[tokio::test]
async fn the_largest_value_fits_beside_the_longest_name() -> Result<(), Failure> {
    let server = Dynalite::start().await?;
    let store = open(&server.endpoint()).await?;
    let name = format!("lease/{}", "x".repeat(128));
    let token: FencingToken =
        format!("{name}@{}:{:032x}/{}", i64::MAX, u128::MAX, u64::MAX).parse()?;
    store.seal(&token).await?;
    let largest = Write {
        sequence: Sequence::MAX,
        write_id: WriteId::new(u128::MAX),
        data: vec![0xff; MAX_VALUE_BYTES].into(),
    };
    store.write(&token, largest.clone()).await?;
    assert_eq!(
        store.read(&token.resource).await?.unwrap().data,
        largest.data
    );
    Ok(())
}

#[tokio::test]
async fn an_item_that_cannot_be_read_is_corrupt() -> Result<(), Failure> {
    let server = Dynalite::start().await?;
    let store = open(&server.endpoint()).await?;
    let (mut grants, token) = grants();
    store.seal(&token).await?;
    let key = AttributeValue::S(token.resource.to_string());
    store
        .client()
        .update_item()
        .table_name("tenure")
        .key("resource", key)
        .update_expression("SET #c = :c")
        .expression_attribute_names("#c", "checkpoint")
        .expression_attribute_values(":c", AttributeValue::S("by hand".to_owned()))
        .send()
        .await?;
    let next = grants.next_tenure(&token.resource, Holder::New);
    for answer in [
        store.read(&token.resource).await.map(|_| ()),
        store.seal(&next).await.map(|_| ()),
    ] {
        assert!(
            matches!(answer, Err(CheckpointError::Corrupt { .. })),
            "{answer:?}"
        );
    }
    // The fence is up although what it guards cannot be read.
    assert_eq!(store.fence(&token.resource).await?, Some((&next).into()));
    let late = store.write(&token, write(1, "late")).await;
    assert!(
        matches!(late, Err(CheckpointError::Fenced { .. })),
        "{late:?}"
    );
    Ok(())
}

/// Requires that a store cannot be opened over what is there, for the reason `expected`.
async fn is_refused(endpoint: &str, table: &str, expected: &str) {
    let opened = DynamodbStore::open(config(endpoint), DynamodbOptions::new(table)).await;
    match opened {
        Err(CheckpointError::Unsupported { source }) => {
            assert!(source.to_string().contains(expected), "{source}");
        }
        other => panic!("{table} was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_table_of_another_shape_or_layout_is_refused() -> Result<(), Failure> {
    let server = Moto::start().await?;
    let endpoint = server.endpoint();
    let client = client(&endpoint).await?;
    for (table, name, kind) in [
        ("other-name", "id", ScalarAttributeType::S),
        ("other-type", "resource", ScalarAttributeType::N),
    ] {
        let key = KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(KeyType::Hash)
            .build()?;
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind)
            .build()?;
        client
            .create_table()
            .table_name(table)
            .key_schema(key)
            .attribute_definitions(attribute)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await?;
        is_refused(&endpoint, table, "another key").await;
    }

    client
        .update_item()
        .table_name("tenure")
        .key("resource", AttributeValue::S("layout".to_owned()))
        .update_expression("SET version = :version")
        .expression_attribute_values(":version", AttributeValue::N("2".to_owned()))
        .send()
        .await?;
    is_refused(&endpoint, "tenure", "has layout 2").await;
    Ok(())
}

#[tokio::test]
async fn a_table_whose_items_expire_is_refused() -> Result<(), Failure> {
    let server = Moto::start().await?;
    let endpoint = server.endpoint();
    let expiry = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name("expires")
        .build()?;
    client(&endpoint)
        .await?
        .update_time_to_live()
        .table_name("tenure")
        .time_to_live_specification(expiry)
        .send()
        .await?;
    is_refused(&endpoint, "tenure", "expire").await;
    Ok(())
}
