//! Watching a group: its state at a cursor, then every event after it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use prost::Message as _;
use tenure_fence::GroupName;
use tenure_ownership::group::Group;
use tenure_ownership::ids::{GroupId, Revision, SessionId};
use tenure_ownership::{Event, State};
use tenure_proto::v1 as pb;
use tenure_proto::v1::watch_response::Message;
use tokio::sync::watch::Receiver;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;

use super::context::RpcContext;
use super::encoded::EncodedStream;
use super::state_cache::StateCache;
use super::{present, status};
use crate::consensus::{Consensus, blocking};
use crate::metrics;
use crate::watch::{Batch, Cursor, EncodedPart, Subscription};

/// How long nothing is sent before a watcher is told how far it is. A watcher that hears nothing for
/// several times as long knows that its connection is dead.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Shards or events in one message: a quarter of a megabyte at most, so that no message is too large
/// for a client with usual limits, and none holds up a connection for long.
const PART_ITEMS_MAX: usize = 10_000;

/// Tries to subscribe after a state was taken. More than one is needed only if a snapshot is installed
/// just then.
const SUBSCRIBE_ATTEMPTS: usize = 3;

fn encode(message: Message) -> Bytes {
    pb::WatchResponse {
        message: Some(message),
    }
    .encode_to_vec()
    .into()
}

/// A watcher's place among those this node accepts.
struct Place {
    watchers: Arc<AtomicUsize>,
}

impl Place {
    fn take(context: &RpcContext) -> Result<Self, Status> {
        let limit = context.limits.watchers_max;
        let watchers = Arc::clone(&context.watchers);
        let before = watchers.fetch_add(1, Ordering::Relaxed);
        ::metrics::gauge!(metrics::WATCHERS).increment(1.0);
        // Given back on every return from here on.
        let place = Self { watchers };
        if before >= limit {
            return Err(status::limit_reached("watchers of this node", limit));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
        ::metrics::gauge!(metrics::WATCHERS).decrement(1.0);
    }
}

/// Starts to watch a group: from its state, or after a cursor.
pub(super) async fn start(
    context: RpcContext,
    name: GroupName,
    after: Option<Cursor>,
    within: Duration,
) -> Result<EncodedStream, Status> {
    let place = Place::take(&context)?;
    let group = context
        .read_group(&name, within, |_, group| Ok(group.header.id))
        .await?;
    let Some(after) = after else {
        return from_state(context, name, place).await;
    };
    // A cursor from before this life of the group belongs to another group of the same name.
    let created = Cursor::end_of(Revision(group.0));
    if after.revision < created.revision {
        return Ok(resync(created));
    }
    match context.hub.subscribe(Some(after)) {
        Ok(subscription) => Ok(Watcher::new(context, group, subscription, after, place).stream()),
        Err(too_old) => Ok(resync(too_old.oldest)),
    }
}

/// A stream that only says that its watcher must start from the state.
fn resync(oldest: Cursor) -> EncodedStream {
    ::metrics::counter!(metrics::RESYNCS).increment(1);
    let oldest = Some(present::cursor(oldest));
    let message = encode(Message::Resync(pb::Resync { oldest }));
    stream::iter([Ok(message)]).boxed()
}

async fn from_state(
    context: RpcContext,
    name: GroupName,
    place: Place,
) -> Result<EncodedStream, Status> {
    for _ in 0..SUBSCRIBE_ATTEMPTS {
        let (consensus, states) = (context.consensus.clone(), Arc::clone(&context.states));
        let wanted = name.clone();
        // A million shards take some tens of milliseconds to encode.
        let taking = move || take_state(&consensus, &states, &wanted);
        let taken = blocking(taking)
            .await
            .map_err(|error| status::unavailable(error.to_string()))?;
        let TakenState { group, at, parts } = taken?;
        // Later than the state was read, so whatever it does not contain is still to come.
        let Ok(subscription) = context.hub.subscribe(Some(at)) else {
            continue;
        };
        let mut watcher = Watcher::new(context, group, subscription, at, place);
        watcher.queue.extend(parts.iter().cloned());
        watcher.state = Some(parts);
        return Ok(watcher.stream());
    }
    Err(status::unavailable("the state keeps being replaced"))
}

struct TakenState {
    group: GroupId,
    at: Cursor,
    parts: Arc<[Bytes]>,
}

/// Encodes what watchers see of a group, unless somebody has just done so.
fn take_state(
    consensus: &Consensus,
    states: &StateCache,
    name: &GroupName,
) -> Result<TakenState, Status> {
    // A clone, because commands go on to be applied while a million shards are encoded.
    let state = consensus.state();
    let found = state.group_named(name);
    let found = found.ok_or_else(|| status::no_such_group(name))?;
    let (group, revision) = (found.header.id, state.revision());
    let at = Cursor::end_of(revision);
    if let Some(parts) = states.get(group, revision) {
        return Ok(TakenState { group, at, parts });
    }
    let parts = encode_state(&state, found, at);
    states.put(group, revision, &parts);
    Ok(TakenState { group, at, parts })
}

fn workers(state: &State, group: &Group) -> Vec<pb::WatchWorker> {
    let live = group.workers.iter().filter_map(|(name, worker)| {
        let session = worker.session?;
        Some((name, session, state.session(session)?))
    });
    live.map(|(name, id, session)| pb::WatchWorker {
        session: id.0,
        worker: name.to_string(),
        address: session.address.clone(),
    })
    .collect()
}

fn encode_state(state: &State, group: &Group, at: Cursor) -> Arc<[Bytes]> {
    let mut workers = Some(workers(state, group));
    let shards = group.indexed_shards();
    let mut shards = shards
        .map(|(index, shard)| present::watch_shard(index, shard))
        .peekable();
    let mut parts = Vec::new();
    while shards.peek().is_some() {
        let of_part = shards.by_ref().take(PART_ITEMS_MAX).collect();
        parts.push(encode(Message::State(pb::WatchState {
            at: Some(present::cursor(at)),
            shard_count: group.header.shard_count,
            shards: of_part,
            workers: workers.take().unwrap_or_default(),
            last: shards.peek().is_none(),
        })));
    }
    parts.into()
}

/// Encodes the events of a group, those after `after` if it lies inside the batch.
fn encode_events(
    consensus: &Consensus,
    group: GroupId,
    batch: &Batch,
    after: Option<u32>,
) -> Vec<EncodedPart> {
    let addresses = addresses(consensus, batch, group);
    let revision = batch.revision;
    let mut events = batch
        .events_of(group)
        .filter(|(ordinal, _)| after.is_none_or(|after| *ordinal > after))
        .filter_map(|(ordinal, event)| {
            let at = Cursor { revision, ordinal };
            let address = |session| addresses.get(&session).cloned().unwrap_or_default();
            Some((ordinal, present::event(at, event, address)?))
        })
        .peekable();
    let mut parts = Vec::new();
    while events.peek().is_some() {
        let (ordinals, events): (Vec<u32>, Vec<pb::Event>) =
            events.by_ref().take(PART_ITEMS_MAX).unzip();
        let (Some(&first_ordinal), Some(&last_ordinal)) = (ordinals.first(), ordinals.last())
        else {
            break;
        };
        let at = present::cursor(Cursor {
            revision,
            ordinal: last_ordinal,
        });
        let bytes = encode(Message::Events(pb::WatchEvents {
            at: Some(at),
            events,
            at_ms: batch.envelope.at_ms,
            by: batch.envelope.by().to_owned(),
            reason: batch.envelope.reason().to_owned(),
        }));
        parts.push(EncodedPart {
            first_ordinal,
            last_ordinal,
            bytes,
        });
    }
    parts
}

/// Looks up the addresses of workers that registered in a batch. One that has ended since has none: its
/// end follows.
fn addresses(consensus: &Consensus, batch: &Batch, group: GroupId) -> HashMap<SessionId, String> {
    let registered: Vec<SessionId> = batch
        .events_of(group)
        .filter_map(|(_, event)| match event {
            Event::Registered { session, .. } => Some(*session),
            _ => None,
        })
        .collect();
    if registered.is_empty() {
        return HashMap::new();
    }
    consensus.read(|state| {
        let live = registered
            .into_iter()
            .filter_map(|id| Some((id, state.session(id)?)));
        live.map(|(id, session)| (id, session.address.clone()))
            .collect()
    })
}

/// One watcher: messages that wait to be sent, and the subscription they come from.
struct Watcher {
    context: RpcContext,
    group: GroupId,
    subscription: Subscription,
    /// The last event sent, or contained in the state sent.
    after: Cursor,
    queue: VecDeque<Bytes>,
    /// Keeps the encoded state for others that start meanwhile.
    state: Option<Arc<[Bytes]>>,
    /// Nothing follows what is in the queue.
    finished: bool,
    /// Whether this node was removed: it would tell nothing any more.
    removed: Receiver<bool>,
    progress: Interval,
    _place: Place,
}

/// Resolves once this node is removed.
async fn until_removed(removed: &mut Receiver<bool>) {
    if removed.wait_for(|removed| *removed).await.is_err() {
        // Nobody says so any more: the node is stopping.
        std::future::pending::<()>().await;
    }
}

impl Watcher {
    fn new(
        context: RpcContext,
        group: GroupId,
        subscription: Subscription,
        after: Cursor,
        place: Place,
    ) -> Self {
        let mut progress = interval(PROGRESS_INTERVAL);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        progress.reset();
        let removed = context.removed();
        Self {
            context,
            group,
            subscription,
            after,
            queue: VecDeque::new(),
            state: None,
            finished: false,
            removed,
            progress,
            _place: place,
        }
    }

    fn stream(self) -> EncodedStream {
        stream::unfold(self, |mut watcher| async move {
            let message = watcher.next().await?;
            Some((message, watcher))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                self.progress.reset();
                return Some(Ok(message));
            }
            self.state = None;
            if self.finished {
                return None;
            }
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => {
                    self.finished = true;
                    return Some(Err(status::stopping()));
                }
                () = until_removed(&mut self.removed) => {
                    self.finished = true;
                    return Some(Err(status::removed()));
                }
                next = self.subscription.next() => match next {
                    Ok(batch) => self.take(&batch),
                    Err(lagged) => {
                        ::metrics::counter!(metrics::RESYNCS).increment(1);
                        let oldest = Some(present::cursor(lagged.oldest));
                        self.queue.push_back(encode(Message::Resync(pb::Resync { oldest })));
                        self.finished = true;
                    }
                },
                _ = self.progress.tick() => self.report_progress(),
            }
        }
    }

    fn take(&mut self, batch: &Batch) {
        if !batch.concerns(self.group) {
            return;
        }
        let consensus = &self.context.consensus;
        let seen = (batch.revision == self.after.revision).then_some(self.after.ordinal);
        let parts = batch.encoded(self.group, |batch| {
            encode_events(consensus, self.group, batch, None)
        });
        for part in parts.iter() {
            match seen {
                // Resumed inside this part: what was seen is left out.
                Some(seen) if part.first_ordinal <= seen => {
                    if part.last_ordinal <= seen {
                        continue;
                    }
                    let rest = encode_events(consensus, self.group, batch, Some(seen));
                    self.queue.extend(rest.into_iter().map(|part| part.bytes));
                    break;
                }
                _ => self.queue.push_back(part.bytes.clone()),
            }
        }
        self.after = batch.last();
        self.finished = batch
            .events_of(self.group)
            .any(|(_, event)| matches!(event, Event::GroupRemoved { .. }));
    }

    fn report_progress(&mut self) {
        if let Some(at) = self.subscription.caught_up() {
            self.queue
                .push_back(encode(Message::Progress(present::cursor(at))));
        }
    }
}
