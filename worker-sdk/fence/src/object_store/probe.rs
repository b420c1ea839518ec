//! Finds out whether a bucket keeps the conditions of puts.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use crate::error::CheckpointError;

use super::backend::{Backend, BackendError, Version, repeated, within};
use super::layout::Layout;

/// How often a new object is created, and replaced, by all at once: so often in any case, and more
/// often while there is time. Not more, because there are servers on which each of those that meet waits
/// a second for the others.
const ROUNDS_MIN: usize = 2;

/// A server that is as fast as to come so far has shown enough.
const ROUNDS_MAX: usize = 128;

/// How many do so at once. Each has a connection of its own, because HTTP/1.1 carries one request at
/// a time on each.
const RACERS: usize = 8;

/// Tries whether conditional puts hold: one after the other, then raced.
///
/// A server may ignore the conditions, or look at them and write in two steps. The first is always
/// found; the second by the race, which a server that is only seldom wrong can pass.
pub(super) struct Probe<'a> {
    pub(super) endpoints: &'a [Arc<dyn Backend>],
    pub(super) layout: &'a Layout,
    pub(super) request_deadline: Duration,
    pub(super) race_time: Duration,
}

/// What came of one racer.
struct Raced {
    bytes: Bytes,
    put: Result<Version, BackendError>,
}

impl Probe<'_> {
    pub(super) async fn run(&self) -> Result<(), CheckpointError> {
        for endpoint in self.endpoints {
            let name = self.layout.probe(rand::random());
            let result = self.in_turn(endpoint.as_ref(), &name).await;
            self.clean_up(&name).await;
            result?;
        }
        let mut over = pin!(tokio::time::sleep(self.race_time));
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS_MIN && over.as_mut().now_or_never().is_some() {
                break;
            }
            let name = self.layout.probe(rand::random());
            let result = self.race_twice(&name).await;
            self.clean_up(&name).await;
            result?;
        }
        Ok(())
    }

    /// Conditions that do not hold are refused, by one endpoint, one after the other.
    async fn in_turn(&self, endpoint: &dyn Backend, name: &str) -> Result<(), CheckpointError> {
        let first = match self.put(endpoint, name, None).await.put {
            Ok(first) => first,
            Err(error) => {
                // A server that knows no conditions may refuse the request for having one.
                let plain = endpoint.put(name, Bytes::from_static(b"plain"));
                return Err(match within(self.request_deadline, plain).await {
                    Ok(()) if matches!(error, BackendError::NotDone(_)) => unsupported(
                        "it refuses a put with If-None-Match, and takes the same without",
                    ),
                    _ => error.into_unavailable(),
                });
            }
        };
        let again = self.put(endpoint, name, None).await.put;
        refused(again, "it creates an object that exists (If-None-Match: *)")?;
        let replaced = self.put(endpoint, name, Some(&first)).await;
        let second = replaced.put.map_err(BackendError::into_unavailable)?;
        if second == first {
            return Err(unsupported("two contents of an object have one version"));
        }
        let stale = self.put(endpoint, name, Some(&first)).await.put;
        refused(stale, "it replaces a version that is gone (If-Match)")?;
        self.requires(name, &replaced.bytes).await?;
        Ok(())
    }

    /// Of many that create one object, and of many that replace it, exactly one wins.
    async fn race_twice(&self, name: &str) -> Result<(), CheckpointError> {
        let created = self.race(name, None).await?;
        self.race(name, Some(&created)).await?;
        Ok(())
    }

    async fn race(
        &self,
        name: &str,
        condition: Option<&Version>,
    ) -> Result<Version, CheckpointError> {
        let racers: FuturesUnordered<_> = (0..RACERS)
            .zip(self.endpoints.iter().cycle())
            .map(|(_, endpoint)| self.put(endpoint.as_ref(), name, condition))
            .collect();
        let raced: Vec<Raced> = racers.collect().await;
        let mut winners = Vec::new();
        let mut perhaps = BTreeSet::new();
        for racer in raced {
            match racer.put {
                Ok(version) => winners.push((version, racer.bytes)),
                Err(BackendError::Refused(_)) => {}
                Err(BackendError::NotDone(source)) => {
                    return Err(CheckpointError::Unavailable { source });
                }
                Err(BackendError::Unknown(_)) => {
                    perhaps.insert(racer.bytes);
                }
            }
        }
        match winners.as_slice() {
            [(version, bytes)] => {
                self.requires(name, bytes).await?;
                Ok(version.clone())
            }
            [] => {
                // All were refused because each was in the way of another (S3's 409), or the
                // winner's answer was lost.
                let found = self.get(name).await?;
                let found = found.filter(|(bytes, _)| perhaps.contains(bytes));
                found
                    .map(|(_, version)| version)
                    .ok_or_else(|| CheckpointError::Unavailable {
                        source: "every one of the racing puts of the probe was refused".into(),
                    })
            }
            many => Err(unsupported(&format!(
                "{} of {RACERS} conditional puts at once have succeeded: it checks and writes in \
                 two steps",
                many.len()
            ))),
        }
    }

    /// Requires that every endpoint shows the bytes that were the last to be put.
    async fn requires(&self, name: &str, bytes: &Bytes) -> Result<(), CheckpointError> {
        for endpoint in self.endpoints {
            let read = repeated(self.request_deadline, || endpoint.get(name)).await;
            let found = read.map_err(BackendError::into_unavailable)?;
            if found.is_none_or(|found| found.bytes != *bytes) {
                return Err(unsupported(
                    "a put that succeeded is not what is read after it",
                ));
            }
        }
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<(Bytes, Version)>, CheckpointError> {
        let Some(endpoint) = self.endpoints.first() else {
            return Ok(None);
        };
        let read = repeated(self.request_deadline, || endpoint.get(name)).await;
        let found = read.map_err(BackendError::into_unavailable)?;
        Ok(found.map(|object| (object.bytes, object.version)))
    }

    async fn put(&self, endpoint: &dyn Backend, name: &str, condition: Option<&Version>) -> Raced {
        // All different, as manifests are.
        let bytes = Bytes::from(format!("{:032x}", rand::random::<u128>()));
        let put = endpoint.put_if(name, bytes.clone(), condition);
        let put = within(self.request_deadline, put).await;
        Raced { bytes, put }
    }

    /// Deletes what the probe has put. What cannot be deleted is small and has a name of its own.
    async fn clean_up(&self, name: &str) {
        if let Some(endpoint) = self.endpoints.first() {
            let _left_behind = within(self.request_deadline, endpoint.delete(name)).await;
        }
    }
}

fn refused(put: Result<Version, BackendError>, lack: &str) -> Result<(), CheckpointError> {
    match put {
        Ok(_) => Err(unsupported(lack)),
        Err(BackendError::Refused(_)) => Ok(()),
        Err(BackendError::NotDone(source) | BackendError::Unknown(source)) => {
            Err(CheckpointError::Unavailable { source })
        }
    }
}

fn unsupported(lack: &str) -> CheckpointError {
    CheckpointError::Unsupported {
        source: format!("the bucket does not keep conditions of puts: {lack}").into(),
    }
}
