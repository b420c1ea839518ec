//! Stories of requests that meet a handoff.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::connection::ConnectionOptions;
use tenure::{
    AttemptError, DispatchError, Dispatcher, Epoch, Hint, HoldOptions, NotOwner, Route, Router,
};
use tenure_proto::v1;
use tenure_proto::v1::event::Event as Fact;
use tenure_proto::v1::watch_response::Message;

use super::{Answers, Node, cursor, send, serving, state, within};

/// A router that knows that worker "a" serves all shards at epoch 1, and how it hears more.
struct Stage {
    node: Node,
    answers: Answers,
    router: Arc<Router>,
}

impl Stage {
    async fn start() -> Self {
        let mut node = Node::start().await;
        let options = ConnectionOptions::new([node.address.clone()]);
        let connecting = tokio::spawn(async move { Router::connect(options, "orders").await });
        let (_, answers) = node.watch().await;
        send(&answers, state(10, 1)).await;
        let router = Arc::new(connecting.await.unwrap().unwrap());
        Self {
            node,
            answers,
            router,
        }
    }

    fn dispatcher(&self, options: HoldOptions) -> Arc<Dispatcher> {
        Arc::new(Dispatcher::new(Arc::clone(&self.router), options))
    }

    /// The owner of shard 0 is asked to stop, as the router hears.
    async fn revoke(&self, revision: u64) {
        let at = cursor(revision, 0);
        let fact = Fact::Revoking(v1::ShardRevoking {
            shard: 0,
            epoch: 1,
            owner: 1,
            next: 2,
            reason: v1::RevokeReason::Rebalance.into(),
        });
        let events = v1::WatchEvents {
            at: Some(at),
            events: vec![v1::Event {
                cursor: Some(at),
                event: Some(fact),
            }],
            ..Default::default()
        };
        send(&self.answers, Message::Events(events)).await;
        self.heard(revision).await;
    }

    /// Worker "b" serves shard 0 at epoch 2, as the router hears.
    async fn moved(&self, revision: u64) {
        send(&self.answers, serving(cursor(revision, 0), 0, 2, 2)).await;
        self.heard(revision).await;
    }

    async fn heard(&self, revision: u64) {
        let heard = self
            .router
            .wait_until(|router| router.revision() >= revision);
        within("the news", heard).await;
    }

    async fn stop(self) {
        drop(self.answers);
        drop(self.router);
        self.node.stop().await;
    }
}

fn asked(route: &Route) -> (String, u64) {
    (route.worker.clone(), route.epoch.get())
}

/// No call fails, none is done twice, and those that waited are sent in the order in which they came.
#[tokio::test]
async fn callers_see_a_pause_instead_of_a_handoff() {
    let stage = Stage::start().await;
    let dispatcher = stage.dispatcher(HoldOptions::default());
    // Who really owns shard 0, whatever the router has heard.
    let owner = Arc::new(Mutex::new(("a".to_owned(), 1)));
    let done = Arc::new(Mutex::new(Vec::new()));
    let call = |number: u32| {
        let (dispatcher, owner, done) = (
            Arc::clone(&dispatcher),
            Arc::clone(&owner),
            Arc::clone(&done),
        );
        tokio::spawn(async move {
            let attempt = |route: Route| {
                let (owner, done) = (Arc::clone(&owner), Arc::clone(&done));
                async move {
                    if asked(&route) != *owner.lock().unwrap() {
                        return Err(AttemptError::<()>::NotOwner(NotOwner::default()));
                    }
                    done.lock().unwrap().push((route.worker, number));
                    Ok(number)
                }
            };
            dispatcher.call_shard(0, 100, attempt).await
        })
    };
    let mut calls = vec![call(0)];
    tokio::task::yield_now().await;
    // The owner stops before the router hears of it: who asks it now is told that it owns nothing.
    *owner.lock().unwrap() = ("nobody".to_owned(), 0);
    calls.push(call(1));
    tokio::task::yield_now().await;
    stage.revoke(11).await;
    for number in 2..50 {
        calls.push(call(number));
        tokio::task::yield_now().await;
    }
    *owner.lock().unwrap() = ("b".to_owned(), 2);
    stage.moved(12).await;
    for (number, call) in (0..).zip(calls) {
        assert_eq!(within("a call", call).await.unwrap().unwrap(), number);
    }
    let done = done.lock().unwrap().clone();
    let numbers: Vec<u32> = done.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    assert!(done.iter().skip(1).all(|(worker, _)| worker == "b"));
    drop(dispatcher);
    stage.stop().await;
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_bytes_and_time() {
    let stage = Stage::start().await;
    stage.revoke(11).await;
    let dispatcher = stage.dispatcher(HoldOptions {
        requests_max: 2,
        bytes_max: 1_000,
        time_max: Duration::from_millis(300),
    });
    let call = |bytes: usize| {
        let dispatcher = Arc::clone(&dispatcher);
        tokio::spawn(async move {
            let never = |_: Route| async { Ok::<(), AttemptError<()>>(()) };
            dispatcher.call_shard(0, bytes, never).await
        })
    };
    let first = call(600);
    tokio::task::yield_now().await;
    // Another shard is served, so nothing waits there, however much there is.
    let elsewhere = |_: Route| async { Ok::<(), AttemptError<()>>(()) };
    dispatcher.call_shard(1, 1 << 30, elsewhere).await.unwrap();
    let too_large = within("a call", call(600)).await.unwrap();
    assert!(matches!(too_large, Err(DispatchError::Full)));
    let second = call(400);
    tokio::task::yield_now().await;
    let too_many = within("a call", call(0)).await.unwrap();
    assert!(matches!(too_many, Err(DispatchError::Full)));
    for call in [first, second] {
        let late = within("a call", call).await.unwrap();
        assert!(matches!(late, Err(DispatchError::TimedOut { last: None })));
    }
    // They count no more.
    let third = call(1_000);
    tokio::task::yield_now().await;
    stage.moved(12).await;
    within("a call", third).await.unwrap().unwrap();
    drop(dispatcher);
    stage.stop().await;
}

#[tokio::test]
async fn a_hint_is_followed_before_the_router_has_heard() {
    let stage = Stage::start().await;
    let dispatcher = stage.dispatcher(HoldOptions::default());
    let attempt = |route: Route| async move {
        if route.worker == "a" {
            let hint = Some(Hint {
                epoch: Epoch::new(2).unwrap(),
                worker: "b".to_owned(),
                address: "b:9000".to_owned(),
            });
            return Err(AttemptError::<()>::NotOwner(NotOwner { hint }));
        }
        Ok(route.address)
    };
    let called = within("a call", dispatcher.call(b"4711", 4, attempt)).await;
    assert_eq!(called.unwrap(), "b:9000");
    drop(dispatcher);
    stage.stop().await;
}

#[tokio::test]
async fn only_what_was_not_done_is_tried_again() {
    let stage = Stage::start().await;
    let dispatcher = stage.dispatcher(HoldOptions::default());
    let attempts = AtomicU32::new(0);
    let failing = |_: Route| {
        attempts.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), _>(AttemptError::Failed("broken")) }
    };
    let called = within("a call", dispatcher.call_shard(0, 1, failing)).await;
    assert!(matches!(called, Err(DispatchError::Failed("broken"))));
    assert_eq!(attempts.swap(0, Ordering::Relaxed), 1);

    let refused_twice = |_: Route| {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        async move {
            match attempt {
                0 | 1 => Err(AttemptError::NotDone("refused")),
                _ => Ok(attempt),
            }
        }
    };
    let called = within("a call", dispatcher.call_shard(0, 1, refused_twice)).await;
    assert_eq!(called.unwrap(), 2);
    drop(dispatcher);
    stage.stop().await;
}
