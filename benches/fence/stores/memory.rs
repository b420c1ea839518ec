//! In memory. Unfenced: the same map under the same kind of lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use benches::rounds::Writes;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use tenure_fence::{MemoryStore, Resource};

use super::Opened;
use crate::fenced::resource;

/// A map of values and nothing else.
pub(crate) struct Plain {
    names: Vec<Resource>,
    values: Mutex<BTreeMap<Resource, Bytes>>,
}

impl Plain {
    pub(crate) fn new(writers: usize) -> Result<Self, Failure> {
        let names: Result<_, _> = (0..writers).map(resource).collect();
        Ok(Self {
            names: names?,
            values: Mutex::default(),
        })
    }
}

#[async_trait]
impl Writes for Plain {
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure> {
        let name = self.names[writer].clone();
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(name, value);
        Ok(())
    }
}

pub(super) async fn open(writers: usize) -> Result<Opened, Failure> {
    Opened::new(Plain::new(writers)?, MemoryStore::new(), writers, ()).await
}
