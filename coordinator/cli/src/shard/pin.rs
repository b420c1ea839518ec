//! `tenure shard pin`, `unpin` and `retry`, and what shows of them.

use serde::Serialize;
use tenure_fence::ShardRef;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

use crate::connection::{Connection, Intent};
use crate::console::Console;
use crate::error::CliError;
use crate::group::Changed;
use crate::text::Wide;

pub(super) async fn pin(
    connection: &Connection,
    console: &mut Console<'_>,
    shard: &ShardRef,
    to: Option<&str>,
    avoid: &[String],
) -> Result<(), CliError> {
    let request = v1::PinShardRequest {
        shard: Some(wire(shard)),
        to: to.unwrap_or_default().to_owned(),
        kept_off: avoid.to_vec(),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).pin_shard(request).await
        })
        .await?;
    let what = match to {
        Some(worker) => format!("pinned to {worker}"),
        None => format!("kept off {}", avoid.join(", ")),
    };
    changed(console, shard, &what, answer.revision)
}

pub(super) async fn unpin(
    connection: &Connection,
    console: &mut Console<'_>,
    shard: &ShardRef,
) -> Result<(), CliError> {
    let request = v1::UnpinShardRequest {
        shard: Some(wire(shard)),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).unpin_shard(request).await
        })
        .await?;
    changed(console, shard, "free to be anywhere", answer.revision)
}

pub(super) async fn retry(
    connection: &Connection,
    console: &mut Console<'_>,
    shard: &ShardRef,
) -> Result<(), CliError> {
    let request = v1::RetryShardRequest {
        shard: Some(wire(shard)),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).retry_shard(request).await
        })
        .await?;
    changed(console, shard, "not in quarantine", answer.revision)
}

fn changed(
    console: &mut Console<'_>,
    shard: &ShardRef,
    what: &str,
    revision: u64,
) -> Result<(), CliError> {
    if console.json() {
        return console.document(&Changed {
            revision: Wide(revision),
        });
    }
    let (group, index) = (&shard.group, shard.index);
    console.note(format_args!(
        "shard {group}/{index} is {what} at revision {revision}"
    ))
}

fn wire(shard: &ShardRef) -> v1::ShardRef {
    v1::ShardRef {
        group: shard.group.to_string(),
        index: shard.index,
    }
}

/// What a person should know of a shard's place.
pub(super) fn note(shard: &v1::Shard) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(quarantine) = shard.quarantine {
        parts.push(format!(
            "in quarantine since revision {}: {} owners crashed with it; `tenure shard retry` ends it",
            quarantine.since, quarantine.crashes
        ));
    }
    if !shard.pinned_to.is_empty() {
        parts.push(format!("pinned to {}", shard.pinned_to));
    }
    if !shard.kept_off.is_empty() {
        parts.push(format!("kept off {}", shard.kept_off.join(", ")));
    }
    parts
}

/// The same as JSON; what was not said is left out.
#[derive(Serialize)]
pub(super) struct View {
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_to: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_off: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantine: Option<QuarantineView>,
}

#[derive(Serialize)]
struct QuarantineView {
    crashes: u32,
    since: Wide,
}

impl From<&v1::Shard> for View {
    fn from(shard: &v1::Shard) -> Self {
        Self {
            pinned_to: Some(shard.pinned_to.clone()).filter(|worker| !worker.is_empty()),
            kept_off: shard.kept_off.clone(),
            quarantine: shard.quarantine.map(|quarantine| QuarantineView {
                crashes: quarantine.crashes,
                since: Wide(quarantine.since),
            }),
        }
    }
}
