//! What a watch is told: a state and events, then a break, then the rest.

use tenure_proto::v1::{self, event::Event as Fact, watch_response::Message};
use tonic::Status;

use super::LARGEST;

pub(crate) fn at(revision: u64, ordinal: u32) -> v1::Cursor {
    v1::Cursor { revision, ordinal }
}

fn events(facts: Vec<(v1::Cursor, Fact)>) -> Message {
    let last = facts.last().map(|(cursor, _)| *cursor);
    let events = facts
        .into_iter()
        .map(|(cursor, fact)| v1::Event {
            cursor: Some(cursor),
            event: Some(fact),
        })
        .collect();
    // What the cluster did by itself has a time; of some nothing is known.
    Message::Events(v1::WatchEvents {
        at: last,
        events,
        at_ms: 1_767_225_600_123,
        ..Default::default()
    })
}

/// Somebody asked for it and said why.
fn asked(message: Message) -> Message {
    match message {
        Message::Events(events) => Message::Events(v1::WatchEvents {
            by: "alice@laptop".to_owned(),
            reason: "new kernel".to_owned(),
            ..events
        }),
        other => other,
    }
}

fn state(shards: Vec<v1::WatchShard>, workers: Vec<v1::WatchWorker>, last: bool) -> Message {
    Message::State(v1::WatchState {
        // As a coordinator says that everything up to revision 100 is in it.
        at: Some(at(100, u32::MAX)),
        shard_count: 64,
        shards,
        workers,
        last,
    })
}

fn counter_1() -> v1::WatchWorker {
    v1::WatchWorker {
        session: 917,
        worker: "counter-1".to_owned(),
        address: "10.0.0.11:9000".to_owned(),
    }
}

pub(super) fn first_stream() -> Vec<Result<Message, Status>> {
    let serving = v1::WatchShard {
        index: 0,
        phase: v1::ShardPhase::Serving.into(),
        epoch: LARGEST,
        owner: 917,
    };
    let unowned = v1::WatchShard {
        index: 1,
        phase: v1::ShardPhase::Unowned.into(),
        epoch: 0,
        owner: 0,
    };
    let registered = v1::WorkerRegistered {
        session: LARGEST,
        worker: "counter-2".to_owned(),
        address: "10.0.0.12:9000".to_owned(),
    };
    let granted = v1::ShardGranted {
        shard: 1,
        epoch: 1,
        owner: LARGEST,
    };
    let ready = v1::ShardServing {
        shard: 1,
        epoch: 1,
        owner: LARGEST,
    };
    let revoking = v1::ShardRevoking {
        shard: 0,
        epoch: LARGEST,
        owner: 917,
        next: LARGEST,
        reason: v1::RevokeReason::Rebalance.into(),
    };
    vec![
        Ok(state(vec![serving], vec![counter_1()], false)),
        Ok(state(vec![unowned], vec![], true)),
        Ok(events(vec![(at(101, 0), Fact::Registered(registered))])),
        Ok(events(vec![
            (at(102, 0), Fact::Granted(granted)),
            (at(102, 1), Fact::Serving(ready)),
            (at(102, 2), Fact::Revoking(revoking)),
        ])),
        Err(Status::unavailable("connection reset")),
    ]
}

pub(super) fn last_stream() -> Vec<Result<Message, Status>> {
    let failed = v1::TenureEnded {
        shard: 1,
        epoch: 1,
        owner: 917,
        cause: v1::EndCause::SessionEnded.into(),
        detail: String::new(),
    };
    let ended = v1::SessionEnded {
        session: 917,
        worker: "counter-1".to_owned(),
        end: v1::SessionEnd::Expired.into(),
    };
    let mode = v1::WorkerModeSet {
        worker: "counter-3".to_owned(),
        mode: v1::WorkerMode::Draining.into(),
    };
    let removed = v1::GroupChanged {
        change: v1::GroupChange::Removed.into(),
        reason: String::new(),
    };
    let frozen = v1::GroupChanged {
        change: v1::GroupChange::Frozen.into(),
        reason: "release day".to_owned(),
    };
    vec![
        Ok(state(vec![], vec![counter_1()], true)),
        Ok(events(vec![
            (at(300, 0), Fact::SessionEnded(ended)),
            (at(300, 1), Fact::TenureEnded(failed)),
        ])),
        Ok(events(vec![(
            at(301, 0),
            Fact::FloorRaised(v1::FloorRaised {
                shard: 1,
                floor: LARGEST,
            }),
        )])),
        Ok(asked(events(vec![(at(302, 0), Fact::WorkerModeSet(mode))]))),
        Ok(events(vec![(at(303, 0), Fact::GroupChanged(frozen))])),
        Ok(events(vec![(at(304, 0), Fact::GroupChanged(removed))])),
    ]
}
