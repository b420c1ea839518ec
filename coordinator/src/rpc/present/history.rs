//! What happened, as messages.

use std::collections::BTreeMap;

use tenure_ownership::event::EndCause;
use tenure_ownership::ids::SessionId;
use tenure_proto::v1 as pb;
use tenure_proto::v1::history_event::What;

use crate::history::{Fact, Gap, Happened, Mark, NodeNote, Page, Position, ShardHistory, Tenure};
use crate::watch::Cursor;

fn cursor(at: Position) -> pb::Cursor {
    pb::Cursor {
        revision: at.revision.0,
        ordinal: at.ordinal,
    }
}

/// A page of events, as the node with that id knows them.
pub(in crate::rpc) fn page(page: Page, node_id: u64) -> pb::ListEventsResponse {
    let mut names: BTreeMap<SessionId, String> = BTreeMap::new();
    for happened in &page.events {
        for (session, name) in happened.workers.iter() {
            names.entry(*session).or_insert_with(|| name.clone());
        }
    }
    let name = |(session, worker): (SessionId, String)| pb::SessionName {
        session: session.0,
        worker,
    };
    pb::ListEventsResponse {
        events: page.events.into_iter().map(happened).collect(),
        next: page.next.map(cursor),
        since_revision: page.since.0,
        gaps: page.gaps.into_iter().map(gap).collect(),
        node_id,
        workers: names.into_iter().map(name).collect(),
    }
}

fn gap(gap: Gap) -> pb::HistoryGap {
    pb::HistoryGap {
        after_revision: gap.after.0,
        until_revision: gap.until.0,
    }
}

fn happened(happened: Happened) -> pb::HistoryEvent {
    pb::HistoryEvent {
        cursor: Some(cursor(happened.at)),
        at_ms: happened.envelope.at_ms,
        by: happened.envelope.by().to_owned(),
        reason: happened.envelope.reason().to_owned(),
        kind: happened.fact.kind().to_owned(),
        group: happened.group.unwrap_or_default(),
        what: Some(what(happened.at, happened.fact)),
    }
}

fn what(at: Position, fact: Fact) -> What {
    let at = Cursor {
        revision: at.revision,
        ordinal: at.ordinal,
    };
    match fact {
        Fact::Event(event) => match super::event(at, &event, |_| String::new()) {
            Some(event) => What::Event(event),
            None => What::Text(event.to_string()),
        },
        Fact::Operation(operation) => What::Operation(operation),
        Fact::Members(members) => What::Members(pb::MembersChanged {
            members: members.into_iter().map(member).collect(),
        }),
        Fact::Unknown => What::Text("written by a newer release".to_owned()),
    }
}

fn member(note: NodeNote) -> pb::MemberNote {
    pb::MemberNote {
        id: note.id,
        voter: note.voter,
        peer_address: note.peer_address,
    }
}

/// The tenures of a shard, as the node with that id knows them.
pub(in crate::rpc) fn shard_history(
    history: ShardHistory,
    node_id: u64,
) -> pb::ShardHistoryResponse {
    pb::ShardHistoryResponse {
        tenures: history.tenures.into_iter().map(tenure).collect(),
        more: history.more,
        since_revision: history.since.0,
        gaps: history.gaps.into_iter().map(gap).collect(),
        node_id,
    }
}

fn mark(mark: Mark) -> pb::HistoryMark {
    pb::HistoryMark {
        cursor: Some(cursor(mark.at)),
        at_ms: mark.at_ms,
    }
}

fn tenure(tenure: Tenure) -> pb::TenureRecord {
    let mut message = pb::TenureRecord {
        epoch: tenure.epoch.get(),
        session: tenure.session.0,
        worker: tenure.worker.unwrap_or_default(),
        granted: tenure.granted.map(mark),
        serving: tenure.serving.map(mark),
        end_is_unknown: tenure.end_is_unknown,
        ..pb::TenureRecord::default()
    };
    if let Some((at, reason)) = tenure.revoked {
        message.revoked = Some(mark(at));
        message.set_revoke_reason(super::revoke_reason(reason));
    }
    if let Some((at, cause)) = &tenure.ended {
        message.ended = Some(mark(*at));
        let (kind, detail) = super::end_cause(cause);
        message.set_end_cause(kind);
        message.end_detail = detail;
        if let EndCause::SessionEnded(end) = cause {
            message.set_session_end(super::session_end(*end));
        }
    }
    if let Some(origin) = tenure.origin {
        message.by.clone_from(&origin.by);
        message.reason.clone_from(&origin.reason);
    }
    message
}
