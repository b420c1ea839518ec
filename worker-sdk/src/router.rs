//! Sends a request to the owner of its key.

mod dispatcher;
mod line;
mod not_owner;
mod table;

use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tenure_fence::{Epoch, GroupName, NameError, ShardRef};
use tenure_proto::keys::shard_of_key;
use tenure_proto::reason;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tenure_proto::v1::{WatchRequest, WatchResponse};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::connection::{CallError, Connection, ConnectionError, ConnectionOptions};
use table::{Staging, Table};

pub use dispatcher::{AttemptError, DispatchError, Dispatcher, HoldOptions};
pub use not_owner::{Hint, NotOwner, ParseNotOwnerError};

/// Silence after which a watch is opened anew, perhaps at another node. Nodes say that nothing has
/// happened several times within it.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Largest message that is read: a part of a state of a million shards, or the events of a command
/// that moved many.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where requests for a shard go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The shard.
    pub shard: ShardRef,
    /// The tenure in which it is served.
    pub epoch: Epoch,
    /// The name of the worker that serves it.
    pub worker: String,
    /// The address that worker advertises; may be empty.
    pub address: String,
}

/// Why there is no router.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// The group's name is not acceptable.
    #[error("the group's name is not acceptable")]
    Group(#[source] NameError),
    /// No connection can be set up.
    #[error("the connection cannot be set up")]
    Connection(#[source] ConnectionError),
    /// The coordinators refuse the watch: the group does not exist, or the caller may not.
    #[error("the coordinator refuses the watch")]
    Refused(#[source] CallError),
    /// No coordinator has shown the group's state within the call timeout.
    #[error("no coordinator shows the state of {group}")]
    Unavailable {
        /// The group.
        group: GroupName,
    },
}

/// Knows which worker serves which shard of a group, kept fresh by a watch at any coordinator.
///
/// What it says may be out of date by the time it is used, as everything about a distributed system
/// may: the worker that is asked must answer from [`HeldShard::read`](crate::HeldShard::read) or
/// refuse. An older answer never overwrites a newer one, whichever node it comes from.
///
/// ```no_run
/// use tenure::Router;
/// use tenure::connection::ConnectionOptions;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = ConnectionOptions::new(["127.0.0.1:7001", "127.0.0.1:7002"]);
/// let router = Router::connect(options, "orders").await?;
/// match router.route(b"customer-4711") {
///     Some(route) => println!("ask {} at {}", route.worker, route.address),
///     None => println!("nobody serves it at the moment"),
/// }
/// router.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Router {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    group: GroupName,
    // Never held across an await.
    table: RwLock<Table>,
    news: watch::Sender<News>,
}

/// What those who wait for the table look at.
#[derive(Debug, Default)]
struct News {
    changes: u64,
    /// Whether a state has been received.
    known: bool,
    /// What a coordinator refused the first watch with.
    refused: Option<CallError>,
}

impl Router {
    /// Watches a group and returns once its state is known.
    ///
    /// # Errors
    ///
    /// [`RouterError`], after the call timeout of `options` at the latest.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn connect(options: ConnectionOptions, group: &str) -> Result<Self, RouterError> {
        let group: GroupName = group.parse().map_err(RouterError::Group)?;
        let timeout = options.call_timeout;
        let connection = Connection::new(options).map_err(RouterError::Connection)?;
        let shared = Arc::new(Shared {
            group: group.clone(),
            table: RwLock::default(),
            news: watch::Sender::new(News::default()),
        });
        let stop = CancellationToken::new();
        let watching = Watching {
            connection,
            shared: Arc::clone(&shared),
        };
        let watching = stop.clone().run_until_cancelled_owned(watching.run());
        let task = tokio::spawn(async move {
            // Ends at the stop only.
            let _stopped = watching.await;
        });
        let router = Self { shared, stop, task };
        let mut news = router.shared.news.subscribe();
        let known = news.wait_for(|news| news.known || news.refused.is_some());
        let answered = tokio::time::timeout(timeout, known).await.is_ok();
        let refused = router.shared.take_refusal();
        if answered && refused.is_none() {
            return Ok(router);
        }
        router.close().await;
        match refused {
            Some(error) => Err(RouterError::Refused(error)),
            None => Err(RouterError::Unavailable { group }),
        }
    }

    /// Returns the shard a key belongs to. See `docs/keys.md`.
    #[must_use]
    pub fn shard_of(&self, key: &[u8]) -> u32 {
        // A known table has shards.
        let count = NonZeroU32::new(self.shared.table().shard_count()).unwrap_or(NonZeroU32::MIN);
        shard_of_key(key, count)
    }

    /// Returns the number of shards of the group.
    #[must_use]
    pub fn shard_count(&self) -> u32 {
        self.shared.table().shard_count()
    }

    /// Returns where a request for a key goes; `None` while nobody serves its shard.
    #[must_use]
    pub fn route(&self, key: &[u8]) -> Option<Route> {
        self.route_shard(self.shard_of(key))
    }

    /// Returns where requests for a shard go; `None` while nobody serves it, or there is none of that
    /// index.
    #[must_use]
    pub fn route_shard(&self, index: u32) -> Option<Route> {
        self.shared.route(index)
    }

    /// Returns the shard of an index.
    fn shard_ref(&self, index: u32) -> ShardRef {
        ShardRef {
            group: self.shared.group.clone(),
            index,
        }
    }

    /// Returns the revision up to which the router knows what happened.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.table().at().0
    }

    /// Waits until something holds of the router. It looks at every change.
    pub async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let mut news = self.shared.news.subscribe();
        loop {
            news.mark_unchanged();
            if holds(self) || news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends the watch and waits for its end.
    pub async fn close(mut self) {
        self.stop.cancel();
        // It can only be cancelled, and then it is over as well.
        let _ended = (&mut self.task).await;
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn route(&self, index: u32) -> Option<Route> {
        let table = self.table();
        let (epoch, worker) = table.serving(index)?;
        Some(Route {
            shard: ShardRef {
                group: self.group.clone(),
                index,
            },
            epoch,
            worker: worker.name.clone(),
            address: worker.address.clone(),
        })
    }

    fn take_refusal(&self) -> Option<CallError> {
        let mut refused = None;
        self.news.send_modify(|news| refused = news.refused.take());
        refused
    }

    fn changed(&self) {
        self.news.send_modify(|news| news.changes += 1);
    }
}

/// Why one watch ended.
enum WatchEnd {
    /// The cursor is too old, or what is known does not fit: begin with the state.
    Resync,
    /// The node is behind what is known already, or gone: try another.
    Leave,
    /// The node refuses.
    Refused(CallError),
}

/// The task that watches.
struct Watching {
    connection: Connection,
    shared: Arc<Shared>,
}

impl Watching {
    async fn run(self) {
        let mut backoff = Backoff::new();
        let mut from_state = true;
        loop {
            let end = match self.connection.open_any().await {
                Ok((address, channel)) => {
                    let client = OwnershipServiceClient::new(channel)
                        .max_decoding_message_size(MESSAGE_BYTES_MAX);
                    let end = self.watch(client, from_state, &mut backoff).await;
                    self.connection.leave(&address);
                    end
                }
                Err(_) => WatchEnd::Leave,
            };
            match end {
                WatchEnd::Resync => from_state = true,
                WatchEnd::Leave => from_state = !self.shared.news.borrow().known,
                WatchEnd::Refused(error) => self.refuse(error),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    fn refuse(&self, error: CallError) {
        self.shared.news.send_modify(|news| {
            // Later the group may be created again; what is known stays until then.
            if !news.known {
                news.refused = Some(error);
            }
        });
    }

    async fn watch(
        &self,
        mut client: OwnershipServiceClient<tonic::transport::Channel>,
        from_state: bool,
        backoff: &mut Backoff,
    ) -> WatchEnd {
        let after = if from_state {
            None
        } else {
            Some(self.shared.table().cursor())
        };
        let request = WatchRequest {
            group: self.shared.group.to_string(),
            after,
        };
        let opened = tokio::time::timeout(SILENCE_MAX, client.watch(request)).await;
        let mut messages = match opened {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return end_of(status),
            Err(_) => return WatchEnd::Leave,
        };
        let mut staging = None;
        loop {
            let message = match tokio::time::timeout(SILENCE_MAX, messages.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Err(status)) => return end_of(status),
                Ok(Ok(None)) | Err(_) => return WatchEnd::Leave,
            };
            if let Err(end) = self.take(message, &mut staging) {
                return end;
            }
            backoff.reset();
        }
    }

    /// Takes one message into the table.
    fn take(&self, message: WatchResponse, staging: &mut Option<Staging>) -> Result<(), WatchEnd> {
        match message.message {
            Some(Message::State(part)) => {
                let last = part.last;
                staging.get_or_insert_with(Staging::default).add(part);
                if last && let Some(staging) = staging.take() {
                    self.adopt(staging)?;
                }
            }
            Some(Message::Events(events)) => {
                self.shared.table_mut().apply(&events);
                self.shared.changed();
            }
            Some(Message::Progress(cursor)) => self.shared.table_mut().progress(&cursor),
            Some(Message::Resync(_)) => return Err(WatchEnd::Resync),
            // A message of a later version of the protocol.
            None => {}
        }
        Ok(())
    }

    fn adopt(&self, staging: Staging) -> Result<(), WatchEnd> {
        if !self.shared.table_mut().adopt(staging) {
            return Err(WatchEnd::Leave);
        }
        self.shared.news.send_modify(|news| {
            news.known = true;
            news.changes += 1;
        });
        Ok(())
    }
}

fn end_of(status: tonic::Status) -> WatchEnd {
    let error = CallError::from_status(status);
    match (error.reason(), error.code()) {
        (reason::GROUP_NOT_FOUND | reason::INVALID_ARGUMENT, _)
        | (
            _,
            tonic::Code::InvalidArgument
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated,
        ) => WatchEnd::Refused(error),
        _ => WatchEnd::Leave,
    }
}
