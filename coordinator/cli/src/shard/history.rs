//! `tenure shard history`: who owned a shard from when to when, and why it moved.

use serde::Serialize;
use tenure_fence::ShardRef;
use tenure_proto::v1;
use tenure_proto::v1::history_service_client::HistoryServiceClient;

use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::events::note_since;
use crate::text::{self, Wide};

pub(super) async fn history(
    connection: &Connection,
    console: &mut Console<'_>,
    shard: &ShardRef,
    limit: u32,
) -> Result<(), CliError> {
    let answer = latest(connection, shard, limit).await?;
    if console.json() {
        return console.document(&Document::from(&answer));
    }
    let columns = [
        Column::Number("EPOCH"),
        Column::Text("WORKER"),
        Column::Number("SESSION"),
        Column::Text("GRANTED"),
        Column::Text("SERVING"),
        Column::Text("ENDED"),
        Column::Text("HOW"),
        Column::Text("BY"),
        Column::Text("REASON"),
    ];
    console.table(&columns, answer.tenures.iter().map(row).collect())?;
    if answer.more {
        console.note("there are older tenures: --last shows more")?;
    }
    note_since(answer.node_id, answer.since_revision, &answer.gaps, console)
}

/// Asks for the newest tenures of a shard.
pub(super) async fn latest(
    connection: &Connection,
    shard: &ShardRef,
    limit: u32,
) -> Result<v1::ShardHistoryResponse, CliError> {
    let request = v1::ShardHistoryRequest {
        shard: Some(v1::ShardRef {
            group: shard.group.to_string(),
            index: shard.index,
        }),
        limit,
    };
    connection
        .call(Intent::Read, request, |service, request| async move {
            HistoryServiceClient::new(service)
                .shard_history(request)
                .await
        })
        .await
}

pub(super) fn is_over(tenure: &v1::TenureRecord) -> bool {
    tenure.ended.is_some() || tenure.end_is_unknown
}

/// Says in one line who had the shard, and how that ended.
pub(super) fn in_words(tenure: &v1::TenureRecord) -> String {
    let mut words = format!(
        "epoch {} on {}: {}",
        tenure.epoch,
        text::or_dash(&tenure.worker),
        how(tenure)
    );
    if let Some(ended) = &tenure.ended {
        words = format!("{words} at {}", text::moment(ended.at_ms));
    }
    if !tenure.by.is_empty() {
        words = format!("{words}, by {}", tenure.by);
    }
    if !tenure.reason.is_empty() {
        words = format!("{words}: {}", tenure.reason);
    }
    words
}

fn row(tenure: &v1::TenureRecord) -> Vec<String> {
    let at = |mark: &Option<v1::HistoryMark>| match mark {
        Some(mark) => text::moment(mark.at_ms),
        None => "-".to_owned(),
    };
    vec![
        tenure.epoch.to_string(),
        text::or_dash(&tenure.worker),
        tenure.session.to_string(),
        at(&tenure.granted),
        at(&tenure.serving),
        at(&tenure.ended),
        how(tenure),
        text::or_dash(&tenure.by),
        text::or_dash(&tenure.reason),
    ]
}

/// How a tenure ended, with why its owner was asked to stop.
fn how(tenure: &v1::TenureRecord) -> String {
    let asked = tenure
        .revoked
        .is_some()
        .then(|| text::revoke_reason(tenure.revoke_reason));
    if tenure.end_is_unknown {
        return "unknown".to_owned();
    }
    if tenure.ended.is_none() {
        return asked.map_or_else(
            || "goes on".to_owned(),
            |asked| format!("asked to stop: {asked}"),
        );
    }
    let mut parts = vec![text::end_cause(tenure.end_cause)];
    if tenure.session_end != 0 {
        parts.push(text::session_end(tenure.session_end));
    }
    if !tenure.end_detail.is_empty() {
        parts.push(tenure.end_detail.clone());
    }
    let how = parts.join(": ");
    asked.map_or(how.clone(), |asked| format!("{how} ({asked})"))
}

#[derive(Serialize)]
struct Document<'a> {
    tenures: Vec<TenureView<'a>>,
    more: bool,
    node: Wide,
    since_revision: Wide,
    gaps: Vec<GapView>,
}

#[derive(Serialize)]
struct GapView {
    after_revision: Wide,
    until_revision: Wide,
}

#[derive(Serialize)]
struct MarkView {
    revision: Wide,
    ordinal: u32,
    at_ms: Wide,
}

/// A tenure as a document.
#[derive(Serialize)]
pub(super) struct TenureView<'a> {
    epoch: Wide,
    worker: Option<&'a str>,
    session: Wide,
    granted: Option<MarkView>,
    serving: Option<MarkView>,
    revoked: Option<MarkView>,
    revoke_reason: Option<String>,
    ended: Option<MarkView>,
    end_cause: Option<String>,
    end_detail: Option<&'a str>,
    session_end: Option<String>,
    end_is_unknown: bool,
    by: Option<&'a str>,
    reason: Option<&'a str>,
}

impl<'a> From<&'a v1::ShardHistoryResponse> for Document<'a> {
    fn from(answer: &'a v1::ShardHistoryResponse) -> Self {
        let gap = |gap: &v1::HistoryGap| GapView {
            after_revision: Wide(gap.after_revision),
            until_revision: Wide(gap.until_revision),
        };
        Self {
            tenures: answer.tenures.iter().map(TenureView::from).collect(),
            more: answer.more,
            node: Wide(answer.node_id),
            since_revision: Wide(answer.since_revision),
            gaps: answer.gaps.iter().map(gap).collect(),
        }
    }
}

impl<'a> From<&'a v1::TenureRecord> for TenureView<'a> {
    fn from(tenure: &'a v1::TenureRecord) -> Self {
        let given = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        let mark = |mark: &Option<v1::HistoryMark>| {
            let mark = mark.as_ref()?;
            let at = mark.cursor.unwrap_or_default();
            Some(MarkView {
                revision: Wide(at.revision),
                ordinal: at.ordinal,
                at_ms: Wide(mark.at_ms),
            })
        };
        let named = |value: i32, name: fn(i32) -> String| (value != 0).then(|| name(value));
        Self {
            epoch: Wide(tenure.epoch),
            worker: given(&tenure.worker),
            session: Wide(tenure.session),
            granted: mark(&tenure.granted),
            serving: mark(&tenure.serving),
            revoked: mark(&tenure.revoked),
            revoke_reason: named(tenure.revoke_reason, text::revoke_reason),
            ended: mark(&tenure.ended),
            end_cause: named(tenure.end_cause, text::end_cause),
            end_detail: given(&tenure.end_detail),
            session_end: named(tenure.session_end, text::session_end),
            end_is_unknown: tenure.end_is_unknown,
            by: given(&tenure.by),
            reason: given(&tenure.reason),
        }
    }
}
