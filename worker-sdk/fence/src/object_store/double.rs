//! A bucket in memory that misbehaves on request, and what the store makes of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::backend::{Backend, BackendError, Object, Version};
use super::bucket::Bucket;
use super::options::ObjectStoreOptions;
use super::store::ObjectStore;

#[derive(Default)]
struct Double {
    objects: Mutex<BTreeMap<String, Bytes>>,
    /// What happens between the next conditional put and its answer, which is then that of a repetition.
    interlude: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Deletions are never answered.
    keeps_garbage: AtomicBool,
}

impl fmt::Debug for Double {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Double")
    }
}

impl Double {
    fn values(&self) -> usize {
        let objects = self.objects.lock().unwrap();
        let values = objects.keys().filter(|name| name.contains("/data/"));
        values.count()
    }
}

#[async_trait]
impl Backend for Double {
    async fn get(&self, name: &str) -> Result<Option<Object>, BackendError> {
        let bytes = self.objects.lock().unwrap().get(name).cloned();
        Ok(bytes.map(|bytes| Object {
            version: Version(bytes.clone()),
            bytes,
        }))
    }

    async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Option<&Version>,
    ) -> Result<Version, BackendError> {
        {
            let mut objects = self.objects.lock().unwrap();
            if objects.get(name) != condition.map(|version| &version.0) {
                return Err(BackendError::Refused("it is another".into()));
            }
            objects.insert(name.to_owned(), bytes.clone());
        }
        let interlude = self.interlude.lock().unwrap().take();
        if let Some(interlude) = interlude {
            interlude.await;
            return Err(BackendError::Refused("it is another by now".into()));
        }
        Ok(Version(bytes))
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError> {
        self.objects.lock().unwrap().insert(name.to_owned(), bytes);
        Ok(())
    }

    async fn list(
        &self,
        _folder: &str,
        _after: Option<&str>,
        _limit: usize,
    ) -> Result<Vec<String>, BackendError> {
        Ok(Vec::new())
    }

    async fn folders(&self, _folder: &str) -> Result<Vec<String>, BackendError> {
        Ok(Vec::new())
    }

    async fn delete(&self, name: &str) -> Result<(), BackendError> {
        if self.keeps_garbage.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.objects.lock().unwrap().remove(name);
        Ok(())
    }
}

const DEADLINE: Duration = Duration::from_secs(20);

async fn open(double: &Arc<Double>) -> ObjectStore {
    let backend = Arc::clone(double);
    let options = ObjectStoreOptions {
        deadline: DEADLINE,
        inline_bytes_max: 10,
        ..ObjectStoreOptions::default()
    };
    let bucket = Bucket { backend };
    ObjectStore::open(bucket, options).await.unwrap()
}

fn token(epoch: u64) -> FencingToken {
    format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
        .parse()
        .unwrap()
}

/// A write of a value with objects of its own.
fn write(number: u64) -> Write {
    Write {
        sequence: Sequence::new(number).unwrap(),
        write_id: WriteId::new(u128::from(number)),
        data: "a value of more than ten bytes".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_new_owners_have_found_is_kept_though_its_put_was_repeated() {
    let double = Arc::new(Double::default());
    let (store, other) = (open(&double).await, open(&double).await);
    store.seal(&token(7)).await.unwrap();
    let found = Arc::new(Mutex::new(None));
    *double.interlude.lock().unwrap() = Some(Box::pin({
        let (other, found) = (other.clone(), Arc::clone(&found));
        async move {
            other.seal(&token(8)).await.unwrap();
            *found.lock().unwrap() = other.seal(&token(9)).await.unwrap();
        }
    }));
    // Applied, and answered with the refusal of the repetition: it is there, so it is acknowledged.
    store.write(&token(7), write(1)).await.unwrap();
    let written = Some(Checkpoint::of(&token(7), write(1)));
    assert_eq!(*found.lock().unwrap(), written);

    let fenced = store.write(&token(7), write(2)).await;
    assert!(matches!(fenced, Err(CheckpointError::Fenced { .. })));
    // Whatever this handle thinks is garbage goes with its next large write, to another resource too.
    let elsewhere: FencingToken = "shard/orders/8@1:00000000000000000000000000c0ffee/1"
        .parse()
        .unwrap();
    store.seal(&elsewhere).await.unwrap();
    for number in 1..4 {
        store.write(&elsewhere, write(number)).await.unwrap();
    }
    assert_eq!(other.seal(&token(10)).await.unwrap(), written);
}

#[tokio::test(start_paused = true)]
async fn garbage_that_cannot_be_deleted_keeps_no_call_waiting() {
    let double = Arc::new(Double::default());
    let store = open(&double).await;
    store.seal(&token(7)).await.unwrap();
    double.keeps_garbage.store(true, Ordering::Relaxed);
    for number in 1..=5 {
        store.write(&token(7), write(number)).await.unwrap();
    }
    assert_eq!(double.values(), 5);
    let deletion = |number| Deletion {
        sequence: Sequence::new(number).unwrap(),
        write_id: WriteId::new(1),
    };
    let owner = token(7);
    let deleted = store.delete(&owner, deletion(6));
    let in_time = tokio::time::timeout(DEADLINE + Duration::from_millis(100), deleted).await;
    in_time.unwrap().unwrap();
    assert_eq!(store.read(&token(7).resource).await.unwrap(), None);

    // Nothing of it was forgotten.
    double.keeps_garbage.store(false, Ordering::Relaxed);
    store.delete(&token(7), deletion(7)).await.unwrap();
    assert_eq!(double.values(), 0);
}
