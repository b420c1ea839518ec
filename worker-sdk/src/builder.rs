//! How a worker is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::{CheckpointStore, GroupName};

use crate::clock::{BootClock, Clock};
use crate::connection::{Connection, ConnectionOptions, Dialer, TlsOptions};
use crate::error::BuildError;
use crate::handler::{AnyHandler, ShardHandler};
use crate::replicated::ReplicatedStore;
use crate::session::SessionOptions;
use crate::worker::Worker;

/// The name of the default store when no store is attached: the coordinators' own.
const REPLICATED: &str = "replicated";

/// Most stores that can be attached, as the wire allows.
const STORES_MAX: usize = 16;

/// Longest name of a store, in bytes.
const STORE_NAME_BYTES_MAX: usize = 64;

/// Sets up a [`Worker`]. Coordinators, group, name and handler are needed; the rest has defaults.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure::{HeldShard, MemoryStore, ShardHandler, Worker, WorkerError};
///
/// struct Idle;
///
/// impl ShardHandler for Idle {
///     async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
///         shard.claim().await?;
///         shard.revoked().await;
///         Ok(())
///     }
/// }
///
/// let worker = Worker::builder()
///     .coordinators(["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"])
///     .group("orders")
///     .name("worker-1")
///     .weight(2)
///     .label("zone", "a")
///     .address("10.0.0.5:9000")
///     .ttl(Duration::from_secs(10))
///     .store("memory", Arc::new(MemoryStore::new()))
///     .handler(Idle)
///     .build()?;
/// # Ok::<(), tenure::BuildError>(())
/// ```
pub struct WorkerBuilder {
    coordinators: Vec<String>,
    tls: Option<TlsOptions>,
    group: String,
    name: String,
    weight: u32,
    labels: BTreeMap<String, String>,
    address: String,
    ttl: Option<Duration>,
    drain_timeout: Duration,
    handler_grace: Duration,
    store_timeout: Duration,
    stores: Vec<(String, Arc<dyn CheckpointStore>)>,
    handler: Option<Arc<dyn AnyHandler>>,
    clock: Arc<dyn Clock>,
    dialer: Option<Arc<dyn Dialer>>,
}

impl WorkerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            coordinators: Vec::new(),
            tls: None,
            group: String::new(),
            name: String::new(),
            weight: 1,
            labels: BTreeMap::new(),
            address: String::new(),
            ttl: None,
            drain_timeout: Duration::from_secs(30),
            handler_grace: Duration::from_secs(5),
            store_timeout: Duration::from_secs(10),
            stores: Vec::new(),
            handler: None,
            clock: Arc::new(BootClock),
            dialer: None,
        }
    }

    /// Sets the client addresses of some or all coordinators, each "host:port".
    #[must_use]
    pub fn coordinators(mut self, addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.coordinators = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Talks to the coordinators through TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the group whose shards the worker serves. It must exist.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = name.into();
        self
    }

    /// Sets the worker's name: 1 to 128 bytes of printable ASCII without spaces.
    ///
    /// A process that is started again under its name gets its shards back. Two live processes must
    /// not share one: the newer one wins and the older one stops.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the share of shards relative to other workers, 1 to 10,000; 1 unless set.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Adds a label. At most 32; keys and values up to 128 bytes.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets where routers send requests for the worker's shards, up to 256 bytes.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Wishes for a time to live of the session, 1 s to 10 min; the group's policy decides unless set.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how long a worker that is stopped may take in all; 30 s unless set.
    ///
    /// It goes on serving for up to two thirds of it, while the coordinators move its shards to other
    /// workers one after the other; then it gives back what is left, and handlers have the rest of the time
    /// for last checkpoints. It waits for nothing when no other worker takes its shards.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sets how long a handler may take to return after its shard was lost, before its task is
    /// aborted; 5 s unless set. The shard is not started again in this process before.
    #[must_use]
    pub fn handler_grace(mut self, grace: Duration) -> Self {
        self.handler_grace = grace;
        self
    }

    /// Sets how long a store that does not answer is asked again before the handler is told; 10 s
    /// unless set. Zero asks once.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Attaches a store. The first is the default one; all are sealed when a shard is claimed.
    ///
    /// Without any, the coordinators' own replicated store is attached as "replicated". The names are
    /// part of the contract between the workers of a group: 1 to 16 different ones, the same in all.
    #[must_use]
    pub fn store(mut self, name: impl Into<String>, store: Arc<dyn CheckpointStore>) -> Self {
        self.stores.push((name.into(), store));
        self
    }

    /// Sets what is done with a shard.
    #[must_use]
    pub fn handler(mut self, handler: impl ShardHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Replaces the clock of the machine: for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces TCP as the way to the coordinators: for tests.
    #[must_use]
    pub fn dialer(mut self, dialer: Arc<dyn Dialer>) -> Self {
        self.dialer = Some(dialer);
        self
    }

    /// Makes the worker. Nothing runs before [`Worker::run`] or [`Worker::spawn`].
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the setting that is missing or not acceptable.
    pub fn build(self) -> Result<Worker, BuildError> {
        if self.coordinators.is_empty() {
            return Err(BuildError::NoAddress);
        }
        let group: GroupName = self.group.parse().map_err(BuildError::Group)?;
        check_name(&self.name)?;
        check_bounds(&self)?;
        let handler = self.handler.ok_or(BuildError::NoHandler)?;
        let mut connection = ConnectionOptions::new(self.coordinators);
        if let Some(tls) = self.tls {
            connection = connection.tls(tls);
        }
        if let Some(dialer) = self.dialer {
            connection = connection.dialer(dialer);
        }
        // Not the connection of the worker stream: a large checkpoint must not hold up a heartbeat.
        let calls = Connection::new(connection.clone()).map_err(BuildError::Connection)?;
        let mut stores = self.stores;
        if stores.is_empty() {
            let store = ReplicatedStore::new(calls.clone());
            stores.push((REPLICATED.to_owned(), Arc::new(store)));
        }
        check_stores(&stores)?;
        let options = SessionOptions {
            connection,
            group,
            name: self.name,
            weight: self.weight,
            labels: self.labels,
            address: self.address,
            ttl: self.ttl,
            drain_timeout: self.drain_timeout,
            handler_grace: self.handler_grace,
        };
        Ok(Worker::new(
            options,
            stores,
            handler,
            self.clock,
            calls,
            self.store_timeout,
        ))
    }
}

fn check_name(name: &str) -> Result<(), BuildError> {
    let acceptable =
        (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if acceptable {
        return Ok(());
    }
    Err(BuildError::Name {
        name: name.to_owned(),
    })
}

fn check_bounds(builder: &WorkerBuilder) -> Result<(), BuildError> {
    let within = |holds: bool, field, allowed| {
        if holds {
            Ok(())
        } else {
            Err(BuildError::OutOfBounds { field, allowed })
        }
    };
    within(
        (1..=10_000).contains(&builder.weight),
        "weight",
        "1 to 10000",
    )?;
    within(builder.address.len() <= 256, "address", "up to 256 bytes")?;
    within(builder.labels.len() <= 32, "labels", "at most 32")?;
    let label_fits = |(key, value): (&String, &String)| key.len() <= 128 && value.len() <= 128;
    within(
        builder.labels.iter().all(label_fits),
        "labels",
        "keys and values up to 128 bytes",
    )?;
    let ttl_fits =
        |ttl: &Duration| (Duration::from_secs(1)..=Duration::from_secs(600)).contains(ttl);
    within(
        builder.ttl.as_ref().is_none_or(ttl_fits),
        "ttl",
        "1 s to 10 min",
    )
}

fn check_stores(stores: &[(String, Arc<dyn CheckpointStore>)]) -> Result<(), BuildError> {
    let mut names = BTreeSet::new();
    for (position, (name, _)) in stores.iter().enumerate() {
        let acceptable = (1..=STORE_NAME_BYTES_MAX).contains(&name.len())
            && position < STORES_MAX
            && names.insert(name.as_str());
        if !acceptable {
            return Err(BuildError::Store { name: name.clone() });
        }
    }
    Ok(())
}
