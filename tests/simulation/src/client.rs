//! Operators and watchers, in one process on a machine of their own.

mod operator;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::connection::{Connection, ConnectionOptions};
use tenure_proto::v1 as pb;
use tenure_proto::v1::event::Event;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;
use tokio::sync::mpsc;

use crate::history::{History, Position};
use crate::network::MachineNetwork;
use crate::node::CLIENT_PORT;
use crate::worker::GROUP;

use self::operator::Operator;

/// Orders, and changes, that may wait.
pub const ORDERS_MAX: usize = 256;

/// Watchers that follow the group.
const WATCHERS: usize = 2;

/// Silence after which a watcher goes to another node.
const SILENCE_MAX: Duration = Duration::from_secs(8);

/// Pause before an order that could not be carried out is given again.
const RETRY: Duration = Duration::from_millis(200);

/// A group's policy, as far as runs differ in it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Life of a session without a heartbeat.
    pub ttl: Duration,
    /// Life of a session after its stream broke.
    pub disconnect_grace: Duration,
    /// How long an ended worker's shards wait for it.
    pub restart_grace: Duration,
    /// How long a shard is granted to nobody after an unclean end.
    pub lock_delay: Duration,
    /// How long a worker may take to release a revoked shard.
    pub drain_timeout: Duration,
}

/// What operators are told to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Make a cluster of the nodes, given by their hosts.
    Init(Vec<String>),
    /// Create the group.
    CreateGroup(u32, Terms),
    /// Change the group's policy.
    SetTerms(Terms),
    /// Hand leadership to the node with that id.
    Transfer(u64),
    /// Take a node in, given by its host.
    AddNode(String),
    /// Remove a node, given by its host.
    RemoveNode(String),
    /// Read every shard of the replicated store and say so when it is done.
    ReadBack(u32),
}

/// What operators change of a group, and take back again.
#[derive(Clone, Debug)]
pub enum Change {
    /// Set the mode of a worker.
    Mode(String, pb::WorkerMode),
    /// Stop planned moves, or let them go on.
    Freeze(bool),
    /// Say where a shard belongs; `None`: anywhere.
    Pin(u32, Option<Pin>),
    /// Even the workers out, with so many moves at most.
    Rebalance(u32),
}

/// Where a shard belongs.
#[derive(Clone, Debug)]
pub enum Pin {
    /// On this worker.
    To(String),
    /// On any but this worker.
    KeptOff(String),
}

/// What the client process needs.
#[derive(Clone)]
pub struct ClientSetup {
    /// Hosts of the coordinators.
    pub hosts: Vec<String>,
    /// Its machine's network.
    pub network: MachineNetwork,
    /// What is recorded.
    pub history: Arc<Mutex<History>>,
    /// What was carried out.
    pub done: Arc<Mutex<Done>>,
}

/// What operators have carried out.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// The cluster exists.
    pub initialized: bool,
    /// Ids of the nodes of the cluster, by host.
    pub members: BTreeMap<String, u64>,
    /// The group exists.
    pub created: bool,
    /// Changes that are not carried out yet.
    pub pending_changes: usize,
    /// Everything was read back.
    pub read_back: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until the run ends. Orders are carried out at once, beside each other; changes one after the other, as
/// they are given: what is taken back must not be done after it.
pub async fn run(
    setup: ClientSetup,
    mut orders: mpsc::Receiver<Order>,
    changes: mpsc::Receiver<Change>,
) {
    let addresses: Vec<String> = setup
        .hosts
        .iter()
        .map(|host| format!("{host}:{CLIENT_PORT}"))
        .collect();
    let connect = |addresses: Vec<String>| {
        let options = ConnectionOptions::new(addresses).dialer(Arc::new(setup.network.clone()));
        Connection::new(options)
    };
    for watcher in 0..WATCHERS {
        // Each begins with another node.
        let mut addresses = addresses.clone();
        let begin = watcher % addresses.len().max(1);
        addresses.rotate_left(begin);
        if let Ok(connection) = connect(addresses) {
            tokio::spawn(watch(connection, Arc::clone(&setup.history)));
        }
    }
    let operator = || {
        let connection = connect(addresses.clone());
        connection.map(|connection| Operator::new(setup.clone(), connection))
    };
    if let Ok(operator) = operator() {
        tokio::spawn(operator.change_all(changes));
    }
    while let Some(order) = orders.recv().await {
        if let Ok(operator) = operator() {
            tokio::spawn(operator.carry_out(order));
        }
    }
}

/// Why a watch begins anew.
enum Anew {
    /// From where it was.
    Resume,
    /// From the state.
    State,
}

/// Follows the group for ever, from node to node.
async fn watch(connection: Connection, history: Arc<Mutex<History>>) {
    let mut after = None;
    loop {
        if let Ok((address, channel)) = connection.open_any().await {
            match follow(channel, &mut after, &history).await {
                Anew::Resume => {}
                Anew::State => after = None,
            }
            connection.leave(&address);
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(
    channel: tonic::transport::Channel,
    after: &mut Option<pb::Cursor>,
    history: &Mutex<History>,
) -> Anew {
    let request = pb::WatchRequest {
        group: GROUP.to_owned(),
        after: *after,
    };
    let mut client = OwnershipServiceClient::new(channel);
    let opened = tokio::time::timeout(SILENCE_MAX, client.watch(request)).await;
    let Ok(Ok(stream)) = opened else {
        return Anew::Resume;
    };
    let mut stream = stream.into_inner();
    loop {
        let message = tokio::time::timeout(SILENCE_MAX, stream.message()).await;
        let Ok(Ok(Some(message))) = message else {
            return Anew::Resume;
        };
        let Some(message) = message.message else {
            continue;
        };
        match message {
            Message::State(state) => {
                lock(history).shown(&state);
                // A state that is cut off half way has to be asked for again.
                *after = if state.last { state.at } else { None };
            }
            Message::Events(events) => {
                let kinds: Vec<(Position, String)> =
                    events.events.iter().filter_map(told).collect();
                if let (Some(before), Some(at)) = (*after, events.at) {
                    lock(history).watched(position(&before), position(&at), &kinds);
                }
                *after = events.at;
            }
            Message::Progress(at) => {
                if let Some(before) = *after
                    && position(&before) < position(&at)
                {
                    lock(history).watched(position(&before), position(&at), &[]);
                }
                *after = Some(at);
            }
            Message::Resync(_) => return Anew::State,
        }
    }
}

fn position(cursor: &pb::Cursor) -> Position {
    (cursor.revision, cursor.ordinal)
}

/// Returns an event as the coordinator's own text begins.
fn told(event: &pb::Event) -> Option<(Position, String)> {
    let at = position(event.cursor.as_ref()?);
    let text = match event.event.as_ref()? {
        Event::Registered(e) => format!("registered worker={} session={}", e.worker, e.session),
        Event::SessionEnded(e) => {
            format!("session ended worker={} session={}", e.worker, e.session)
        }
        Event::Granted(e) => format!(
            "granted shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::Serving(e) => format!(
            "serving shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::Revoking(e) => format!(
            "revoking shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::TenureEnded(e) => format!(
            "tenure ended shard={} epoch={} owner={}",
            e.shard, e.epoch, e.owner
        ),
        Event::FloorRaised(e) => format!("floor raised shard={} floor={}", e.shard, e.floor),
        Event::GroupChanged(e) => match e.change() {
            pb::GroupChange::Created => "group created".to_owned(),
            pb::GroupChange::PolicySet => "policy set".to_owned(),
            pb::GroupChange::Frozen => "frozen".to_owned(),
            pb::GroupChange::Unfrozen => "unfrozen".to_owned(),
            _ => "group".to_owned(),
        },
        Event::WorkerModeSet(e) => format!("mode set worker={}", e.worker),
        Event::ShardPinned(e) if e.to.is_empty() && e.kept_off.is_empty() => {
            format!("unpinned shard={}", e.shard)
        }
        Event::ShardPinned(e) => format!("pinned shard={}", e.shard),
        Event::ShardQuarantined(e) => {
            format!("quarantined shard={} crashes={}", e.shard, e.crashes)
        }
        Event::QuarantineEnded(e) => format!("quarantine ended shard={}", e.shard),
    };
    Some((at, text))
}
