//! `tenure group`.

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

use crate::command::GroupCommand;
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::policy::{self, Assignment, PolicyView};
use crate::text::{self, Wide};

const PAGE: u32 = 1_000;

pub(crate) async fn run(
    command: &GroupCommand,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    match command {
        GroupCommand::Create {
            name,
            shards,
            policy,
        } => create(connection, console, name, *shards, policy).await,
        GroupCommand::List => list(connection, console).await,
        GroupCommand::Show { name } => show(connection, console, name).await,
        GroupCommand::Set {
            name,
            policy,
            if_revision,
        } => set(connection, console, name, policy, if_revision.unwrap_or(0)).await,
        GroupCommand::Freeze { name, reason } => freeze(connection, console, name, reason).await,
        GroupCommand::Unfreeze { name } => freeze(connection, console, name, "").await,
        GroupCommand::Delete { name, yes } => {
            console.confirm(
                *yes,
                format_args!(
                    "group {name} will be deleted, with all its checkpoints in the replicated store"
                ),
            )?;
            delete(connection, console, name).await
        }
    }
}

async fn create(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
    shards: u32,
    assignments: &[Assignment],
) -> Result<(), CliError> {
    let (policy, mask) =
        policy::combine(assignments).map_err(|message| CliError::Usage { message })?;
    let request = v1::CreateGroupRequest {
        name: name.to_owned(),
        shard_count: shards,
        policy: Some(policy),
        policy_mask: Some(mask),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).create_group(request).await
        })
        .await?;
    if console.json() {
        let group = answer
            .group
            .as_ref()
            .ok_or_else(|| CliError::incomplete("the group"))?;
        return console.document(&One {
            group: group.into(),
            revision: Wide(answer.revision),
        });
    }
    let revision = answer.revision;
    console.note(format_args!(
        "group {name} created with {shards} shards at revision {revision}"
    ))
}

async fn list(connection: &Connection, console: &mut Console<'_>) -> Result<(), CliError> {
    let mut groups = Vec::new();
    let mut after = String::new();
    // The oldest page: all that is shown is at least this new.
    let mut revision = u64::MAX;
    loop {
        let request = v1::ListGroupsRequest {
            after,
            page_size: PAGE,
        };
        let page = connection
            .call(Intent::Read, request, |service, request| async move {
                AdminServiceClient::new(service).list_groups(request).await
            })
            .await?;
        revision = revision.min(page.revision);
        groups.extend(page.groups);
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    if console.json() {
        let groups = groups.iter().map(GroupView::from).collect();
        return console.document(&Many {
            groups,
            revision: Wide(revision),
        });
    }
    let columns = [
        Column::Text("NAME"),
        Column::Number("SHARDS"),
        Column::Number("SERVING"),
        Column::Number("OPENING"),
        Column::Number("REVOKING"),
        Column::Number("UNOWNED"),
        Column::Number("WORKERS"),
        Column::Text("STATE"),
    ];
    console.table(&columns, groups.iter().map(row).collect())
}

fn row(group: &v1::Group) -> Vec<String> {
    let numbers = [
        group.shard_count,
        group.serving,
        group.opening,
        group.revoking,
        group.unowned,
        group.workers,
    ];
    let mut row = vec![group.name.clone()];
    row.extend(numbers.iter().map(u32::to_string));
    row.push(state(group).to_owned());
    row
}

fn state(group: &v1::Group) -> &'static str {
    match (group.deleting, &group.frozen) {
        (true, _) => "deleting",
        (false, Some(_)) => "frozen",
        (false, None) => "active",
    }
}

async fn show(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
) -> Result<(), CliError> {
    let request = v1::GetGroupRequest {
        name: name.to_owned(),
    };
    let answer = connection
        .call(Intent::Read, request, |service, request| async move {
            AdminServiceClient::new(service).get_group(request).await
        })
        .await?;
    let group = answer
        .group
        .as_ref()
        .ok_or_else(|| CliError::incomplete("the group"))?;
    if console.json() {
        return console.document(&One {
            group: group.into(),
            revision: Wide(answer.revision),
        });
    }
    let mut rows = vec![
        ("name", group.name.clone()),
        ("state", state(group).to_owned()),
        ("shards", group.shard_count.to_string()),
        ("serving", group.serving.to_string()),
        ("opening", group.opening.to_string()),
        ("revoking", group.revoking.to_string()),
        ("unowned", group.unowned.to_string()),
        ("quarantined", group.quarantined.to_string()),
        ("pinned", group.pinned.to_string()),
        ("workers", group.workers.to_string()),
        ("checkpoints", text::bytes(group.checkpoint_bytes)),
        ("policy_revision", group.policy_revision.to_string()),
    ];
    if let Some(frozen) = &group.frozen {
        let since = frozen.since_revision;
        rows.insert(
            2,
            (
                "frozen",
                format!("since revision {since}: {}", frozen.reason),
            ),
        );
    }
    rows.extend(policy::details(&group.policy.clone().unwrap_or_default()));
    console.details(rows)
}

async fn set(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
    assignments: &[Assignment],
    seen_revision: u64,
) -> Result<(), CliError> {
    let (policy, mask) =
        policy::combine(assignments).map_err(|message| CliError::Usage { message })?;
    let request = v1::SetPolicyRequest {
        group: name.to_owned(),
        policy: Some(policy),
        policy_mask: Some(mask),
        seen_revision,
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).set_policy(request).await
        })
        .await?;
    let policy = answer.policy.unwrap_or_default();
    if console.json() {
        let view = Set {
            policy: (&policy).into(),
            revision: Wide(answer.revision),
        };
        return console.document(&view);
    }
    console.note(format_args!(
        "policy of {name} set at revision {}",
        answer.revision
    ))?;
    console.details(policy::details(&policy))
}

/// Freezes a group; without a reason, ends that.
async fn freeze(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
    reason: &str,
) -> Result<(), CliError> {
    let request = v1::SetFreezeRequest {
        group: name.to_owned(),
        reason: reason.to_owned(),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).set_freeze(request).await
        })
        .await?;
    let revision = answer.revision;
    if console.json() {
        return console.document(&Changed {
            revision: Wide(revision),
        });
    }
    if reason.is_empty() {
        return console.note(format_args!(
            "planned moves of group {name} go on as of revision {revision}"
        ));
    }
    console.note(format_args!(
        "group {name} is frozen as of revision {revision}: no shard is taken from its owner for balance or a \
         drain; `tenure group unfreeze {name}` ends it"
    ))
}

async fn delete(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
) -> Result<(), CliError> {
    let request = v1::DeleteGroupRequest {
        name: name.to_owned(),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).delete_group(request).await
        })
        .await?;
    let revision = answer.revision;
    if console.json() {
        return console.document(&Changed {
            revision: Wide(revision),
        });
    }
    console.note(format_args!(
        "group {name} is being deleted since revision {revision}; it is gone when its workers \
         have released their shards"
    ))
}

/// A change that has nothing to show but its revision.
#[derive(Serialize)]
pub(crate) struct Changed {
    pub(crate) revision: Wide,
}

#[derive(Serialize)]
struct One {
    group: GroupView,
    revision: Wide,
}

#[derive(Serialize)]
struct Many {
    groups: Vec<GroupView>,
    revision: Wide,
}

#[derive(Serialize)]
struct Set {
    policy: PolicyView,
    revision: Wide,
}

#[derive(Serialize)]
struct GroupView {
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen: Option<FreezeView>,
    shard_count: u32,
    serving: u32,
    opening: u32,
    revoking: u32,
    unowned: u32,
    quarantined: u32,
    pinned: u32,
    workers: u32,
    checkpoint_bytes: Wide,
    policy_revision: Wide,
    policy: PolicyView,
}

#[derive(Serialize)]
struct FreezeView {
    reason: String,
    since_revision: Wide,
}

impl From<&v1::Freeze> for FreezeView {
    fn from(freeze: &v1::Freeze) -> Self {
        Self {
            reason: freeze.reason.clone(),
            since_revision: Wide(freeze.since_revision),
        }
    }
}

impl From<&v1::Group> for GroupView {
    fn from(group: &v1::Group) -> Self {
        Self {
            name: group.name.clone(),
            state: state(group),
            frozen: group.frozen.as_ref().map(FreezeView::from),
            shard_count: group.shard_count,
            serving: group.serving,
            opening: group.opening,
            revoking: group.revoking,
            unowned: group.unowned,
            quarantined: group.quarantined,
            pinned: group.pinned,
            workers: group.workers,
            checkpoint_bytes: Wide(group.checkpoint_bytes),
            policy_revision: Wide(group.policy_revision),
            policy: (&group.policy.clone().unwrap_or_default()).into(),
        }
    }
}
