//! Writes of several shards that share a request.

use std::sync::Arc;
use std::time::Duration;

use tenure::{CheckpointError, CheckpointStore, ReplicatedStore, Write, WriteId};
use tenure_proto::reason;
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Code, Status};

use crate::script::{error, within};
use crate::service::{Fault, Node, shard_token, store_at, write};

/// Requests with writes that are under way at one time.
const REQUESTS: usize = 2;

/// Shards that are sealed at epoch 1.
const SHARDS: u32 = 20;

type Written = Result<(), CheckpointError>;

/// A node whose door is shut, behind as many lone writes as there are requests at one time.
struct Busy {
    node: Node,
    store: ReplicatedStore,
    first: Vec<JoinHandle<Written>>,
}

impl Busy {
    async fn start() -> Self {
        let node = Node::start().await;
        let store = node.store();
        let tokens: Vec<_> = (0..SHARDS).map(|shard| shard_token(shard, 1)).collect();
        for sealed in store.seal_many(&tokens).await {
            sealed.unwrap();
        }
        node.backing.shut.send_replace(true);
        let mut busy = Self {
            node,
            store,
            first: Vec::new(),
        };
        for shard in 0..u32::try_from(REQUESTS).unwrap() {
            busy.first.push(busy.write(shard));
            busy.arrived(busy.first.len()).await;
        }
        busy
    }

    /// Begins a write and lets it come as far as it can.
    fn write(&self, shard: u32) -> JoinHandle<Written> {
        let store = self.store.clone();
        tokio::spawn(async move { store.write(&shard_token(shard, 1), write(1, "x")).await })
    }

    /// Waits until so many requests with writes wait at the door.
    async fn arrived(&self, requests: usize) {
        let shut = &self.node.backing.shut;
        within("requests at the door", async {
            while shut.receiver_count() < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    fn open(&self) {
        self.node.backing.shut.send_replace(false);
    }

    fn shared(&self) -> Vec<usize> {
        self.node.backing.shared.lock().unwrap().clone()
    }

    async fn stop(self) {
        for first in self.first {
            first.await.unwrap().unwrap();
        }
        self.node.stop().await;
    }
}

/// Lets everything that can go on do so: the runtime of these tests has one thread.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn writes_that_wait_at_the_same_time_share_a_request_and_each_has_its_own_outcome() {
    let busy = Busy::start().await;
    // Its fence has risen: of all that wait this one alone is refused.
    let newer = shard_token(7, 2);
    busy.node.backing.store.seal(&newer).await.unwrap();
    let waiting: Vec<_> = (2..SHARDS).map(|shard| busy.write(shard)).collect();
    settle().await;
    assert_eq!(busy.shared(), [0; 0]);

    busy.open();
    for (shard, written) in (2..SHARDS).zip(waiting) {
        match written.await.unwrap() {
            Err(CheckpointError::Fenced { current, .. }) => {
                assert_eq!((shard, current), (7, newer.epoch));
            }
            written => assert!(written.is_ok() && shard != 7, "{shard}: {written:?}"),
        }
    }
    assert_eq!(busy.shared(), [18]);
    for shard in (0..SHARDS).filter(|&shard| shard != 7) {
        let resource = shard_token(shard, 1).resource;
        assert!(busy.store.read(&resource).await.unwrap().is_some());
    }
    busy.stop().await;
}

#[tokio::test]
async fn a_lone_write_waits_for_nobody() {
    let node = Node::start().await;
    let store = node.store();
    for shard in 0..3 {
        let token = shard_token(shard, 1);
        store.seal(&token).await.unwrap();
        store.write(&token, write(1, "x")).await.unwrap();
    }
    assert_eq!(node.backing.shared.lock().unwrap().len(), 0);
    assert_eq!(node.backing.writes.lock().unwrap().len(), 3);
    node.stop().await;
}

#[tokio::test]
async fn a_writer_that_is_given_up_takes_no_other_with_it() {
    let mut busy = Busy::start().await;
    let waiting: Vec<_> = (2..6).map(|shard| busy.write(shard)).collect();
    settle().await;
    // The first place goes to the one that has waited longest, which sends the others' with its own.
    let gone = busy.first.swap_remove(0);
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    within("a shared request", async {
        while busy.shared() != [4] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let mut waiting = waiting.into_iter();
    let sender = waiting.next().unwrap();
    sender.abort();
    assert!(sender.await.unwrap_err().is_cancelled());
    busy.open();
    for written in waiting {
        written.await.unwrap().unwrap();
    }
    busy.stop().await;
}

#[tokio::test]
async fn a_write_that_is_given_up_before_it_was_sent_is_not_sent() {
    let busy = Busy::start().await;
    let (given_up, kept) = (busy.write(2), busy.write(3));
    settle().await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    busy.open();
    kept.await.unwrap().unwrap();
    let resource = shard_token(2, 1).resource;
    assert_eq!(busy.store.read(&resource).await.unwrap(), None);
    busy.stop().await;
}

#[tokio::test]
async fn one_of_several_that_met_no_leader_is_sent_again_by_itself() {
    let busy = Busy::start().await;
    let waiting: Vec<_> = (2..6).map(|shard| busy.write(shard)).collect();
    settle().await;
    let no_leader = error(Code::Unavailable, reason::UNAVAILABLE, &[]);
    let met = shard_token(4, 1).resource;
    let refused_once = &busy.node.backing.refused_once;
    refused_once.lock().unwrap().insert(met.clone(), no_leader);
    busy.open();
    for written in waiting {
        written.await.unwrap().unwrap();
    }
    assert_eq!(busy.shared(), [4]);
    let writes = busy.node.backing.writes.lock().unwrap().clone();
    let of_met = writes.into_iter().filter(|write| {
        let token = write.token.as_ref().unwrap();
        token.resource == met.to_string()
    });
    assert_eq!(of_met.count(), 2);
    busy.stop().await;
}

#[tokio::test]
async fn a_shared_request_that_landed_before_a_fence_rose_is_not_reported_as_refused() {
    let busy = Busy::start().await;
    let waiting: Vec<_> = (2..6).map(|shard| busy.write(shard)).collect();
    settle().await;
    let broke = || Status::unavailable("the connection broke");
    let refuse = || Fault::Refuse(error(Code::Unavailable, reason::UNAVAILABLE, &[]));
    {
        // It lands, and nobody hears of it; the next owner of one seals before it is repeated.
        let mut faults = busy.node.backing.shared_faults.lock().unwrap();
        faults.push_back(Fault::DoneBut(broke()));
        faults.extend((0..1_000).map(|_| refuse()));
    }
    busy.open();
    within("a repetition", async {
        while busy.shared().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let sealed = busy.node.backing.store.seal(&shard_token(4, 2)).await;
    assert_eq!(sealed.unwrap().unwrap().data, "x");
    busy.node.backing.shared_faults.lock().unwrap().clear();
    for (shard, written) in (2..6).zip(waiting) {
        match written.await.unwrap() {
            Err(CheckpointError::OutcomeUnknown { .. }) => assert_eq!(shard, 4),
            written => assert!(written.is_ok() && shard != 4, "{shard}: {written:?}"),
        }
    }
    busy.stop().await;
}

#[tokio::test]
async fn a_write_that_waited_in_vain_surely_did_not_happen_and_one_that_was_sent_may_have() {
    let node = Node::start().await;
    let store = Arc::new(store_at(&[&node.address], Duration::from_millis(400)));
    node.backing.shut.send_replace(true);
    let mut writing = JoinSet::new();
    for shard in 0..6 {
        let store = Arc::clone(&store);
        writing.spawn(async move { store.write(&shard_token(shard, 1), write(1, "x")).await });
    }
    let mut unknown = 0;
    while let Some(written) = writing.join_next().await {
        match written.unwrap() {
            Err(CheckpointError::OutcomeUnknown { .. }) => unknown += 1,
            written => assert!(
                matches!(written, Err(CheckpointError::Unavailable { .. })),
                "{written:?}"
            ),
        }
    }
    assert!(unknown >= REQUESTS, "{unknown}");
    assert_eq!(node.backing.writes.lock().unwrap().len(), 0);
    node.backing.shut.send_replace(false);
    node.stop().await;
}

#[tokio::test]
async fn large_values_travel_by_themselves() {
    let busy = Busy::start().await;
    let large = Write {
        data: vec![0; 512 << 10].into(),
        write_id: WriteId::new(9),
        ..write(1, "")
    };
    let store = busy.store.clone();
    let token = shard_token(9, 1);
    let large = tokio::spawn(async move { store.write(&token, large).await });
    // It waits for no place among the shared ones.
    busy.arrived(REQUESTS + 1).await;
    busy.open();
    large.await.unwrap().unwrap();
    busy.stop().await;
}
