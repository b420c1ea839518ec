//! `tenure shard`.

mod history;
mod pin;

use serde::Serialize;
use tenure_fence::ShardRef;
use tenure_proto::v1;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;

use crate::command::{Phase, ShardCommand};
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::text::{self, Wide};

/// Shards in one answer. Even if each carries the longest names and reasons, the answer stays below the
/// 4 MiB that a client takes by default.
const PAGE: u32 = 2_000;

pub(crate) async fn run(
    command: &ShardCommand,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    match command {
        ShardCommand::List {
            group,
            worker,
            phase,
        } => list(connection, console, group, worker.as_deref(), *phase).await,
        ShardCommand::Show {
            shard,
            linearizable,
        } => show(connection, console, shard, *linearizable).await,
        ShardCommand::History { shard, last } => {
            history::history(connection, console, shard, *last).await
        }
        ShardCommand::Pin { shard, to, avoid } => {
            pin::pin(connection, console, shard, to.as_deref(), avoid).await
        }
        ShardCommand::Unpin { shard } => pin::unpin(connection, console, shard).await,
        ShardCommand::Retry { shard } => pin::retry(connection, console, shard).await,
        ShardCommand::Lookup { group, key } => lookup(connection, console, group, key).await,
    }
}

async fn list(
    connection: &Connection,
    console: &mut Console<'_>,
    group: &str,
    worker: Option<&str>,
    phase: Option<Phase>,
) -> Result<(), CliError> {
    let mut shards = Vec::new();
    let mut from_index = 0;
    // The oldest page: all that is shown is at least this new.
    let mut revision = u64::MAX;
    loop {
        let request = v1::ListShardsRequest {
            group: group.to_owned(),
            from_index,
            page_size: PAGE,
            worker: worker.unwrap_or_default().to_owned(),
            phase: phase.map_or(v1::ShardPhase::Unspecified, Into::into).into(),
        };
        let page = connection
            .call(Intent::Read, request, |service, request| async move {
                OwnershipServiceClient::new(service)
                    .list_shards(request)
                    .await
            })
            .await?;
        revision = revision.min(page.revision);
        shards.extend(page.shards);
        from_index = page.next_index;
        if from_index == 0 {
            break;
        }
    }
    if console.json() {
        let shards = shards.iter().map(ShardView::from).collect();
        return console.document(&Many {
            shards,
            revision: Wide(revision),
        });
    }
    let columns = [
        Column::Text("SHARD"),
        Column::Text("PHASE"),
        Column::Number("EPOCH"),
        Column::Text("WORKER"),
        Column::Text("ADDRESS"),
        Column::Text("NOTE"),
    ];
    console.table(&columns, shards.iter().map(row).collect())
}

fn row(shard: &v1::Shard) -> Vec<String> {
    vec![
        name(shard),
        text::phase(shard.phase),
        epoch(shard),
        text::or_dash(&shard.worker),
        text::or_dash(&shard.address),
        text::or_dash(&note(shard)),
    ]
}

fn name(shard: &v1::Shard) -> String {
    shard.shard.as_ref().map_or_else(
        || "?".to_owned(),
        |shard| format!("{}/{}", shard.group, shard.index),
    )
}

fn epoch(shard: &v1::Shard) -> String {
    if shard.epoch == 0 {
        "-".to_owned()
    } else {
        shard.epoch.to_string()
    }
}

/// What a person should know besides: why it is revoked, why it does not open.
fn note(shard: &v1::Shard) -> String {
    let mut parts = Vec::new();
    if shard.phase() == v1::ShardPhase::Revoking {
        let next = if shard.next_worker.is_empty() {
            String::new()
        } else {
            format!(", then to {}", shard.next_worker)
        };
        parts.push(format!(
            "revoked: {}{next}",
            text::revoke_reason(shard.revoke_reason)
        ));
    }
    if let Some(failure) = &shard.open_failure {
        let times = if failure.count == 1 {
            "once"
        } else {
            &format!("{} times", failure.count)
        };
        parts.push(format!(
            "did not open {times}, last on {}: {}",
            failure.worker, failure.reason
        ));
    }
    parts.extend(pin::note(shard));
    parts.join("; ")
}

async fn show(
    connection: &Connection,
    console: &mut Console<'_>,
    shard: &ShardRef,
    linearizable: bool,
) -> Result<(), CliError> {
    let request = v1::GetShardRequest {
        shard: Some(v1::ShardRef {
            group: shard.group.to_string(),
            index: shard.index,
        }),
        linearizable,
    };
    let intent = if linearizable {
        Intent::QuorumRead
    } else {
        Intent::Read
    };
    let answer = connection
        .call(intent, request, |service, request| async move {
            OwnershipServiceClient::new(service)
                .get_shard(request)
                .await
        })
        .await?;
    // The newest may be the present one. It may also have ended since.
    let tenures = history::latest(connection, shard, 2).await?.tenures;
    let shown = answer.shard.as_ref();
    let present = shown.filter(|shard| shard.owner.is_some());
    let is_before = |tenure: &&v1::TenureRecord| {
        history::is_over(tenure) && present.is_none_or(|shard| tenure.epoch < shard.epoch)
    };
    let before = tenures.iter().find(is_before);
    print_one(console, shown, answer.revision, before)
}

async fn lookup(
    connection: &Connection,
    console: &mut Console<'_>,
    group: &str,
    key: &str,
) -> Result<(), CliError> {
    let request = v1::LookupKeyRequest {
        group: group.to_owned(),
        key: key.as_bytes().to_vec().into(),
    };
    let answer = connection
        .call(Intent::Read, request, |service, request| async move {
            OwnershipServiceClient::new(service)
                .lookup_key(request)
                .await
        })
        .await?;
    print_one(console, answer.shard.as_ref(), answer.revision, None)
}

/// Prints a shard, and the tenure before the present one if it is asked for and known.
fn print_one(
    console: &mut Console<'_>,
    shard: Option<&v1::Shard>,
    revision: u64,
    before: Option<&v1::TenureRecord>,
) -> Result<(), CliError> {
    let shard = shard.ok_or_else(|| CliError::incomplete("the shard"))?;
    if console.json() {
        return console.document(&One {
            shard: shard.into(),
            before: before.map(history::TenureView::from),
            revision: Wide(revision),
        });
    }
    let session = shard.owner.as_ref().map(text::session).unwrap_or_default();
    let mut details = vec![
        ("shard", name(shard)),
        ("phase", text::phase(shard.phase)),
        ("epoch", epoch(shard)),
        ("worker", text::or_dash(&shard.worker)),
        ("address", text::or_dash(&shard.address)),
        ("session", text::or_dash(&session)),
        ("token", text::or_dash(&token(shard).unwrap_or_default())),
        ("checkpoint", text::bytes(shard.checkpoint_bytes)),
        ("note", text::or_dash(&note(shard))),
    ];
    if let Some(before) = before {
        details.push(("before", history::in_words(before)));
    }
    details.push(("revision", revision.to_string()));
    console.details(details)
}

/// The token of the current tenure, as `token check` takes it.
fn token(shard: &v1::Shard) -> Option<String> {
    let owner = shard.owner.as_ref().and_then(text::owner)?;
    Some(format!("shard/{}@{}:{owner}", name(shard), shard.epoch))
}

#[derive(Serialize)]
struct One<'a> {
    shard: ShardView,
    /// The tenure before the present one: how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<history::TenureView<'a>>,
    revision: Wide,
}

#[derive(Serialize)]
struct Many {
    shards: Vec<ShardView>,
    revision: Wide,
}

#[derive(Serialize)]
struct ShardView {
    group: String,
    index: u32,
    phase: String,
    epoch: Wide,
    worker: Option<String>,
    address: Option<String>,
    session: Option<String>,
    token: Option<String>,
    checkpoint_bytes: Wide,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoke_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_failure: Option<FailureView>,
    #[serde(flatten)]
    place: pin::View,
}

#[derive(Serialize)]
struct FailureView {
    count: u32,
    worker: String,
    reason: String,
}

impl From<&v1::Shard> for ShardView {
    fn from(shard: &v1::Shard) -> Self {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let revoking = shard.phase() == v1::ShardPhase::Revoking;
        let at = shard.shard.clone().unwrap_or_default();
        Self {
            group: at.group,
            index: at.index,
            phase: text::phase(shard.phase),
            epoch: Wide(shard.epoch),
            worker: given(&shard.worker),
            address: given(&shard.address),
            session: shard.owner.as_ref().map(text::session),
            token: token(shard),
            checkpoint_bytes: Wide(shard.checkpoint_bytes),
            revoke_reason: revoking.then(|| text::revoke_reason(shard.revoke_reason)),
            next_worker: given(&shard.next_worker),
            open_failure: shard.open_failure.as_ref().map(|failure| FailureView {
                count: failure.count,
                worker: failure.worker.clone(),
                reason: failure.reason.clone(),
            }),
            place: shard.into(),
        }
    }
}
