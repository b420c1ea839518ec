//! The store in an etcd cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::etcd::EtcdCluster;
use store_tests::{http, writers};
use tenure_fence::{
    CheckpointError, CheckpointStore, EtcdStore, EtcdStoreOptions, FencingToken, Resource,
};

use crate::case::{Case, Place, token, write};
use crate::lost_answers::{self, Remote};

#[async_trait]
impl Place for EtcdCluster {
    type Store = EtcdStore;

    async fn open(&self) -> Result<EtcdStore, CheckpointError> {
        EtcdStore::open(&self.endpoints(), EtcdStoreOptions::default()).await
    }
}

#[async_trait]
impl Remote for EtcdCluster {
    fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    async fn open_at(&self, address: SocketAddr) -> Result<EtcdStore, CheckpointError> {
        let impatient = EtcdStoreOptions {
            deadline: Duration::from_secs(2),
            ..EtcdStoreOptions::default()
        };
        EtcdStore::open(&[format!("http://{address}")], impatient).await
    }
}

async fn case() -> Result<Case<EtcdCluster>, Failure> {
    Case::new(EtcdCluster::start().await?).await
}

/// Sends one request to etcd's JSON gateway, as an operator could.
async fn operate(cluster: &EtcdCluster, path: &str, body: &str) -> Result<String, Failure> {
    let answer = http::request("POST", cluster.addresses()[0], path, &[], body).await;
    answer.map_err(Failure::new)
}

/// Encodes a key or value for the gateway: base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0_usize, |number, index| {
            number << 8 | usize::from(chunk.get(index).copied().unwrap_or(0))
        });
        for index in 0..4 {
            let digit = DIGITS[number >> (18 - 6 * index) & 63];
            text.push(if index > chunk.len() {
                '='
            } else {
                char::from(digit)
            });
        }
    }
    text
}

/// Reads the text of a field from the gateway's JSON.
fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let begin = format!("\"{name}\":\"");
    let (_, rest) = json.split_once(&begin).expect("the field");
    rest.split('"').next().expect("its text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn survives_a_kill_of_all_members_in_the_middle_of_200_writers() -> Result<(), Failure> {
    let mut cluster = EtcdCluster::start().await?;
    // Shorter than the election of a leader, or the store would hide the crash from the writers.
    let impatient = EtcdStoreOptions {
        deadline: Duration::from_secs(1),
        ..EtcdStoreOptions::default()
    };
    let store = Arc::new(EtcdStore::open(&cluster.endpoints(), impatient).await?);
    writers::survive_a_crash(store, &mut cluster).await?;
    Ok(())
}

#[tokio::test]
async fn lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &EtcdStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

#[tokio::test]
async fn answers_that_are_lost_are_reported_as_what_they_are() -> Result<(), Failure> {
    lost_answers::are_reported_as_what_they_are(EtcdCluster::start().await?).await
}

#[tokio::test]
async fn without_any_one_of_three_members_it_goes_on() -> Result<(), Failure> {
    let Case {
        store,
        place: mut cluster,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    for number in 0..3 {
        cluster.member_mut(number).kill().await?;
        let sequence = u64::try_from(number)? + 1;
        store.write(&owner, write(sequence, "without one")).await?;
        let found = store.read(&owner.resource).await?.expect("a checkpoint");
        assert_eq!(found.sequence.get(), sequence);
        // A store can be opened then, too.
        cluster.open().await?.seal(&token(100, sequence, 1)).await?;
        cluster.member_mut(number).restart().await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_member_that_has_fallen_silent_it_goes_on() -> Result<(), Failure> {
    let Case {
        store,
        place: mut cluster,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    for number in 0..3 {
        cluster.member_mut(number).freeze()?;
        let sequence = u64::try_from(number)? + 1;
        store.write(&owner, write(sequence, "without one")).await?;
        cluster.member_mut(number).thaw()?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_majority_nothing_is_acknowledged() -> Result<(), Failure> {
    let mut cluster = EtcdCluster::start().await?;
    let impatient = EtcdStoreOptions {
        deadline: Duration::from_secs(2),
        ..EtcdStoreOptions::default()
    };
    let store = EtcdStore::open(&cluster.endpoints(), impatient).await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    store.write(&owner, write(1, "x")).await?;
    cluster.member_mut(0).kill().await?;
    cluster.member_mut(1).kill().await?;
    let alone = store.write(&owner, write(2, "y")).await;
    assert!(alone.is_err_and(|error| error.is_retryable()));
    let read = store.read(&owner.resource).await;
    assert!(
        matches!(read, Err(CheckpointError::Unavailable { .. })),
        "{read:?}"
    );
    cluster.member_mut(2).kill().await?;
    // The first may still find a connection that is about to break.
    let first = store.write(&owner, write(2, "y")).await;
    assert!(first.is_err_and(|error| error.is_retryable()));
    let down = store.write(&owner, write(2, "y")).await;
    assert!(
        matches!(down, Err(CheckpointError::Unavailable { .. })),
        "{down:?}"
    );

    cluster.restart_all().await?;
    store.write(&owner, write(2, "y")).await?;
    let found = store.seal(&token(1, 8, 2)).await?.expect("a checkpoint");
    assert_eq!(found.data, "y");
    Ok(())
}

#[tokio::test]
async fn what_another_process_has_sealed_is_found_out() -> Result<(), Failure> {
    let Case {
        store,
        place: cluster,
        ..
    } = case().await?;
    let other = cluster.open().await?;
    let (old, new) = (token(1, 7, 1), token(1, 8, 2));
    store.seal(&old).await?;
    store.write(&old, write(1, "of seven")).await?;
    let found = other.seal(&new).await?.expect("a checkpoint");
    assert_eq!(found.data, "of seven");
    other.write(&new, write(1, "of eight")).await?;

    let stale = store.write(&old, write(2, "late")).await;
    assert!(
        matches!(stale, Err(CheckpointError::Fenced { .. })),
        "{stale:?}"
    );
    // The same owner by way of the process that remembers the older fence.
    store.write(&new, write(2, "again")).await?;
    assert_eq!(other.seal(&new).await?.expect("a checkpoint").data, "again");
    Ok(())
}

#[tokio::test]
async fn a_fence_that_a_lease_would_remove_is_refused() -> Result<(), Failure> {
    let Case {
        store,
        place: cluster,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    let key = base64(b"tenure/fence/shard/orders/1");
    let range = operate(&cluster, "/v3/kv/range", &format!("{{\"key\":\"{key}\"}}")).await?;
    let value = field(&range, "value");
    let lease = operate(&cluster, "/v3/lease/grant", "{\"TTL\":\"600\"}").await?;
    let lease = field(&lease, "ID");
    let put = format!("{{\"key\":\"{key}\",\"value\":\"{value}\",\"lease\":\"{lease}\"}}");
    operate(&cluster, "/v3/kv/put", &put).await?;

    let fence = store.fence(&owner.resource).await;
    assert!(
        matches!(fence, Err(CheckpointError::Corrupt { .. })),
        "{fence:?}"
    );
    let written = store.write(&owner, write(1, "x")).await;
    let sealed = store.seal(&token(1, 8, 2)).await;
    for answer in [written.err(), sealed.err()] {
        assert!(
            matches!(answer, Some(CheckpointError::Corrupt { .. })),
            "{answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused() -> Result<(), Failure> {
    let cluster = EtcdCluster::start().await?;
    let (key, value) = (base64(b"tenure/layout"), base64(&[0, 0, 0, 2]));
    let put = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
    operate(&cluster, "/v3/kv/put", &put).await?;
    let opened = EtcdStore::open(&cluster.endpoints(), EtcdStoreOptions::default()).await;
    let Err(CheckpointError::Unsupported { source }) = opened else {
        panic!("{opened:?}");
    };
    assert!(source.to_string().contains("layout 2"), "{source}");
    Ok(())
}

#[tokio::test]
async fn endpoints_of_two_clusters_are_refused() -> Result<(), Failure> {
    let (left, right) = (EtcdCluster::start().await?, EtcdCluster::start().await?);
    let endpoints = [left.endpoints(), right.endpoints()].concat();
    let opened = EtcdStore::open(&endpoints, EtcdStoreOptions::default()).await;
    assert!(
        matches!(opened, Err(CheckpointError::Unsupported { .. })),
        "{opened:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_turns_out_to_be_of_another_cluster_is_not_believed() -> Result<(), Failure>
{
    let (mut left, mut right) = (EtcdCluster::start().await?, EtcdCluster::start().await?);
    right.kill_all().await?;
    let endpoints = [left.endpoints(), right.endpoints()].concat();
    let store = EtcdStore::open(&endpoints, EtcdStoreOptions::default()).await?;
    let (old, new) = (token(1, 7, 1), token(1, 8, 2));
    store.seal(&old).await?;
    store.write(&old, write(1, "x")).await?;
    store.seal(&new).await?;

    // Now only the other one answers, which has never heard of any fence.
    left.kill_all().await?;
    right.restart_all().await?;
    for token in [&old, &new] {
        let sealed = store.seal(token).await;
        assert!(
            matches!(sealed, Err(ref error) if error.is_retryable()),
            "{sealed:?}"
        );
    }
    let read = store.read(&old.resource).await;
    assert!(
        matches!(read, Err(CheckpointError::Unavailable { .. })),
        "{read:?}"
    );
    let probed = store.probe().await;
    assert!(
        matches!(probed, Err(CheckpointError::Unsupported { .. })),
        "{probed:?}"
    );

    left.restart_all().await?;
    let stale = store.write(&old, write(2, "late")).await;
    assert!(
        matches!(stale, Err(CheckpointError::Fenced { .. })),
        "{stale:?}"
    );
    let found = store.seal(&new).await?.expect("a checkpoint");
    assert_eq!(found.data, "x");
    Ok(())
}

#[tokio::test]
async fn a_value_above_what_etcd_takes_is_too_large() -> Result<(), Failure> {
    let cluster = EtcdCluster::start().await?;
    let generous = EtcdStoreOptions {
        max_value_bytes: 8 << 20,
        ..EtcdStoreOptions::default()
    };
    let store = EtcdStore::open(&cluster.endpoints(), generous).await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    for length in [1_700_000, 4_000_000] {
        let large = store.write(&owner, write(1, "x".repeat(length))).await;
        assert!(
            matches!(large, Err(CheckpointError::TooLarge { .. })),
            "{large:?}"
        );
    }
    store.write(&owner, write(1, "x")).await?;
    Ok(())
}

#[tokio::test]
async fn many_seals_at_once_are_independent() -> Result<(), Failure> {
    let Case {
        store,
        place: _running,
        ..
    } = case().await?;
    store.seal(&token(3, 9, 1)).await?;
    let tokens: Vec<FencingToken> = (0..500).map(|index| token(index, 7, 2)).collect();
    let answers = store.seal_many(&tokens).await;
    for (index, answer) in answers.iter().enumerate() {
        match index {
            3 => assert!(
                matches!(answer, Err(CheckpointError::Fenced { .. })),
                "{answer:?}"
            ),
            _ => assert!(matches!(answer, Ok(None)), "{index}: {answer:?}"),
        }
    }
    Ok(())
}
