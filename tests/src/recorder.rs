//! Watches a group on every node at once and keeps what was seen.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tenure_proto::v1::{Cursor, WatchRequest, WatchResponse};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::failure::Failure;
use crate::history::History;

/// How long to wait before a node that does not serve a watch is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Silence after which a watcher asks again: the node may have been stopped. Longer than a node that
/// is well stays silent.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Who is told of every message, and of which node it came.
type Listener = Box<dyn Fn(&str, &WatchResponse) + Send + Sync>;

/// Watches a group on every node and keeps the history of it.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    // Aborted when dropped.
    watchers: JoinSet<()>,
}

struct Shared {
    // Never held across an await.
    history: Mutex<History>,
    changes: watch::Sender<u64>,
    listener: Listener,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = &self.history;
        formatter
            .debug_struct("Shared")
            .field("history", history)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts watching a group on every node.
    #[must_use]
    pub fn start(client: &Client, group: &str) -> Self {
        Self::start_with(client, group, |_, _| {})
    }

    /// Starts watching, and tells `listener` the address of the node and every message of it, in order.
    #[must_use]
    pub fn start_with(
        client: &Client,
        group: &str,
        listener: impl Fn(&str, &WatchResponse) + Send + Sync + 'static,
    ) -> Self {
        let (changes, changed) = watch::channel(0);
        let shared = Arc::new(Shared {
            history: Mutex::default(),
            changes,
            listener: Box::new(listener),
        });
        let mut watchers = JoinSet::new();
        for address in client.addresses() {
            let watcher = Watcher {
                client: client.clone(),
                address: address.to_owned(),
                group: group.to_owned(),
                shared: Arc::clone(&shared),
                after: None,
            };
            watchers.spawn(watcher.run());
        }
        Self {
            shared,
            changed,
            watchers,
        }
    }

    /// Looks at the history.
    pub fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.shared.history())
    }

    /// Waits until the history is such that `check` gives a value; `check` says as `Err` what is
    /// still missing.
    ///
    /// # Errors
    ///
    /// Says what was waited for, how long, and what was missing last.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut check: impl FnMut(&History) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let mut changed = self.changed.clone();
        let mut missing = String::new();
        let waiting = async {
            loop {
                changed.borrow_and_update();
                match self.look(&mut check) {
                    Ok(value) => return value,
                    Err(text) => missing = text,
                }
                if changed.changed().await.is_err() {
                    // The sender lives in `self`.
                    std::future::pending::<()>().await;
                }
            }
        };
        let waited = tokio::time::timeout(within, waiting).await;
        waited
            .map_err(|_| Failure::new(format!("{what}: not within {within:?}; at last {missing}")))
    }

    /// Waits until each of the shards has a higher epoch than `before` says, and returns how long
    /// after `from` the last of these grants was heard of.
    ///
    /// # Errors
    ///
    /// Names a shard that was not granted in time.
    pub async fn granted_anew(
        &self,
        before: &[(u32, u64)],
        from: std::time::Instant,
        within: Duration,
    ) -> Result<Duration, Failure> {
        self.until("shards granted anew", within, |history| {
            let mut last = from;
            for &(shard, epoch) in before {
                let grant = history.seen_grant(shard, epoch + 1);
                let grant = grant.ok_or_else(|| format!("shard {shard} is still at {epoch}"))?;
                last = last.max(grant.at);
            }
            Ok(last.saturating_duration_since(from))
        })
        .await
    }

    /// Ends the watching and returns what was seen.
    pub async fn finish(mut self) -> History {
        self.watchers.shutdown().await;
        std::mem::take(&mut *self.shared.history())
    }
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        // A story whose task panicked fails anyway.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut History)) {
        note(&mut self.history());
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// One watcher: always on the same node, resumed where it was.
struct Watcher {
    client: Client,
    address: String,
    group: String,
    shared: Arc<Shared>,
    after: Option<Cursor>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            // Killed nodes are what stories are about; whatever ended the watch, ask again.
            let _ended = self.watch().await;
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn watch(&mut self) -> Result<(), tonic::Status> {
        let channel = self.client.channel(&self.address)?;
        let mut service = OwnershipServiceClient::new(channel).max_decoding_message_size(16 << 20);
        let request = WatchRequest {
            group: self.group.clone(),
            after: self.after,
        };
        let opening = tokio::time::timeout(SILENCE_MAX, service.watch(request)).await;
        let mut stream = opening.map_err(|_| silent())??.into_inner();
        loop {
            let next = tokio::time::timeout(SILENCE_MAX, stream.message()).await;
            match next.map_err(|_| silent())?? {
                Some(response) => self.take(response),
                None => return Ok(()),
            }
        }
    }

    fn take(&mut self, response: WatchResponse) {
        (self.shared.listener)(&self.address, &response);
        match response.message {
            Some(Message::State(part)) => {
                let at = part.at.unwrap_or_default();
                self.shared.note(|history| {
                    history.state(&self.address, at, &part.shards);
                    for worker in &part.workers {
                        history.worker(worker.session, &worker.worker);
                    }
                });
                // Not before the whole state is there: a resume in its middle would skip the rest.
                if part.last {
                    self.after = Some(at);
                }
            }
            Some(Message::Events(events)) => {
                self.shared.note(|history| {
                    for event in &events.events {
                        history.event(&self.address, event);
                    }
                });
                self.after = events.at;
            }
            Some(Message::Progress(at)) => self.after = Some(at),
            Some(Message::Resync(_)) => self.after = None,
            None => {}
        }
    }
}

fn silent() -> tonic::Status {
    tonic::Status::deadline_exceeded(format!("silent for {SILENCE_MAX:?}"))
}
