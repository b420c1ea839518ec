//! The store on a Redis server.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::redis::Redis;
use store_tests::server::Server;
use tenure_fence::{
    CheckpointError, CheckpointStore, FencingToken, RedisDurability, RedisReplicas, RedisStore,
    RedisStoreOptions, Resource,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::case::{Case, Place, token, write};
use crate::lost_answers::{self, Remote};

#[async_trait]
impl Place for Server<Redis> {
    type Store = RedisStore;

    async fn open(&self) -> Result<RedisStore, CheckpointError> {
        RedisStore::open(&self.url(), options()).await
    }
}

#[async_trait]
impl Remote for Server<Redis> {
    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    async fn open_at(&self, address: SocketAddr) -> Result<RedisStore, CheckpointError> {
        let impatient = RedisStoreOptions {
            deadline: Duration::from_secs(5),
            ..options()
        };
        RedisStore::open(&format!("redis://{address}"), impatient).await
    }
}

async fn case() -> Result<Case<Server<Redis>>, Failure> {
    Case::new(Redis::start().await?).await
}

fn options() -> RedisStoreOptions {
    RedisStoreOptions {
        // Below what the kit writes at most, so that it comes to the limit.
        max_value_bytes: 1 << 20,
        ..RedisStoreOptions::default()
    }
}

/// Sends one command as an operator would, and returns the answer.
async fn operate(server: SocketAddr, command: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    stream
        .write_all(format!("{command}\r\nQUIT\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.starts_with('-') {
        return Err(Failure::new(format!(
            "{command} was answered with {answer}"
        )));
    }
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeps_the_contract() -> Result<(), Failure> {
    case().await?.keeps_the_contract().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn survives_a_kill_in_the_middle_of_200_writers() -> Result<(), Failure> {
    case().await?.survives_a_kill().await
}

#[tokio::test]
async fn lists_fences_in_the_order_of_their_names() -> Result<(), Failure> {
    let list = async |store: &RedisStore, after: Option<Resource>, limit| {
        store.list(after.as_ref(), limit).await
    };
    case()
        .await?
        .lists_fences_in_the_order_of_their_names(list)
        .await
}

#[tokio::test]
async fn answers_that_are_lost_are_reported_as_what_they_are() -> Result<(), Failure> {
    lost_answers::are_reported_as_what_they_are(Redis::start().await?).await
}

async fn refused_for(url: &str, options: RedisStoreOptions, reason: &str) {
    let opened = RedisStore::open(url, options).await;
    let Err(CheckpointError::Unsupported { source }) = opened else {
        panic!("{opened:?}");
    };
    let text = source.to_string();
    assert!(text.contains(reason), "{text}");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() -> Result<(), Failure> {
    let server = Redis::start_evicting().await?;
    refused_for(&server.url(), options(), "allkeys-lru").await;
    Ok(())
}

#[tokio::test]
async fn a_server_that_begins_to_evict_is_refused_when_it_is_looked_at() -> Result<(), Failure> {
    let Case {
        store,
        place: server,
        ..
    } = case().await?;
    store.probe().await?;
    operate(server.address(), "CONFIG SET maxmemory-policy allkeys-lfu").await?;
    let probed = store.probe().await;
    assert!(
        matches!(probed, Err(CheckpointError::Unsupported { .. })),
        "{probed:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_used_only_on_request() -> Result<(), Failure> {
    let server = Redis::start().await?;
    operate(server.address(), "CONFIG SET appendfsync everysec").await?;
    refused_for(&server.url(), options(), "appendfsync").await;
    operate(server.address(), "CONFIG SET appendonly no").await?;
    refused_for(&server.url(), options(), "appendonly").await;
    let lenient = RedisStoreOptions {
        durability: RedisDurability::AsConfigured,
        ..options()
    };
    let store = RedisStore::open(&server.url(), lenient).await?;
    store.seal(&token(1, 1, 1)).await?;
    Ok(())
}

#[tokio::test]
async fn a_fence_that_would_expire_is_refused() -> Result<(), Failure> {
    let Case {
        store,
        place: server,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    operate(
        server.address(),
        "PEXPIRE tenure:fence:{shard/orders/1} 3600000",
    )
    .await?;
    let write_answer = store.write(&owner, write(1, "x")).await;
    let seal_answer = store.seal(&token(1, 8, 2)).await;
    for answer in [write_answer.err(), seal_answer.err()] {
        assert!(
            matches!(answer, Some(CheckpointError::Corrupt { .. })),
            "{answer:?}"
        );
    }
    assert_eq!(store.read(&owner.resource).await?, None);
    operate(server.address(), "PERSIST tenure:fence:{shard/orders/1}").await?;
    store.write(&owner, write(1, "x")).await?;
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_no_fence_is_corrupt() -> Result<(), Failure> {
    let Case {
        store,
        place: server,
        ..
    } = case().await?;
    operate(server.address(), "SET tenure:fence:{shard/orders/1} 7").await?;
    operate(
        server.address(),
        "HSET tenure:fence:{shard/orders/2} epoch 7 owner me",
    )
    .await?;
    operate(
        server.address(),
        "SET tenure:data:{shard/orders/3} nonsense",
    )
    .await?;
    for index in 1..=3 {
        let answer = store.seal(&token(index, 8, 1)).await;
        assert!(
            matches!(answer, Err(CheckpointError::Corrupt { .. })),
            "{index}: {answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_newer_layout_is_refused() -> Result<(), Failure> {
    let server = Redis::start().await?;
    operate(server.address(), r#"SET tenure:layout "\x00\x00\x00\x02""#).await?;
    refused_for(&server.url(), options(), "layout 2").await;
    let elsewhere = RedisStoreOptions {
        prefix: "other:".to_owned(),
        ..options()
    };
    RedisStore::open(&server.url(), elsewhere).await?;
    Ok(())
}

#[tokio::test]
async fn scripts_that_were_flushed_are_loaded_again() -> Result<(), Failure> {
    let Case {
        store,
        place: server,
        ..
    } = case().await?;
    let tokens: Vec<FencingToken> = (0..600).map(|index| token(index, 7, 1)).collect();
    operate(server.address(), "SCRIPT FLUSH").await?;
    for answer in store.seal_many(&tokens).await {
        assert_eq!(answer?, None);
    }
    operate(server.address(), "SCRIPT FLUSH").await?;
    store.write(&tokens[0], write(1, "x")).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_server_refuses_writes_and_takes_deletions() -> Result<(), Failure> {
    let Case {
        store,
        place: server,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    store.write(&owner, write(1, "there")).await?;
    operate(server.address(), "CONFIG SET maxmemory 1").await?;
    let full = store.write(&owner, write(2, "more")).await;
    assert!(
        matches!(full, Err(CheckpointError::Unavailable { .. })),
        "{full:?}"
    );
    let found = store.read(&owner.resource).await?.expect("a checkpoint");
    assert_eq!(found.sequence.get(), 1);
    let deletion = tenure_fence::Deletion {
        sequence: write(2, "").sequence,
        write_id: write(2, "").write_id,
    };
    store.delete(&owner, deletion).await?;
    assert_eq!(store.read(&owner.resource).await?, None);
    // So do their retries, and seals: an owner that cannot seal can delete nothing.
    store.delete(&owner, deletion).await?;
    assert_eq!(store.seal(&owner).await?, None);
    let next = token(1, 8, 2);
    assert_eq!(store.seal(&next).await?, None);
    store.delete(&next, deletion).await?;
    let new = store.seal(&token(2, 1, 1)).await;
    assert!(
        matches!(new, Err(CheckpointError::Unavailable { .. })),
        "{new:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_server_that_falls_silent_leaves_the_outcome_unknown_and_the_retry_settles_it()
-> Result<(), Failure> {
    let server = Redis::start().await?;
    let impatient = RedisStoreOptions {
        deadline: Duration::from_secs(2),
        ..options()
    };
    let store = RedisStore::open(&server.url(), impatient).await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    server.freeze()?;
    let silent = store.write(&owner, write(1, "x")).await;
    assert!(
        matches!(silent, Err(CheckpointError::OutcomeUnknown { .. })),
        "{silent:?}"
    );
    server.thaw()?;
    store.write(&owner, write(1, "x")).await?;
    let found = store.seal(&token(1, 8, 2)).await?.expect("a checkpoint");
    assert_eq!(found.data, "x");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_and_comes_back() -> Result<(), Failure> {
    let Case {
        store,
        place: mut server,
        ..
    } = case().await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    server.kill().await?;
    let first = store.write(&owner, write(1, "x")).await;
    assert!(first.is_err_and(|error| error.is_retryable()));
    // Until every connection has been found broken.
    let options = options();
    let mut last = None;
    for _ in 0..=options.connections {
        last = Some(store.write(&owner, write(1, "x")).await);
    }
    assert!(
        matches!(last, Some(Err(CheckpointError::Unavailable { .. }))),
        "{last:?}"
    );
    server.restart().await?;
    store.write(&owner, write(1, "x")).await?;
    Ok(())
}

#[tokio::test]
async fn a_replica_is_refused() -> Result<(), Failure> {
    let primary = Redis::start().await?;
    let replica = Redis::start_replica_of(primary.address()).await?;
    refused_for(&replica.url(), options(), "replica").await;
    Ok(())
}

#[tokio::test]
async fn without_its_replica_a_write_is_unknown_until_the_replica_has_it() -> Result<(), Failure> {
    let primary = Redis::start().await?;
    let mut replica = Redis::start_replica_of(primary.address()).await?;
    let waiting = RedisStoreOptions {
        replicas: Some(RedisReplicas {
            count: 1,
            patience: Duration::from_millis(1_500),
        }),
        ..options()
    };
    let store = RedisStore::open(&primary.url(), waiting).await?;
    let owner = token(1, 7, 1);
    store.seal(&owner).await?;
    store.write(&owner, write(1, "x")).await?;
    replica.kill().await?;
    for _ in 0..2 {
        let alone = store.write(&owner, write(2, "y")).await;
        assert!(
            matches!(alone, Err(CheckpointError::OutcomeUnknown { .. })),
            "{alone:?}"
        );
    }
    let alone = store.seal(&owner).await;
    assert!(
        matches!(alone, Err(CheckpointError::OutcomeUnknown { .. })),
        "{alone:?}"
    );
    replica.restart().await?;
    store.write(&owner, write(2, "y")).await?;
    let sequence = "HGET tenure:fence:{shard/orders/1} sequence";
    let held = operate(replica.address(), sequence).await?;
    assert!(held.contains("0000000000000000002"), "{held}");
    Ok(())
}
