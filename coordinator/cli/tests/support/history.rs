//! Answers about what happened.

use tenure_proto::v1::history_event::What;
use tenure_proto::v1::history_service_server::HistoryService;
use tenure_proto::v1::{self, event::Event as Fact};
use tonic::{Request, Response, Status};

use super::LARGEST;
use super::node::{Fake, no_group};
use super::watched::at;

/// New Year's Day of 2026.
const DAY_MS: u64 = 1_767_225_600_000;

fn happened(cursor: v1::Cursor, kind: &str, group: &str, what: What) -> v1::HistoryEvent {
    v1::HistoryEvent {
        cursor: Some(cursor),
        at_ms: DAY_MS + cursor.revision * 1_000,
        kind: kind.to_owned(),
        group: group.to_owned(),
        what: Some(what),
        ..Default::default()
    }
}

fn event(cursor: v1::Cursor, kind: &str, fact: Fact) -> v1::HistoryEvent {
    let event = v1::Event {
        cursor: Some(cursor),
        event: Some(fact),
    };
    happened(cursor, kind, "orders", What::Event(event))
}

/// All there is, the oldest first.
fn events() -> Vec<v1::HistoryEvent> {
    let created = v1::GroupChanged {
        change: v1::GroupChange::Created.into(),
        ..Default::default()
    };
    let granted = v1::ShardGranted {
        shard: 1,
        epoch: 1,
        owner: 917,
    };
    let mode = v1::WorkerModeSet {
        worker: "counter-1".to_owned(),
        mode: v1::WorkerMode::Draining.into(),
    };
    let members = v1::MembersChanged {
        members: vec![
            v1::MemberNote {
                id: 1,
                voter: true,
                peer_address: "10.0.0.1:7401".to_owned(),
            },
            v1::MemberNote {
                id: 2,
                voter: false,
                peer_address: "10.0.0.2:7401".to_owned(),
            },
        ],
    };
    let asked = |event| v1::HistoryEvent {
        by: "alice@laptop".to_owned(),
        reason: "new kernel".to_owned(),
        ..event
    };
    vec![
        event(at(3, 0), "group-created", Fact::GroupChanged(created)),
        event(at(9, 0), "granted", Fact::Granted(granted)),
        asked(event(
            at(12, 0),
            "worker-mode-set",
            Fact::WorkerModeSet(mode),
        )),
        asked(happened(
            at(13, 0),
            "operation",
            "",
            What::Operation("add node peer=10.0.0.2:7401".to_owned()),
        )),
        happened(at(14, 0), "members-changed", "", What::Members(members)),
    ]
}

#[tonic::async_trait]
impl HistoryService for Fake {
    /// Two events a page, so that a client that does not go on is noticed.
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let request = request.into_inner();
        let position = |cursor: v1::Cursor| (cursor.revision, cursor.ordinal);
        let mut found: Vec<_> = events()
            .into_iter()
            .filter(|event| request.group.is_empty() || event.group == request.group)
            .filter(|event| !request.asked_for || !event.by.is_empty())
            .filter(|event| request.kinds.is_empty() || request.kinds.contains(&event.kind))
            .filter(|event| {
                let cursor = position(event.cursor.unwrap());
                match (request.from.map(position), request.newest_first) {
                    (None, _) => true,
                    (Some(from), true) => cursor < from,
                    (Some(from), false) => cursor > from,
                }
            })
            .collect();
        if request.newest_first {
            found.reverse();
        }
        let more = found.len() > 2;
        found.truncate(2);
        Ok(Response::new(v1::ListEventsResponse {
            next: found.last().and_then(|event| event.cursor).filter(|_| more),
            events: found,
            since_revision: 2,
            node_id: 1,
            workers: vec![v1::SessionName {
                session: 917,
                worker: "counter-1".to_owned(),
            }],
            ..Default::default()
        }))
    }

    async fn shard_history(
        &self,
        request: Request<v1::ShardHistoryRequest>,
    ) -> Result<Response<v1::ShardHistoryResponse>, Status> {
        let shard = request.into_inner().shard.unwrap_or_default();
        if shard.group != "orders" {
            return Err(no_group(&shard.group));
        }
        let mark = |revision: u64| {
            Some(v1::HistoryMark {
                cursor: Some(at(revision, 0)),
                at_ms: DAY_MS + revision * 1_000,
            })
        };
        let goes_on = v1::TenureRecord {
            epoch: LARGEST,
            session: LARGEST,
            worker: "counter-2".to_owned(),
            granted: mark(20),
            serving: mark(21),
            ..Default::default()
        };
        let drained = v1::TenureRecord {
            epoch: 3,
            session: 917,
            worker: "counter-1".to_owned(),
            granted: mark(9),
            serving: mark(10),
            revoked: mark(15),
            revoke_reason: v1::RevokeReason::Draining.into(),
            ended: mark(20),
            end_cause: v1::EndCause::Released.into(),
            by: "alice@laptop".to_owned(),
            reason: "new kernel".to_owned(),
            ..Default::default()
        };
        let crashed = v1::TenureRecord {
            epoch: 2,
            session: 900,
            worker: "counter-1".to_owned(),
            granted: mark(5),
            ended: mark(8),
            end_cause: v1::EndCause::SessionEnded.into(),
            session_end: v1::SessionEnd::Expired.into(),
            ..Default::default()
        };
        let lost = v1::TenureRecord {
            epoch: 1,
            session: 890,
            end_is_unknown: true,
            granted: mark(3),
            ..Default::default()
        };
        Ok(Response::new(v1::ShardHistoryResponse {
            tenures: vec![goes_on, drained, crashed, lost],
            more: true,
            since_revision: 2,
            gaps: vec![v1::HistoryGap {
                after_revision: 3,
                until_revision: 4,
            }],
            node_id: 1,
        }))
    }
}
